// Pieces of tensors, and their completion. See tensor_backlog.hpp.
#include "runtime/training/tensor_backlog.hpp"

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

// A rank was idle if it had nothing to do for more than this share of the time.
constexpr int kIdleShare = 16;

}  // namespace

void TensorScheduler::PieceCount::complete(const Status& status, std::uint32_t count) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) failure_ = status;
    left_ -= count;
    if (left_ > 0) return;
  }
  end_(failure_);
}

// -- pieces under way -----------------------------------------------------------------------------------------

void TensorScheduler::Completions::begin(std::uint32_t slot, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (slot >= bytes_.size()) bytes_.resize(slot + 1);
  bytes_[slot] = bytes;
  under_way_ += bytes;
  begun_ = SteadyClock::now();
}

void TensorScheduler::Completions::complete(std::uint32_t slot) {
  const std::lock_guard lock(mutex_);
  under_way_ -= std::exchange(bytes_[slot], 0);
  if (under_way_ == 0) ended_ = SteadyClock::now();
  wake_if_due();
}

void TensorScheduler::Completions::wake_at(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  wake_at_ = bytes;
  is_to_wake_ = true;
  wake_if_due();
}

void TensorScheduler::Completions::wake_if_due() {
  if (!is_to_wake_ || under_way_ > wake_at_ || !wake_) return;
  is_to_wake_ = false;
  wake_();
}

bool TensorScheduler::Completions::is_complete(std::uint32_t slot) const {
  const std::lock_guard lock(mutex_);
  return bytes_[slot] == 0;
}

bool TensorScheduler::Completions::is_idle() const {
  const auto now = SteadyClock::now();
  const std::lock_guard lock(mutex_);
  return under_way_ == 0 && begun_ < ended_ && kIdleShare * (now - ended_) > now - begun_;
}

void TensorScheduler::Completions::end() {
  const std::lock_guard lock(mutex_);
  wake_ = nullptr;
}

// -- waiting --------------------------------------------------------------------------------------------------

void TensorScheduler::Backlog::add(std::vector<Ready> tensors) {
  const TensorSignature& first = tensors.front().response.signature;
  std::uint64_t bytes = 0;
  for (const Ready& tensor : tensors)
    bytes += element_count(tensor.response.signature) * size_of(tensor.response.signature.dtype);
  Waiting waiting;
  // GPUs carry out whole operations: their engines divide them better.
  const bool is_divided = tensors.size() == 1 && first.collective == Collective::allreduce &&
                          !first.is_device && bytes > kPieceBytes;
  if (is_divided) {
    waiting.piece_elements = kPieceBytes / size_of(first.dtype);
    waiting.piece_count = static_cast<std::uint32_t>((element_count(first) + waiting.piece_elements - 1) /
                                                     waiting.piece_elements);
    waiting.pieces_left = waiting.piece_count;
    waiting.count = count_pieces(tensors.front(), waiting.piece_count);
  }
  // Last in, first out: later cycles before earlier ones. Within a cycle the plan has that order.
  const std::int64_t priority = priority_ == TensorPriority::lifo ? cycle_ : first.priority;
  window_.add(next_operation_, priority, waiting.piece_count, is_divided ? kPieceBytes : bytes);
  waiting.tensors = std::move(tensors);
  waiting_.emplace(next_operation_++, std::move(waiting));
}

std::shared_ptr<TensorScheduler::PieceCount> TensorScheduler::Backlog::count_pieces(
    const Ready& tensor, std::uint32_t count) const {
  const WorkRef work = tensor.entry ? tensor.entry->work : WorkRef();
  return std::make_shared<PieceCount>(
      count, [timing = timing_, response = tensor.response, work](const Status& status) {
        timing->note_end(response, status.is_ok());
        if (work) TensorWork::of(work).complete(status);
      });
}

bool TensorScheduler::Backlog::has_any(bool (*holds)(const Entry& entry)) const {
  return std::any_of(waiting_.begin(), waiting_.end(), [&](const auto& operation) {
    const std::vector<Ready>& tensors = operation.second.tensors;
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const Ready& tensor) { return tensor.entry && holds(*tensor.entry); });
  });
}

void TensorScheduler::Backlog::mark_unfinished(std::span<std::uint64_t> words) const {
  const std::span<const std::uint64_t> slots = window_.slots();
  for (std::uint32_t slot = 0; slot < slots.size(); ++slot) {
    if (slots[slot] != 0 && !completions_->is_complete(slot))
      words[slot / 64] |= std::uint64_t{1} << slot % 64;
  }
}

std::vector<TensorScheduler::Backlog::Granted> TensorScheduler::Backlog::grant(
    std::span<const std::uint64_t> unfinished, bool was_idle) {
  ++cycle_;
  std::vector<Granted> granted;
  for (const GrantWindow::Grant& grant : window_.grant(unfinished, was_idle)) {
    const auto found = waiting_.find(grant.operation);
    Waiting& waiting = found->second;
    completions_->begin(grant.slot, window_.slots()[grant.slot]);
    Granted& one = granted.emplace_back();
    one.release = [completions = completions_, slot = grant.slot] { completions->complete(slot); };
    if (waiting.count != nullptr) {
      if (grant.piece == 0) timing_->note(waiting.tensors.front().response, TensorPhase::moving);
      one.tensors.push_back(piece_of(waiting, grant.piece));
    } else {
      one.tensors = std::move(waiting.tensors);
    }
    if (--waiting.pieces_left == 0) waiting_.erase(found);
  }
  return granted;
}

void TensorScheduler::Backlog::wait_for_room() {
  if (window_.has_waiting()) completions_->wake_at(window_.window_bytes() / 2);
}

// A tensor of its own, which is a part of the other's memory.
TensorScheduler::Ready TensorScheduler::Backlog::piece_of(const Waiting& waiting, std::uint32_t piece) {
  Ready made = waiting.tensors.front();
  made.is_piece = true;
  TensorSignature& signature = made.response.signature;
  const std::uint64_t first = piece * waiting.piece_elements;
  signature.shape = {std::min(waiting.piece_elements, element_count(signature) - first)};
  if (made.residual != nullptr) made.residual = {made.residual, made.residual.get() + first};
  if (!made.entry) return made;
  const std::size_t offset = first * size_of(signature.dtype);
  TensorCall& call = made.entry->call;
  call.input = static_cast<const std::byte*>(call.input) + offset;
  call.output = static_cast<std::byte*>(call.output) + offset;
  made.entry->work = WorkRef(new TensorWork(nullptr));  // nobody waits for a piece
  made.entry->work->when_complete([count = waiting.count](const Status& status) { count->complete(status); });
  return made;
}

void TensorScheduler::Backlog::fail(const Status& cause) {
  for (auto& [number, waiting] : waiting_) {
    if (waiting.count != nullptr) waiting.count->complete(cause, waiting.pieces_left);
    for (const Ready& tensor : waiting.tensors) {
      if (tensor.entry && waiting.count == nullptr) TensorWork::of(tensor.entry->work).complete(cause);
    }
  }
  waiting_.clear();
}

}  // namespace tutti
