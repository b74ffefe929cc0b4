// A small CNN that learns handwritten digits through MLSL: a convolution with data parallelism and distributed update,
// a fully connected layer with model parallelism, and softmax. Any number of ranks learns what one process does.
//
//   zcat /usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz > digits.csv     (of Debian's python3-sklearn)
//   tutti run -n 4 example_mlsl_digits digits.csv 2        usage: example_mlsl_digits DIGITS_CSV [MODEL_PARTITIONS]
//
//   image 8x8 -> convolution 3x3, 8 feature maps of 6x6, ReLU -> fully connected, 10 outputs -> softmax
//                ranks x 1                                       ranks/M x M                    ranks x 1
#include <mlsl.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Values = std::vector<float>;
constexpr std::size_t kImage = 8, kMap = 6, kMapSize = kMap * kMap, kMaps = 8, kKernel = 10, kClasses = 10;
constexpr std::size_t kMinibatch = 64, kSamples = 1536, kEpochs = 8;
constexpr float kRate = 0.2F;

MLSL::Environment& env = MLSL::Environment::GetEnv();

struct Digits {
  Values pixels;
  std::vector<std::size_t> labels;
};

Digits read_digits(const char* path) {
  Digits made;
  std::ifstream file(path);
  for (std::string line; made.labels.size() < kSamples && std::getline(file, line);) {
    std::istringstream row(line);
    std::string cell;
    for (std::size_t i = 0; i < kImage * kImage && std::getline(row, cell, ','); ++i)
      made.pixels.push_back(std::strtof(cell.c_str(), nullptr) / 16);
    std::getline(row, cell, ',');
    made.labels.push_back(std::strtoul(cell.c_str(), nullptr, 10));
  }
  if (made.labels.size() == kSamples && made.pixels.size() == kSamples * kImage * kImage) return made;
  std::fprintf(stderr, "%s: expected %zu rows of 64 pixels and a digit\n", path, kSamples);
  std::exit(2);
}

// Equal on all ranks, whichever part of the kernels a rank has.
float first_weight(std::size_t index) {
  return static_cast<float>((index * 2654435761U >> 8) % 2001) / 1000.0F * 0.1F - 0.1F;
}

// Copies the blocks of a communication buffer from or to a rank's part of an activation.
void move_blocks(MLSL::Activation* act, float* buffer, Values& part, bool packs) {
  const std::size_t maps = act->GetLocalFmCount(), size = act->GetFmSize();
  const std::size_t blocks = packs ? act->GetPackBlockCount() : act->GetUnpackBlockCount();
  for (std::size_t b = 0; b < blocks; ++b) {
    MLSL::CommBlockInfo* const block = packs ? act->GetPackBlock(b) : act->GetUnpackBlock(b);
    const std::size_t count = block->GetFmCount() * size;
    for (std::size_t s = 0; s < block->GetMbCount(); ++s) {
      float* const own = &part[((block->GetMbOffset() + s) * maps + block->GetFmOffset()) * size];
      float* const place = buffer + block->GetBufOffset() + s * count;
      std::memcpy(packs ? place : own, packs ? own : place, count * sizeof(float));
    }
  }
}

void send(MLSL::Activation* act, Values& part) {
  void* const buffer = act->GetCommBuf();
  if (buffer == nullptr) return;
  move_blocks(act, static_cast<float*>(buffer), part, true);
  act->StartComm(buffer);
}

// `direct`: what the other layer has, where nothing is communicated.
void receive(MLSL::Activation* act, Values& part, const Values& direct) {
  float* const buffer = static_cast<float*>(act->WaitComm());
  if (buffer == nullptr)
    part = direct;
  else
    move_blocks(act, buffer, part, false);
}

// Weights of a layer, their gradients, and the step that all ranks of a data group make together.
struct Weights {
  explicit Weights(MLSL::ParameterSet* set)
      : params(set), values(set->GetLocalKernelCount() * set->GetKernelSize()), gradients(values.size()) {
    const std::size_t first = set->GetGlobalKernelOffset() * set->GetKernelSize();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = first_weight(first + i);
  }
  void start() { params->StartGradientComm(gradients.data()); }
  void finish() {
    const float* sums = static_cast<float*>(params->WaitGradientComm());
    if (sums == nullptr) sums = gradients.data();
    const std::size_t first = params->GetOwnedKernelOffset() * params->GetKernelSize();
    const std::size_t count = params->GetOwnedKernelCount() * params->GetKernelSize();
    for (std::size_t i = 0; i < count; ++i) values[first + i] -= kRate * sums[i];
    params->StartIncrementComm(values.data());
    params->WaitIncrementComm();
    std::fill(gradients.begin(), gradients.end(), 0.0F);
  }

