// Tests how MLSL's variables are read: values, refusals, and answers to those without effect.
#include "bindings/mlsl/settings.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "tests/support/catch.hpp"

using namespace tutti::mlsl;

namespace {

using Variables = std::map<std::string, std::string>;

Settings read(const Variables& variables, std::vector<std::string>& answers) {
  return read_settings(
      [&](const char* name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
      },
      answers);
}

std::string refusal(const Variables& variables) {
  std::vector<std::string> answers;
  try {
    read(variables, answers);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "taken";
}

}  // namespace

TEST_CASE("MLSL's variables: defaults and values") {
  std::vector<std::string> answers;
  const Settings unset = read({}, answers);
  CHECK(unset.log_level == LogLevel::error);
  CHECK(!unset.has_statistics);
  CHECK(unset.duplicates_groups);
  CHECK(!unset.has_priority);
  CHECK(unset.priority_bytes == 10000);
  CHECK(unset.large_message_bytes == 128U << 20);
  CHECK(unset.large_message_chunks == 4);
  CHECK(unset.starts_mpi);
  const Settings set = read({{"MLSL_LOG_LEVEL", "2"},
                             {"MLSL_STATS", "1"},
                             {"MLSL_DUP_GROUP", "0"},
                             {"MLSL_MSG_PRIORITY", "1"},
                             {"MLSL_MSG_PRIORITY_THRESHOLD", "0"},
                             {"MLSL_LARGE_MSG_SIZE_MB", "1"},
                             {"MLSL_LARGE_MSG_CHUNKS", "7"},
                             {"MLSL_INIT_MPI", "0"},
                             {"MLSL_ALLOW_REINIT", "1"},
                             {"MLSL_DYNAMIC_SERVER", "thread"}},
                            answers);
  CHECK(set.log_level == LogLevel::debug);
  CHECK(set.has_statistics);
  CHECK(!set.duplicates_groups);
  CHECK(set.has_priority);
  CHECK(set.priority_bytes == 0);
  CHECK(set.large_message_bytes == 1U << 20);
  CHECK(set.large_message_chunks == 7);
  CHECK(!set.starts_mpi);
  CHECK(set.allows_reinit);
  CHECK(answers.empty());
}

TEST_CASE("MLSL's variables: those without effect are answered") {
  for (const char* name :
       {"MLSL_AUTO_CONFIG_TYPE", "MLSL_HEAP_SIZE_GB", "MLSL_SERVER_CREATION_TYPE", "MLSL_HOSTNAME_TYPE",
        "MLSL_HOSTNAME", "MLSL_IFACE_NAME", "MLSL_IFACE_IDX", "MLSL_SERVER_PREFIX", "MLSL_MSG_PRIORITY_MODE",
        "MLSL_MAX_SHORT_MSG_SIZE", "MLSL_USE_COPY_THREADS", "MLSL_COPY_THREADS", "MLSL_COPY_THRESHOLD",
        "MLSL_CHECK_SINGLE_NODE", "MLSL_ALLTOALL_SPLIT", "MLSL_ALLTOALLV_SPLIT", "MLSL_THP_THRESHOLD_MB",
        "MLSL_CHECK_MEM_SIZE", "MLSL_MPI_VERSION_CHECK"}) {
    std::vector<std::string> answers;
    read({{name, "1"}}, answers);
    REQUIRE(answers.size() == 1);
    CHECK(answers[0].starts_with(std::string(name) + "=1 has no effect: "));
  }
  for (const char* kind : {"process", "hybrid", "disable"}) {
    std::vector<std::string> answers;
    read({{"MLSL_DYNAMIC_SERVER", kind}}, answers);
    CHECK(answers.size() == 1);
  }
}

TEST_CASE("MLSL's variables: priority needs a progress thread") {
  std::vector<std::string> answers;
  CHECK(!read({{"MLSL_MSG_PRIORITY", "1"}, {"MLSL_NUM_SERVERS", "0"}}, answers).has_priority);
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].ends_with("it needs a progress thread, and MLSL_NUM_SERVERS is 0"));
  answers.clear();
  CHECK(!read({{"MLSL_MSG_PRIORITY", "1"}, {"TUTTI_PROGRESS_THREADS", "0"}}, answers).has_priority);
  CHECK(answers.size() == 1);
  answers.clear();
  const Settings several =
      read({{"MLSL_MSG_PRIORITY", "1"}, {"MLSL_NUM_SERVERS", "0"}, {"TUTTI_PROGRESS_THREADS", "1"}}, answers);
  CHECK(several.has_priority);
  read({{"MLSL_NUM_SERVERS", "0"}}, answers);
  CHECK(answers.empty());
}

TEST_CASE("MLSL's variables: mistakes name the variable and the expected values") {
  CHECK(refusal({{"MLSL_LOG_LEVEL", "4"}}) == "MLSL_LOG_LEVEL='4': expected a number from 0 to 3");
  CHECK(refusal({{"MLSL_STATS", "yes"}}) == "MLSL_STATS='yes': expected a number from 0 to 1");
  CHECK(refusal({{"MLSL_LARGE_MSG_CHUNKS", "0"}}) ==
        "MLSL_LARGE_MSG_CHUNKS='0': expected a number from 1 to 65536");
  CHECK(refusal({{"MLSL_LARGE_MSG_SIZE_MB", "99999999999999999999"}}).starts_with("MLSL_LARGE_MSG_SIZE_MB="));
  CHECK(refusal({{"MLSL_DYNAMIC_SERVER", "none"}}) ==
        "MLSL_DYNAMIC_SERVER='none': expected hybrid, process, thread, asyncthread or disable");
}

TEST_CASE("MLSL's configuration is a colour") {
  CHECK(parse_color("color=0") == 0);
  CHECK(parse_color("color=12") == 12);
  CHECK(parse_color("color=3,other=4") == 3);
  CHECK(parse_color("other=4,color=3") == 3);
  for (const char* text : {"", ",", "color", "colour=1", "other=1,color", "my_color=1"})
    CHECK(!parse_color(text).has_value());
  for (const char* text :
       {"color=", "color=,", "color=-1", "color=1 ", "color=x,color=1", "color=99999999999"})
    CHECK_THROWS_AS(parse_color(text), std::invalid_argument);
}
