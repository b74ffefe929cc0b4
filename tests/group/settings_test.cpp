// The settings of a world, whatever the program's locale is.
#include "runtime/group/settings.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <clocale>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <string>

#include "tests/support/catch.hpp"

namespace tutti {
namespace {

// A Turkish locale in a folder of its own, made from the sources of libc; empty where these are missing.
class TurkishLocale {
 public:
  TurkishLocale() {
    char folder[] = "/tmp/tutti-locale-XXXXXX";
    if (::mkdtemp(folder) == nullptr) return;
    folder_ = folder;
    const std::string command = "localedef -i tr_TR -f UTF-8 " + folder_ + "/tr_TR.UTF-8 >/dev/null 2>&1";
    if (std::system(command.c_str()) != 0) return;
    ::setenv("LOCPATH", folder, 1);
    is_set_ = std::setlocale(LC_ALL, "tr_TR.UTF-8") != nullptr;
  }
  ~TurkishLocale() {
    std::setlocale(LC_ALL, "C");
    ::unsetenv("LOCPATH");
    std::error_code error;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, error);
  }
  TurkishLocale(const TurkishLocale&) = delete;
  TurkishLocale& operator=(const TurkishLocale&) = delete;
  bool is_set() const { return is_set_; }

 private:
  std::string folder_;
  bool is_set_ = false;
};

// Returns the standard error of the work.
template <class Work>
std::string stderr_of(Work work) {
  const int before = ::dup(STDERR_FILENO);
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  ::dup2(::fileno(file), STDERR_FILENO);
  work();
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

TEST_CASE("variables of Intel MPI that mean nothing here are said to be ignored") {
  const auto said_of = [](const Environment& environment) {
    return stderr_of([&] { CHECK(read_settings(environment)); });
  };
  CHECK_THAT(
      said_of({{"I_MPI_ADJUST_REDUCE_SCATTER_BLOCK", "2"}, {"I_MPI_ADJUST_IALLREDUCE", "1"}}),
      Catch::Matchers::Contains("ignored: I_MPI_ADJUST_IALLREDUCE, I_MPI_ADJUST_REDUCE_SCATTER_BLOCK:"));
  CHECK(said_of({{"I_MPI_ADJUST_BCAST", "1"}, {"I_MPI_ADJUST_REDUCE_SCATTER", "1"}, {"I_MPI_ROOT", "/x"}})
            .empty());
}

TEST_CASE("the dtype of messages is read, and part of what all ranks must agree on") {
  const auto settings = read_settings(Environment{{"TUTTI_WIRE_DTYPE", "f8e4m3:all"}});
  REQUIRE(settings.is_ok());
  CHECK(settings->wire.dtype == Dtype::f8e4m3);
  CHECK(settings->wire.is_everywhere);
  const std::pair<std::string, std::string> agreed("TUTTI_WIRE_DTYPE", "f8e4m3:all");
  CHECK(std::find(settings->contract.begin(), settings->contract.end(), agreed) != settings->contract.end());
  CHECK(to_text(*parse_wire_setting("none:all")) == "none:all");
  CHECK_FALSE(parse_wire_setting("none")->dtype.has_value());
  CHECK_FALSE(parse_wire_setting("bf16")->is_everywhere);
  const auto refused = read_settings(Environment{{"TUTTI_WIRE_DTYPE", "f64"}});
  CHECK(refused.status().message() ==
        "TUTTI_WIRE_DTYPE: 'f64' is no dtype for messages: expected none, bf16, f16, f8e4m3 or f8e5m2; with "
        ":all "
        "behind it for messages within a node, too");
}

TEST_CASE("progress threads: our names, their deprecated ones, and MLSL's where neither is set") {
  using Cpus = std::vector<std::vector<std::uint32_t>>;
  const auto settings_of = [](const Environment& environment) {
    const auto settings = read_progress_settings(environment);
    REQUIRE(settings);
    return *settings;
  };
  const ProgressSettings unset = settings_of({});
  CHECK(unset.thread_count == 1);
  CHECK(unset.cpus.entries.empty());
  Environment environment{{"MLSL_NUM_SERVERS", "4"}, {"MLSL_SERVER_AFFINITY", "7"}};
  CHECK(settings_of(environment).thread_count == 4);
  CHECK(settings_of(environment).cpus.entries == Cpus{{7}});
  CHECK(settings_of(environment).cpus_may_be_missing);
  environment.set("TUTTI_WORKERS", "3");
  environment.set("TUTTI_WORKER_AFFINITY", "6");
  CHECK(settings_of(environment).thread_count == 3);
  CHECK(settings_of(environment).cpus.entries == Cpus{{6}});
  environment.set("TUTTI_PROGRESS_THREADS", "2");
  environment.set("TUTTI_PROGRESS_AFFINITY", "0,1");
  CHECK(settings_of(environment).thread_count == 2);
  CHECK(settings_of(environment).cpus.entries == Cpus{{0}, {1}});
  CHECK_FALSE(settings_of(environment).cpus_may_be_missing);
  const std::string said = stderr_of([&] {
    CHECK(settings_of({{"MLSL_NUM_SERVERS", "many"}, {"MLSL_SERVER_AFFINITY", "all"}}).thread_count == 1);
  });
  CHECK_THAT(said, Catch::Matchers::Contains("MLSL_NUM_SERVERS='many'"));
  CHECK_THAT(said, Catch::Matchers::Contains("MLSL_SERVER_AFFINITY: 'all'"));
}

TEST_CASE("variables have the same names in a Turkish locale") {
  const TurkishLocale locale;
  if (!locale.is_set()) {
    WARN("skipped: localedef cannot make tr_TR.UTF-8 here");
    return;
  }
  REQUIRE(std::localeconv()->decimal_point == std::string(","));
  const auto settings = read_settings({{"TUTTI_ADJUST_BARRIER", "dissemination"}, {"TUTTI_TIMEOUT", "1.5s"}});
  REQUIRE(settings);
  CHECK(settings->timeout == std::chrono::milliseconds(1500));
  CHECK(std::any_of(settings->rules.begin(), settings->rules.end(), [](const RuleText& rule) {
    return rule.source == "TUTTI_ADJUST_BARRIER" && rule.text == "dissemination";
  }));
}

}  // namespace

TEST_CASE("a rank has as many helpers as it has idle cores of its own") {
  Topology machine;  // four cores of two threads
  for (std::uint32_t core = 0; core < 4; ++core) {
    machine.cores.push_back({2 * core, 2});
    for (const std::uint32_t cpu : {core, core + 4}) machine.pus.push_back({cpu, true});
  }
  machine.sockets = {{0, 8}};
  using Cpus = std::vector<std::uint32_t>;
  const Cpus all = {0, 1, 2, 3, 4, 5, 6, 7};
  const auto count = [&](const Cpus& own, const std::vector<Cpus>& neighbours) {
    return choose_helper_count(machine, own, neighbours);
  };
  CHECK(count({0, 1, 2, 4, 5, 6}, {}) == 2);
  CHECK(count({0, 1, 4, 5}, {{2, 3, 6, 7}}) == 1);
  CHECK(count({0, 4}, {}) == 0);  // two threads of one core
  CHECK(count({0}, {{1}}) == 0);
  CHECK(count(all, {}) == 0);              // not bound
  CHECK(count({0, 1, 2}, {{2, 3}}) == 0);  // a CPU that another rank may use
  CHECK(count({100, 101}, {}) == 1);       // not in the topology
  CHECK(count({}, {}) == 0);
  machine.cpu_quota_milli = 2500;
  CHECK(count({0, 1, 2}, {}) == 1);
  CHECK(count({0, 1, 4, 5}, {{2, 3, 6, 7}}) == 0);
  machine.cpu_quota_milli = 0;
  for (std::uint32_t cpu = 8; cpu < 80; ++cpu) machine.pus.push_back({cpu, true});
  Cpus many(64);
  std::iota(many.begin(), many.end(), 100U);
  CHECK(count(many, {}) == kMostAutomaticHelpers);
}

TEST_CASE("TUTTI_HELPERS is auto or a number") {
  const auto count_of = [](const char* value) { return read_helper_settings({{"TUTTI_HELPERS", value}}); };
  CHECK_FALSE(read_helper_settings({})->count);
  CHECK_FALSE(count_of("auto")->count);
  CHECK(count_of("0")->count == 0U);
  CHECK(count_of("12")->count == 12U);
  for (const char* wrong : {"-1", "256", "some", "3x", "1.5"}) {
    CAPTURE(wrong);
    CHECK_THAT(count_of(wrong).status().message(),
               Catch::Matchers::Contains("expected auto or a number from 0"));
  }
}

}  // namespace tutti
