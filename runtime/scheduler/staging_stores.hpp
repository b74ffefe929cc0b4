// How a rank stores into its staging memory what others will read there: into its own caches, or past them.
// Knows no board and no epoch.
//
// Lines that another core has read last must be taken back from it. Between cores of one last-level cache
// that is quick. Where the readers have another one (chiplets, sockets, a virtual machine that was moved)
// each line takes a round trip of its own, and few are on the way at once: then stores that pass the caches
// by are several times faster for both sides, although readers get the data from memory. What holds can
// change while a program runs, and no description of the machine says it, so it is measured: some of the
// copies are timed. Every rank decides for itself, results are the same.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/kernels.hpp"

namespace tutti {

// measured: whichever is faster. The others are for those who compare.
enum class StagingPolicy : std::uint8_t { measured, cached, streamed };

// Not thread-safe.
class StagingStores {
 public:
  // Shorter copies stay in the caches, untimed: what they take is hidden by the store buffers of a core.
  static constexpr std::size_t kLeastBytes = 4096;
  // What taking a line back must cost more than a streamed one to be avoided: neighbours take 2 to 9 ns a
  // line, cores of different chiplets 20 to 35; reading from memory costs the reader about 5.
  static constexpr double kGainNsPerLine = 12;
  static constexpr std::uint32_t kTimedEvery = 8;    // cached copies
  static constexpr std::uint32_t kProbedEvery = 64;  // streamed copies: would a cached one still be slower?
  static constexpr std::uint32_t kTimesInARow = 4;   // slow copies that begin a trial, and copies of a trial
  static constexpr std::uint32_t kCheapInARow = 2;   // probes that end streaming
  static constexpr std::uint32_t kPatience = 256;    // untimed copies after a trial that was of no use

  explicit StagingStores(StagingPolicy policy = StagingPolicy::measured)
      : policy_(policy), phase_(policy == StagingPolicy::streamed ? Phase::streamed : Phase::cached) {}

  void copy(void* to, const void* from, std::size_t size_bytes) {
    if (size_bytes < kLeastBytes) return copy_bytes(to, from, size_bytes);
    copy_long(to, from, size_bytes);
  }
  // Should what is computed be streamed there, too?
  bool is_streaming(std::size_t size_bytes) const {
    return phase_ != Phase::cached && size_bytes >= kLeastBytes;
  }

  // The decision, without any clock: how the next copy is to be made, and what it took if it was to be timed.
  struct Next {
    bool is_streamed = false;
    bool is_timed = false;
    bool operator==(const Next&) const = default;
  };
  Next next();
  void note(double ns_per_line);

 private:
  // Slow cached copies begin a trial of streamed ones; if those are quicker, they stay.
  enum class Phase : std::uint8_t { cached, trial, streamed };

  void copy_long(void* to, const void* from, std::size_t size_bytes);
  void enter(Phase phase, std::uint32_t patience = 0);

  StagingPolicy policy_;
  Phase phase_;
  std::uint32_t patience_ = 0;  // copies that are not timed
  std::uint32_t count_ = 0;     // copies of this phase, after those
  std::uint32_t streak_ = 0;    // slow ones, copies of the trial, or cheap probes, without another in between
  double cached_ns_ = 0;        // a line, the mean of the slow ones that began the trial
  double streamed_ns_ = 0;      // a line, the best of the trial
};

}  // namespace tutti
