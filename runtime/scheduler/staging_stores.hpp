// Chooses how a rank stores into its staging buffer: through its caches, or with non-temporal stores (nt_stores).
// Knows no control block.
//
// Lines that another core has read must be taken back from it. Between cores of one last-level cache that is
// quick. Between caches (chiplets, sockets, a virtual machine that was moved) each line takes a round trip, and
// few are under way at once. There nt_stores are several times faster for both sides, although readers then get
// the data from memory. The distance can change while a program runs, and no description of the machine tells
// it. So some of the copies are timed. Every rank decides for itself; results are the same.
//
// The copies of one epoch are one batch, made in one way. A single copy says little, because copies for readers
// on the same CPU are always quick.

#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/kernels.hpp"

namespace tutti {

// measured: whichever is faster. The others are for those who compare.
enum class StagingPolicy : std::uint8_t { measured, cached, streamed };

// Not thread-safe.
class StagingStores {
 public:
  // Shorter batches and copies stay in the caches, untimed: a core's store buffers hide what they take.
  static constexpr std::size_t kLeastBytes = 4096;
  static constexpr std::size_t kLeastCopyBytes = 1024;
  // A trial begins where taking lines back costs more than between neighbours. These take 1 to 9 ns a line, cores
  // of different chiplets 20 to 35, or half of that if half the readers run on the same CPU.
  static constexpr double kSlowNsPerLine = 12;
  // A streamed line must save so much: reading it from memory costs the reader about 5 ns.
  static constexpr double kGainNsPerLine = 6;
  static constexpr std::uint32_t kTimedEvery = 32;   // cached batches
  static constexpr std::uint32_t kProbedEvery = 64;  // streamed batches: would a cached one still be slower?
  static constexpr std::uint32_t kTimesInARow = 4;   // slow batches before a trial, and batches of a trial
  static constexpr std::uint32_t kCheapInARow = 2;   // probes that end streaming
  static constexpr std::uint32_t kPatience = 256;    // untimed batches after a trial that was of no use

  explicit StagingStores(StagingPolicy policy = StagingPolicy::measured)
      : policy_(policy), phase_(policy == StagingPolicy::streamed ? Phase::streamed : Phase::cached) {}

  // Is a copy in an epoch that stages so much to be made by copy()?
  static constexpr bool is_much(std::size_t copy_bytes, std::size_t staged_bytes) {
    return copy_bytes >= kLeastCopyBytes && staged_bytes >= kLeastBytes;
  }
  void copy(void* to, const void* from, std::size_t size_bytes) {
    if (batch_bytes_ == 0) batch_ = way();
    batch_bytes_ += size_bytes;
    if (batch_ == Way{}) return copy_bytes(to, from, size_bytes);
    copy_otherwise(to, from, size_bytes);
  }
  // Should what is computed be streamed there, too?
  bool is_streaming() const { return phase_ != Phase::cached; }
  // Ends a batch: all copies since the last time.
  void end_batch() {
    if (batch_bytes_ != 0) close_batch();
  }

  // The decision, without any clock: how to make the next batch (way), and the time that it took, if it was to be
  // timed (count).
  struct Way {
    bool is_streamed = false;
    bool is_timed = false;
    bool operator==(const Way&) const = default;
  };
  Way way() const;
  void count(double ns_per_line);

 private:
  // Slow cached copies begin a trial of streamed ones; if those are quicker, they stay.
  enum class Phase : std::uint8_t { cached, trial, streamed };

  void copy_otherwise(void* to, const void* from, std::size_t size_bytes);
  void close_batch();
  void note(double ns_per_line);
  void enter(Phase phase, std::uint32_t patience = 0);

  StagingPolicy policy_;
  Phase phase_;
  Way batch_;                    // how the open one is made
  std::size_t batch_bytes_ = 0;  // of it so far
  double batch_ns_ = 0;
  std::uint32_t patience_ = 0;  // batches that are not timed
  std::uint32_t count_ = 0;     // batches of this phase, after those
  std::uint32_t streak_ = 0;    // slow ones, those of the trial, or cheap probes, without another in between
  double cached_ns_ = 0;        // a line, the mean of the slow ones that began the trial
  double streamed_ns_ = 0;      // a line, the best of the trial
};

}  // namespace tutti
