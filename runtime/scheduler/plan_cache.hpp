// Plans by algorithm, least recently used ones dropped when a byte limit is passed.
// Knows neither counts nor pointers: they are no part of a key, or variable lengths would miss and grow
// without bound.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <unordered_map>
#include <utility>

namespace tutti {

// The key of a plan of one group. It stands beside the signatures of SignatureTable, because calls of all counts
// share a plan: emitting and lowering take far longer than resolving counts. `row` is the catalogue row (by
// address), `params` packs its parameters.
struct PlanKey {
  const void* row = nullptr;
  std::uint64_t params = 0;
  std::uint32_t root = 0;
  std::uint32_t flags = 0;
  const void* shared_row = nullptr;  // of lowered plans: the row of the direct form, if it is another
  bool operator==(const PlanKey&) const = default;
};

struct PlanKeyHash {
  std::size_t operator()(const PlanKey& key) const {
    std::uint64_t hash = key.params * 0x9E3779B97F4A7C15ULL;
    hash ^= (std::uint64_t{key.root} << 32U) | key.flags;
    return std::hash<std::uint64_t>()(hash) ^ (std::hash<const void*>()(key.row) >> 3U) ^
           std::hash<const void*>()(key.shared_row);
  }
};

// T is any form of a plan; T::bytes() is what it counts against the limit.
template <class T>
class PlanCache {
 public:
  explicit PlanCache(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // The plan of this key, or null.
  std::shared_ptr<const T> find(const PlanKey& key) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return entries_.front().plan;
  }

  // Adds a plan, dropping the least recently used ones (never the new one) beyond the limit.
  std::shared_ptr<const T> insert(const PlanKey& key, std::shared_ptr<const T> plan,
                                  bool* has_dropped = nullptr) {
    bytes_ += plan->bytes();
    entries_.push_front({key, std::move(plan)});
    by_key_[key] = entries_.begin();
    while (bytes_ > limit_bytes_ && entries_.size() > 1) {
      bytes_ -= entries_.back().plan->bytes();
      by_key_.erase(entries_.back().key);
      entries_.pop_back();
      if (has_dropped != nullptr) *has_dropped = true;
    }
    return entries_.front().plan;
  }

  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    PlanKey key;
    std::shared_ptr<const T> plan;
  };
  std::size_t limit_bytes_;
  std::size_t bytes_ = 0;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<PlanKey, typename std::list<Entry>::iterator, PlanKeyHash> by_key_;
};

}  // namespace tutti
