// The plan cache: a list in order of use and a hash map into it.
#include "runtime/scheduler/plan_cache.hpp"

#include <functional>

namespace tutti {

std::size_t PlanCache::Hash::operator()(const PlanKey& key) const {
  std::uint64_t hash = key.params * 0x9E3779B97F4A7C15ULL;
  hash ^= (std::uint64_t{key.root} << 32U) | key.flags;
  return std::hash<std::uint64_t>()(hash) ^ (std::hash<const void*>()(key.row) >> 3U);
}

std::shared_ptr<const Plan> PlanCache::find(const PlanKey& key) {
  if (!entries_.empty() && entries_.front().key == key) return entries_.front().plan;
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return entries_.front().plan;
}

std::shared_ptr<const Plan> PlanCache::insert(const PlanKey& key, Plan plan) {
  bytes_ += plan.bytes();
  entries_.push_front({key, std::make_shared<const Plan>(std::move(plan))});
  by_key_[key] = entries_.begin();
  while (bytes_ > limit_bytes_ && entries_.size() > 1) {
    bytes_ -= entries_.back().plan->bytes();
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
  return entries_.front().plan;
}

}  // namespace tutti
