// The order of operations under a priority: window, overtaking and ageing, without ranks.
#include "runtime/training/grant_window.hpp"

#include <set>

#include "tests/support/catch.hpp"

using namespace tutti;

namespace {

constexpr std::uint64_t kPiece = std::uint64_t{2} << 20U;
using Numbers = std::vector<std::uint64_t>;

// A window, and which of its slots some rank has not completed.
struct Ranks {
  std::vector<std::uint64_t> unfinished = std::vector<std::uint64_t>(GrantWindow::kMostSlots / 64);
  GrantWindow window;

  // The operations of the pieces that are granted.
  Numbers grant(bool was_idle = false) {
    Numbers operations;
    for (const GrantWindow::Grant& grant : window.grant(unfinished, was_idle)) {
      operations.push_back(grant.operation);
      unfinished[grant.slot / 64] |= std::uint64_t{1} << grant.slot % 64;
    }
    return operations;
  }
  void complete(std::uint32_t slot) { unfinished[slot / 64] &= ~(std::uint64_t{1} << slot % 64); }
  void complete_all() { unfinished.assign(unfinished.size(), 0); }
};

}  // namespace

TEST_CASE("a window of pieces is under way, and the next one begins once all ranks have completed one") {
  Ranks ranks;
  ranks.window.add(1, 0, 10, kPiece);
  CHECK(ranks.grant() == Numbers{1, 1, 1, 1});
  CHECK(ranks.grant().empty());
  ranks.complete(2);
  const auto grants = ranks.window.grant(ranks.unfinished, false);
  REQUIRE(grants.size() == 1);
  CHECK(grants[0].piece == 4);
  CHECK(grants[0].slot == 2);
}

TEST_CASE("an urgent operation overtakes the rest of the others") {
  Ranks ranks;
  ranks.window.add(1, 0, 50, kPiece);
  ranks.window.add(2, 0, 1, kPiece);
  ranks.grant();
  ranks.window.add(3, 5, 1, 1000);
  ranks.window.add(4, 7, 2, kPiece);
  ranks.complete_all();
  CHECK(ranks.grant() == Numbers{4, 4, 3, 1, 1});  // as many as the window holds
  CHECK(ranks.window.has_waiting());
}

TEST_CASE("an operation that others overtake gets its turn") {
  Ranks ranks;
  ranks.window.add(1, 0, 100, kPiece);
  ranks.window.add(2, 9, 100, kPiece);
  Numbers all;
  while (ranks.window.has_waiting()) {
    for (const std::uint64_t operation : ranks.grant()) all.push_back(operation);
    ranks.complete_all();
  }
  const auto first = std::find(all.begin(), all.end(), 1U);
  CHECK(first - all.begin() == GrantWindow::kMostOvertakes);
  // The urgent one still has nearly all of the bandwidth, and is complete soon.
  const auto last = std::find(all.rbegin(), all.rend(), 2U);
  CHECK(all.rend() - last <= 100 + 100 / 16);
}

TEST_CASE("the window grows where ranks are idle, and shrinks again") {
  Ranks ranks;
  ranks.window.add(1, 0, 10000, kPiece);
  CHECK(ranks.grant().size() == 4);
  ranks.complete_all();
  CHECK(ranks.grant(true).size() == 8);
  for (int i = 0; i < 9; ++i) {
    ranks.complete_all();
    ranks.grant(true);
  }
  CHECK(ranks.window.window_bytes() == GrantWindow::kMostBytes);
  for (int i = 0; i < 1000 && ranks.window.window_bytes() > GrantWindow::kLeastBytes; ++i) {
    ranks.complete_all();
    ranks.grant();
  }
  CHECK(ranks.window.window_bytes() == GrantWindow::kLeastBytes);
}

TEST_CASE("there are no more pieces under way than slots") {
  Ranks ranks;
  for (std::uint64_t i = 0; i < 3000; ++i) ranks.window.add(i, 0, 1, 0);
  CHECK(ranks.grant().size() == GrantWindow::kMostSlots);
  ranks.complete(7);
  CHECK(ranks.grant() == Numbers{1024});
  ranks.complete_all();
  ranks.grant();
  ranks.complete_all();
  ranks.grant();
  ranks.complete_all();
  CHECK(ranks.grant().empty());
  CHECK(ranks.window.is_empty());
  CHECK(ranks.window.word_count() == 0);
}
