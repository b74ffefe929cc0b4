// MLSL::Environment, in terms of environment.hpp.
#include <string>
#include <vector>

#include "bindings/mlsl/environment.hpp"
#include "bindings/mlsl/failure.hpp"

using tutti::mlsl::Colors;
using tutti::mlsl::environment;
using tutti::mlsl::EnvironmentImpl;
using tutti::mlsl::fail;

namespace {

// Errors: ends the job before Init.
EnvironmentImpl& started(const char* call) {
  environment().require_initialized(call);
  return environment();
}

}  // namespace

namespace MLSL {

Environment& Environment::GetEnv() { return environment(); }

int Environment::GetVersion() { return MLSL_VERSION(MLSL_MAJOR_VERSION, MLSL_MINOR_VERSION); }

void Environment::Configure(const char* config) {
  if (config != nullptr) environment().configure(config);
}

void Environment::Init(int* argc, char** argv[]) { environment().start(argc, argv); }

void Environment::Finalize() { environment().leave(); }

bool Environment::IsInitialized() { return environment().is_initialized(); }

std::size_t Environment::GetProcessIdx() {
  return static_cast<std::size_t>(started("GetProcessIdx").global().rank());
}

std::size_t Environment::GetProcessCount() {
  return static_cast<std::size_t>(started("GetProcessCount").global().size());
}

Distribution* Environment::CreateDistribution(std::size_t data_partitions, std::size_t model_partitions) {
  EnvironmentImpl& env = started("CreateDistribution");
  const auto ranks = static_cast<std::size_t>(env.global().size());
  if (data_partitions == 0 || model_partitions == 0 || data_partitions > ranks / model_partitions)
    fail("CreateDistribution: " + std::to_string(data_partitions) + " data times " +
         std::to_string(model_partitions) + " model partitions are not from 1 to " + std::to_string(ranks) +
         " processes");
  std::vector<Colors> colors(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    colors[rank] = tutti::mlsl::colors_of(rank, data_partitions, model_partitions);
  return env.make_distribution(colors);
}

Distribution* Environment::CreateDistributionWithColors(int data_color, int model_color) {
  EnvironmentImpl& env = started("CreateDistributionWithColors");
  std::vector<Colors> colors(static_cast<std::size_t>(env.global().size()));
  const Colors mine{data_color, model_color};
  tutti::mlsl::guarded("CreateDistributionWithColors",
                       [&] { env.global().allgather(&mine, colors.data(), 2, tutti::Dtype::i32); });
  return env.make_distribution(colors);
}

void Environment::DeleteDistribution(Distribution* distribution) {
  if (distribution != nullptr) delete &tutti::mlsl::impl(distribution);
}

void Environment::Wait(CommReq* req) { started("Wait").wait(req); }

void Environment::Test(CommReq* req, bool* is_completed) { *is_completed = started("Test").test(req); }

void* Environment::Alloc(std::size_t size, std::size_t alignment) {
  return started("Alloc").allocate(size, alignment);
}

void Environment::Free(void* ptr) { environment().release(ptr); }

}  // namespace MLSL
