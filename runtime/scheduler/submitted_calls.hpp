// The collectives that one rank has submitted to a group. Ranks compare their digest; the last calls themselves
// are kept to name a difference. Knows no transport.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/record/group_record.hpp"
#include "runtime/scheduler/call_contract.hpp"

namespace tutti {

struct SubmittedCall {
  std::uint32_t sequence = 0;
  std::uint64_t digest = 0;  // of all calls up to this one
  std::uint64_t kind = 0, count = 0;
};
using CallHistory = std::vector<SubmittedCall>;  // in order, without gaps

class SubmittedCalls {
 public:
  // So many are compared. The record has more.
  static constexpr std::size_t kRemembered = 64;

  // The record outlives it.
  explicit SubmittedCalls(record::GroupRecord& record) : record_(record) {}

  // The digest once this call is submitted, too.
  std::uint64_t digest_with(const CallContract& contract) const {
    return extend_digest(digest_, contract.hash);
  }
  // Takes note of a call. One thread at a time.
  void add(std::uint32_t sequence, std::uint64_t digest, const CallContract& contract, record::State state) {
    digest_ = digest;
    record_.add_operation({sequence, digest, contract.kind, contract.count, state});
  }
  // The calls up to number `last`, the last one, at most so many. Any thread.
  CallHistory recent(std::uint32_t last, std::size_t at_most = kRemembered) const;

 private:
  std::uint64_t digest_ = 0x7475747469ULL;  // any value, equal on all ranks
  record::GroupRecord& record_;
};

// Where the calls of some ranks of a group differ first.
struct CallDifference {
  std::uint32_t sequence = 0;
  int peer = -1;  // one of the fewest ranks that made the same call
  std::string
      text;  // "rank 0 called broadcast of 4 i32, root 1; ranks 1, 2 called broadcast of 4 i32, root 0"
};
// By rank. False if no difference is found, which says nothing about calls that are no longer remembered.
bool find_difference(const std::map<int, CallHistory>& histories, CallDifference* found);

}  // namespace tutti