  MLSL::ParameterSet* params;
  Values values, gradients;
};

std::size_t part_size(MLSL::Operation* op, MLSL::Activation* act) {
  return op->GetLocalMinibatchSize() * act->GetLocalFmCount() * act->GetFmSize();
}

struct Convolution {
  explicit Convolution(MLSL::Operation* made)
      : op(made),
        weights(made->GetParameterSet(0)),
        output(part_size(made, made->GetOutput(0))),
        gradient(output.size()) {}

  const float* image(const Digits& digits, std::size_t batch, std::size_t sample) const {
    return &digits.pixels[(batch * kMinibatch + op->GetGlobalMinibatchOffset() + sample) * kImage * kImage];
  }
  // Calls visit(map value, pixel, weight index) for each product, and for the bias with a pixel of 1.
  template <class Visit>
  static void products(std::size_t map, std::size_t place, const float* pixels, Visit visit) {
    const std::size_t corner = place / kMap * kImage + place % kMap;
    for (std::size_t k = 0; k < kKernel - 1; ++k)
      visit(pixels[corner + k / 3 * kImage + k % 3], map * kKernel + k);
    visit(1.0F, map * kKernel + kKernel - 1);
  }
  void forward(const Digits& digits, std::size_t batch) {
    for (std::size_t i = 0; i < output.size(); ++i) {
      float sum = 0;
      products(i / kMapSize % kMaps, i % kMapSize, image(digits, batch, i / kMapSize / kMaps),
               [&](float pixel, std::size_t w) { sum += pixel * weights.values[w]; });
      output[i] = std::max(sum, 0.0F);
    }
    send(op->GetOutput(0), output);
  }
  void backward(const Digits& digits, std::size_t batch, const Values& direct) {
    receive(op->GetOutput(0), gradient, direct);
    for (std::size_t i = 0; i < output.size(); ++i)
      if (output[i] > 0)
        products(i / kMapSize % kMaps, i % kMapSize, image(digits, batch, i / kMapSize / kMaps),
                 [&](float pixel, std::size_t w) { weights.gradients[w] += pixel * gradient[i]; });
    weights.start();
  }

  MLSL::Operation* op;
  Weights weights;
  Values output, gradient;
};

struct Connected {
  explicit Connected(MLSL::Operation* made)
      : op(made),
        weights(made->GetParameterSet(0)),
        input(part_size(made, made->GetInput(0))),
        input_gradient(input.size()),
        output(part_size(made, made->GetOutput(0))),
        gradient(output.size()),
        maps(made->GetInput(0)->GetLocalFmCount()) {}

  // Calls visit(index of the input, of the output, of the weight) for each product.
  template <class Visit>
  void products(Visit visit) const {
    for (std::size_t i = 0; i < input.size(); ++i) {
      const std::size_t element = i % kMapSize, map = i / kMapSize % maps, sample = i / kMapSize / maps;
      for (std::size_t o = 0; o < kClasses; ++o)
        visit(i, sample * kClasses + o, (map * kClasses + o) * kMapSize + element);
    }
  }
  // With model parallelism the outputs are sums over this rank's feature maps alone.
  void forward(const Values& direct) {
    receive(op->GetInput(0), input, direct);
    std::fill(output.begin(), output.end(), 0.0F);
    products([&](std::size_t i, std::size_t o, std::size_t w) { output[o] += input[i] * weights.values[w]; });
    send(op->GetOutput(0), output);
  }
  void backward(const Values& direct) {
    receive(op->GetOutput(0), gradient, direct);
    std::fill(input_gradient.begin(), input_gradient.end(), 0.0F);
    products([&](std::size_t i, std::size_t o, std::size_t w) {
      input_gradient[i] += gradient[o] * weights.values[w];
      weights.gradients[w] += gradient[o] * input[i];
    });
    weights.start();
    send(op->GetInput(0), input_gradient);
  }

  MLSL::Operation* op;
  Weights weights;
  Values input, input_gradient, output, gradient;
  std::size_t maps;  // of this rank
};

struct Softmax {
  explicit Softmax(MLSL::Operation* made)
      : op(made), input(part_size(made, made->GetInput(0))), gradient(input.size()) {}

