// One mistake, which must end the job with a message and status 1. The argument names it.
#include <mlsl.hpp>

#include <cstdlib>
#include <string>

#include "tests/bindings/mlsl/check.hpp"

using namespace MLSL;

namespace {

// An output of 6 maps of 2 elements, connected to an input of other ones.
void connect_layers(Session* session, OperationRegInfo* info, Distribution* dist, std::size_t maps,
                    std::size_t map_size) {
  session->SetGlobalMinibatchSize(2);
  info->AddInput(maps, map_size, DT_FLOAT);
  info->AddOutput(6, 2, DT_FLOAT);
  Operation* const first = session->GetOperation(session->AddOperation(info, dist));
  Operation* const next = session->GetOperation(session->AddOperation(info, dist));
  next->SetPrev(first, 0, 0);
  session->Commit();
}

// Starts the gradient's communication twice.
void start_gradient(Session* session, OperationRegInfo* info, Distribution* dist, void* buffer) {
  session->SetGlobalMinibatchSize(2);
  info->AddParameterSet(4, 1, DT_FLOAT);
  ParameterSet* const params = session->GetOperation(session->AddOperation(info, dist))->GetParameterSet(0);
  session->Commit();
  params->StartGradientComm(buffer);
  params->StartGradientComm(buffer);
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc > 1);
  const std::string mistake = argv[1];
  Environment& env = Environment::GetEnv();
  if (mistake == "before_init") env.GetProcessIdx();
  env.Init(&argc, &argv);
  Distribution* const dist = env.CreateDistribution(env.GetProcessCount(), 1);
  Session* const session = env.CreateSession();
  OperationRegInfo* const info = session->CreateOperationRegInfo(OT_CC);
  info->SetName("conv1");
  if (mistake == "no_minibatch") session->AddOperation(info, dist);
  if (mistake == "minibatch") {
    session->SetGlobalMinibatchSize(3);
    session->AddOperation(info, dist);
  }
  if (mistake == "division") env.CreateDistribution(3, 1);
  if (mistake == "no_partition") env.CreateDistribution(1, 0);
  if (mistake == "no_maps") info->AddInput(0, 4, DT_FLOAT);
  if (mistake == "map_size") info->AddOutput(4, std::size_t{1} << 31, DT_FLOAT);
  if (mistake == "no_kernels") info->AddParameterSet(4, 0, DT_FLOAT);
  if (mistake == "elements") connect_layers(session, info, dist, 5, 2);
  if (mistake == "unit") connect_layers(session, info, env.CreateDistribution(1, 2), 4, 3);
  float gradient[4] = {1, 2, 3, 4};
  if (mistake == "no_buffer") start_gradient(session, info, dist, nullptr);
  if (mistake == "second_start") start_gradient(session, info, dist, gradient);
  if (mistake == "color") env.Configure("color=one");
  if (mistake == "second_init") env.Init(&argc, &argv);
  if (mistake == "root") env.Wait(dist->Bcast(&argc, 1, DT_BYTE, 2, GT_GLOBAL));
  if (mistake == "one_rank" && env.GetProcessIdx() == 0) session->GetOperation(5);
  if (mistake == "library") {
    QuantParams params = {const_cast<char*>("none.so"),
                          const_cast<char*>("q"),
                          const_cast<char*>("d"),
                          const_cast<char*>("s"),
                          64,
                          64};
    env.SetQuantizationParams(&params);
  }
  if (mistake == "unknown_configuration") {
    env.Configure("colour=1");
    env.Finalize();
    return 0;
  }
  dist->Barrier(GT_GLOBAL);  // where one rank makes the mistake, the others must not wait for it
  return 4;
}
