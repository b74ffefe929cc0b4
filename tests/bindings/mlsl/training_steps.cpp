// Steps of a network of three layers: compressed gradients, statistics, and gradients that are tested while others are
// under way. A rank of a job. usage: training_steps COMPRESSION_LIBRARY
#include <mlsl.hpp>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/bindings/mlsl/check.hpp"

using namespace MLSL;

namespace {

Environment& env = Environment::GetEnv();
constexpr std::size_t kLayers = 3, kKernels = 1003;

Session* make_session(Distribution* dist, CompressionType compression) {
  Session* const session = env.CreateSession();
  CHECK(session->GetPhaseType() == PT_TRAIN);
  session->SetGlobalMinibatchSize(env.GetProcessCount());
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    OperationRegInfo* const info = session->CreateOperationRegInfo(OT_CC);
    info->AddParameterSet(kKernels, 1, DT_FLOAT, false, compression);
    CHECK(session->AddOperation(info) == layer);
    session->GetOperation(layer)->SetDistribution(dist);
  }
  session->Commit();
  return session;
}

ParameterSet* kernels(Session* session, std::size_t layer) {
  return session->GetOperation(layer)->GetParameterSet(0);
}

// All layers' gradients, the last layer's first, as backpropagation makes them; then a wait in the other order.
void run_step(Session* session, std::vector<std::vector<float>>& gradients, float value) {
  for (std::size_t layer = kLayers; layer-- > 0;) {
    gradients[layer].assign(kKernels, value);
    kernels(session, layer)->StartGradientComm(gradients[layer].data());
  }
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    bool is_complete = false;
    void* sums = nullptr;
    while (!is_complete) sums = kernels(session, layer)->TestGradientComm(&is_complete);
    CHECK(env.GetProcessCount() == 1 ? sums == nullptr : sums == gradients[layer].data());
    CHECK(kernels(session, layer)->WaitGradientComm() == sums);
  }
}

// Each step loses the part that rounding leaves, and a later one makes good for it.
void test_compression(Distribution* dist, char* library) {
  CHECK(env.GetQuantizationParams() == nullptr);
  char names[3][32] = {"rounding_quant", "rounding_dequant", "rounding_sum"};
  QuantParams params = {library, names[0], names[1], names[2], 8, 8};
  env.SetQuantizationParams(&params);
  CHECK(std::strcmp(env.GetQuantizationParams()->lib_path, library) == 0);
  CHECK(env.GetQuantizationParams()->elem_in_block == 8);
  Session* const session = make_session(dist, CT_QUANTIZATION);
  std::vector<std::vector<float>> gradients(kLayers);
  float total = 0;
  for (int step = 0; step < 4; ++step) {
    if (step == 2) {  // is for later parameter sets: those in use have blocks of the first size
      params.block_size = 65536;
      env.SetQuantizationParams(&params);
    }
    run_step(session, gradients, 0.75F);
    for (std::size_t i = 1; i < kKernels; ++i) CHECK(gradients[1][i] == gradients[1][0]);
    total += gradients[1][0];
  }
  CHECK(total == 4 * 0.75F * static_cast<float>(env.GetProcessCount()));
  env.DeleteSession(session);
}

// A warning, and exact sums.
void test_not_compressed(Distribution* dist) {
  Session* const session = env.CreateSession();
  session->SetGlobalMinibatchSize(env.GetProcessCount());
  OperationRegInfo* const info = session->CreateOperationRegInfo(OT_CC);
  info->AddParameterSet(kKernels, 1, DT_FLOAT, true, CT_QUANTIZATION);
  info->AddParameterSet(kKernels, 1, DT_DOUBLE, false, CT_QUANTIZATION);
  Operation* const op = session->GetOperation(session->AddOperation(info, dist));
  session->Commit();
  std::vector<float> floats(op->GetParameterSet(0)->GetLocalKernelCount(), 0.75F);
  std::vector<double> doubles(kKernels, 0.75);
  op->GetParameterSet(0)->StartGradientComm(floats.data());
  op->GetParameterSet(1)->StartGradientComm(doubles.data());
  const void* const owned = op->GetParameterSet(0)->WaitGradientComm();
  op->GetParameterSet(1)->WaitGradientComm();
  const std::size_t ranks = env.GetProcessCount();
  CHECK((owned == nullptr ? floats.data() : static_cast<const float*>(owned))[0] ==
        0.75F * static_cast<float>(ranks));
  CHECK(doubles[kKernels - 1] == 0.75 * static_cast<double>(ranks));
  env.DeleteSession(session);
}

// The end of a session waits for gradients under way: with distributed update their sums are in its memory.
void test_early_end(Distribution* dist) {
  Session* const session = env.CreateSession();
  session->SetGlobalMinibatchSize(env.GetProcessCount());
  OperationRegInfo* const info = session->CreateOperationRegInfo(OT_CC);
  info->AddParameterSet(kKernels, 1, DT_FLOAT, true);
  info->AddParameterSet(kKernels, 1, DT_FLOAT);
  Operation* const op = session->GetOperation(session->AddOperation(info, dist));
  session->Commit();
  std::vector<float> spread(op->GetParameterSet(0)->GetLocalKernelCount(), 1), whole(kKernels, 1);
  // The last rank comes late.
  if (env.GetProcessIdx() + 1 == env.GetProcessCount())
    // Any time will do: the others must wait for it.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  op->GetParameterSet(0)->StartGradientComm(spread.data());
  op->GetParameterSet(1)->StartGradientComm(whole.data());
  env.DeleteSession(session);
  CHECK(whole[kKernels - 1] == static_cast<float>(env.GetProcessCount()));
}

void test_statistics(Distribution* dist) {
  Session* const session = make_session(dist, CT_NONE);
  Statistics* const stats = session->GetStats();
  const char* const setting = std::getenv("MLSL_STATS");
  const bool is_enabled = setting != nullptr && setting[0] == '1';
  CHECK(stats->IsEnabled() == is_enabled && !stats->IsStarted());
  stats->Start();
  CHECK(stats->IsStarted() == is_enabled);
  std::vector<std::vector<float>> gradients(kLayers);
  for (int step = 0; step < 2; ++step) run_step(session, gradients, 1);
  for (const auto& gradient : gradients) CHECK(gradient[5] == static_cast<float>(env.GetProcessCount()));
  stats->Stop();
  const bool communicates = is_enabled && env.GetProcessCount() > 1;
  CHECK(stats->GetCommSize(1) == (communicates ? 2 * kKernels * sizeof(float) : 0));
  CHECK(stats->GetTotalCommSize() == kLayers * stats->GetCommSize(0));
  CHECK((stats->GetCommCycles(2) > 0) == is_enabled && (stats->GetTotalComputeCycles() > 0) == is_enabled);
  CHECK((stats->GetIsolationCommCycles(0) > 0) == is_enabled);
  stats->Print();
  stats->Reset();
  CHECK(stats->GetTotalCommCycles() == 0 && stats->GetComputeCycles(0) == 0);
  env.DeleteSession(session);
}

}  // namespace

int main(int argc, char** argv) {
  env.Init(&argc, &argv);
  Distribution* const dist = env.CreateDistribution(env.GetProcessCount(), 1);
  test_statistics(dist);
  CHECK(argc > 1);
  test_compression(dist, argv[1]);
  test_not_compressed(dist);
  test_early_end(dist);
  env.DeleteDistribution(dist);
  env.Finalize();
  return 0;
}