  void run(const Digits& digits, std::size_t batch, const Values& direct) {
    receive(op->GetInput(0), input, direct);
    for (std::size_t s = 0; s < op->GetLocalMinibatchSize(); ++s) {
      const std::size_t label = digits.labels[batch * kMinibatch + op->GetGlobalMinibatchOffset() + s];
      const float* const in = &input[s * kClasses];
      const float most = *std::max_element(in, in + kClasses);
      float sum = 0;
      for (std::size_t o = 0; o < kClasses; ++o) sum += std::exp(in[o] - most);
      for (std::size_t o = 0; o < kClasses; ++o)
        gradient[s * kClasses + o] = (std::exp(in[o] - most) / sum - (o == label ? 1.0F : 0.0F)) / kMinibatch;
      results[0] += std::log(sum) + most - in[label];
      results[1] += in[label] == most ? 1.0F : 0.0F;
    }
    send(op->GetInput(0), gradient);
  }

  MLSL::Operation* op;
  Values input, gradient;
  double results[2] = {0, 0};  // loss and right answers
};

MLSL::Operation* add(MLSL::Session* session, MLSL::OpType type, const char* name, MLSL::Distribution* dist,
                     std::size_t in_maps, std::size_t in_size, std::size_t out_maps, std::size_t out_size,
                     std::size_t kernels, std::size_t kernel_size, bool distributed_update) {
  MLSL::OperationRegInfo* const info = session->CreateOperationRegInfo(type);
  info->SetName(name);
  info->AddInput(in_maps, in_size, MLSL::DT_FLOAT);
  info->AddOutput(out_maps, out_size, MLSL::DT_FLOAT);
  if (kernels > 0) info->AddParameterSet(kernels, kernel_size, MLSL::DT_FLOAT, distributed_update);
  const std::size_t index = session->AddOperation(info, dist);
  session->DeleteOperationRegInfo(info);
  return session->GetOperation(index);
}

void train(const Digits& digits, std::size_t model_partitions) {
  const std::size_t ranks = env.GetProcessCount();
  MLSL::Distribution* const data = env.CreateDistribution(ranks, 1);
  MLSL::Distribution* const model = env.CreateDistribution(ranks / model_partitions, model_partitions);
  MLSL::Session* const session = env.CreateSession();
  session->SetGlobalMinibatchSize(kMinibatch);
  MLSL::Operation* const first = add(session, MLSL::OT_CC, "convolution", data, 1, kImage * kImage, kMaps,
                                     kMapSize, kMaps, kKernel, true);
  MLSL::Operation* const second = add(session, MLSL::OT_CC, "connected", model, kMaps, kMapSize, kClasses, 1,
                                      kMaps * kClasses, kMapSize, false);
  MLSL::Operation* const third =
      add(session, MLSL::OT_EVAL, "softmax", data, kClasses, 1, kClasses, 1, 0, 0, false);
  second->SetPrev(first, 0, 0);
  third->SetPrev(second, 0, 0);
  session->Commit();
  Convolution convolution(first);
  Connected connected(second);
  Softmax softmax(third);
  for (std::size_t epoch = 0; epoch < kEpochs; ++epoch) {
    softmax.results[0] = softmax.results[1] = 0;
    for (std::size_t batch = 0; batch < kSamples / kMinibatch; ++batch) {
      convolution.forward(digits, batch);
      connected.forward(convolution.output);
      softmax.run(digits, batch, connected.output);
      connected.backward(softmax.gradient);
      convolution.backward(digits, batch, connected.input_gradient);
      connected.weights.finish();
      convolution.weights.finish();
    }
    env.Wait(
        data->AllReduce(softmax.results, softmax.results, 2, MLSL::DT_DOUBLE, MLSL::RT_SUM, MLSL::GT_DATA));
    if (env.GetProcessIdx() == 0)
      std::printf("epoch %zu: loss %.4f, %.1f %% right\n", epoch + 1, softmax.results[0] / kSamples,
                  100 * softmax.results[1] / kSamples);
  }
  session->GetStats()->Print();
  env.DeleteSession(session);
  env.DeleteDistribution(model);
  env.DeleteDistribution(data);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s DIGITS_CSV [MODEL_PARTITIONS]\n", argv[0]);
    return 2;
  }
  const Digits digits = read_digits(argv[1]);
  env.Init(&argc, &argv);
  train(digits, argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1);
  env.Finalize();
  return 0;
}
