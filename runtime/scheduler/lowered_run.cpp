// Phases of an epoch, announcements, and how an operation waits.
#include "runtime/scheduler/lowered_run.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/base/relax.hpp"

namespace tutti {

void LoweredRun::start(ResolvedCall& resolved) {
  resolved_ = &resolved;
  control_blocks_ = &resolved.control_blocks();
  done_count_ = 0;
  has_announced_ = !resolved.is_announced();
  begin_epoch();
}

void LoweredRun::begin_epoch() {
  number_ = control_blocks_->next_epoch(work_.slot);
  area_ = control_blocks_->area(work_.slot, number_);
  is_direct_ = false;
  peer_ = 0;
  phase_ = Phase::enter;
}

void LoweredRun::resume(ResolvedCall& resolved, const ResolvedStep* step) {
  resolved_ = &resolved;
  control_blocks_ = &resolved.control_blocks();
  done_count_ = 0;
  has_announced_ = true;
  number_ = control_blocks_->epoch(work_.slot);
  area_ = control_blocks_->area(work_.slot, number_);
  is_direct_ = false;
  bind(resolved.staged());
  step_ = step;
  peer_ = step->peer;
}

void LoweredRun::bind(const ResolvedEpoch& epoch) {
  epoch_ = &epoch;
  step_ = epoch.steps.data();
  offset_ = 0;
  resolved_->set_origins(origins_.data(), area_, number_, epoch, work_.buffers);
  const std::size_t done_bytes = done_count_ * resolved_->element_bytes();
  origins_[ResolvedPlace::input] += done_bytes;
  origins_[ResolvedPlace::output] += done_bytes;
  phase_ = Phase::run;
}

bool LoweredRun::has_come(const FlagLine& line) {
  if (line.is_of(number_, work_.digest)) return true;
  // Nobody gets ahead in an area that this rank still uses: a peer that has makes another call.
  if (line.sequence.load(std::memory_order_acquire) >= number_ && !line.is_of(number_, work_.digest))
    stopped_ = Progress::mismatch;
  return false;
}

bool LoweredRun::may_poll_again() {
  if (stopped_ == Progress::mismatch || polls_left_ == 0) return false;
  if (polls_left_-- + kPollsWithoutPause <= polls_) relax();
  return true;
}

void LoweredRun::signal(FlagLine& line) {
  line.signal(number_, work_.digest);
  control_blocks_->wake_sleepers();
}

void LoweredRun::announce() {
  const Announcement said = resolved_->announcement(work_.buffers);
  all_shared_ = said.is_shared();
  FlagLine& line = control_blocks_->lines_at(control_blocks_->rank(), area_)[0];
  static_assert(sizeof said <= FlagLine::kPayloadBytes);
  std::memcpy(line.payload.data(), &said, sizeof said);
  signal(line);
  has_announced_ = true;
}

bool LoweredRun::find_buffers(std::uint32_t peer, const Announcement& said) {
  std::uintptr_t* const found = origins_.data() + ResolvedPlace::peer_buffers + 2 * std::size_t{peer};
  const auto find = [&](const SegmentRange& range, std::uintptr_t* base) {
    *base = 0;
    if (range.segment == 0 && range.offset == 0) return true;  // the rank has no such buffer
    *base = reinterpret_cast<std::uintptr_t>(control_blocks_->map(peer, range));
    return *base != 0;
  };
  return find(said.input, found) && find(said.output, found + 1);
}

// Have all ranks announced? False while one has not. The first whose buffers are not shared ends the waiting.
bool LoweredRun::collect() {
  for (; peer_ < control_blocks_->size() && all_shared_; ++peer_) {
    if (peer_ == control_blocks_->rank()) continue;
    const FlagLine& line = control_blocks_->lines_at(peer_, area_)[0];
    if (!has_come(line)) return false;
    Announcement said;
    std::memcpy(&said, line.payload.data(), sizeof said);
    if (!said.is_shared()) {
      all_shared_ = false;
    } else if (!find_buffers(peer_, said)) {
      return false;
    }
  }
  return true;
}

LoweredRun::Progress LoweredRun::advance(std::uint32_t polls) {
  has_moved_ = false;
  polls_ = polls_left_ = polls;
  stopped_ = Progress::blocked;
  for (;;) {
    switch (phase_) {
      case Phase::enter:
        if (!enter_epoch()) return stopped_;
        break;
      case Phase::announce:
        announce();
        note_moved();
        phase_ = Phase::collect;
        [[fallthrough]];
      case Phase::collect:
        if (!collect_announcements()) return stopped_;
        break;
      case Phase::run:
        if (!run_epoch()) return stopped_;
        if (!leave_epoch()) return Progress::complete;
        break;
    }
  }
}

bool LoweredRun::enter_epoch() {
  while (!control_blocks_->may_write(work_.slot, number_, &peer_))
    if (!may_poll_again()) return false;
  peer_ = 0;
  if (has_announced_) {
    bind(resolved_->staged(done_count_));
  } else {
    phase_ = Phase::announce;
  }
  return true;
}

bool LoweredRun::collect_announcements() {
  while (!collect())
    if (!may_poll_again()) return false;
  note_moved();
  is_direct_ = all_shared_;
  if (is_direct_) control_blocks_->count_direct();
  bind(is_direct_ ? resolved_->direct() : resolved_->staged(done_count_));
  return true;
}

// The steps of an epoch as an operation runs them.
struct LoweredRun::Driver {
  LoweredRun& run;
  PassSettings settings;

