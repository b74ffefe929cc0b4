// How far the cores of a group's ranks are from each other, judged by how long a look takes at a line that a
// peer has just written. Knows no board and no clock.
//
// Between neighbours a line crosses in 40 to 60 ns, between chiplets or sockets in 150 to 250, and a store to
// a line that a peer has read takes as long before the peer can fetch it. There it pays to fetch for writing
// what this rank writes next, two ranks when they read it and more when a call has ended, and to let as much
// time pass as a line takes before the first look, which would take it away again. What holds can change
// while a program runs (a virtual machine is moved), so some of the looks are timed. Every rank decides for
// itself.
#pragma once

#include <cstdint>

namespace tutti {

// Not thread-safe.
class PeerDistance {
 public:
  static constexpr std::uint32_t kTimedEvery = 8;  // calls
  static constexpr std::uint32_t kInARow = 4;  // timed looks that say otherwise, without another in between

  bool is_far() const { return is_far_; }
  // Is the first look of the next call to be timed?
  bool is_due() { return ++count_ % kTimedEvery == 0; }
  // Did the look that found the line take long?
  void note(bool is_far) {
    streak_ = is_far == is_far_ ? 0 : streak_ + 1;
    if (streak_ < kInARow) return;
    is_far_ = !is_far_;
    streak_ = 0;
  }

 private:
  bool is_far_ = false;
  std::uint32_t count_ = 0, streak_ = 0;
};

}  // namespace tutti
