// Counting, comparing and answering. See coordinator.hpp.
#include "runtime/training/coordinator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/rank_lists.hpp"
#include "runtime/job/exchange.hpp"

namespace tutti {
// A rank that has joined has neither a tensor nor a count of its own, so these go on without it.
bool goes_on_without(const TensorSignature& signature, bool on_device) {
  return signature.collective == Collective::barrier ||
         (signature.collective == Collective::allreduce && (on_device || !signature.is_device));
}

Coordinator::Coordinator(std::uint32_t rank_count, RunningClock::duration stall_timeout)
    : rank_count_(rank_count),
      stall_timeout_(stall_timeout),
      has_joined_(rank_count),
      gives_on_device_(rank_count) {}

const std::string& Coordinator::batch_of(const Pending& pending) {
  return pending.variants.front().request.signature.batch;
}

void Coordinator::add(const RequestOfRanks& entry, RunningClock::time_point now) {
  auto [found, is_new] = pending_.try_emplace(entry.request.name);
  Pending& pending = found->second;
  if (is_new) {
    pending.has_submitted.resize(rank_count_);
    pending.since = now;
    pending.order = next_order_++;
  }
  pending.variants.push_back(entry);
  for (const std::uint32_t rank : entry.ranks) {
    if (pending.has_submitted[rank]) continue;
    pending.has_submitted[rank] = true;
    ++pending.submitted_count;
  }
}

bool Coordinator::is_complete(const Pending& pending) const {
  if (pending.submitted_count == rank_count_) return true;
  if (joined_count_ == 0 && refused_.empty()) return false;
  for (std::uint32_t rank = 0; rank < rank_count_; ++rank) {
    if (lacks(pending, rank)) return false;
  }
  return true;
}

bool Coordinator::lacks(const Pending& pending, std::uint32_t rank) const {
  if (pending.has_submitted[rank] || has_joined_[rank]) return false;
  const auto refused = refused_.find(batch_of(pending));
  return refused == refused_.end() || !refused->second.has_refused[rank];
}

TensorResponse Coordinator::refuse(const std::string& name, const Pending& pending, std::string message,
                                   int peer) const {
  TensorResponse response;
  response.name = name;
  response.signature = pending.variants.front().request.signature;
  response.code = StatusCode::mismatch;
  response.message = std::move(message);
  response.peer = peer;
  return response;
}

std::vector<int> Coordinator::needed_of_joined(const Pending& pending) const {
  const TensorSignature& signature = pending.variants.front().request.signature;
  std::vector<int> needed;
  for (std::uint32_t rank = 0; rank < rank_count_; ++rank) {
    if (!pending.has_submitted[rank] && !goes_on_without(signature, gives_on_device_[rank]))
      needed.push_back(static_cast<int>(rank));
  }
  return needed;
}

TensorResponse Coordinator::respond(const std::string& name, Pending& pending) const {
  // By rank, so that a message does not depend on the order in which requests came.
  std::sort(
      pending.variants.begin(), pending.variants.end(),
      [](const RequestOfRanks& a, const RequestOfRanks& b) { return a.ranks.front() < b.ranks.front(); });
  const TensorSignature& signature = pending.variants.front().request.signature;
  // Ranks by what they submitted; the fewest are named first, since they are probably the ones that err.
  std::map<std::string, std::vector<int>> submitters;
  const TensorSignature* other = nullptr;
  for (const auto& [request, ranks] : pending.variants) {
    if (!(request.signature == signature) && other == nullptr) other = &request.signature;
    auto& list = submitters[describe(request.signature)];
    list.insert(list.end(), ranks.begin(), ranks.end());
  }
  const int size = static_cast<int>(rank_count_);
  if (other != nullptr) {
    std::string text = fmt::format("ranks submitted tensor \"{}\" with different {}:", name,
                                   describe_difference(signature, *other));
    const char* separator = " ";
    for (auto& [what, ranks] : submitters) {
      std::sort(ranks.begin(), ranks.end());
      text += fmt::format("{}{} submitted {}", separator, name_ranks(ranks, size), what);
      separator = "; ";
    }
    return refuse(name, pending, std::move(text), first_of_fewest(submitters));
  }
  if (const std::vector<int> joined = needed_of_joined(pending); !joined.empty()) {
    return refuse(
        name, pending,
        fmt::format("{} has joined and cannot take part in the {} \"{}\": only barriers and allreduces go on "
                    "without a "
                    "rank, and those of GPUs' memory if its join() was told how to make zeros there",
                    name_ranks(joined, size), to_string(signature.collective), name),
        joined.front());
  }
  TensorResponse response;
  response.name = name;
  response.signature = signature;
  if (signature.collective == Collective::allgather) {
    response.rows.resize(rank_count_);
    for (const auto& [request, ranks] : pending.variants) {
      for (const std::uint32_t rank : ranks) response.rows[rank] = request.rows;
    }
  }
  return response;
}

ResponseList Coordinator::decide(RequestBatch batch, RunningClock::time_point now) {
  ResponseList list;
  for (const RequestOfRanks& entry : batch.requests) add(entry, now);
  for (const BatchRefusal& refusal : batch.refusals) add(refusal);
  for (const std::uint32_t rank : batch.joined_ranks) {
    if (has_joined_[rank]) continue;
    has_joined_[rank] = true;
    gives_on_device_[rank] =
        std::binary_search(batch.ranks_with_device.begin(), batch.ranks_with_device.end(), rank);
    ++joined_count_;
    last_joined_ = static_cast<std::int32_t>(rank);
  }
  respond_to_refused(list);
  respond_to_complete(list);
  refuse_expired(list, now);
  if (joined_count_ == rank_count_) {
    list.last_joined_rank = last_joined_;
    std::fill(has_joined_.begin(), has_joined_.end(), false);
    joined_count_ = 0;
    last_joined_ = -1;
  }
  return list;
}

// Complete tensors whose batch is complete, in the order of their first request. A batch with an error is
// answered with that error as a whole, so that no rank waits for the rest of it.
void Coordinator::respond_to_complete(ResponseList& list) {
  struct Group {
    std::vector<std::pair<const std::string, Pending>*> members;
    std::uint64_t order = 0;
    std::uint32_t size = 1;
  };
  std::map<std::string, Group> batches;  // by the name of the batch, or of the tensor that is one alone
  std::vector<Group*> in_order;
  for (auto& entry : pending_) {
    if (!is_complete(entry.second)) continue;
    const TensorSignature& signature = entry.second.variants.front().request.signature;
    // A tensor cannot be called like a batch by accident: names hold no zero byte in front.
    const std::string key = signature.batch.empty() ? std::string(1, '\0') + entry.first : signature.batch;
    auto [found, is_new] = batches.try_emplace(key);
    if (is_new) {
      found->second.order = entry.second.order;
      found->second.size = signature.batch.empty() ? 1 : signature.batch_size;
      in_order.push_back(&found->second);
    }
    found->second.order = std::min(found->second.order, entry.second.order);
    found->second.members.push_back(&entry);
  }
  std::sort(in_order.begin(), in_order.end(),
            [](const Group* a, const Group* b) { return a->order < b->order; });
  std::vector<std::string> answered;
  for (Group* group : in_order) {
    if (group->members.size() < group->size) continue;
    std::sort(group->members.begin(), group->members.end(),
              [](const auto* a, const auto* b) { return a->second.order < b->second.order; });
    const std::size_t first = list.responses.size();
    const TensorResponse* failure = nullptr;
    for (auto* member : group->members) list.responses.push_back(respond(member->first, member->second));
    for (std::size_t i = first; i < list.responses.size(); ++i) {
      if (list.responses[i].code != StatusCode::ok) failure = &list.responses[i];
    }
    if (failure != nullptr) {
      const TensorResponse cause = *failure;
      for (std::size_t i = first; i < list.responses.size(); ++i) {
        if (list.responses[i].code != StatusCode::ok) continue;
        list.responses[i].code = cause.code;
        list.responses[i].message = cause.message;
        list.responses[i].peer = cause.peer;
      }
    }
    for (const auto* member : group->members) answered.push_back(member->first);
  }
  for (const std::string& name : answered) pending_.erase(name);
}

void Coordinator::add(const BatchRefusal& refusal) {
  RefusedBatch& batch = refused_[refusal.batch];
  batch.has_refused.resize(rank_count_);
  for (const std::uint32_t rank : refusal.ranks) {
    if (batch.has_refused[rank]) continue;
    batch.has_refused[rank] = true;
    batch.ranks_by_reason[refusal.reason].push_back(static_cast<int>(rank));
  }
}

// Has each rank refused or submitted the whole of it, or joined?
bool Coordinator::is_known_to_all(const std::string& name, const RefusedBatch& batch) const {
  std::vector<std::uint32_t> submitted(rank_count_), sizes(rank_count_, 1);
  for (const auto& [tensor, pending] : pending_) {
    if (batch_of(pending) != name) continue;
    for (const auto& [request, ranks] : pending.variants) {
      for (const std::uint32_t rank : ranks) {
        ++submitted[rank];
        sizes[rank] = request.signature.batch_size;
      }
    }
  }
  for (std::uint32_t rank = 0; rank < rank_count_; ++rank) {
    if (!batch.has_refused[rank] && !has_joined_[rank] && submitted[rank] < sizes[rank]) return false;
  }
  return true;
}

void Coordinator::respond_to_refused(ResponseList& list) {
  std::vector<std::string> known;
  for (const auto& [name, batch] : refused_) {
    if (is_known_to_all(name, batch)) known.push_back(name);
  }
  for (const std::string& name : known) {
    const RefusedBatch& batch = refused_.at(name);
    std::string message = fmt::format("batch \"{}\" was refused by", name);
    const char* separator = " ";
    for (const auto& [reason, ranks] : batch.ranks_by_reason) {
      message += fmt::format("{}{}: {}", separator, name_ranks(ranks, static_cast<int>(rank_count_)), reason);
      separator = "; by ";
    }
    refuse_batch(list, name, message, first_of_fewest(batch.ranks_by_reason));
  }
}

// All that is pending of it.
void Coordinator::refuse_batch(ResponseList& list, const std::string& batch, const std::string& message,
                               int peer) {
  std::erase_if(pending_, [&](const auto& entry) {
    if (batch_of(entry.second) != batch) return false;
    list.responses.push_back(refuse(entry.first, entry.second, message, peer));
    return true;
  });
  if (refused_.erase(batch) > 0) list.refused_batches.push_back(batch);
}

// With the rest of its batch, which is communicated together or not at all.
void Coordinator::refuse_expired(ResponseList& list, RunningClock::time_point now) {
  if (stall_timeout_.count() == 0) return;
  const int size = static_cast<int>(rank_count_);
  for (const Stalled& expired : stalled(now, stall_timeout_)) {
    const auto found = pending_.find(expired.name);
    if (found == pending_.end()) continue;
    const std::vector<int> missing(expired.missing.begin(), expired.missing.end());
    const std::vector<int> submitted(expired.submitted.begin(), expired.submitted.end());
    const std::string message = fmt::format(
        "tensor \"{}\" has waited for {}, longer than TUTTI_STALL_TIMEOUT: submitted by {}, not by {}",
        expired.name, format_seconds(expired.since), name_ranks(submitted, size), name_ranks(missing, size));
    const std::string batch = batch_of(found->second);
    if (batch.empty()) {
      list.responses.push_back(refuse(expired.name, found->second, message, missing.front()));
      pending_.erase(found);
    } else {
      refuse_batch(list, batch, message, missing.front());
    }
  }
}

std::vector<Coordinator::Stalled> Coordinator::stalled(RunningClock::time_point now,
                                                       RunningClock::duration limit) const {
  std::vector<const std::pair<const std::string, Pending>*> late;
  for (const auto& entry : pending_) {
    if (now - entry.second.since >= limit && !is_complete(entry.second)) late.push_back(&entry);
  }
  std::sort(late.begin(), late.end(),
            [](const auto* a, const auto* b) { return a->second.order < b->second.order; });
  std::vector<Stalled> list;
  for (const auto* entry : late) {
    Stalled& stalled = list.emplace_back();
    stalled.name = entry->first;
    stalled.since = now - entry->second.since;
    for (std::uint32_t rank = 0; rank < rank_count_; ++rank) {
      if (entry->second.has_submitted[rank]) {
        stalled.submitted.push_back(rank);
      } else if (lacks(entry->second, rank)) {
        stalled.missing.push_back(rank);
      }
    }
  }
  return list;
}

}  // namespace tutti
