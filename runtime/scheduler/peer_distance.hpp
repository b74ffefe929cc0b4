// Estimates core-to-core latency of cache lines from timed polls, for each peer, and derives the back-off before the
// first poll. Knows no control block and no clock.
//
// Ranks that have just met come to their next call together. A poll right behind the own signal fetches the
// peers' flag lines before they are written. Then the peers' stores must take them back first. After a short
// back-off they are written. Longer messages are written later, so their back-off is longer.
//
// A line crosses in 30 to 60 ns between cores of one last-level cache (LLC), in 150 to 250 between chiplets or
// sockets. A store to a line that a peer has read takes as long. So between caches a rank prefetches for ownership
// the lines that it writes next: of two ranks when it reads them, of more when a call has ended. The distance can
// change while a program runs (a virtual machine is moved), so some polls are timed. Every rank decides for itself.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/relax.hpp"

namespace tutti {

// Of one peer. Not thread-safe.
class PeerDistance {
 public:
  static constexpr std::uint32_t kInARow = 4;  // timed polls that say otherwise, without another in between

  bool is_cross_llc() const { return is_cross_llc_; }
  // A poll that found the flag took so long; `cross_llc_ns` and more is between caches.
  void note(double poll_ns, double cross_llc_ns) {
    const bool is_cross = poll_ns >= cross_llc_ns;
    if (is_cross)
      cross_polls_ns_[cross_polls_++ % kInARow] = static_cast<float>(std::clamp(poll_ns, 0.0, kMostPollNs));
    if (is_cross == is_cross_llc_) streak_ = 0;
    if (is_cross == is_cross_llc_ || ++streak_ < kInARow) return;
    is_cross_llc_ = !is_cross_llc_;
    streak_ = 0;
  }
  // The back-off before the first poll of a flag that stands for so many bytes of staging.
  double backoff_ns(std::size_t bytes) const {
    const bool is_line = bytes <= kLineBytes;
    // Measured where a poll takes 20 ns. A call of 4 B takes 1.5 times as long without a back-off as with 25 ns,
    // and 1.1 times with 49. A call of 1 KiB takes 1.7 times as long with 25 ns as with 49.
    if (!is_cross_llc_) return is_line ? 33 : 45;
    // Measured where a poll takes 110 ns. A call of 4 B takes 1.6 times as long after 0.7 polls as after 1.2, and
    // 1.2 times after 1.8. Longer calls need 1.8, or their slowest twentieth is slower.
    return (is_line ? 1.2 : 1.8) * *std::ranges::min_element(cross_polls_ns_);
  }

 private:
  static constexpr double kMostPollNs = 500;

  bool is_cross_llc_ = false;
  std::uint8_t streak_ = 0, cross_polls_ = 0;
  std::array<float, kInARow> cross_polls_ns_ = {};  // the last ones; the shortest were not interrupted
};

// The distances of a group's members. Takes memory at the first timed poll, so none where ranks share CPUs. Not
// thread-safe.
class PeerDistances {
 public:
  static constexpr std::uint32_t kTimedEvery = 8;  // calls

  explicit PeerDistances(std::uint32_t size) : size_(size) {}

  const PeerDistance& of(std::uint32_t peer) const { return known_.empty() ? unknown_ : known_[peer]; }
  // Is some peer in another last-level cache?
  bool has_cross_llc() const { return cross_count_ != 0; }
  // The wait of the next call whose polls are to be timed, from 1 to `waits`; 0: none. Each gets its turn.
  std::uint32_t next_timed(std::uint32_t waits) {
    if (++count_ % kTimedEvery != 0 || waits == 0) return 0;
    return count_ / kTimedEvery % waits + 1;
  }
  void note(std::uint32_t peer, double poll_ns, double cross_llc_ns) {
    if (known_.empty()) known_.resize(size_);
    PeerDistance& distance = known_[peer];
    cross_count_ -= distance.is_cross_llc() ? 1 : 0;
    distance.note(poll_ns, cross_llc_ns);
    cross_count_ += distance.is_cross_llc() ? 1 : 0;
  }

 private:
  std::uint32_t size_, count_ = 0, cross_count_ = 0;
  PeerDistance unknown_;
  std::vector<PeerDistance> known_;  // by rank; empty: nothing is known
};

}  // namespace tutti
