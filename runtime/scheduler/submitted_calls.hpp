// The collectives that one rank has submitted to a group. Ranks compare their digest; the last calls themselves
// are kept to name a difference. Knows no transport.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

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
  static constexpr std::size_t kRemembered = 64;

  // The digest once this call is submitted, too.
  std::uint64_t digest_with(const CallContract& contract) const {
    return extend_digest(digest_, contract.hash);
  }
  // Takes note of a call. One thread at a time.
  void add(std::uint32_t sequence, std::uint64_t digest, const CallContract& contract) {
    digest_ = digest;
    Entry& entry = entries_[sequence % kRemembered];
    // A reader that sees anything of the new entry no longer sees the old number.
    entry.sequence.store(0, std::memory_order_relaxed);
    entry.digest.store(digest, std::memory_order_release);
    entry.kind.store(contract.kind, std::memory_order_release);
    entry.count.store(contract.count, std::memory_order_release);
    entry.sequence.store(sequence, std::memory_order_release);
  }
  // The last calls, at most so many. Any thread.
  CallHistory recent(std::size_t at_most = kRemembered) const;

 private:
  struct Entry {
    std::atomic<std::uint64_t> sequence{0}, digest{0}, kind{0}, count{0};
  };
  std::uint64_t digest_ = 0x7475747469ULL;  // any value, equal on all ranks
  std::array<Entry, kRemembered> entries_;  // by sequence modulo kRemembered
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
