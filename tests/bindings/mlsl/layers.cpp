// A pair of connected layers against a serial model: all ways to divide both, uneven feature maps, all data types,
// buffers of the library and of the caller; gradients and increments with padding. A rank of a job.
#include <mlsl.hpp>

#include <cstring>
#include <string>
#include <vector>

#include "tests/bindings/mlsl/check.hpp"

using namespace MLSL;

namespace {

Environment& env = Environment::GetEnv();
const std::size_t kMapSize = 3;

struct Division {
  std::size_t data, model;
};

// An element of the serial model.
template <class T>
T model_value(std::size_t sample, std::size_t element) {
  return static_cast<T>((sample * 7 + element) % 5 + 1);
}

// This rank's part of an activation: samples by feature maps by elements.
template <class T>
struct Part {
  Part(Operation* operation, Activation* side)
      : op(operation),
        act(side),
        values(op->GetLocalMinibatchSize() * act->GetLocalFmCount() * act->GetFmSize()) {}

  // Each value of the serial model times `factor`.
  template <class Visit>
  void each(Visit visit) {
    const std::size_t count = act->GetLocalFmCount() * act->GetFmSize();
    const std::size_t first = act->GetGlobalFmOffset() * act->GetFmSize();
    for (std::size_t s = 0; s < op->GetLocalMinibatchSize(); ++s)
      for (std::size_t e = 0; e < count; ++e)
        visit(values[s * count + e], model_value<T>(op->GetGlobalMinibatchOffset() + s, first + e));
  }
  void fill(std::size_t factor) {
    each([factor](T& own, T serial) { own = static_cast<T>(serial * static_cast<T>(factor)); });
  }
  void check(std::size_t factor) {
    each([factor](T& own, T serial) { CHECK(own == static_cast<T>(serial * static_cast<T>(factor))); });
  }

  // Copies between the part and the blocks of a communication buffer.
  void move(CommBlockInfo* block, T* buffer, bool packs) {
    buffer += block->GetBufOffset();
    for (std::size_t s = 0; s < block->GetMbCount(); ++s) {
      const std::size_t row = (block->GetMbOffset() + s) * act->GetLocalFmCount() + block->GetFmOffset();
      T* const own = values.data() + row * act->GetFmSize();
      const std::size_t count = block->GetFmCount() * block->GetFmSize();
      CHECK(block->GetFmSize() == act->GetFmSize() && block->GetDataType() == type_of<T>());
      std::memcpy(packs ? buffer + s * count : own, packs ? own : buffer + s * count, count * sizeof(T));
    }
  }
  void send(void* buffer) {
    for (std::size_t b = 0; b < act->GetPackBlockCount(); ++b)
      move(act->GetPackBlock(b), static_cast<T*>(buffer), true);
    act->StartComm(buffer);
  }
  // False where nothing is communicated.
  bool receive() {
    T* const buffer = static_cast<T*>(act->WaitComm());
    if (buffer == nullptr) return false;
    values.assign(values.size(), 0);
    for (std::size_t b = 0; b < act->GetUnpackBlockCount(); ++b) move(act->GetUnpackBlock(b), buffer, false);
    return true;
  }

