// Printed schedules of rows for p = 4 and 5 against tests/golden/: a change shows as a diff to review. A new
// row needs no file (it is proved elsewhere); TUTTI_UPDATE_GOLDEN=1 writes one for every row.
#include "tests/schedule/support.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "runtime/schedule/passes/compress.hpp"
#include "runtime/schedule/passes/lower.hpp"
#include "runtime/schedule/passes/segment.hpp"

using namespace tutti;
using namespace tutti::test;

namespace {

std::filesystem::path path_of(const std::string& name) {
  return std::filesystem::path(GOLDEN_FOLDER) / (name + ".txt");
}

bool is_updating() { return std::getenv("TUTTI_UPDATE_GOLDEN") != nullptr; }

void compare(const std::string& name, const std::string& text) {
  const std::filesystem::path path = path_of(name);
  if (is_updating()) {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream file(path);
  std::stringstream expected;
  expected << file.rdbuf();
  INFO("TUTTI_UPDATE_GOLDEN=1 writes " << path << " anew");
  CHECK(expected.str() == text);
}

}  // namespace

TEST_CASE("rows print as they did") {
  std::size_t compared = 0;
  for (const AlgorithmRow& row : catalog()) {
    const std::string name = fmt::format("{}_{}", to_string(row.collective), row.name);
    if (!is_updating() && !std::filesystem::exists(path_of(name))) continue;
    ++compared;
    std::string text;
    for (const std::uint32_t p : {4U, 5U}) {
      const std::uint32_t root = is_rooted(row.collective) ? 1 : 0;
      const auto instances = instances_of(row, p, root);
      if (instances.empty()) continue;
      const auto ranks = emit_all(row, instances[0]);
      INFO(ranks.status().message());
      REQUIRE(ranks.is_ok());
      for (const Schedule& s : *ranks) text += print_schedule(s, TextForm::rolled);
    }
    compare(name, text);
  }
  // The four printed passes are no rows; every other file belongs to one.
  const auto files = std::distance(std::filesystem::directory_iterator(GOLDEN_FOLDER), {});
  CHECK(compared + 4 == static_cast<std::size_t>(files));
}

TEST_CASE("passes print as they did") {
  auto ring = emit_row(Collective::allreduce, "ring", 4);
  for (Schedule& s : ring) {
    auto cut = segment(s, 2, 1);
    REQUIRE(cut.is_ok());
    s = *std::move(cut);
  }
  compare("pass_segment_allreduce_ring", print_schedule(ring[0]));
  const auto compressed = compress(emit_row(Collective::allreduce, "recursive_doubling", 4)[1], nullptr);
  REQUIRE(compressed.is_ok());
  compare("pass_compress_allreduce_recursive_doubling", print_schedule(*compressed));
  const auto lowered = lower_for_shared_memory(emit_row(Collective::allreduce, "two_shot", 4));
  REQUIRE(lowered.is_ok());
  std::string text;
  for (const Schedule& s : *lowered) text += print_schedule(s);
  compare("pass_lower_allreduce_two_shot", text);
  const auto staged =
      lower_for_shared_memory(emit_row(Collective::allreduce, "one_shot", 3), Sharing::scratch);
  REQUIRE(staged.is_ok());
  text.clear();
  for (const Schedule& s : *staged) text += print_schedule(s);
  compare("pass_stage_allreduce_one_shot", text);
}
