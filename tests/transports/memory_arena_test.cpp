// The allocator of link memory and of the shared heap: random use against what must always hold.
// Knows nothing of what lies in the segment.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <vector>

#include "tests/support/catch.hpp"
#include "transports/memory/arena.hpp"

using tutti::Result;
using tutti::Status;
using tutti::StatusCode;
using tutti::memory::Arena;

namespace {

constexpr std::uint64_t kBegin = 4096;
constexpr std::uint64_t kEnd = kBegin + (std::uint64_t{4} << 20U);

Status back_anything(std::uint64_t, std::uint64_t) { return {}; }

}  // namespace

TEST_CASE("blocks are aligned, lie in the segment and never overlap") {
  Arena arena({kBegin, kEnd}, back_anything);
  std::mt19937 random(1);
  std::map<std::uint64_t, std::uint64_t> blocks;  // offset -> bytes asked for
  std::uint64_t used_bytes = 0;
  std::uint64_t fresh_from = kBegin;  // everything below was handed out before
  bool was_full = false;
  for (int round = 0; round < 20000; ++round) {
    if (blocks.empty() || random() % 5 < 3) {
      const std::uint64_t bytes = random() % 20000;
      const bool is_promised = random() % 2 == 0;
      if (is_promised) arena.promise(1);
      const Result<Arena::Block> block = arena.allocate(bytes, is_promised);
      if (!block) {
        REQUIRE(block.status().code() == StatusCode::resource_exhausted);
        if (is_promised) arena.withdraw(1);
        was_full = true;
        // Room for many rounds to come.
        for (int i = 0; i < 100 && !blocks.empty(); ++i) {
          used_bytes -= arena.release(blocks.begin()->first);
          blocks.erase(blocks.begin());
        }
        continue;
      }
      REQUIRE(block->offset % 64 == 0);
      REQUIRE(block->offset >= kBegin);
      REQUIRE(block->offset + bytes <= kEnd);
      const auto next = blocks.lower_bound(block->offset);
      if (next != blocks.end()) REQUIRE(block->offset + bytes <= next->first);
      if (next != blocks.begin()) REQUIRE(std::prev(next)->first + std::prev(next)->second <= block->offset);
      REQUIRE(block->is_fresh == (block->offset >= fresh_from));
      fresh_from = std::max(fresh_from, block->offset + bytes);
      blocks.emplace(block->offset, bytes == 0 ? 1 : bytes);
      used_bytes += (std::max<std::uint64_t>(bytes, 1) + 63) / 64 * 64;
    } else {
      const auto chosen = std::next(blocks.begin(), static_cast<std::ptrdiff_t>(random() % blocks.size()));
      used_bytes -= arena.release(chosen->first);
      blocks.erase(chosen);
    }
    REQUIRE(arena.used_bytes() == used_bytes);
  }
  CHECK(was_full);
}

TEST_CASE("what was released grows together again") {
  Arena arena({0, 64 * 64}, back_anything);
  // Orders of release: ascending, descending, and one that leaves holes first.
  for (const int step : {1, 63, 5}) {
    for (std::uint64_t i = 0; i < 64; ++i) REQUIRE(arena.allocate(64));
    CHECK_FALSE(arena.allocate(1));
    for (int i = 0; i < 64; ++i) arena.release(static_cast<std::uint64_t>(i * step % 64) * 64);
    CHECK(arena.used_bytes() == 0);
    const Result<Arena::Block> all = arena.allocate(64 * 64);
    REQUIRE(all);
    CHECK(all->offset == 0);
    arena.release(0);
  }
}

TEST_CASE("memory that cannot be backed is not handed out, and may be had later") {
  bool may_back = false;
  Arena arena({0, 1U << 20U}, [&](std::uint64_t, std::uint64_t) {
    return may_back ? Status() : Status(StatusCode::resource_exhausted, "not now");
  });
  arena.promise(1);
  const Result<Arena::Block> refused = arena.allocate(100, true);
  REQUIRE_FALSE(refused);
  CHECK(refused.status().message() == "not now");
  CHECK(arena.used_bytes() == 0);
  may_back = true;
  const Result<Arena::Block> block = arena.allocate(100, true);  // still promised
  REQUIRE(block);
  CHECK(block->offset == 0);
  CHECK(block->is_fresh);
}

TEST_CASE("an arena grows by ranges, and no block spans two of them") {
  constexpr std::uint64_t kApart = std::uint64_t{1} << 48U;
  std::vector<std::uint64_t> asked;
  bool may_grow = true;
  Arena arena({64, 4096}, back_anything, [&](std::size_t bytes) -> Result<Arena::Range> {
    if (!may_grow) return Status(StatusCode::resource_exhausted, "no more segments");
    asked.push_back(bytes);
    const std::uint64_t begin = asked.size() * kApart;
    return Arena::Range{begin, begin + std::max<std::size_t>(bytes, 4096)};
  });
  const Result<Arena::Block> first = arena.allocate(4096 - 64);
  REQUIRE(first);
  CHECK(asked.empty());
  const Result<Arena::Block> second = arena.allocate(1000);
  REQUIRE(second);
  CHECK(second->offset == kApart);
  CHECK(second->is_fresh);
  const Result<Arena::Block> large = arena.allocate(10000);  // the rest of the second range is too small
  REQUIRE(large);
  CHECK(large->offset == 2 * kApart);
  CHECK(asked == std::vector<std::uint64_t>{1024, 10048});
  const Result<Arena::Block> small = arena.allocate(64);  // that rest is not forgotten
  REQUIRE(small);
  CHECK(small->offset == kApart + 1024);
  may_grow = false;
  const Result<Arena::Block> refused = arena.allocate(8192);
  REQUIRE_FALSE(refused);
  CHECK(refused.status().message() == "no more segments");
  for (const std::uint64_t offset : {first->offset, second->offset, large->offset, small->offset})
    arena.release(offset);
  CHECK(arena.used_bytes() == 0);
  CHECK(arena.allocate(10048)->offset == 2 * kApart);
  CHECK_FALSE(arena.allocate(8192));
}
