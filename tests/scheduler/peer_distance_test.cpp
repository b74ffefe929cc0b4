// When cores count as cross-LLC, and the back-off before the first poll.
#include "runtime/scheduler/peer_distance.hpp"

#include <array>

#include "tests/support/catch.hpp"

namespace tutti {
namespace {

constexpr double kFarLineNs = 80;
constexpr std::size_t kInLine = 0, kBeside = 1024;  // bytes beside the line

void note(PeerDistance& distance, double look_ns) { distance.note(look_ns, kFarLineNs); }

TEST_CASE("some looks in a row that say otherwise change what is near and far") {
  PeerDistance distance;
  CHECK_FALSE(distance.is_cross_llc());
  for (const bool was_far : {false, true}) {
    const double same = was_far ? 110 : 20, other = was_far ? 20 : 80;
    for (int round = 0; round < 3; ++round) {
      for (std::uint32_t i = 1; i < PeerDistance::kInARow; ++i) note(distance, other);
      CHECK(distance.is_cross_llc() == was_far);
      note(distance, same);  // all that is forgotten
    }
    for (std::uint32_t i = 0; i < PeerDistance::kInARow; ++i) note(distance, other);
    CHECK(distance.is_cross_llc() == !was_far);
  }
}

TEST_CASE("the back-off before the first poll grows with the time of polls between cross-LLC cores") {
  PeerDistance distance;
  const double near_short = distance.backoff_ns(kInLine), near_long = distance.backoff_ns(kBeside);
  CHECK(near_short > 0);
  CHECK(distance.backoff_ns(64) == near_short);
  CHECK(distance.backoff_ns(65) == near_long);
  CHECK(near_short < near_long);
  note(distance, 20);
  for (std::uint32_t i = 0; i < PeerDistance::kInARow; ++i) note(distance, 110 + i);
  const double far_short = distance.backoff_ns(kInLine);
  CHECK(far_short > near_long);
  CHECK(far_short < distance.backoff_ns(kBeside));
  SECTION("what interrupts some of the looks does not count") {
    for (std::uint32_t i = 1; i < PeerDistance::kInARow; ++i) note(distance, 1e6);
    CHECK(distance.backoff_ns(kInLine) < 1.1 * far_short);
  }
  SECTION("nor what was near meanwhile") {
    for (std::uint32_t i = 1; i < PeerDistance::kInARow; ++i) note(distance, i == 1 ? -5 : 20);
    CHECK(distance.backoff_ns(kInLine) == far_short);
  }
  SECTION("twice as far, twice as long") {
    for (std::uint32_t i = 0; i < PeerDistance::kInARow; ++i) note(distance, 220 + 2 * i);
    CHECK(distance.backoff_ns(kInLine) == 2 * far_short);
  }
  SECTION("and never for long") {
    for (std::uint32_t i = 0; i < PeerDistance::kInARow; ++i) note(distance, 1e6);
    CHECK(distance.backoff_ns(kBeside) < 1000);
  }
  SECTION("neighbours again") {
    for (std::uint32_t i = 0; i < PeerDistance::kInARow; ++i) note(distance, 20);
    CHECK(distance.backoff_ns(kInLine) == near_short);
    CHECK(distance.backoff_ns(kBeside) == near_long);
  }
}

TEST_CASE("few calls are timed, and each wait gets its turn") {
  PeerDistances distances(4);
  std::array<int, 4> timed{};
  for (std::uint32_t i = 0; i < 30 * PeerDistances::kTimedEvery; ++i) ++timed[distances.next_timed(3)];
  CHECK(timed == std::array{30 * 7, 10, 10, 10});
  for (std::uint32_t i = 0; i < 2 * PeerDistances::kTimedEvery; ++i) CHECK(distances.next_timed(0) == 0);
}

TEST_CASE("each peer has its own distance") {
  PeerDistances distances(3);
  CHECK_FALSE(distances.of(2).is_cross_llc());
  for (std::uint32_t i = 0; i < PeerDistance::kInARow; ++i) {
    CHECK_FALSE(distances.has_cross_llc());
    distances.note(0, 20, kFarLineNs);
    distances.note(2, 150, kFarLineNs);
  }
  CHECK_FALSE(distances.of(0).is_cross_llc());
  CHECK_FALSE(distances.of(1).is_cross_llc());
  CHECK(distances.of(2).is_cross_llc());
  CHECK(distances.has_cross_llc());
  CHECK(distances.of(2).backoff_ns(kBeside) > distances.of(0).backoff_ns(kBeside));
  for (std::uint32_t i = 0; i < PeerDistance::kInARow; ++i) distances.note(2, 20, kFarLineNs);
  CHECK_FALSE(distances.has_cross_llc());
}

}  // namespace
}  // namespace tutti
