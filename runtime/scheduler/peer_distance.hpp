// How far the cores of a group's ranks are from each other, judged by how long a look takes at a line that a
// peer has just written, and how long a short call therefore lets pass between its own publish and its first
// look. Knows no control block and no clock.
//
// Ranks that were together a moment ago come to their next call so near to each other that a look right after
// the own publish fetches the peers' lines before they are written, and their stores must then take them back
// first. Whoever lets a moment pass finds them written. Longer messages are written later, so theirs is
// longer.
//
// Between neighbours a line crosses in 30 to 60 ns, between chiplets or sockets in 150 to 250, and a store to
// a line that a peer has read takes as long before the peer can fetch it. There it pays to fetch for writing
// what this rank writes next, two ranks when they read it and more when a call has ended. What holds can
// change while a program runs (a virtual machine is moved), so some of the looks are timed. Every rank
// decides for itself.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/base/relax.hpp"

namespace tutti {

// Not thread-safe.
class PeerDistance {
 public:
  static constexpr std::uint32_t kTimedEvery = 8;  // calls
  static constexpr std::uint32_t kInARow = 4;  // timed looks that say otherwise, without another in between

  bool is_far() const { return is_far_; }
  // Is the first look of the next call to be timed?
  bool is_due() { return ++count_ % kTimedEvery == 0; }
  // A look that found the line took so long; `far_line_ns` and more is far.
  void note(double look_ns, double far_line_ns) {
    const bool is_far = look_ns >= far_line_ns;
    if (is_far) far_looks_ns_[far_looks_++ % kInARow] = std::clamp(look_ns, 0.0, kMostLookNs);
    streak_ = is_far == is_far_ ? 0 : streak_ + 1;
    if (streak_ < kInARow) return;
    is_far_ = !is_far_;
    streak_ = 0;
  }
  // What a call lets pass before its first look at a line that stands for so many bytes beside it.
  double moment_ns(std::size_t bytes) const {
    const bool is_line = bytes <= kLineBytes;
    // Measured where a look takes 20 ns: a call of 4 B takes half as long again after none as after 25 ns,
    // and a tenth longer after 49; one of 1 KiB takes two thirds longer after 25 than after 49.
    if (!is_far_) return is_line ? 33 : 45;
    // Measured where a look takes 110 ns: after 0.7 looks a call of 4 B takes 1.6 times as long as after 1.2,
    // after 1.8 looks 1.2 times. With less than that the slowest twentieth of longer calls is slower.
    return (is_line ? 1.2 : 1.8) * *std::ranges::min_element(far_looks_ns_);
  }

 private:
  static constexpr double kMostLookNs = 500;

  bool is_far_ = false;
  std::uint32_t count_ = 0, streak_ = 0, far_looks_ = 0;
  std::array<double, kInARow> far_looks_ns_ = {};  // the last ones; the shortest were not interrupted
};

}  // namespace tutti
