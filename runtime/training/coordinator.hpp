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

// Can the collective go on without ranks that have joined?
bool allows_joined_ranks(const TensorSignature& signature);

class Coordinator {
 public:
  // `stall_timeout`: a tensor that lacks ranks for this long is refused; 0: never.
  explicit Coordinator(std::uint32_t rank_count, RunningClock::duration stall_timeout = {});

  // Takes the requests of one cycle and returns what can be decided: complete tensors in the order in which
  // they became complete, and errors. A batch comes as a whole.
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
  bool is_empty() const { return pending_.empty(); }

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
  // Of one that is complete, or whose variants differ.
  TensorResponse respond(const std::string& name, Pending& pending) const;
  TensorResponse refuse(const std::string& name, const Pending& pending, std::string message, int peer) const;
  void respond_to_complete(ResponseList& list);
  void refuse_expired(ResponseList& list, RunningClock::time_point now);

  const std::uint32_t rank_count_;
  const RunningClock::duration stall_timeout_;
  std::unordered_map<std::string, Pending> pending_;
  std::vector<bool> has_joined_;
  std::uint32_t joined_count_ = 0;
  std::int32_t last_joined_ = -1;
  std::uint64_t next_order_ = 0;
};

}  // namespace tutti