  // Makes way once something has been done.
  bool may_go_on() const { return !run.has_moved_ || !run.is_wanted(); }
  void signal(const ResolvedStep& step) const {
    run.signal(run.line_at(step));
    run.note_moved();
  }
  bool wait(const ResolvedStep& step) const {
    run.peer_ = step.peer;
    const FlagLine& line = run.line_at(step);
    while (!run.has_come(line))
      if (!run.may_poll_again()) return false;
    run.note_moved();
    return true;
  }
  bool work(const ResolvedStep& step) const {
    if (!settings.is_direct) return work_unguarded(step);
    std::atomic<std::uint32_t>& is_touching =
        run.control_blocks_->head(run.control_blocks_->rank()).is_touching;
    is_touching.store(1, std::memory_order_seq_cst);
    const bool may_touch = run.may_touch();
    const bool is_done = may_touch && work_unguarded(step);
    is_touching.store(0, std::memory_order_release);
    if (!may_touch) run.stopped_ = Progress::revoked;
    return is_done;
  }
  bool work_unguarded(const ResolvedStep& step) const {
    run.note_moved();
    const bool is_shown = step.kind == LoweredStep::Kind::reduce && run.work_.recorded != nullptr;
    if (is_shown) run.work_.recorded->reduce(true);
    const bool is_done = pass_over(step);
    if (is_shown) run.work_.recorded->reduce(false);
    return is_done;
  }
  bool pass_over(const ResolvedStep& step) const {
    // A pass that has made way goes on as one, whether it is still shared or not.
    if (!step.is_plain || run.offset_ != 0 || settings.should_share(step))
      return run_pass(stores_of(step), settings, &run.offset_);
    run_plain(*settings.epoch, settings.origins, step, settings.kernel);
    return true;
  }
};

bool LoweredRun::run_epoch() {
  Driver driver{*this, pass_settings()};
  step_ = run_steps(*epoch_, step_, driver);
  return step_ == epoch_->steps.data() + epoch_->steps.size();
}

PassSettings LoweredRun::pass_settings() const {
  const Call& call = *work_.call;
  PassSettings settings;
  settings.epoch = epoch_;
  settings.origins = origins_.data();
  settings.kernel = work_.kernel;
  settings.stores = &control_blocks_->stores();
  settings.limits = &resolved_->limits();
  settings.element_bytes = resolved_->element_bytes();
  settings.streams = resolved_->streams();
  if (settings.streams && work_.kernel != nullptr)
    settings.stream_kernel = select_kernels(call.op.op, call.dtype).stream;
  settings.is_direct = is_direct_;
  settings.is_over_input =
      call.in_place && (is_reducing(call.collective) || call.collective == Collective::alltoall);
  settings.wanting = work_.wanting;
  settings.helpers = work_.helpers;
  return settings;
}

bool LoweredRun::leave_epoch() {
  control_blocks_->end_epoch(work_.slot, is_direct_ || resolved_->shape().hears_from_all,
                             resolved_->readers(done_count_));
  note_moved();
  done_count_ += epoch_->length;
  if (done_count_ >= resolved_->count()) {
    resolved_ = nullptr;
    return false;
  }
  has_announced_ = true;
  begin_epoch();
  return true;
}

bool LoweredRun::has_news() const {
  if (resolved_ == nullptr) return true;
  if (phase_ == Phase::enter)
    return control_blocks_->ended(peer_, work_.slot).load(std::memory_order_acquire) + 2 >= number_;
  // Where it made way for others it can go on.
  if (phase_ == Phase::run && step_->kind != LoweredStep::Kind::wait) return true;
  const FlagLine& line =
      phase_ == Phase::collect ? control_blocks_->lines_at(peer_, area_)[0] : line_at(*step_);
  return line.sequence.load(std::memory_order_acquire) >= number_;
}

bool LoweredRun::may_touch() {
  for (std::uint32_t r = 0; r < control_blocks_->size(); ++r) {
    if (control_blocks_->head(r).is_revoked.load(std::memory_order_seq_cst) == 0) continue;
    peer_ = r;
    return false;
  }
  return true;
}

}  // namespace tutti
