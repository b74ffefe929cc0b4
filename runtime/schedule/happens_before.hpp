// Races in lowered schedules: vector clocks over (rank, channel) threads; part of the verifier.
// Knows no values; sees accesses and synchronisations in the order of one legal execution. Since which
// signal a wait waits for is fixed by the program, that order finds the races of every execution.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::detail {

class HappensBefore {
 public:
  // A point in the program of a thread: it has executed `position` steps, this one included.
  struct Epoch {
    std::uint32_t thread = 0;
    std::uint32_t position = 0;
  };
  // A race: the two accesses that nothing orders.
  struct Race {
    Epoch earlier;
    bool earlier_writes = false;
  };

  // Nothing is kept until this is called.
  void start(std::uint32_t ranks, std::uint32_t channels, std::size_t locations);

  void begin_step(std::uint32_t thread) { ++clock(thread, thread); }
  // Keeps the thread's clock for later joins; the number to join with.
  std::uint32_t snapshot(std::uint32_t thread);
  void join(std::uint32_t thread, std::uint32_t snapshot);

  // Records the access of a location; false with the other access if the two are not ordered.
  bool read(std::uint32_t thread, std::size_t where, Race& race);
  bool write(std::uint32_t thread, std::size_t where, Race& race);
  // Has `rank` entered the operation, as far as the thread can know?
  bool knows_entry(std::uint32_t thread, std::uint32_t rank) const;
  // The same for any thread of `of`, once all have ended.
  bool knows_entry_at_end(std::uint32_t of, std::uint32_t rank) const;
  // An access to a location of `owner` that may still be running when all threads of `owner` have ended.
  bool outlives_owner(std::uint32_t owner, std::size_t where, Race& race) const;

 private:
  struct Read {
    Epoch by;
    std::uint32_t next;  // in reads_, kNone at the end
  };
  struct Location {
    Epoch writer;  // position 0: nobody
    std::uint32_t readers = kNone;
  };
  static constexpr std::uint32_t kNone = ~0U;

  std::uint32_t& clock(std::uint32_t thread, std::uint32_t of) { return clocks_[thread * threads_ + of]; }
  std::uint32_t clock(std::uint32_t thread, std::uint32_t of) const {
    return clocks_[thread * threads_ + of];
  }
  bool is_ordered(const Epoch& earlier, std::uint32_t thread) const {
    return earlier.position <= clock(thread, earlier.thread);
  }
  bool is_after_write(std::uint32_t thread, const Location& at, Race& race) const;

  std::size_t threads_ = 0;
  std::uint32_t channels_ = 1;
  std::vector<std::uint32_t> clocks_;     // threads_ x threads_
  std::vector<std::uint32_t> snapshots_;  // rows of threads_
  std::vector<Location> locations_;
  std::vector<Read> reads_;
};

}  // namespace tutti::detail
