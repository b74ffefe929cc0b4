// One mistake, which must end the job with a message and status 1. The argument names it.
#include <mlsl.hpp>

#include <cstdlib>
#include <string>

#include "tests/bindings/mlsl/check.hpp"

using namespace MLSL;

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
  dist->Barrier(GT_GLOBAL);  // where one rank makes the mistake, the others must not wait for it
  return 4;
}
