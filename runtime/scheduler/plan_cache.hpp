// Plans by signature, least recently used ones dropped when a byte limit is passed.
// Knows neither counts nor pointers: they are no part of a signature, or variable lengths would miss and grow
// without bound.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>

#include "runtime/scheduler/plan.hpp"

namespace tutti {

// What a plan depends on besides the group it was made for. `row` is the catalogue row (by address),
// `variant` packs parameters, root and placement.
struct PlanKey {
  const void* row = nullptr;
  std::uint64_t params = 0;
  std::uint32_t root = 0;
  std::uint32_t flags = 0;
  bool operator==(const PlanKey&) const = default;
};

class PlanCache {
 public:
  explicit PlanCache(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // The plan of this signature, or null. Amortised one hash look-up; none for the key asked last.
  std::shared_ptr<const Plan> find(const PlanKey& key);
  // Adds a plan, dropping the least recently used ones (never the new one) beyond the limit.
  std::shared_ptr<const Plan> insert(const PlanKey& key, Plan plan);
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    PlanKey key;
    std::shared_ptr<const Plan> plan;
  };
  struct Hash {
    std::size_t operator()(const PlanKey& key) const;
  };
  std::size_t limit_bytes_;
  std::size_t bytes_ = 0;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<PlanKey, std::list<Entry>::iterator, Hash> by_key_;
};

}  // namespace tutti
