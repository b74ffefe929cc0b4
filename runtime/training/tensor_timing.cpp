// See tensor_timing.hpp.
#include "runtime/training/tensor_timing.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

// Clocks drift apart by some 10 us a second at most.
constexpr std::chrono::seconds kBetweenAlignments{10};

}  // namespace

std::shared_ptr<Timeline> TensorTiming::write_to(std::shared_ptr<Timeline> timeline, bool marks_cycles) {
  const std::lock_guard lock(mutex_);
  wants_cycles_ = marks_cycles;
  return std::exchange(wanted_, std::move(timeline));
}

bool TensorTiming::is_settled() const {
  const std::lock_guard lock(mutex_);
  return timeline_ == wanted_ && marks_cycles_ == wants_cycles_;
}

std::uint64_t TensorTiming::flags() {
  const std::lock_guard lock(mutex_);
  if (wanted_ == nullptr) return 0;
  std::uint64_t flags = kIsOn;
  if (wanted_->form() == TimelineForm::ranks) flags |= kHasPhases;
  if (timeline_ != wanted_ || SteadyClock::now() >= next_alignment_) flags |= kAlignsClocks;
  return flags;
}

bool TensorTiming::follow(std::uint64_t flags) {
  const Detail detail = (flags & kIsOn) == 0        ? Detail::none
                        : (flags & kHasPhases) == 0 ? Detail::submissions
                                                    : Detail::phases;
  const bool was_on = detail_.exchange(detail, std::memory_order_relaxed) != Detail::none;
  const bool is_on = detail != Detail::none;
  std::shared_ptr<Timeline> ended;  // its end waits for a thread, and so comes after that of the lock
  const std::lock_guard lock(mutex_);
  if (!is_on) events_.clear();
  if (rank_ != 0) return is_on && !was_on;
  // A change since flags() is in effect after the next cycle.
  if ((wanted_ != nullptr) != is_on) return false;
  const bool begins = timeline_ != wanted_ && is_on;
  if (timeline_ != wanted_) ended = std::exchange(timeline_, wanted_);
  if (begins) queue_number_ = timeline_->add_queue();
  marks_cycles_ = wants_cycles_;
  if ((flags & kAlignsClocks) != 0) next_alignment_ = SteadyClock::now() + kBetweenAlignments;
  if (timeline_ != nullptr && marks_cycles_) timeline_->mark_cycle();
  return begins;
}

void TensorTiming::end() {
  std::shared_ptr<Timeline> wanted, ended;
  const std::lock_guard lock(mutex_);
  wanted.swap(wanted_);
  ended.swap(timeline_);
}

TensorEvent TensorTiming::make(const std::string& name, Collective collective, TensorPhase phase,
                               std::string arguments) const {
  return {name, collective, phase, rank_, now(), std::move(arguments)};
}

void TensorTiming::add(TensorEvent event) {
  const std::lock_guard lock(mutex_);
  if (timeline_ != nullptr) return timeline_->add(queue_number_, std::move(event));
  if (rank_ != 0 && events_.size() < kMostEvents) events_.push_back(std::move(event));
}

void TensorTiming::note_end(const TensorResponse& response, bool is_right) {
  if (!has_phases()) return;
  note(response, TensorPhase::done,
       describe_arguments(response.signature) + (is_right ? "" : R"(,"error":"failed")"));
}

void TensorTiming::note_submission(const std::string& name, Collective collective,
                                   SteadyClock::time_point time) {
  TensorEvent event = make(name, collective, TensorPhase::negotiating, {});
  event.time = time + offset();
  const std::lock_guard lock(mutex_);
  if (events_.size() < kMostEvents) events_.push_back(std::move(event));
}

std::vector<TensorEvent> TensorTiming::take_events() {
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

// In the order of time: the first submission of a tensor begins its negotiation.
void TensorTiming::accept(std::vector<TensorEvent> events) {
  std::stable_sort(events.begin(), events.end(),
                   [](const TensorEvent& a, const TensorEvent& b) { return a.time < b.time; });
  const std::lock_guard lock(mutex_);
  if (timeline_ == nullptr) return;
  for (TensorEvent& event : events) timeline_->add(queue_number_, std::move(event));
}

std::string describe_arguments(const TensorSignature& signature) {
  return fmt::format(R"("dtype":"{}","shape":"[{}]")", to_string(signature.dtype),
                     fmt::join(signature.shape, ", "));
}

}  // namespace tutti
