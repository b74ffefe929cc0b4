// The order of refusals and batches of a name. See batch_refusals.hpp.
#include "runtime/training/batch_refusals.hpp"

#include <utility>

namespace tutti {

void BatchRefusals::add(const std::string& batch, std::string reason, bool is_behind) {
  Batch& refused = batches_[batch];
  (is_behind ? refused.behind : refused.due).push_back(std::move(reason));
}

void BatchRefusals::end_batches(const std::function<bool(const std::string& batch)>& is_under_way) {
  for (auto& [name, batch] : batches_) {
    if (batch.behind.empty() || is_under_way(name)) continue;
    batch.due.insert(batch.due.end(), batch.behind.begin(), batch.behind.end());
    batch.behind.clear();
  }
}

std::vector<BatchRefusal> BatchRefusals::take_due() {
  std::vector<BatchRefusal> taken;
  for (auto& [name, batch] : batches_) {
    if (batch.due.empty() || std::exchange(batch.is_announced, true)) continue;
    taken.push_back({name, batch.due.front(), {rank_}});
  }
  return taken;
}

bool BatchRefusals::holds(const std::string& batch) const {
  const auto found = batches_.find(batch);
  return found != batches_.end() && !found->second.due.empty();
}

bool BatchRefusals::is_announced(const std::string& batch) const {
  const auto found = batches_.find(batch);
  return found != batches_.end() && found->second.is_announced;
}

void BatchRefusals::settle(const std::string& batch) {
  const auto found = batches_.find(batch);
  if (found == batches_.end() || !std::exchange(found->second.is_announced, false)) return;
  found->second.due.pop_front();
  if (found->second.due.empty() && found->second.behind.empty()) batches_.erase(found);
}

}  // namespace tutti
