// The calls of Intel Caffe 1.1's multi-node code, in its order: training steps of three layers, the first one data
// parallel, the others data and model parallel. Activations travel by collectives, gradients by parameter sets. After
// each step the weights are those of a serial model. A rank of a job of 1, 2 or 4; with WITH_MPI it asks MPI, too.
#include <mlsl.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/bindings/mlsl/check.hpp"

#if defined(WITH_MPI)
#include <mpi.h>
#endif

using namespace MLSL;

namespace {

using Floats = std::vector<float>;

constexpr std::size_t kBatch = 8, kLayers = 3;
constexpr std::size_t kMaps[kLayers + 1] = {4, 6, 8, 4};
constexpr float kRate = 0.25F;

Environment& env() { return Environment::GetEnv(); }

// Ends MLSL when the program exits: behind the session, before the distributions.
void start(int* argc, char*** argv) {
  static const struct Library {
    Library(int* count, char*** words) { env().Init(count, words); }
    ~Library() { env().Finalize(); }
  } kLibrary(argc, argv);
}

struct Division {
  Division(std::size_t data, std::size_t model, Distribution* made)
      : data_parts(data), model_parts(model), distribution(made) {}
  ~Division() { env().DeleteDistribution(distribution); }
  Division(const Division&) = delete;
  Division& operator=(const Division&) = delete;

  std::size_t data_parts, model_parts;
  Distribution* distribution;
};

// Outlives Finalize, as its global variable does in Caffe.
std::map<std::pair<std::size_t, std::size_t>, std::unique_ptr<Division>> divisions;

Division& division(std::size_t data_parts, std::size_t model_parts) {
  auto& found = divisions[{data_parts, model_parts}];
  if (found == nullptr) {
    const std::size_t rank = env().GetProcessIdx(), ranks = env().GetProcessCount();
    const int data_color = static_cast<int>(rank % (ranks / data_parts));
    const int model_color = static_cast<int>(rank / model_parts);
    found = std::make_unique<Division>(data_parts, model_parts,
                                       env().CreateDistributionWithColors(data_color, model_color));
  }
  return *found;
}

Session* session() {
  static const struct Holder {
    Holder() = default;
    ~Holder() {
      held->RemoveOperations();
      env().DeleteSession(held);
    }
    Session* held = env().CreateSession(PT_TRAIN);
  } kHolder;
  return kHolder.held;
}

// rows x maps times (outputs x maps) transposed.
Floats multiply(const Floats& rows, const Floats& weights, std::size_t maps) {
  const std::size_t count = rows.size() / maps, outputs = weights.size() / maps;
  Floats made(count * outputs);
  for (std::size_t row = 0; row < count; ++row)
    for (std::size_t output = 0; output < outputs; ++output)
      for (std::size_t map = 0; map < maps; ++map)
        made[row * outputs + output] += rows[row * maps + map] * weights[output * maps + map];
  return made;
}

// The gradient of the rows, from that of their products.
Floats back(const Floats& products, const Floats& weights, std::size_t maps) {
  const std::size_t outputs = weights.size() / maps, count = products.size() / outputs;
  Floats made(count * maps);
  for (std::size_t row = 0; row < count; ++row)
    for (std::size_t output = 0; output < outputs; ++output)
      for (std::size_t map = 0; map < maps; ++map)
        made[row * maps + map] += products[row * outputs + output] * weights[output * maps + map];
  return made;
}

Floats weight_gradient(const Floats& products, const Floats& rows, std::size_t maps) {
  const std::size_t count = rows.size() / maps, outputs = products.size() / count;
  Floats made(outputs * maps);
  for (std::size_t row = 0; row < count; ++row)
    for (std::size_t output = 0; output < outputs; ++output)
      for (std::size_t map = 0; map < maps; ++map)
        made[output * maps + map] += products[row * outputs + output] * rows[row * maps + map];
  return made;
}

void descend(Floats& weights, const Floats& gradient) {
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i] -= kRate * gradient[i] / static_cast<float>(kBatch);
}

