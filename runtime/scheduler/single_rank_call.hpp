// Short calls in a group of one rank: a copy from the input to the output, without an operation. Knows no
// schedule and no waiting.
#pragma once

#include <memory>

#include "runtime/base/call.hpp"
#include "runtime/base/work.hpp"
#include "runtime/scheduler/operation.hpp"

namespace tutti {

class GroupContext;

class SingleRankCall final : public PersistentCall {
 public:
  // Null for calls that are long, have counts of their own or change what they copy. The group has one rank
  // and outlives the call.
  static std::unique_ptr<SingleRankCall> make(GroupContext& group, const Prepared& prepared,
                                              const Call& call);
  // Threading: as GroupContext::submit(). Takes no lock.
  bool run(const Call& call, WorkRef* unfinished) override;

 private:
  SingleRankCall(GroupContext& group, const CallContract& contract, std::size_t bytes)
      : group_(group), contract_(contract), bytes_(bytes) {}

  GroupContext& group_;
  const CallContract contract_;
  const std::size_t bytes_;  // that the call copies
};

}  // namespace tutti
