// Tests which gradients overtake others with MLSL_MSG_PRIORITY=1: those of parameter sets that were added earlier.
#include "bindings/mlsl/environment.hpp"
#include "bindings/mlsl/operation.hpp"
#include "bindings/mlsl/parameter_set.hpp"
#include "tests/support/catch.hpp"

TEST_CASE("MLSL's priorities fall from parameter set to parameter set, within an operation, too") {
  MLSL::Environment& env = MLSL::Environment::GetEnv();
  env.Init(nullptr, nullptr);
  MLSL::Distribution* const dist = env.CreateDistribution(1, 1);
  MLSL::Session* const session = env.CreateSession();
  session->SetGlobalMinibatchSize(1);
  for (const int set_count : {3, 0, 2, 1}) {
    MLSL::OperationRegInfo* const info = session->CreateOperationRegInfo(MLSL::OT_CC);
    for (int set = 0; set < set_count; ++set)
      info->AddParameterSet(set_count == 1 ? 4 : 4000, 1, MLSL::DT_FLOAT);
    session->AddOperation(info, dist);
  }
  int before = 1;
  for (std::size_t index = 0; index < session->GetOperationCount(); ++index) {
    MLSL::Operation* const op = session->GetOperation(index);
    for (std::size_t set = 0; set < op->GetParameterSetCount(); ++set) {
      const tutti::mlsl::ParameterSetImpl& params = tutti::mlsl::impl(op->GetParameterSet(set));
      CHECK(params.priority < before);
      before = params.priority;
      // Not those of the first operation, and no small ones.
      CHECK(params.may_be_overtaken() == (index == 2));
    }
  }
  env.DeleteSession(session);
  env.DeleteDistribution(dist);
  env.Finalize();
}
