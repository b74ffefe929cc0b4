// Finds the plans of a group's shape; see shared_plans.hpp.
#include "runtime/scheduler/shared_plans.hpp"

namespace tutti {

std::shared_ptr<SharedPlans> PlansByShape::of(GroupShape shape) {
  const std::lock_guard lock(mutex_);
  std::erase_if(known_, [](const auto& entry) { return entry.expired(); });
  for (const std::weak_ptr<SharedPlans>& entry : known_) {
    std::shared_ptr<SharedPlans> found = entry.lock();
    if (found != nullptr && found->shape() == shape) return found;
  }
  auto made = std::make_shared<SharedPlans>(std::move(shape));
  known_.push_back(made);
  return made;
}

}  // namespace tutti
