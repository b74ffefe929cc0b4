// The table of configuration variables: parsing, errors, unknown names, and the pages made from it.
#include "runtime/base/config.hpp"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "runtime/base/types.hpp"
#include "tests/support/catch.hpp"

namespace tutti {
namespace {

using std::chrono::nanoseconds;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

TEST_CASE("the table is consistent") {
  std::set<std::string_view> names;
  for (const Variable& variable : kVariables) {
    INFO(variable.name);
    CHECK(names.insert(variable.name).second);
    CHECK(contains(variable.name, "TUTTI_"));
    CHECK_FALSE(variable.help.empty());
    CHECK_FALSE(contains(variable.help, "\n"));
    if (variable.type == VariableType::enumeration) CHECK_FALSE(variable.values.empty());
    if (!variable.alias_of.empty()) {
      REQUIRE(find_variable(variable.alias_of) != nullptr);
      CHECK(find_variable(variable.alias_of)->type == variable.type);
    }
    // a default has to satisfy its own type
    if (!variable.default_text.empty()) {
      const Environment environment{{std::string(variable.name), std::string(variable.default_text)}};
      CHECK(check_values(environment).is_ok());
    }
  }
  // every collective that has algorithms has its rules
  for (const std::string_view collective : kCollectiveNames) {
    if (collective == "send_recv") continue;
    std::string name = "TUTTI_ADJUST_";
    for (const char c : collective) name += static_cast<char>(c == '_' ? c : c - 'a' + 'A');
    INFO(name);
    REQUIRE(find_variable(name) != nullptr);
    CHECK(find_variable(name)->type == VariableType::rule);
  }
}

TEST_CASE("sizes") {
  CHECK(parse_size("0") == 0u);
  CHECK(parse_size("4097") == 4097u);
  CHECK(parse_size("64k") == 65536u);
  CHECK(parse_size("64K") == 65536u);
  CHECK(parse_size("64kb") == 65536u);
  CHECK(parse_size("3m") == 3u << 20);
  CHECK(parse_size("2G") == std::uint64_t{2} << 30);
  CHECK(parse_size("17b") == 17u);
  CHECK(parse_size("17179869183g") == std::uint64_t{17179869183u} << 30);
  for (const char* text : {"", "k", "-1", "+1", "1.5k", "1t", "1kk", "1 k", " 1", "1kib",
                           "18446744073709551616", "17179869184g", "0x10"}) {
    INFO(text);
    CHECK_FALSE(parse_size(text).has_value());
  }
}

TEST_CASE("durations") {
  CHECK(parse_duration("5min") == nanoseconds(std::chrono::minutes(5)));
  CHECK(parse_duration("60s") == nanoseconds(std::chrono::seconds(60)));
  CHECK(parse_duration("60") == nanoseconds(std::chrono::seconds(60)));
  CHECK(parse_duration("1.5ms") == nanoseconds(1500000));
  CHECK(parse_duration("50us") == nanoseconds(50000));
  CHECK(parse_duration("0") == nanoseconds(0));
  for (const char* text : {"", "s", "-1s", "1h", "1 s", "1e3s", "inf", "nan", "99999999999min", "1sec"}) {
    INFO(text);
    CHECK_FALSE(parse_duration(text).has_value());
  }
}

TEST_CASE("defaults hold where nothing is set, and the empty string is not set") {
  for (const Environment& environment :
       {Environment(), Environment{{"TUTTI_TIMEOUT", ""}, {"TUTTI_LOG", ""}}}) {
    CHECK(**get_duration(environment, "TUTTI_TIMEOUT") == nanoseconds(std::chrono::minutes(5)));
    CHECK(*get_enum(environment, "TUTTI_LOG") == "warn");
    CHECK_FALSE((*get_integer(environment, "TUTTI_RANK")).has_value());
    CHECK_FALSE((*get_integer(environment, "TUTTI_SPIN")).has_value());  // auto
    CHECK_FALSE((*get_text(environment, "TUTTI_SECRET")).has_value());
    CHECK(**get_text(environment, "TUTTI_ADJUST_ALLREDUCE") == "auto");
    CHECK((*get_size(environment, "TUTTI_SHM_BYTES")).has_value());
  }
}

TEST_CASE("set values are read") {
  const Environment environment{{"TUTTI_TIMEOUT", "250ms"}, {"TUTTI_SPIN", "1000"},
                                {"TUTTI_CHECK", "group"},   {"TUTTI_SHM_BYTES", "1m"},
                                {"TUTTI_RANK", "3"},        {"TUTTI_ADJUST_BCAST", "chain"},
                                {"TUTTI_BOARDS", "off"},    {"TUTTI_WORKERS", "2"}};
  CHECK(**get_duration(environment, "TUTTI_TIMEOUT") == nanoseconds(250000000));
  CHECK(**get_integer(environment, "TUTTI_SPIN") == 1000);
  CHECK(*get_enum(environment, "TUTTI_CHECK") == "group");
  CHECK(**get_size(environment, "TUTTI_SHM_BYTES") == 1u << 20);
  CHECK(**get_integer(environment, "TUTTI_RANK") == 3);
  CHECK(check_values(environment).is_ok());
  CHECK(check_unknown(environment).empty());
  // the other spelling counts, the first one wins
  CHECK(**get_text(environment, "TUTTI_ADJUST_BROADCAST") == "chain");
  Environment both = environment;
  both.set("TUTTI_ADJUST_BROADCAST", "binomial");
  CHECK(**get_text(both, "TUTTI_ADJUST_BROADCAST") == "binomial");
  CHECK_FALSE(*get_flag(environment, "TUTTI_CONTROL_BLOCKS"));  // by its deprecated name
  CHECK(**get_integer(environment, "TUTTI_PROGRESS_THREADS") == 2);
  CHECK(is_set(environment, "TUTTI_PROGRESS_THREADS"));
  CHECK_FALSE(is_set(environment, "TUTTI_PROGRESS_AFFINITY"));
}

TEST_CASE("a malformed value is an error that names variable, value and expectation") {
  const auto check = [](const char* name, const char* value, const char* expectation) {
    const Status status = check_values(Environment{{name, value}});
    INFO(status.to_string());
    CHECK(status.code() == StatusCode::invalid_argument);
    CHECK(contains(status.message(), name));
    CHECK(contains(status.message(), value));
    CHECK(contains(status.message(), expectation));
  };
  check("TUTTI_TIMEOUT", "soon", "30s");
  check("TUTTI_SHM_BYTES", "1t", "64k");
  check("TUTTI_SPIN", "-1", "at least 0");
  check("TUTTI_SPIN", "many", "auto");
  check("TUTTI_SIZE", "0", "at least 1");
  check("TUTTI_LOG", "loud", "error, warn, info, debug, trace");
}

TEST_CASE("unknown names are reported with the nearest known one") {
  const auto warning = [](const char* name) {
    return check_unknown(Environment{{name, "1"}, {"OTHER", "x"}});
  };
  REQUIRE(warning("TUTTI_ADJUST_ALREDUCE").size() == 1);
  CHECK(contains(warning("TUTTI_ADJUST_ALREDUCE")[0], "did you mean TUTTI_ADJUST_ALLREDUCE?"));
  CHECK(contains(warning("TUTTI_TIME_OUT")[0], "did you mean TUTTI_TIMEOUT?"));
  CHECK(contains(warning("TUTTI_LOGG")[0], "did you mean TUTTI_LOG?"));
  REQUIRE(warning("TUTTI_COMPLETELY_DIFFERENT_THING").size() == 1);
  CHECK_FALSE(contains(warning("TUTTI_COMPLETELY_DIFFERENT_THING")[0], "did you mean"));
  CHECK(warning("TUTTI_").size() == 1);
  CHECK(warning("TUTTIFRUTTI").empty());
  CHECK(warning("TUTTI_LOG").empty());
}

TEST_CASE("an environment is a snapshot of the process") {
  REQUIRE(::setenv("TUTTI_NODE_ID", "first=1", 1) == 0);
  const Environment environment = Environment::of_process();
  REQUIRE(::setenv("TUTTI_NODE_ID", "second", 1) == 0);
  CHECK(**get_text(environment, "TUTTI_NODE_ID") == "first=1");
  REQUIRE(::unsetenv("TUTTI_NODE_ID") == 0);
}

TEST_CASE("the page for `tutti info --env`") {
  const std::string page =
      describe_environment_text(Environment{{"TUTTI_SECRET", "hush"}, {"TUTTI_TIMEOUT", "9s"}});
  for (const Variable& variable : kVariables) CHECK(contains(page, std::string(variable.name) + "="));
  CHECK(contains(page, "TUTTI_TIMEOUT=9s (set)"));
  CHECK(contains(page, "TUTTI_LOG=warn (default)"));
  CHECK_FALSE(contains(page, "hush"));
}

// UPDATE_DOCS=1 rewrites the page instead of comparing it.
TEST_CASE("docs/environment.md is what the table says") {
  const std::string path = std::string(SOURCE_ROOT) + "/docs/environment.md";
  const std::string expected = describe_environment_markdown();
  if (std::getenv("UPDATE_DOCS") != nullptr) {
    std::ofstream(path) << expected;
    return;
  }
  std::ifstream file(path);
  const std::string actual{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  INFO("run base_config_test with UPDATE_DOCS=1 to write " << path);
  CHECK(actual == expected);
}

}  // namespace
}  // namespace tutti
