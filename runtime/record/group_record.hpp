// Writes the record of one group of this rank: its last operations and its statistics. Plain stores into mapped
// memory, no system call. Knows no transport and no schedule.
//
// Threading: with the progress lock held, unless it says otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/running_clock.hpp"
#include "runtime/record/layout.hpp"

namespace tutti::record {

inline std::uint64_t nanoseconds_of(SteadyClock::time_point at) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count());
}

inline void set(Word& word, std::uint64_t value) { word.store(value, std::memory_order_relaxed); }
inline std::uint64_t get(const Word& word) { return word.load(std::memory_order_relaxed); }
// Of a word with one writer.
inline void add(Word& word, std::uint64_t value) { set(word, get(word) + value); }

// A call that has been submitted.
struct Submitted {
  std::uint64_t sequence = 0, digest = 0, kind = 0, count = 0;
  State state;
};

class GroupRecord {
 public:
  struct Member {
    std::uint64_t context = 0;
    std::uint32_t rank = 0, size = 0;
    int stream = 0;
  };
  // In memory of this process alone.
  explicit GroupRecord(const Member& member);
  // In a section of a file, which outlives it.
  GroupRecord(const Member& member, GroupSection& section);
  ~GroupRecord();
  GroupRecord(const GroupRecord&) = delete;
  GroupRecord& operator=(const GroupRecord&) = delete;

  const GroupSection& section() const { return *section_; }
  Entry& operation(std::uint64_t sequence) { return section_->operations[sequence % kOperations]; }
  Entry& message(std::uint64_t number) { return section_->messages[number % kMessages]; }

  // A collective. Its number is one more than that of the one before.
  void add_operation(const Submitted& call) { write(operation(call.sequence), call); }
  // A message between two ranks; fills in its number.
  Entry& add_message(Submitted& call) {
    call.sequence = get(section_->head.last_message) + 1;
    Entry& entry = message(call.sequence);
    write(entry, call);
    set(section_->head.last_message, call.sequence);
    return entry;
  }

  // The row of the statistics for such calls, made if there is none; 0, "others", when all are in use. By the
  // thread that submits. `algorithm` and `transport` are cut where they are long.
  std::uint16_t row_of(std::uint8_t collective, std::uint64_t bytes, std::string_view algorithm,
                       std::string_view transport);
  Row& row(std::uint16_t number) { return section_->rows[number]; }
  void count(std::uint16_t row, std::uint64_t bytes) {
    add(section_->rows[row].calls, 1);
    add(section_->rows[row].bytes, bytes);
  }
  // Times of a call that stands for `weight` calls.
  void count_times(std::uint16_t row, std::uint64_t took, std::uint64_t waited, std::uint32_t weight = 1);

  // A short call that was timed is complete now. It stands for `weight` calls.
  void add_sample(Entry& entry, std::uint64_t sequence, SteadyClock::time_point submitted, std::uint16_t row,
                  std::uint32_t weight);

  // Any thread, one at a time.
  void note_failure(std::string_view cause);

 private:
  static void write(Entry& entry, const Submitted& call) {
    CallPart& part = entry.call;
    // The order is that of a sealed part, see layout.hpp.
    set(part.end, call.sequence);
    part.digest.store(call.digest, std::memory_order_release);
    part.kind.store(call.kind, std::memory_order_release);
    part.count.store(call.count, std::memory_order_release);
    part.state.store(call.state.word(), std::memory_order_release);
    part.sequence.store(call.sequence, std::memory_order_release);
  }
  void open(const Member& member);

  struct Unmap {
    void operator()(GroupSection* section) const;
  };
  std::unique_ptr<GroupSection, Unmap> own_;  // null: it lies in a file
  GroupSection* section_ = nullptr;
};

// How one operation is doing, step by step. Does nothing for an operation without an entry, or whose entry has
// been taken by a later one.
class OperationRecord {
 public:
  // It begins now to run. `sequence` and `row` are the entry's.
  void begin(GroupRecord& group, Entry& entry, std::uint64_t sequence, std::uint16_t row,
             SteadyClock::time_point submitted, SteadyClock::time_point entered);
  // Nothing is recorded until the next begin().
  void forget() {
    entry_ = nullptr;
    is_waiting_ = false;
  }

  // It makes no progress. `is_late`: that rank has not arrived yet; else its data are awaited.
  void block(std::uint32_t peer, bool is_late) {
    if (entry_ == nullptr) return;
    if (is_late != is_waiting_ || peer != state_.peer) note_blocked(peer, is_late);
  }
  // It makes progress again.
  void go_on() {
    if (is_waiting_) stop_waiting(SteadyClock::now());
  }
  // It begins or ends to reduce.
  void reduce(bool is_reducing) {
    if (entry_ != nullptr && !is_waiting_) show(is_reducing ? Phase::reducing : Phase::moving);
  }
  // `bytes`: of the full vector.
  void end(bool has_failed, std::uint64_t bytes);

 private:
  bool is_current() const { return get(entry_->call.sequence) == sequence_; }
  void note_blocked(std::uint32_t peer, bool is_late);
  void stop_waiting(SteadyClock::time_point now);
  void show(Phase phase);

  GroupRecord* group_ = nullptr;
  Entry* entry_ = nullptr;
  std::uint64_t sequence_ = 0;
  State state_;
  bool is_waiting_ = false;
  SteadyClock::time_point submitted_{}, waiting_since_{};
  std::uint64_t waited_ = 0;
};

}  // namespace tutti::record
