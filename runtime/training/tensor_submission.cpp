// Tensors between their submission, by any thread, and the operation that takes them. See tensor_scheduler.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/training/tensor_call.hpp"
#include "runtime/training/tensor_scheduler.hpp"

namespace tutti {

WorkRef TensorScheduler::submit(std::string_view name, const TensorCall& call) {
  WorkRef work(new TensorWork(help_));
  Status refusal = check_tensor_call(name, call, size_);
  Entry entry;
  if (refusal) entry = make_entry(name, call, work);
  std::vector<WorkRef> refused;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) refuse(*ended_);
    if (is_closing_) refuse(Status(StatusCode::aborted, "the tensor queue is closed"));
    if (joining_) refuse(invalid_argument(fmt::format("tensor \"{}\": this rank has joined", name)));
    if (refusal && entries_.contains(name)) {
      refusal = invalid_argument(
          fmt::format("tensor \"{}\" is under way: wait for it before its name is submitted again", name));
    }
    if (refusal) {
      if (is_for_own_thread(entry)) ++own_count_;
      arrived_.emplace_back(name);
      entries_.emplace(name, std::move(entry));
    } else {
      refused = refuse_batch(call, refusal);
    }
    is_urgent_ |= call.will_wait;
  }
  for (const WorkRef& member : refused) TensorWork::of(member).complete(refusal);
  advance();
  if (!refusal) refuse(refusal);
  return work;
}

TensorScheduler::Entry TensorScheduler::make_entry(std::string_view name, const TensorCall& call,
                                                   const WorkRef& work) const {
  Entry entry{make_tensor_request(name, call), call, rows_to_ranks(call, size_), work};
  entry.request.signature.has_feedback = has_feedback(call, settings_.has_feedback);
  entry.call.shape = {};
  entry.call.splits = {};
  entry.call.batch = {};
  return entry;
}

// A batch that is complete here goes on; the refused tensor is of the next one of its name.
std::vector<WorkRef> TensorScheduler::refuse_batch(const TensorCall& call, const Status& cause) {
  if (call.batch.empty() || call.batch.size() > kMaxTensorNameBytes) return {};
  std::vector<EntryMap::iterator> members;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->second.request.signature.batch == call.batch) members.push_back(entry);
  }
  const bool is_complete =
      !members.empty() && members.size() >= members.front()->second.request.signature.batch_size;
  refusals_.add(std::string(call.batch), cause.message(), is_complete);
  is_urgent_ = true;
  std::vector<WorkRef> refused;
  if (is_complete) return refused;
  for (const EntryMap::iterator member : members) refused.push_back(take_entry(member).work);
  return refused;
}

WorkRef TensorScheduler::join(ZerosOnDevice zeros) {
  WorkRef work(new TensorWork(help_));
  {
    const std::lock_guard lock(mutex_);
    if (ended_) refuse(*ended_);
    if (joining_) refuse(invalid_argument("join: this rank has joined, and not all others have yet"));
    joining_ = work;
    zeros_on_device_ = std::move(zeros);
    has_announced_join_ = false;
    is_urgent_ = true;
  }
  advance();
  return work;
}

// All at once: a thread that submits meanwhile finds a batch as a whole, or nothing of it.
void TensorScheduler::take_entries(std::vector<Ready>& tensors) {
  const std::lock_guard lock(mutex_);
  for (Ready& tensor : tensors) {
    const TensorResponse& response = tensor.response;
    const auto found = entries_.find(response.name);
    if (found == entries_.end()) continue;
    // This rank's have failed already; those that are under way are of a later submission.
    if (response.code != StatusCode::ok && refusals_.is_announced(response.signature.batch)) continue;
    tensor.entry = take_entry(found);
  }
  refusals_.end_batches([this](const std::string& batch) {
    return std::any_of(entries_.begin(), entries_.end(),
                       [&](const auto& entry) { return entry.second.request.signature.batch == batch; });
  });
}

TensorScheduler::Entry TensorScheduler::take_entry(EntryMap::iterator found) {
  Entry entry = std::move(found->second);
  // A refusal may come for a tensor that was submitted here after this cycle began.
  if (entry.stage == Stage::submitted) std::erase(arrived_, found->first);
  if (is_for_own_thread(entry)) --own_count_;
  entries_.erase(found);
  return entry;
}

}  // namespace tutti