// Columns [first, first + count) of rows of `width`.
Floats columns(const Floats& rows, std::size_t width, std::size_t first, std::size_t count) {
  Floats made;
  for (std::size_t row = 0; row < rows.size() / width; ++row)
    for (std::size_t i = 0; i < count; ++i) made.push_back(rows[row * width + first + i]);
  return made;
}

Floats part(const Floats& values, std::size_t first, std::size_t count) {
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

// The same on all ranks.
Floats made_up(std::size_t count, std::size_t seed) {
  Floats made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = static_cast<float>((i * 7 + seed * 13) % 11) / 11 - 0.5F;
  return made;
}

// -- activations: from the division of one layer to that of the next

void wait(CommReq* request) { env().Wait(request); }

// From one rank's maps behind the other's to rows of all maps, and back.
Floats interleaved(const Floats& parts, std::size_t count, std::size_t maps) {
  Floats made(parts.size());
  const std::size_t rows = parts.size() / count / maps;
  for (std::size_t which = 0; which < count; ++which)
    for (std::size_t row = 0; row < rows; ++row)
      for (std::size_t map = 0; map < maps; ++map)
        made[(row * count + which) * maps + map] = parts[(which * rows + row) * maps + map];
  return made;
}

Floats separated(const Floats& rows, std::size_t count, std::size_t maps) {
  Floats made;
  for (std::size_t which = 0; which < count; ++which) {
    const Floats own = columns(rows, count * maps, which * maps, maps);
    made.insert(made.end(), own.begin(), own.end());
  }
  return made;
}

// Where data parts are joined: the ranks of one model group are a data group here.
std::unique_ptr<Division> joined(const Division& from, const Division& to) {
  const std::size_t count = from.data_parts / to.data_parts;
  if (count == 1) return nullptr;
  return std::make_unique<Division>(count, 1, env().CreateDistribution(count, 1));
}

Floats forward(const Division& from, const Division& to, const Division* join, Floats maps_of_rank,
               std::size_t local_maps) {
  Floats rows = std::move(maps_of_rank);
  if (from.model_parts > 1) {
    Floats gathered(rows.size() * from.model_parts);
    wait(from.distribution->Gather(rows.data(), rows.size(), gathered.data(), DT_FLOAT, 0, GT_MODEL));
    rows = interleaved(gathered, from.model_parts, local_maps);
  }
  if (join != nullptr) {
    Floats gathered(rows.size() * join->data_parts);
    wait(join->distribution->Gather(rows.data(), rows.size(), gathered.data(), DT_FLOAT, 0, GT_DATA));
    rows = std::move(gathered);
  }
  wait(to.distribution->Bcast(rows.data(), rows.size(), DT_FLOAT, 0, GT_MODEL));
  return rows;
}

Floats backward(const Division& from, const Division& to, const Division* join, const Floats& partial,
                std::size_t local_maps) {
  if (join == nullptr && from.model_parts == to.model_parts && from.model_parts > 1) {
    Floats packed = separated(partial, from.model_parts, local_maps);
    Floats own(partial.size() / from.model_parts);
    wait(to.distribution->ReduceScatter(packed.data(), own.data(), own.size(), DT_FLOAT, RT_SUM, GT_MODEL));
    return own;
  }
  Floats sums = partial;
  if (to.model_parts > 1) {
    Floats sent = partial;
    wait(to.distribution->Reduce(sent.data(), sums.data(), sums.size(), DT_FLOAT, RT_SUM, 0, GT_MODEL));
  }
  if (join == nullptr) return sums;
  Floats own(sums.size() / join->data_parts);
  wait(join->distribution->Scatter(sums.data(), own.data(), own.size(), DT_FLOAT, 0, GT_DATA));
  return own;
}

// -- layers

struct Layer {
  Layer(std::size_t layer_index, Division& divided) : index(layer_index), split(divided) {
    weights.resize(local_maps() * maps());
    if (split.data_parts <= 1) return;  // has no gradients to exchange
    OperationRegInfo* const info = session()->CreateOperationRegInfo(OT_CC);
    info->SetName(("ip" + std::to_string(index)).c_str());
    info->AddParameterSet(weights.size() * split.model_parts, 1, DT_FLOAT);
    operation = session()->GetOperation(session()->AddOperation(info, split.distribution));
    session()->DeleteOperationRegInfo(info);
    CHECK(operation->HasParameterSets());
    CHECK(operation->GetParameterSet(0)->GetLocalKernelCount() == weights.size());
  }

  std::size_t maps() const { return kMaps[index]; }
  std::size_t local_maps() const { return kMaps[index + 1] / split.model_parts; }
  std::size_t first_map() const { return local_maps() * split.distribution->GetProcessIdx(GT_MODEL); }
  std::size_t first_sample() const {
    return kBatch / split.data_parts * split.distribution->GetProcessIdx(GT_DATA);
  }
  // The rank's rows of the serial weights.
  Floats own(const Floats& serial) const { return part(serial, first_map() * maps(), weights.size()); }

  std::size_t index;
  Division& split;
  Operation* operation = nullptr;
  Floats weights, gradient, input;
};

class Solver {
 public:
  explicit Solver(std::size_t model_parts) {
    const std::size_t ranks = env().GetProcessCount();
    session()->SetGlobalMinibatchSize(kBatch);
    layers_.emplace_back(0, division(ranks, 1));
    layers_.emplace_back(1, division(ranks / model_parts, model_parts));
    layers_.emplace_back(2, division(ranks / model_parts, model_parts));
    for (std::size_t layer = 1; layer < kLayers; ++layer)
      joins_.push_back(joined(layers_[layer - 1].split, layers_[layer].split));
  }

  // The root of each data group has the weights.
  void synchronize_parameters(const std::vector<Floats>& serial) {
    for (Layer& layer : layers_) {
      Distribution* const dist = layer.split.distribution;
      if (dist->GetProcessIdx(GT_DATA) == 0) layer.weights = layer.own(serial[layer.index]);
      wait(dist->Bcast(layer.weights.data(), layer.weights.size(), DT_FLOAT, 0, GT_DATA));
    }
  }

  void step(const Floats& samples, const Floats& targets) {
    const Layer& first = layers_.front();
    Floats rows = part(samples, first.first_sample() * kMaps[0], kBatch / first.split.data_parts * kMaps[0]);
    for (Layer& layer : layers_) {
      if (layer.index > 0) {
        const Layer& before = layers_[layer.index - 1];
        rows = forward(before.split, layer.split, joins_[layer.index - 1].get(), std::move(rows),
                       before.local_maps());
      }
      layer.input = std::move(rows);
      rows = multiply(layer.input, layer.weights, layer.maps());
    }
    back_propagate(std::move(rows), targets);
    for (Layer& layer : layers_) apply(layer);
  }

  void check(const std::vector<Floats>& serial) const {
    for (const Layer& layer : layers_) {
      const Floats wanted = layer.own(serial[layer.index]);
      for (std::size_t i = 0; i < wanted.size(); ++i) CHECK(std::fabs(layer.weights[i] - wanted[i]) < 1e-4F);
    }
  }

 private:
  void back_propagate(Floats outputs, const Floats& targets) {
    const Layer& last = layers_.back();
    const std::size_t rows = kBatch / last.split.data_parts;
    const Floats wanted = columns(part(targets, last.first_sample() * kMaps[kLayers], rows * kMaps[kLayers]),
                                  kMaps[kLayers], last.first_map(), last.local_maps());
    for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i] -= wanted[i];
    for (std::size_t index = kLayers; index-- > 0;) {
      Layer& layer = layers_[index];
      layer.gradient = weight_gradient(outputs, layer.input, layer.maps());
      if (index > 0) {
        const Layer& before = layers_[index - 1];
        outputs = backward(before.split, layer.split, joins_[index - 1].get(),
                           back(outputs, layer.weights, layer.maps()), before.local_maps());
      }
      if (layer.operation != nullptr)
        layer.operation->GetParameterSet(0)->StartGradientComm(layer.gradient.data());
    }
  }

  static void apply(Layer& layer) {
    if (layer.operation != nullptr) {
      bool is_complete = false;
      const float* sums = nullptr;
      while (sums == nullptr) {
        sums = static_cast<float*>(layer.operation->GetParameterSet(0)->TestGradientComm(&is_complete));
        CHECK(is_complete == (sums != nullptr));
      }
      if (sums != layer.gradient.data()) std::copy_n(sums, layer.gradient.size(), layer.gradient.data());
    }
    descend(layer.weights, layer.gradient);
  }

  std::vector<Layer> layers_;
  std::vector<std::unique_ptr<Division>> joins_;
};

