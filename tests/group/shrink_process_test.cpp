// Groups that go on after ranks were killed: at any time, any rank, several times. Each seed is one job.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/group/job.hpp"
#include "tests/support/catch.hpp"

using namespace tutti::test;

namespace {

void survives(int size, int survivors, int seed) {
  const Outcome outcome =
      run({SHRINK_PROGRAM, std::to_string(size), std::to_string(survivors), std::to_string(seed)});
  INFO("seed " << seed << "\n" << outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  CHECK_FALSE(outcome.is_late);
  CHECK(count(outcome.out, "ends in " + std::to_string(survivors)) == static_cast<std::size_t>(survivors));
}

}  // namespace

TEST_CASE("survivors go on in one group, whoever is killed whenever") {
  constexpr int kSeeds = 12;
  for (int seed = 0; seed < kSeeds; ++seed) {
    survives(4, 2, seed);
    survives(6, 1 + seed % 3, seed);
  }
}

TEST_CASE("new processes replace killed ones, whoever is killed whenever") {
  for (int seed = 0; seed < 20; ++seed) {
    const Outcome outcome = run({SHRINK_PROGRAM, "4", "replace", std::to_string(seed)});
    INFO("seed " << seed << "\n" << outcome.out << outcome.err);
    CHECK(outcome.status == 0);
    CHECK_FALSE(outcome.is_late);
    CHECK(count(outcome.out, "ends in 4") == 4);
  }
}

TEST_CASE("shrinking leaves no descriptor and no mapping behind") {
  const Outcome outcome = run({SHRINK_PROGRAM, "4", "repeat"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
}

TEST_CASE("replacing ranks leaves no descriptor and no mapping behind") {
  const Outcome outcome = run({SHRINK_PROGRAM, "4", "rotate"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  CHECK(count(outcome.out, "was in a group of 4") == 16);
}

TEST_CASE("a group on shared memory grows by a process of its node, then by one of another node") {
  const Outcome outcome = run({SHRINK_PROGRAM, "2", "grow"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  CHECK(count(outcome.out, "is in a group of 3") == 3);
}

TEST_CASE("only processes of the first world write a trace, each its own file") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("tutti-shrink-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const Outcome outcome =
      run({"env", "TUTTI_TRACE=" + (folder / "trace.json").string(), SHRINK_PROGRAM, "3", "rotate"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  for (int rank = 0; rank < 3; ++rank) {
    std::ifstream file(folder / ("trace." + std::to_string(rank) + ".json"));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    INFO("rank " << rank);
    CHECK(count(text, "\"process_name\"") == 1);
  }
  CHECK_FALSE(std::filesystem::exists(folder / "trace.3.json"));
  std::filesystem::remove_all(folder);
}
