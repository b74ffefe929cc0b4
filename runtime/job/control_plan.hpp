// How rank 0 makes a tree of the leaders of many nodes before the start is over: who shall be connected to
// whom, and whom that still waits for. Knows no connection and no clock.
#pragma once

#include <map>
#include <set>
#include <vector>

namespace tutti {

// In a job of few nodes all leaders stay with rank 0, and the plan is complete from the beginning.
class ControlPlan {
 public:
  ControlPlan() = default;
  // The leaders, in order, are the nodes of a tree with rank 0 at its root, each with at most `degree`
  // below it, filled level by level.
  ControlPlan(const std::vector<int>& leaders, int degree);

  // Who must listen for others. Each of them is answered by one on_listening().
  const std::set<int>& hosts() const { return hosts_; }
  std::vector<int> below(int host) const;

  // `can_host` false: those below it stay with rank 0.
  void on_listening(int host, bool can_host);
  // The leader has another way to us; `is_here`: it has none, and stays with rank 0.
  void on_attached(int leader, bool is_here);
  // Its connection to rank 0 is at its end.
  void on_moving(int leader);

  bool is_complete() const { return movers_.empty(); }
  // Those whose word is missing.
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
