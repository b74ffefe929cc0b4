// Staging memory: how a rank stores into it, told what copies took, and where in it an epoch begins.
#include "runtime/scheduler/staging_stores.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "runtime/scheduler/control_block.hpp"
#include "tests/support/catch.hpp"

namespace tutti {
namespace {

using Way = StagingStores::Way;

// Makes batches that take so long a line, cached and streamed; how many of them were streamed.
int make_batches(StagingStores& stores, int batches, double cached_ns, double streamed_ns) {
  int streamed = 0;
  for (int i = 0; i < batches; ++i) {
    const Way way = stores.way();
    streamed += static_cast<int>(way.is_streamed);
    stores.count(way.is_streamed ? streamed_ns : cached_ns);
  }
  return streamed;
}

TEST_CASE("neighbours store through their caches, and few of their batches are timed") {
  StagingStores stores;
  int timed = 0;
  for (int i = 0; i < 800; ++i) {
    const Way way = stores.way();
    CHECK_FALSE(way.is_streamed);
    timed += static_cast<int>(way.is_timed);
    stores.count(8);
  }
  CHECK(timed == 800 / static_cast<int>(StagingStores::kTimedEvery));
}

TEST_CASE("where lines come back slowly, stores soon are non-temporal, but for probes") {
  StagingStores stores;
  const int learning = StagingStores::kTimedEvery + StagingStores::kTimesInARow - 1;
  CHECK(make_batches(stores, learning, 30, 2) == 0);
  CHECK(stores.is_streaming());
  CHECK(make_batches(stores, StagingStores::kTimesInARow, 30, 2) == StagingStores::kTimesInARow);
  const int probes = 10;
  CHECK(make_batches(stores, probes * StagingStores::kProbedEvery, 30, 2) ==
        probes * StagingStores::kProbedEvery - probes);
}

TEST_CASE("one slow batch among quick ones changes nothing") {
  StagingStores stores;
  for (int i = 0; i < 1000; ++i) {
    REQUIRE_FALSE(stores.way().is_streamed);
    stores.count(i % 3 == 0 ? 100000 : 5);
  }
}

TEST_CASE("an input that is slow itself is no reason: streamed copies are as slow, which is remembered") {
  StagingStores stores;
  const int learning = StagingStores::kTimedEvery + StagingStores::kTimesInARow - 1;
  const int trial = StagingStores::kTimesInARow;
  CHECK(make_batches(stores, learning + trial, 25, 20) == trial);
  CHECK_FALSE(stores.is_streaming());
  CHECK(make_batches(stores, StagingStores::kPatience, 25, 20) == 0);
}

TEST_CASE("when ranks have become neighbours again, two probes find it out; one that was lucky does not") {
  StagingStores stores;
  make_batches(stores, 100, 30, 2);
  REQUIRE(stores.is_streaming());
  bool is_lucky = true;
  for (int i = 0; i < 640; ++i) {
    const Way way = stores.way();
    stores.count(way.is_streamed ? 2 : is_lucky ? 5 : 30);
    if (way.is_timed) is_lucky = !is_lucky && !way.is_streamed;
  }
  CHECK(stores.is_streaming());
  make_batches(stores, 2 * StagingStores::kProbedEvery, 7, 2);
  CHECK_FALSE(stores.is_streaming());
  make_batches(stores, 100, 30, 2);
  CHECK(stores.is_streaming());
}

TEST_CASE("all copies of an epoch are made in one way, and count as one batch; a short one does not count") {
  StagingStores stores;
  const std::vector<std::byte> from(StagingStores::kLeastBytes);
  std::vector<std::byte> to(from.size());
  const auto stage = [&](int copies, std::size_t size_bytes) {
    for (int i = 0; i < copies; ++i) stores.copy(to.data(), from.data(), size_bytes);
    stores.end_batch();
  };
  // One more, and the next is timed.
  make_batches(stores, StagingStores::kTimedEvery - 2, 8, 2);
  const int copies = static_cast<int>(StagingStores::kLeastBytes / StagingStores::kLeastCopyBytes);
  stage(copies - 1, StagingStores::kLeastCopyBytes);
  CHECK_FALSE(stores.way().is_timed);
  stage(100 * copies, StagingStores::kLeastCopyBytes);
  CHECK(stores.way().is_timed);
  // Short ones may come when one is due: it stays due.
  stage(1, StagingStores::kLeastCopyBytes);
  CHECK(stores.way().is_timed);
  CHECK(StagingStores::is_much(StagingStores::kLeastCopyBytes, StagingStores::kLeastBytes));
  CHECK_FALSE(StagingStores::is_much(StagingStores::kLeastCopyBytes - 1, StagingStores::kLeastBytes));
  CHECK_FALSE(StagingStores::is_much(StagingStores::kLeastCopyBytes, StagingStores::kLeastBytes - 1));
}

TEST_CASE("small epochs take all places of their area in turn, large ones the first") {
  const ControlBlockShape shape{1, 128, 2048, true};
  std::set<std::size_t> places;
  for (std::uint64_t epoch = 1; epoch <= 64; ++epoch) {
    const std::size_t place = shape.rotated_offset(epoch, 192);
    places.insert(place);
    CHECK(place % 192 == 0);
    CHECK(place + 192 <= shape.staging_bytes);
    CHECK(shape.rotated_offset(epoch, 1088) == 0);
    CHECK(shape.rotated_offset(epoch, 0) == 0);
    CHECK(ControlBlockShape{1, 128, 2048}.rotated_offset(epoch, 192) == 0);
  }
  CHECK(places.size() == 10);
  // The areas of two epochs in a row are apart already.
  CHECK(shape.rotated_offset(2, 192) == shape.rotated_offset(3, 192));
  CHECK(shape.rotated_offset(2, 192) != shape.rotated_offset(4, 192));
}

TEST_CASE("two ranks that both write keep to one place; where lines must be taken back epochs walk") {
  const ControlBlockShape shape{1, 128, 2048, true};
  const ControlBlocks of_two(shape, StagingPolicy::cached, 0, 2),
      of_three(shape, StagingPolicy::cached, 0, 3);
  for (std::uint64_t epoch = 1; epoch <= 16; ++epoch) {
    CHECK(of_two.staging_place(epoch, 192, true) == 0);
    CHECK(of_two.staging_place(epoch, 192, false) == shape.rotated_offset(epoch, 192));
    CHECK(of_three.staging_place(epoch, 192, true) == shape.rotated_offset(epoch, 192));
  }
}

TEST_CASE("who asks for one way gets it, untimed, and bytes arrive whichever it is") {
  for (const StagingPolicy policy :
       {StagingPolicy::measured, StagingPolicy::cached, StagingPolicy::streamed}) {
    StagingStores stores(policy);
    if (policy != StagingPolicy::measured) {
      CHECK(stores.way() == Way{policy == StagingPolicy::streamed, false});
      CHECK(make_batches(stores, 100, 1000, 1) == (policy == StagingPolicy::streamed ? 100 : 0));
    }
    for (const std::size_t size_bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4095}, std::size_t{4096},
                                         std::size_t{4097}, std::size_t{100000}}) {
      std::vector<std::byte> from(size_bytes), to(size_bytes + 1);
      for (std::size_t i = 0; i < size_bytes; ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
      for (int i = 0; i < 100; ++i) {
        std::fill(to.begin(), to.end(), std::byte{0});
        stores.copy(to.data(), from.data(), size_bytes);
        stores.end_batch();
        REQUIRE(std::equal(from.begin(), from.end(), to.begin()));
        REQUIRE(to.back() == std::byte{0});
      }
    }
  }
}

}  // namespace
}  // namespace tutti
