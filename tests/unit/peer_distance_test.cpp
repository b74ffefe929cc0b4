// When cores count as far apart.
#include "runtime/scheduler/peer_distance.hpp"

#include "tests/support/catch.hpp"

namespace tutti {
namespace {

TEST_CASE("some looks in a row that say otherwise change what is near and far") {
  PeerDistance distance;
  CHECK_FALSE(distance.is_far());
  for (const bool was_far : {false, true}) {
    for (int round = 0; round < 3; ++round) {
      for (std::uint32_t i = 1; i < PeerDistance::kInARow; ++i) distance.note(!was_far);
      CHECK(distance.is_far() == was_far);
      distance.note(was_far);  // all that is forgotten
    }
    for (std::uint32_t i = 0; i < PeerDistance::kInARow; ++i) distance.note(!was_far);
    CHECK(distance.is_far() == !was_far);
  }
}

TEST_CASE("few looks are timed") {
  PeerDistance distance;
  std::uint32_t due = 0;
  for (std::uint32_t i = 0; i < 10 * PeerDistance::kTimedEvery; ++i) due += distance.is_due() ? 1 : 0;
  CHECK(due == 10);
}

}  // namespace
}  // namespace tutti
