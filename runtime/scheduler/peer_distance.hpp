// How far the cores of a group's ranks are from each other, judged by how long a look takes at a line that a
// peer has just written, and how long a short call therefore lets pass between its own publish and its first
// look. Knows no board and no clock.
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
  // A look that found the line took so long; `far_line_ns` and more is far.
  void note(double look_ns, double far_line_ns) {
    const bool is_far = look_ns >= far_line_ns;
    if (is_far) far_looks_ns_[far_looks_++ % kInARow] = std::clamp(look_ns, 0.0, kMostLookNs);
    streak_ = is_far == is_far_ ? 0 : streak_ + 1;
    if (streak_ < kInARow) return;
    is_far_ = !is_far_;
    streak_ = 0;
  }
  // What a call lets pass before its first look; a short message is little more than the line itself.
  double moment_ns(bool is_short) const {
    // As measured where a look takes 20: 15 less loses most of what is gained, 15 more a tenth of the call.
    if (!is_far_) return is_short ? 33 : 45;
    // As measured between cores of different caches, where a look takes 110: 0.7 times that loses more than
    // is gained. Short messages lose a quarter with 1.8 times; with less, longer ones are later more often.
    return (is_short ? 1.2 : 1.8) * *std::ranges::min_element(far_looks_ns_);
  }

 private:
  static constexpr double kMostLookNs = 500;

  bool is_far_ = false;
  std::uint32_t count_ = 0, streak_ = 0, far_looks_ = 0;
  std::array<double, kInARow> far_looks_ns_ = {};  // the last ones; the shortest were not interrupted
};

}  // namespace tutti