void step_serial(std::vector<Floats>& weights, const Floats& samples, const Floats& targets) {
  std::vector<Floats> inputs = {samples};
  for (std::size_t layer = 0; layer < kLayers; ++layer)
    inputs.push_back(multiply(inputs[layer], weights[layer], kMaps[layer]));
  Floats outputs = inputs[kLayers];
  for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i] -= targets[i];
  for (std::size_t layer = kLayers; layer-- > 0;) {
    const Floats gradient = weight_gradient(outputs, inputs[layer], kMaps[layer]);
    outputs = back(outputs, weights[layer], kMaps[layer]);
    descend(weights[layer], gradient);
  }
}

// -- what Caffe does between steps

// Before a test: running means are summed in place.
void synchronize_statistics() {
  const Division& all = division(env().GetProcessCount(), 1);
  Floats means(5, 1);
  wait(all.distribution->AllReduce(means.data(), means.data(), means.size(), DT_FLOAT, RT_SUM, GT_DATA));
  CHECK(means == Floats(5, static_cast<float>(all.data_parts)));
}

// A parameter server's part of a step: gradients are summed at the root, in place, and new weights come from there.
void update_at_root() {
  const Division& all = division(env().GetProcessCount(), 1);
  Floats values(5, 1);
  CommReq* const sum =
      all.distribution->Reduce(values.data(), values.data(), values.size(), DT_FLOAT, RT_SUM, 0, GT_DATA);
  bool is_complete = false;
  while (!is_complete) env().Test(sum, &is_complete);
  if (all.distribution->GetProcessIdx(GT_DATA) == 0)
    for (float& value : values) value += 1;
  wait(all.distribution->Bcast(values.data(), values.size(), DT_FLOAT, 0, GT_DATA));
  CHECK(values == Floats(5, static_cast<float>(all.data_parts + 1)));
}

