// The shape of the tree of leaders. Knows no connection; see control_plan.hpp.
#include "runtime/job/control_plan.hpp"

namespace tutti {

ControlPlan::ControlPlan(const std::vector<int>& leaders, int degree) {
  const auto width = static_cast<std::size_t>(degree < 1 ? 1 : degree);
  for (std::size_t i = width; i < leaders.size(); ++i) {  // the first ones stay with rank 0
    const int host = leaders[i / width - 1];
    hosts_.insert(host);
    movers_[leaders[i]].host = host;
  }
  closed_ = hosts_;
}

std::vector<int> ControlPlan::below(int host) const {
  std::vector<int> leaders;
  for (const auto& [leader, mover] : movers_) {
    if (mover.host == host) leaders.push_back(leader);
  }
  return leaders;
}

void ControlPlan::on_listening(int host, bool can_host) {
  if (closed_.erase(host) == 0 || can_host) return;
  std::erase_if(movers_, [&](const auto& item) { return item.second.host == host; });
}

void ControlPlan::on_attached(int leader, bool is_here) {
  const auto found = movers_.find(leader);
  if (found == movers_.end()) return;
  found->second.is_attached = true;
  found->second.has_moved = found->second.has_moved || is_here;
  settle(leader);
}

void ControlPlan::on_moving(int leader) {
  const auto found = movers_.find(leader);
  if (found == movers_.end()) return;
  found->second.has_moved = true;
  settle(leader);
}

// Waits for both, so that no frame of the first connection is still under way.
void ControlPlan::settle(int leader) {
  const Mover& mover = movers_[leader];
  if (mover.is_attached && mover.has_moved) movers_.erase(leader);
}

std::vector<int> ControlPlan::awaited() const {
  std::vector<int> ranks(closed_.begin(), closed_.end());
  if (!ranks.empty()) return ranks;
  for (const auto& [leader, mover] : movers_) ranks.push_back(leader);
  return ranks;
}

}  // namespace tutti
