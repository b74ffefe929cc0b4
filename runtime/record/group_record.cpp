// See group_record.hpp.
#include "runtime/record/group_record.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

namespace tutti::record {
namespace {

template <std::size_t kSize>
bool has_text(const std::array<char, kSize>& at, std::string_view text) {
  const std::size_t length = std::min(text.size(), kSize - 1);
  return std::string_view(at.data(), length) == text.substr(0, length) && at[length] == '\0';
}

}  // namespace

void GroupRecord::Unmap::operator()(GroupSection* section) const { ::munmap(section, sizeof(GroupSection)); }

// Of zeros, which take memory only once they are written.
GroupRecord::GroupRecord(const Member& member) {
  void* const at =
      ::mmap(nullptr, sizeof(GroupSection), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  own_.reset(static_cast<GroupSection*>(at));
  section_ = own_.get();
  open(member);
}

GroupRecord::GroupRecord(const Member& member, GroupSection& section) : section_(&section) { open(member); }

GroupRecord::~GroupRecord() {
  section_->head.state.store(static_cast<std::uint64_t>(GroupState::closed), std::memory_order_release);
}

void GroupRecord::open(const Member& member) {
  GroupSection::Head& head = section_->head;
  set(head.context, member.context);
  set(head.rank, member.rank);
  set(head.size, member.size);
  set(head.stream, static_cast<std::uint64_t>(static_cast<std::int64_t>(member.stream)));
  put_text(section_->rows[0].algorithm, "others");
  head.state.store(static_cast<std::uint64_t>(GroupState::open), std::memory_order_release);
}

std::uint16_t GroupRecord::row_of(std::uint8_t collective, std::uint64_t bytes, std::string_view algorithm,
                                  std::string_view transport) {
  const std::uint64_t key =
      collective | std::uint64_t{1} << 16U | static_cast<std::uint64_t>(std::bit_width(bytes)) << 8U;
  for (std::uint32_t i = 1; i < kRows; ++i) {
    Row& row = section_->rows[i];
    if (get(row.key) == key && has_text(row.algorithm, algorithm) && has_text(row.transport, transport))
      return static_cast<std::uint16_t>(i);
    if (get(row.key) != 0) continue;
    put_text(row.algorithm, algorithm);
    put_text(row.transport, transport);
    row.key.store(key, std::memory_order_release);
    return static_cast<std::uint16_t>(i);
  }
  return 0;
}

void GroupRecord::count_times(std::uint16_t row, std::uint64_t took, std::uint64_t waited,
                              std::uint32_t weight) {
  Row& to = section_->rows[row];
  add(to.times[bucket_of(took)], weight);
  const std::uint64_t late = std::min(waited, took);
  add(to.timed_calls, weight);
  add(to.waited, late * weight);
  add(to.moved, (took - late) * weight);
}

void GroupRecord::add_sample(Entry& entry, std::uint64_t sequence, SteadyClock::time_point submitted,
                             std::uint16_t row, std::uint32_t weight) {
  const std::uint64_t begun = nanoseconds_of(submitted), ended = nanoseconds_of(SteadyClock::now());
  TimePart& times = entry.times;
  set(times.end, sequence);
  times.submitted.store(begun, std::memory_order_release);
  times.entered.store(begun, std::memory_order_release);
  times.ended.store(ended, std::memory_order_release);
  times.waited.store(0, std::memory_order_release);
  times.waiting_since.store(0, std::memory_order_release);
  times.sequence.store(sequence, std::memory_order_release);
  count_times(row, ended - begun, 0, weight);
}

void GroupRecord::note_failure(std::string_view cause) { put_text(section_->head.failure, cause); }

void OperationRecord::begin(GroupRecord& group, Entry& entry, std::uint64_t sequence, std::uint16_t row,
                            SteadyClock::time_point submitted, SteadyClock::time_point entered) {
  group_ = &group;
  entry_ = &entry;
  sequence_ = sequence;
  submitted_ = submitted;
  is_waiting_ = false;
  waited_ = 0;
  state_ = {Phase::moving, false, row};
  if (!is_current()) return;
  TimePart& times = entry.times;
  set(times.end, sequence);
  times.submitted.store(nanoseconds_of(submitted), std::memory_order_release);
  times.entered.store(nanoseconds_of(entered), std::memory_order_release);
  for (Word* const word : {&times.ended, &times.waited, &times.waiting_since})
    word->store(0, std::memory_order_release);
  times.sequence.store(sequence, std::memory_order_release);
  show(Phase::moving);
}

void OperationRecord::show(Phase phase) {
  state_.phase = phase;
  if (is_current()) entry_->call.state.store(state_.word(), std::memory_order_release);
}

void OperationRecord::note_blocked(std::uint32_t peer, bool is_late) {
  const SteadyClock::time_point now = SteadyClock::now();
  if (is_waiting_ && !is_late) stop_waiting(now);
  state_.peer = peer;
  if (is_late && !is_waiting_) {
    is_waiting_ = state_.has_waited = true;
    waiting_since_ = now;
    if (is_current()) set(entry_->times.waiting_since, nanoseconds_of(now));
  }
  show(is_late ? Phase::waiting : Phase::moving);
}

void OperationRecord::stop_waiting(SteadyClock::time_point now) {
  is_waiting_ = false;
  waited_ += nanoseconds_of(now) - nanoseconds_of(waiting_since_);
  if (is_current()) {
    set(entry_->times.waited, waited_);
    set(entry_->times.waiting_since, 0);
  }
  show(Phase::moving);
}

void OperationRecord::end(bool has_failed, std::uint64_t bytes) {
  if (entry_ == nullptr) return;
  const SteadyClock::time_point now = SteadyClock::now();
  // A failed operation keeps the time since which it has waited, and the rank.
  if (is_waiting_ && !has_failed) stop_waiting(now);
  if (is_current()) set(entry_->times.ended, nanoseconds_of(now));
  show(has_failed ? Phase::failed : Phase::complete);
  if (!has_failed) {
    group_->count(state_.row, bytes);
    group_->count_times(state_.row, nanoseconds_of(now) - nanoseconds_of(submitted_), waited_);
  }
  forget();
}

}  // namespace tutti::record
