// Autotuning of named tensors: the search by itself, and with queues that write the tuning file and read it.
#include "runtime/training/autotuner.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "runtime/group/tensor_settings.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/thread_ranks.hpp"
#include "tutti/tensors.hpp"

using namespace tutti;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;

struct Search {
  FusionTuning best;
  std::size_t windows = 0;
};

// Steps of one tensor of 1 MB, on a machine where they take so many microseconds.
Search search(const std::function<double(const FusionTuning&)>& microseconds, bool tunes_bytes = true,
              bool tunes_cycle = true) {
  RunningClock::time_point now{};
  FusionTuning setting;
  Autotuner tuner(setting, tunes_bytes, tunes_cycle, now);
  Search found;
  for (int step = 0; step < 100000 && !tuner.has_ended(); ++step) {
    now += std::chrono::nanoseconds(static_cast<std::int64_t>(1000 * microseconds(setting)));
    tuner.note("gradient", 1000000);
    if (const auto next = tuner.end_cycle(now)) {
      REQUIRE(*next != setting);
      setting = *next;
    }
    found.windows += tuner.last_window() ? 1 : 0;
  }
  REQUIRE(tuner.has_ended());
  CHECK(setting == tuner.best());  // the last one that was announced
  found.best = tuner.best();
  return found;
}

// The folder of a test, and the environment of worlds in it.
class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() / ("autotuner_test_" + make_unique_id().substr(0, 16))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Steps of two tensors, until `ends` says so on rank 0.
Verdict train(CommGroup& group, int most_steps, const std::function<bool()>& ends) {
  const TensorQueue queue(group);
  for (int step = 0; step < most_steps; ++step) {
    std::vector<float> values[2] = {std::vector<float>(1000, 1), std::vector<float>(3000, 2)};
    std::vector<Work> works;
    for (int i = 0; i < 2; ++i) {
      const std::uint64_t shape[] = {values[i].size()};
      TensorCall call;
      call.input = call.output = values[i].data();
      call.shape = shape;
      works.push_back(queue.submit("t" + std::to_string(i), call));
    }
    wait_all(works);
    if (values[0][7] != static_cast<float>(group.size()) ||
        values[1][7] != static_cast<float>(2 * group.size()))
      return "a sum is wrong in step " + std::to_string(step);
    int has_ended = group.rank() == 0 && ends() ? 1 : 0;
    group.broadcast(std::span(&has_ended, 1), 0);
    if (has_ended != 0) return {};
  }
  return "it has not ended";
}

}  // namespace

TEST_CASE("the search finds the bytes, and then the cycle, with the greatest throughput") {
  const Search found = search([](const FusionTuning& s) {
    return (s.bytes == 16 * kMiB ? 500.0 : 600.0) + (s.cycle_us == 2500 ? 0.0 : 50.0);
  });
  CHECK(found.best == FusionTuning{16 * kMiB, 2500});
  CHECK(found.windows == (5 + 5) * Autotuner::kWindowsPerCandidate);
}

TEST_CASE("differences within the noise change nothing") {
  int calls = 0;
  const Search found = search([&](const FusionTuning& s) {
    // One window in three is disturbed, and other settings are faster by 2 %.
    const double disturbance = ++calls / 10 % 3 == 0 ? 3.0 : 1.0;
    return (s == FusionTuning() ? 500.0 : 490.0) * disturbance;
  });
  CHECK(found.best == FusionTuning());
}

TEST_CASE("a value that was given stays") {
  const auto fastest_last = [](const FusionTuning& s) {
    return 1e9 / static_cast<double>(s.bytes) + 1e6 / static_cast<double>(s.cycle_us);
  };
  CHECK(search(fastest_last, false, true).best == FusionTuning{64 * kMiB, 10000});
  CHECK(search(fastest_last, true, false).best.cycle_us == 1000);
  const Autotuner none({}, false, false, {});
  CHECK(none.has_ended());
}

TEST_CASE("a window ends even where no name comes again") {
  RunningClock::time_point now{};
  Autotuner tuner({}, true, true, now);
  int windows = 0;
  for (int step = 0; step < 500000; ++step) {
    now += std::chrono::microseconds(1);
    tuner.note("once " + std::to_string(step), 10);
    static_cast<void>(tuner.end_cycle(now));
    windows += tuner.last_window() ? 1 : 0;
  }
  CHECK(windows == 3);  // of the four behind the first one, the last begins with another setting
}

TEST_CASE("variables come before the tuning file") {
  Tuning tuning;
  tuning.fusion[4] = {kMiB, 250};
  TensorSettings settings;
  use_tuning(tuning, 3, settings);
  CHECK(settings.fusion.fused_bytes == 64 * kMiB);
  use_tuning(tuning, 4, settings);
  CHECK(settings.fusion.fused_bytes == kMiB);
  CHECK(settings.cycle.count() == 250);
  TensorSettings given;
  given.are_bytes_given = true;
  use_tuning(tuning, 4, given);
  CHECK(given.fusion.fused_bytes == 64 * kMiB);
  CHECK(given.cycle.count() == 250);
}

TEST_CASE("a job that trains writes the tuning file, and the next job uses it") {
  const Folder folder;
  const std::string file = folder / "tuning.json", log = folder / "log.csv";
  const Variables variables({{"TUTTI_TUNING_FILE", file}, {"TUTTI_AUTOTUNE_LOG", log}});
  {
    const Variables more({{"TUTTI_AUTOTUNE", "1"}});
    const auto train_until_written = [&](CommGroup& group) {
      return train(group, 3000, [&] { return std::filesystem::exists(file); });
    };
    REQUIRE(with_ranks(2, train_until_written) == "");
  }
  const auto tuning = parse_tuning(text_of(file), file);
  INFO(text_of(file));
  REQUIRE(tuning.is_ok());
  REQUIRE(tuning->fusion.count(2) == 1);
  CHECK_FALSE(tuning->fingerprint.empty());
  const std::string lines = text_of(log);
  CHECK(lines.starts_with("fusion_bytes,cycle_us,bytes_per_second\n"));
  CHECK(static_cast<std::size_t>(std::count(lines.begin(), lines.end(), '\n')) ==
        1 + (5 + 5) * Autotuner::kWindowsPerCandidate);
  // It fits, since a file that is named must.
  CHECK(with_ranks(2, [](CommGroup& group) {
          return train(group, 3, [step = 0]() mutable { return ++step == 2; });
        }) == "");
}

TEST_CASE("rules that were imported are not lost") {
  const Folder folder;
  const std::string file = folder / "tuning.json";
  const std::string imported = to_text(Tuning());
  std::ofstream(file) << imported;
  const Variables variables(
      {{"TUTTI_TUNING_FILE", file}, {"TUTTI_AUTOTUNE", "1"}, {"TUTTI_FUSION_BYTES", "1m"}});
  int step = 0;
  CHECK(with_ranks(2, [&](CommGroup& group) { return train(group, 3000, [&] { return ++step == 400; }); }) ==
        "");
  CHECK(text_of(file) == imported);
}
