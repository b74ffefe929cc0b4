// Ceilings of a machine, as measured curves: the time of moving n bytes, by kind of movement. Knows no
// collective and no measurement.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::bench {

// Each moves n bytes from a source to a destination, on every rank at the same time. "Fresh" bytes have just
// been written by another rank's core, so they are fetched from its cache where they fit into one.
enum class Ceiling : std::uint8_t {
  copy_fresh,  // copies them from shared memory
  add_fresh,   // adds them to a buffer of its own: f32 sums
  vm_read,     // has the kernel copy them: process_vm_readv
  copy,        // own source, ordinary stores
  copy_nt,     // own source, non-temporal stores
  add,         // own source added to an own buffer
  add_nt,
};
inline constexpr std::array<std::string_view, 7> kCeilingNames = {
    "copy_fresh", "add_fresh", "vm_read", "copy", "copy_nt", "add", "add_nt"};
constexpr std::string_view to_string(Ceiling c) { return kCeilingNames[static_cast<std::size_t>(c)]; }
constexpr bool is_fresh(Ceiling c) { return c <= Ceiling::vm_read; }
constexpr bool is_sum(Ceiling c) {
  return c == Ceiling::add_fresh || c == Ceiling::add || c == Ceiling::add_nt;
}

// Time over size. Straight between the points, through zero below the first, at the last point's rate above
// the last.
class Curve {
 public:
  // Sizes in rising order. A time below that of a smaller size is an error of measurement and is raised to
  // it.
  void add(std::uint64_t bytes, double us) {
    if (!points_.empty()) us = std::max(us, points_.back().us);
    points_.push_back({static_cast<double>(bytes), us});
  }
  bool is_empty() const { return points_.empty(); }
  std::size_t point_count() const { return points_.size(); }
  std::uint64_t bytes_of(std::size_t point) const { return static_cast<std::uint64_t>(points_[point].bytes); }
  double us_of(std::size_t point) const { return points_[point].us; }

  // Never decreases with `bytes`. The curve must not be empty.
  double time_us(double bytes) const {
    if (bytes <= points_.front().bytes) return points_.front().us * bytes / points_.front().bytes;
    if (bytes >= points_.back().bytes) return points_.back().us * bytes / points_.back().bytes;
    std::size_t above = 1;
    while (points_[above].bytes < bytes) ++above;
    const Point& from = points_[above - 1];
    const Point& to = points_[above];
    return from.us + (to.us - from.us) * (bytes - from.bytes) / (to.bytes - from.bytes);
  }

 private:
  struct Point {
    double bytes, us;
  };
  std::vector<Point> points_;
};

// A value; equal on all ranks that measured it together.
struct Ceilings {
  int ranks = 1;
  double line_us = 0;  // one way of a cache line between two cores
  // A call in which every rank sets a flag line and waits for all others', as the benchmark's loop times it.
  // Includes reading the clock and the ranks' different starts.
  double exchange_us = 0;
  std::array<Curve, kCeilingNames.size()> curves;  // empty: not measured here
  std::string vm_read_missing;                     // why, if that one was not
  std::uint64_t l2_bytes = 0;                      // of a core; 0: not known
  std::uint64_t last_level_bytes = 0;              // a rank's share of the last-level cache; 0: not known

  const Curve& of(Ceiling c) const { return curves[static_cast<std::size_t>(c)]; }
  Curve& of(Ceiling c) { return curves[static_cast<std::size_t>(c)]; }
};

}  // namespace tutti::bench
