// Plans that groups of one engine share: a plan follows from a call and the shape of its group, and making one takes
// far longer than finding it. Knows neither counts nor pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/schedule/hierarchy.hpp"
#include "runtime/scheduler/plan.hpp"
#include "runtime/scheduler/plan_cache.hpp"
#include "runtime/scheduler/resolved_call.hpp"

namespace tutti {

// Plans of a group follow from this, the call and the choice for it.
struct GroupShape {
  std::uint32_t rank = 0, size = 0;
  Hierarchy hierarchy;
  bool can_fuse = false;                 // receives may reduce what arrives
  bool compresses_within_nodes = false;  // of compressed plans
  std::uint32_t lines = 0;               // of a control block
  std::size_t staging_bytes = 0;         // of the largest control block
  bool operator==(const GroupShape&) const = default;
};

// A plan is there as long as a group has it. Any thread.
class SharedPlans {
 public:
  explicit SharedPlans(GroupShape shape) : shape_(std::move(shape)) {}
  const GroupShape& shape() const { return shape_; }
  // Plans in the books, with some that no group has any more.
  std::size_t size() {
    const std::lock_guard lock(mutex_);
    return std::get<0>(by_key_).plans.size() + std::get<1>(by_key_).plans.size();
  }

  // The plan of that key, from make() if no group has one: a Result<T>.
  template <class T, class Make>
  Result<std::shared_ptr<const T>> get(const PlanKey& key, const Make& make) {
    ByKey<T>& known = std::get<ByKey<T>>(by_key_);
    if (auto found = find(known, key)) return found;
    Result<T> made = make();  // several threads may be at it
    if (!made) return made.status();
    return add(known, key, std::make_shared<const T>(*std::move(made)));
  }

 private:
  template <class T>
  struct ByKey {
    std::unordered_map<PlanKey, std::weak_ptr<const T>, PlanKeyHash> plans;
    std::size_t next_cleaning = 16;  // at so many plans
  };

  template <class T>
  std::shared_ptr<const T> find(const ByKey<T>& known, const PlanKey& key) {
    const std::lock_guard lock(mutex_);
    const auto found = known.plans.find(key);
    return found == known.plans.end() ? nullptr : found->second.lock();
  }

  template <class T>
  std::shared_ptr<const T> add(ByKey<T>& known, const PlanKey& key, std::shared_ptr<const T> plan) {
    const std::lock_guard lock(mutex_);
    if (known.plans.size() >= known.next_cleaning) {
      std::erase_if(known.plans, [](const auto& entry) { return entry.second.expired(); });
      known.next_cleaning = 2 * known.plans.size() + 16;
    }
    std::weak_ptr<const T>& entry = known.plans[key];
    if (auto first = entry.lock()) return first;
    entry = plan;
    return plan;
  }

  const GroupShape shape_;
  std::mutex mutex_;
  std::tuple<ByKey<Plan>, ByKey<LoweredPlans>> by_key_;
};

// The plans of all shapes that groups have. Any thread.
class PlansByShape {
 public:
  std::shared_ptr<SharedPlans> of(GroupShape shape);

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<SharedPlans>> known_;
};

}  // namespace tutti