  Operation* op;
  Activation* act;
  std::vector<T> values;
};

std::size_t add_layer(Session* session, OpType type, const char* name, std::size_t maps, std::size_t map_size,
                      DataType dtype, Distribution* dist) {
  OperationRegInfo* const info = session->CreateOperationRegInfo(type);
  info->SetName(name);
  CHECK(info->AddInput(maps, map_size, dtype) == 0 && info->AddOutput(maps, map_size, dtype) == 0);
  info->Validate(dist);
  const std::size_t index = session->AddOperation(info, dist);
  session->DeleteOperationRegInfo(info);
  return index;
}

// How the second layer's division is made: the first one's object, another of these numbers, or one where each rank
// keeps its samples and has all feature maps.
enum class Second { same, divided, keeps_samples };

// The maps of the output, and the size of the input's.
struct Shape {
  std::size_t maps, input_map_size;
};

// `reduces`: each output is a partial sum.
template <class T>
void run_pair(Division from, Division to, Second second, bool reduces, Shape shape, bool own_buffers) {
  Distribution* const out_dist = env.CreateDistribution(from.data, from.model);
  const int rank = static_cast<int>(env.GetProcessIdx());
  Distribution* in_dist = out_dist;
  if (second == Second::divided) in_dist = env.CreateDistribution(to.data, to.model);
  if (second == Second::keeps_samples)
    in_dist = env.CreateDistributionWithColors(rank % static_cast<int>(from.model), rank);
  const std::size_t input_maps = shape.maps * kMapSize / shape.input_map_size;
  Session* const session = env.CreateSession();
  session->SetGlobalMinibatchSize(2 * env.GetProcessCount());
  const std::size_t a =
      add_layer(session, reduces ? OT_CC : OT_ACT, "a", shape.maps, kMapSize, type_of<T>(), out_dist);
  const std::size_t b =
      add_layer(session, OT_ACT, "b", input_maps, shape.input_map_size, type_of<T>(), in_dist);
  Operation* const first = session->GetOperation(a);
  Operation* const next = session->GetOperation(b);
  next->SetPrev(first, 0, 0);
  session->Commit();
  Part<T> output(first, first->GetOutput(0)), input(next, next->GetInput(0));
  CHECK(input.act->GetGlobalFmCount() == input_maps && std::string(first->GetName()) == "a");
  CHECK(first->GetInput(0)->WaitComm() == nullptr);                  // it has no predecessor
  const std::size_t partners = out_dist->GetProcessCount(GT_MODEL);  // fewer in a shorter replica
  const bool communicates = (reduces && partners > 1) || second != Second::same;
  CHECK((output.act->GetCommBuf() != nullptr) == communicates);
  const std::size_t partial_sums = reduces ? partners * (partners + 1) / 2 : 1;
  void* const forward = own_buffers ? env.Alloc(output.act->GetCommBufSize(), 64) : output.act->GetCommBuf();
  void* const backward = own_buffers ? env.Alloc(input.act->GetCommBufSize(), 64) : input.act->GetCommBuf();
  for (int step = 0; step < 2; ++step) {
    output.fill(reduces ? out_dist->GetProcessIdx(GT_MODEL) + 1 : 1);
    output.send(forward);
    CHECK(input.receive() == communicates);
    if (communicates) input.check(partial_sums);
    input.fill(2);
    input.send(backward);
    CHECK(output.receive() == (communicates && second != Second::keeps_samples));
    if (communicates && second != Second::keeps_samples) output.check(2);
  }
  if (own_buffers) {
    env.Free(forward);
    env.Free(backward);
  }
  env.DeleteSession(session);
  if (in_dist != out_dist) env.DeleteDistribution(in_dist);
  env.DeleteDistribution(out_dist);
}

template <class T>
void run_pairs(Shape shape, bool own_buffers) {
  const std::size_t size = env.GetProcessCount();
  for (std::size_t model = 1; model <= size; ++model) {
    if (size % model != 0 && shape.input_map_size != kMapSize) continue;  // splits maps
    const Division divided = {size / model, model}, whole = {size, 1};
    run_pair<T>(divided, divided, Second::same, model > 1, shape, own_buffers);
    if (model == 1 || size % model != 0) continue;
    run_pair<T>(divided, divided, Second::same, false, shape, own_buffers);
    run_pair<T>(divided, divided, Second::keeps_samples, true, shape, own_buffers);
    run_pair<T>(divided, whole, Second::divided, true, shape, own_buffers);
    run_pair<T>(whole, divided, Second::divided, false, shape, own_buffers);
    run_pair<T>(divided, whole, Second::divided, false, shape, own_buffers);
  }
}

// The gradient of kernel element k that data partition `d` has.
template <class T>
T gradient(std::size_t k, std::size_t d) {
  return static_cast<T>((k % 11 + 1) * (d + 1));
}

template <class T>
void* wait_gradients(ParameterSet* params, bool tests) {
  if (!tests) return params->WaitGradientComm();
  bool is_complete = false;
  void* result = nullptr;
  while (!is_complete) result = params->TestGradientComm(&is_complete);
  return result;
}

// A step of learning as each rank of a data group does it; returns the kernels, which start at 0.
template <class T>
void learn(Distribution* dist, ParameterSet* params, std::vector<T>& kernels, bool tests) {
  const std::size_t size = params->GetKernelSize(), owned = params->GetOwnedKernelCount() * size;
  const std::size_t first = params->GetOwnedKernelOffset() * size;
  std::vector<T> gradients(kernels.size());
  for (std::size_t k = 0; k < gradients.size(); ++k)
    gradients[k] = gradient<T>(params->GetGlobalKernelOffset() * size + k, dist->GetProcessIdx(GT_DATA));
  params->StartGradientComm(gradients.data());
  const T* sums = static_cast<T*>(wait_gradients<T>(params, tests));
  CHECK((sums == nullptr) == (dist->GetProcessCount(GT_DATA) == 1 || kernels.empty()));
  if (sums == nullptr) sums = gradients.data();
  for (std::size_t k = 0; k < owned; ++k) kernels[first + k] = static_cast<T>(kernels[first + k] - sums[k]);
  params->StartIncrementComm(kernels.data());
  const void* const all = params->WaitIncrementComm();
  CHECK(all == nullptr || all == kernels.data());
}

template <class T>
void run_parameters(Division division, bool distributed, std::size_t count) {
  Distribution* const dist = env.CreateDistribution(division.data, division.model);
  Session* const session = env.CreateSession();
  session->SetGlobalMinibatchSize(env.GetProcessCount());
  OperationRegInfo* const info = session->CreateOperationRegInfo(OT_CC);
  CHECK(info->AddParameterSet(count, 2, type_of<T>(), distributed) == 0);
  CHECK(info->AddParameterSet(1 + division.model, 300, type_of<T>(), distributed) == 1);
  Operation* const op = session->GetOperation(session->AddOperation(info, dist));
  session->Commit();
  CHECK(op->HasParameterSets() && op->GetParameterSetCount() == 2);
  for (std::size_t index = 0; index < 2; ++index) {
    ParameterSet* const params = op->GetParameterSet(index);
    CHECK(params->IsDistributedUpdate() == distributed);
    CHECK(params->GetOwnedKernelCount() * (distributed ? division.data : 1) == params->GetLocalKernelCount());
    std::vector<T> kernels(params->GetLocalKernelCount() * params->GetKernelSize());
    learn<T>(dist, params, kernels, false);
    learn<T>(dist, params, kernels, true);
    const std::size_t start = params->GetGlobalKernelOffset() * params->GetKernelSize();
    const std::size_t factor = division.data * (division.data + 1) / 2;
    for (std::size_t k = 0; k < kernels.size(); ++k)
      CHECK(kernels[k] ==
            static_cast<T>(0 - 2 * static_cast<T>(gradient<T>(start + k, 0) * static_cast<T>(factor))));
  }
  env.DeleteSession(session);
  env.DeleteDistribution(dist);
}

template <class T>
void run_all() {
  const std::size_t size = env.GetProcessCount();
  // Even and uneven parts, partitions without a map, and inputs that flatten maps or put them together.
  const Shape shapes[] = {
      {size * 3, kMapSize}, {size + 1, kMapSize}, {1, kMapSize}, {size * 2, 1}, {size * 2, kMapSize * 2}};
  for (const Shape& shape : shapes) {
    run_pairs<T>(shape, false);
    run_pairs<T>(shape, true);
  }
  for (std::size_t model = 1; model <= size; ++model)
    for (const bool distributed : {false, true})
      for (const std::size_t kernels : {2 * size + 1, std::size_t{1}})
        if (size % model == 0) run_parameters<T>({size / model, model}, distributed, kernels);
}

}  // namespace

int main(int argc, char** argv) {
  env.Init(&argc, &argv);
  run_all<float>();
  run_all<double>();
  run_all<unsigned char>();
  env.Finalize();
  return 0;
}
