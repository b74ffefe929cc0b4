// Horovod's variables: the table is complete, and those that stand for one of ours are read as it.
#include "runtime/base/horovod_variables.hpp"

#include <set>

#include "tests/support/catch.hpp"
#include "tests/support/docs_table.hpp"

namespace tutti {
namespace {

using std::chrono::nanoseconds;

}  // namespace

TEST_CASE("every variable of Horovod has one row") {
  // As Horovod 0.28.1 names them in its sources, its documentation and its installer.
  constexpr std::string_view kNames[] = {"FUSION_THRESHOLD",
                                         "CYCLE_TIME",
                                         "CACHE_CAPACITY",
                                         "HIERARCHICAL_ALLREDUCE",
                                         "HIERARCHICAL_ALLGATHER",
                                         "TORUS_ALLREDUCE",
                                         "AUTOTUNE",
                                         "AUTOTUNE_LOG",
                                         "AUTOTUNE_WARMUP_SAMPLES",
                                         "AUTOTUNE_STEPS_PER_SAMPLE",
                                         "AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
                                         "AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
                                         "TIMELINE",
                                         "TIMELINE_MARK_CYCLES",
                                         "STALL_CHECK_DISABLE",
                                         "STALL_CHECK_TIME_SECONDS",
                                         "STALL_SHUTDOWN_TIME_SECONDS",
                                         "MPI_THREADS_DISABLE",
                                         "NUM_NCCL_STREAMS",
                                         "THREAD_AFFINITY",
                                         "CPU_OPERATIONS",
                                         "CONTROLLER",
                                         "GLOO_IFACE",
                                         "GLOO_TIMEOUT_SECONDS",
                                         "GLOO_RENDEZVOUS_ADDR",
                                         "GLOO_RENDEZVOUS_PORT",
                                         "RANK",
                                         "SIZE",
                                         "LOCAL_RANK",
                                         "LOCAL_SIZE",
                                         "CROSS_RANK",
                                         "CROSS_SIZE",
                                         "HOSTNAME",
                                         "ELASTIC",
                                         "ELASTIC_TIMEOUT",
                                         "START_TIMEOUT",
                                         "DYNAMIC_PROCESS_SETS",
                                         "DISABLE_GROUP_FUSION",
                                         "BATCH_D2D_MEMCOPIES",
                                         "ENABLE_ASYNC_COMPLETION",
                                         "ENABLE_XLA_OPS",
                                         "ADASUM_MPI_CHUNK_SIZE",
                                         "DISABLE_NVTX_RANGES",
                                         "CCL_CACHE",
                                         "LOG_LEVEL",
                                         "LOG_HIDE_TIME",
                                         "WITH_TENSORFLOW",
                                         "WITHOUT_TENSORFLOW",
                                         "WITH_PYTORCH",
                                         "WITHOUT_PYTORCH",
                                         "WITH_MXNET",
                                         "WITHOUT_MXNET",
                                         "WITH_MPI",
                                         "WITHOUT_MPI",
                                         "WITH_GLOO",
                                         "WITHOUT_GLOO",
                                         "GPU",
                                         "GPU_OPERATIONS",
                                         "GPU_ALLREDUCE",
                                         "GPU_ALLGATHER",
                                         "GPU_BROADCAST",
                                         "GPU_ALLTOALL",
                                         "GPU_REDUCESCATTER",
                                         "CUDA_HOME",
                                         "NCCL_HOME",
                                         "ROCM_HOME",
                                         "ALLOW_MIXED_GPU_IMPL"};
  std::set<std::string_view> names;
  for (const HorovodVariable& variable : horovod_variables()) {
    INFO(variable.name);
    CHECK(names.insert(variable.name).second);
    CHECK_FALSE(variable.meaning.empty());
    CHECK(variable.meaning.find_first_of("|\n") == std::string_view::npos);
    CHECK((variable.use == HorovodUse::setting) == !variable.setting.empty());
    if (!variable.setting.empty()) CHECK(find_variable(variable.setting) != nullptr);
    const bool says_no_effect = variable.meaning.starts_with("no effect: ");
    CHECK(says_no_effect == (variable.use == HorovodUse::no_effect || variable.use == HorovodUse::unneeded));
  }
  for (const std::string_view name : kNames) {
    INFO(name);
    CHECK(find_horovod_variable("HOROVOD_" + std::string(name)) != nullptr);
  }
  CHECK(names.size() == std::size(kNames));
  CHECK(find_horovod_variable("HOROVOD_NONE") == nullptr);
}

TEST_CASE("Horovod's units become ours") {
  const Environment environment{
      {"HOROVOD_FUSION_THRESHOLD", "33554432"}, {"HOROVOD_CYCLE_TIME", "2.5"},
      {"HOROVOD_CACHE_CAPACITY", "0"},          {"HOROVOD_STALL_CHECK_TIME_SECONDS", "7"},
      {"HOROVOD_GLOO_TIMEOUT_SECONDS", "40"},   {"HOROVOD_GLOO_IFACE", "eth0"},
      {"HOROVOD_THREAD_AFFINITY", "0,2"},       {"HOROVOD_LOG_LEVEL", "WARNING"}};
  CHECK(**get_size(environment, "TUTTI_FUSION_BYTES") == 32u << 20);
  const Environment timed{{"HOROVOD_TIMELINE", "/tmp/t.json"}, {"HOROVOD_TIMELINE_MARK_CYCLES", "2"}};
  CHECK(*get_text(timed, "TUTTI_TIMELINE") == "/tmp/t.json");
  CHECK(*get_flag(timed, "TUTTI_TIMELINE_MARK_CYCLES"));
  CHECK_FALSE(get_text(Environment{{"HOROVOD_TIMELINE", "DYNAMIC"}}, "TUTTI_TIMELINE")->has_value());
  CHECK(**get_duration(environment, "TUTTI_FUSION_CYCLE") == nanoseconds(2500000));
  CHECK(**get_integer(environment, "TUTTI_CACHE_CAPACITY") == 0);
  CHECK(**get_duration(environment, "TUTTI_STALL_WARNING") == std::chrono::seconds(7));
  CHECK(**get_duration(environment, "TUTTI_TIMEOUT") == std::chrono::seconds(40));
  CHECK(**get_text(environment, "TUTTI_IFACE") == "eth0");
  CHECK(**get_text(environment, "TUTTI_PROGRESS_AFFINITY") == "0,2");
  CHECK(*get_enum(environment, "TUTTI_LOG") == "warn");
  CHECK(*get_enum(Environment{{"HOROVOD_LOG_LEVEL", "fatal"}}, "TUTTI_LOG") == "error");
  CHECK(check_horovod_variables(environment).empty());
}

TEST_CASE("a variable of ours wins over Horovod's") {
  const Environment environment{{"HOROVOD_CYCLE_TIME", "9"}, {"TUTTI_FUSION_CYCLE", "3ms"}};
  CHECK(**get_duration(environment, "TUTTI_FUSION_CYCLE") == std::chrono::milliseconds(3));
  CHECK(find_value(environment, "TUTTI_FUSION_CYCLE").name == "TUTTI_FUSION_CYCLE");
}

TEST_CASE("a disabled stall check wins over its time, an enabled one does not") {
  Environment environment{{"HOROVOD_STALL_CHECK_DISABLE", "1"}, {"HOROVOD_STALL_CHECK_TIME_SECONDS", "7"}};
  CHECK(**get_duration(environment, "TUTTI_STALL_WARNING") == nanoseconds(0));
  environment.set("HOROVOD_STALL_CHECK_DISABLE", "0");
  CHECK(**get_duration(environment, "TUTTI_STALL_WARNING") == std::chrono::seconds(7));
}

TEST_CASE("a malformed value of Horovod's is ignored, and said to be") {
  for (const auto& [name, value, ours] :
       {std::tuple("HOROVOD_FUSION_THRESHOLD", "64MB", "TUTTI_FUSION_BYTES"),
        std::tuple("HOROVOD_CYCLE_TIME", "-1", "TUTTI_FUSION_CYCLE"),
        std::tuple("HOROVOD_CACHE_CAPACITY", "-1", "TUTTI_CACHE_CAPACITY"),
        std::tuple("HOROVOD_THREAD_AFFINITY", "0,,1", "TUTTI_PROGRESS_AFFINITY"),
        std::tuple("HOROVOD_LOG_LEVEL", "loud", "TUTTI_LOG")}) {
    INFO(name);
    const Environment environment{{name, value}};
    CHECK(find_value(environment, ours).text == find_variable(ours)->default_text);
    const std::vector<std::string> sentences = check_horovod_variables(environment);
    REQUIRE(sentences.size() == 1);
    CHECK_THAT(sentences[0], Catch::Matchers::Contains(name) && Catch::Matchers::Contains(value) &&
                                 Catch::Matchers::Contains("expected"));
  }
}

TEST_CASE("a variable without an effect is answered, unless it has its default or a launcher sets it") {
  const auto sentences = check_horovod_variables(Environment{{"HOROVOD_CCL_CACHE", "1"},
                                                             {"HOROVOD_TORUS_ALLREDUCE", "0"},
                                                             {"HOROVOD_CONTROLLER", "gloo"},
                                                             {"HOROVOD_RANK", "3"}});
  REQUIRE(sentences.size() == 1);
  CHECK_THAT(sentences[0], Catch::Matchers::StartsWith("HOROVOD_CCL_CACHE=1 has no effect: "));
}

TEST_CASE("an error of a value names Horovod's variable where it gave the value") {
  const Status status =
      get_integer(Environment{{"HOROVOD_CACHE_CAPACITY", "9"}, {"TUTTI_CACHE_CAPACITY", "many"}},
                  "TUTTI_CACHE_CAPACITY")
          .status();
  CHECK_THAT(status.message(), Catch::Matchers::StartsWith("TUTTI_CACHE_CAPACITY='many'"));
  const Status theirs =
      get_duration(Environment{{"HOROVOD_GLOO_TIMEOUT_SECONDS", "99999999999999"}}, "TUTTI_TIMEOUT").status();
  CHECK_THAT(theirs.message(), Catch::Matchers::StartsWith("HOROVOD_GLOO_TIMEOUT_SECONDS='99999999999999s'"));
}

TEST_CASE("`tutti info --env` shows Horovod's variables that are set, and which one gave a value") {
  const std::string page = describe_environment_text(
      Environment{{"HOROVOD_CYCLE_TIME", "5"}, {"HOROVOD_CCL_CACHE", "1"}, {"HOROVOD_GPU", ""}});
  CHECK_THAT(page, Catch::Matchers::Contains("TUTTI_FUSION_CYCLE=5ms (set by HOROVOD_CYCLE_TIME)\n") &&
                       Catch::Matchers::Contains("HOROVOD_CCL_CACHE=1 (set)\n    no effect: ") &&
                       !Catch::Matchers::Contains("HOROVOD_GPU"));
}

TEST_CASE("docs/horovod.md has the table") {
  check_docs_table(SOURCE_ROOT "/docs/horovod.md", describe_horovod_markdown());
}

}  // namespace tutti
