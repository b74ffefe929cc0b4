// The plan by which rank 0 makes a tree of the leaders of many nodes during the start. Holds the parent of
// each leader and the awaited steps. Knows no connection and no clock.
#pragma once

#include <map>
#include <set>
#include <vector>

namespace tutti {

// In a job of few nodes all leaders stay children of rank 0, and the plan is complete from the beginning.
class ControlPlan {
 public:
  ControlPlan() = default;
  // Leaders fill a tree in order, level by level. Rank 0 is its root; each rank has at most `degree`
  // children.
  ControlPlan(const std::vector<int>& leaders, int degree);

  // The leaders that must listen for others. Each leads to one call of on_listening().
  const std::set<int>& hosts() const { return hosts_; }
  std::vector<int> below(int host) const;

  // `can_host` false: its planned children stay with rank 0.
  void on_listening(int host, bool can_host);
  // The leader has its new parent; `is_here`: it has none, and stays with rank 0.
  void on_attached(int leader, bool is_here);
  // Its connection to rank 0 has been read to the end.
  void on_moving(int leader);

  bool is_complete() const { return movers_.empty(); }
  // The leaders whose answer is missing.
  std::vector<int> awaited() const;

 private:
  struct Mover {
    int host = 0;
    bool is_attached = false;
    bool has_moved = false;
  };
  void settle(int leader);

  std::set<int> hosts_;
  std::set<int> closed_;  // hosts that have not answered
  std::map<int, Mover> movers_;
};

}  // namespace tutti
