// The timeline in the cycles of the scheduler: when it begins and ends, what ranks tell rank 0, and the alignment of
// their clocks. See tensor_timing.hpp.
#include <algorithm>
#include <bit>
#include <utility>

#include "runtime/base/log.hpp"
#include "runtime/training/tensor_scheduler.hpp"

namespace tutti {
namespace {

constexpr int kClockTag = 3;
constexpr int kExchanges = 8;

}  // namespace

// A timeline of the environment that cannot be written must not keep a program from running.
void TensorScheduler::begin_timeline_of_environment() {
  const TimelineSettings& wanted = settings_.timeline;
  if (rank_ != 0 || wanted.path.empty()) return;
  auto timeline = Timeline::open(wanted.path, wanted.form);
  if (timeline) {
    timing_->write_to(*std::move(timeline), wanted.marks_cycles);
  } else {
    log_warn("TUTTI_TIMELINE: there is no timeline: {}", timeline.status().message());
  }
}

void TensorScheduler::start_timeline(const std::string& path, bool marks_cycles) {
  if (rank_ != 0) return;
  auto timeline = Timeline::open(path, settings_.timeline.form);
  if (!timeline) refuse(timeline.status());
  write_timeline(*std::move(timeline), marks_cycles);
}

void TensorScheduler::stop_timeline() {
  if (rank_ == 0) write_timeline(nullptr, false);
}

// Waits until all ranks follow, so that what they submit afterwards is in the file, or not.
void TensorScheduler::write_timeline(std::shared_ptr<Timeline> timeline, bool marks_cycles) {
  if (is_in_callback())
    refuse(invalid_argument("a timeline: a callback must not wait for the other ranks to follow"));
  const auto ended = timing_->write_to(std::move(timeline), marks_cycles);
  std::unique_lock lock(mutex_);
  is_urgent_ = true;
  changed_.notify_all();
  settled_.wait(lock, [this] { return ended_ || timing_->is_settled(); });
}

// The submissions that rank 0 has not been told of.
void TensorScheduler::note_submissions(RequestBatch& requests) {
  if (!timing_->is_on()) return;
  const SteadyClock::time_point now = SteadyClock::now();
  for (auto& [name, entry] : entries_) {
    if (std::exchange(entry.is_noted, true)) continue;
    timing_->note_submission(name, entry.request.signature.collective, now - (Clock::now() - entry.since));
  }
  requests.events = timing_->take_events();
}

void TensorScheduler::note_ready(const std::vector<Ready>& ready, bool timeline_begins) {
  if (!timing_->has_phases()) return;
  if (timeline_begins && rank_ == 0) {
    // The other ranks did not know that their submissions are wanted.
    std::vector<TensorEvent> submissions;
    for (const Ready& tensor : ready) {
      for (std::uint32_t rank = 0; rank < size_; ++rank)
        submissions.push_back({tensor.response.name,
                               tensor.response.signature.collective,
                               TensorPhase::negotiating,
                               rank,
                               SteadyClock::now(),
                               {}});
    }
    timing_->accept(std::move(submissions));
  }
  for (const Ready& tensor : ready) timing_->note(tensor.response, TensorPhase::queued);
}

// Each rank asks its parent in a binomial tree for rank 0's time; of some answers the quickest counts. Clocks that
// cannot be told apart by it are taken for one, as those of a machine are.
void TensorScheduler::align_clocks() {
  using std::chrono::nanoseconds;
  const auto local = [] { return nanoseconds(SteadyClock::now().time_since_epoch()); };
  const std::uint32_t lowest = rank_ == 0 ? std::bit_ceil(size_) : rank_ & (~rank_ + 1);
  std::int64_t& time = mail_.emplace_back().time;
  if (rank_ != 0) {
    const int parent = static_cast<int>(rank_ - lowest);
    nanoseconds quickest = nanoseconds::max(), offset{0};
    for (int i = 0; i < kExchanges; ++i) {
      const nanoseconds asked = local();
      wait(control_.isend(&time, 1, Dtype::i64, parent, kClockTag));
      wait(control_.irecv(&time, 1, Dtype::i64, parent, kClockTag));
      const nanoseconds took = local() - asked;
      if (took >= quickest) continue;
      quickest = took;
      offset = nanoseconds(time) - asked - took / 2;
    }
    timing_->set_offset(std::chrono::abs(offset) <= quickest / 2 ? nanoseconds(0) : offset);
  }
  for (std::uint32_t bit = lowest / 2; bit > 0; bit /= 2) {
    if (rank_ + bit >= size_) continue;
    const int child = static_cast<int>(rank_ + bit);
    for (int i = 0; i < kExchanges; ++i) {
      wait(control_.irecv(&time, 1, Dtype::i64, child, kClockTag));
      time = (local() + timing_->offset()).count();
      wait(control_.isend(&time, 1, Dtype::i64, child, kClockTag));
    }
  }
  mail_.clear();
}

}  // namespace tutti
