// The one table of signatures of a group: how a call is carried out, once a call like it has been made.
// Knows no algorithm and no transport.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "runtime/base/call_signature.hpp"
#include "runtime/scheduler/cached_call.hpp"

namespace tutti {

// Not thread-safe.
class SignatureTable {
 public:
  struct Entry {
    Prepared prepared;
    std::unique_ptr<CachedEpoch> cached;  // null: nothing is gained
    bool is_ready = false;                // it may be run, and callers may hold it
  };
  // Beyond so many signatures, or bytes of resolved epochs, the others share one entry.
  static constexpr std::size_t kMostEntries = 1024;

  explicit SignatureTable(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // The entry of a call and the algorithm that it names (empty: none), or null.
  Entry* find(const CallSignature& signature, std::string_view algorithm) {
    if (!algorithm.empty() || last_ == nullptr || !(last_->first == signature)) {
      if (spare_.is_used && spare_.signature == signature && spare_.algorithm == algorithm)
        return &spare_.entry;
      if (!algorithm.empty()) return nullptr;
      const auto found = entries_.find(signature);
      if (found == entries_.end()) return nullptr;
      last_ = &*found;
    }
    return &last_->second;
  }
  bool has_room() const { return entries_.size() < kMostEntries && bytes_ < limit_bytes_; }
  // A new entry for a signature that is not found.
  Entry* insert(const CallSignature& signature, Entry entry) {
    if (entry.prepared.lowered != nullptr) bytes_ += entry.prepared.lowered->bytes();
    last_ = &*entries_.try_emplace(signature, std::move(entry)).first;
    return &last_->second;
  }
  // The one entry that is reused: for calls that name an algorithm, and for all calls once the table is full.
  // Its memory is kept, so calls with new counts allocate nothing. Taken out while it is filled in, because
  // that may forget plans.
  Entry take_spare() {
    spare_.is_used = false;
    return std::move(spare_.entry);
  }
  Entry* put_spare(const CallSignature& signature, std::string_view algorithm, Entry entry) {
    spare_.is_used = true;
    spare_.signature = signature;
    spare_.algorithm = algorithm;
    spare_.entry = std::move(entry);
    return &spare_.entry;
  }
  // Plans have been dropped to save memory: keeps none but those of cached calls, which callers may hold.
  void forget_plans() {
    last_ = nullptr;
    spare_ = {};
    bytes_ = 0;
    for (auto at = entries_.begin(); at != entries_.end();) {
      if (!at->second.is_ready) {
        at = entries_.erase(at);
        continue;
      }
      bytes_ += at->second.prepared.lowered->bytes();
      ++at;
    }
  }

 private:
  struct Hash {
    std::size_t operator()(const CallSignature& signature) const { return signature.hash(); }
  };
  using Entries = std::unordered_map<CallSignature, Entry, Hash>;
  struct Spare {
    bool is_used = false;
    CallSignature signature;
    std::string algorithm;
    Entry entry;
  };

  const std::size_t limit_bytes_;
  std::size_t bytes_ = 0;  // of resolved epochs
  Entries entries_;        // of calls that name no algorithm
  Spare spare_;
  Entries::value_type* last_ = nullptr;  // found last: training repeats itself
};

}  // namespace tutti