void read_statistics(Statistics* stats) {
  stats->Stop();
  for (std::size_t op = 0; op < session()->GetOperationCount(); ++op) {
    CHECK(std::string(session()->GetOperation(op)->GetName()).rfind("ip", 0) == 0);
    CHECK((stats->GetCommSize(op) > 0) == stats->IsEnabled());
    CHECK((stats->GetCommCycles(op) > 0) == stats->IsEnabled());
  }
  stats->Reset();
  stats->Start();
}

void ask_mpi() {
#if defined(WITH_MPI)
  int is_initialized = 0, rank = -1, size = 0;
  MPI_Initialized(&is_initialized);
  CHECK(is_initialized != 0);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  CHECK(static_cast<std::size_t>(rank) == env().GetProcessIdx());
  CHECK(static_cast<std::size_t>(size) == env().GetProcessCount());
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_free(&node);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  start(&argc, &argv);
  ask_mpi();
  const Floats samples = made_up(kBatch * kMaps[0], 1), targets = made_up(kBatch * kMaps[kLayers], 2);
  std::vector<Floats> serial;
  for (std::size_t layer = 0; layer < kLayers; ++layer)
    serial.push_back(made_up(kMaps[layer] * kMaps[layer + 1], 3 + layer));
  Solver solver(env().GetProcessCount() % 2 == 0 ? 2 : 1);
  solver.synchronize_parameters(serial);
  session()->Commit();
  session()->GetStats()->Start();
  for (int step = 0; step < 5; ++step) {
    solver.step(samples, targets);
    step_serial(serial, samples, targets);
    solver.check(serial);
    read_statistics(session()->GetStats());
    synchronize_statistics();
    solver.synchronize_parameters(serial);
    update_at_root();
  }
  return 0;
}
