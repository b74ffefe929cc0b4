// Decides which tensors all ranks may communicate: the one place where requests of all ranks meet.
// Knows no buffer, no clock of its own and no message.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/running_clock.hpp"
#include "runtime/training/tensor_request.hpp"

namespace tutti {

// Can the collective go on without a rank that has joined, and gives zeros in main memory or, `on_device`, on its GPU too?
bool goes_on_without(const TensorSignature& signature, bool on_device);

class Coordinator {
 public:
  // `stall_timeout`: a tensor that lacks ranks for this long is refused; 0: never.
  explicit Coordinator(std::uint32_t rank_count, RunningClock::duration stall_timeout = {});

  // Takes the requests of one cycle and returns what can be decided: complete tensors in the order in which
  // they became complete, and errors. A batch comes as a whole; a rank's refusal takes the place of its tensors.
  ResponseList decide(RequestBatch batch, RunningClock::time_point now);

  // Tensors that some ranks submitted longer than `limit` ago and others did not.
  struct Stalled {
    std::string name;
    std::vector<std::uint32_t> submitted, missing;
    RunningClock::duration since{};
  };
  std::vector<Stalled> stalled(RunningClock::time_point now, RunningClock::duration limit) const;
  // Would decide() refuse a tensor now, without a new request?
  bool has_expired(RunningClock::time_point now) const {
    return stall_timeout_.count() > 0 && !stalled(now, stall_timeout_).empty();
  }
  bool is_empty() const { return pending_.empty() && refused_.empty(); }

 private:
  struct Pending {
    std::vector<RequestOfRanks> variants;  // more than one: ranks differ
    std::vector<bool> has_submitted;
    std::uint32_t submitted_count = 0;
    RunningClock::time_point since;
    std::uint64_t order = 0;
  };
  void add(const RequestOfRanks& entry, RunningClock::time_point now);
  bool is_complete(const Pending& pending) const;
  // Does it wait for the rank?
  bool lacks(const Pending& pending, std::uint32_t rank) const;
  // Ranks that have joined and that it cannot go on without.
  std::vector<int> needed_of_joined(const Pending& pending) const;
  // Of one that is complete, or whose variants differ.
  TensorResponse respond(const std::string& name, Pending& pending) const;
  TensorResponse refuse(const std::string& name, const Pending& pending, std::string message, int peer) const;
  void respond_to_complete(ResponseList& list);
  // A batch that ranks have refused in part, once each of the others has submitted it or has joined.
  struct RefusedBatch {
    std::map<std::string, std::vector<int>> ranks_by_reason;
    std::vector<bool> has_refused;
  };
  static const std::string& batch_of(const Pending& pending);
  void add(const BatchRefusal& refusal);
  bool is_known_to_all(const std::string& name, const RefusedBatch& batch) const;
  void respond_to_refused(ResponseList& list);
  void refuse_batch(ResponseList& list, const std::string& batch, const std::string& message, int peer);
  void refuse_expired(ResponseList& list, RunningClock::time_point now);

  const std::uint32_t rank_count_;
  const RunningClock::duration stall_timeout_;
  std::unordered_map<std::string, Pending> pending_;
  std::map<std::string, RefusedBatch> refused_;
  std::vector<bool> has_joined_;
  std::vector<bool> gives_on_device_;  // of those that have joined
  std::uint32_t joined_count_ = 0;
  std::int32_t last_joined_ = -1;
  std::uint64_t next_order_ = 0;
};

}  // namespace tutti
