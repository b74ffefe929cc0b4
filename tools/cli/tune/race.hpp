// Times of several algorithms for one call, taken alternately, and the conclusions: the leader, who may stop,
// and whether more rounds would change anything. Pure; knows no clock and no algorithm.
#pragma once

#include <cstddef>
#include <vector>

namespace tutti::tool {

// A rule is worth it where its algorithm takes at most this part of the default choice's time, noise
// included.
inline constexpr double kWorthRatio = 0.95;

// A contender's time against that of contender 0, from rounds in which both ran in sequence, so that changes
// of the whole machine cancel out.
struct Standing {
  double us = 0;         // median
  double ratio = 1;      // median of its time over contender 0's
  double noise = 0;      // of the ratio, in parts of it: two standard errors, about
  bool is_sure = false;  // there were rounds enough to tell the noise
  bool is_faster() const { return is_sure && ratio * (1 + noise) < kWorthRatio; }
};

class Race {
 public:
  // Contender 0 is the one that all are compared with; it runs in every round.
  explicit Race(std::size_t contender_count) : times_(contender_count), is_out_(contender_count, false) {}

  std::size_t contender_count() const { return times_.size(); }
  std::size_t round_count() const { return round_count_; }
  bool is_running(std::size_t contender) const { return !is_out_[contender]; }

  // Its time in the round under way.
  void add(std::size_t contender, double us) { times_[contender].push_back(us); }
  // It takes no part any more (it cannot run here, or time is up before its turn).
  void withdraw(std::size_t contender) { is_out_[contender] = true; }
  // Everybody who runs has a time: sends home whoever cannot win any more.
  void end_round();

  // Of a contender with at least one time.
  Standing standing(std::size_t contender) const { return compare(contender, 0); }
  bool has_time(std::size_t contender) const { return !times_[contender].empty(); }
  // The contender with the lowest ratio.
  std::size_t leader() const;
  // More rounds would hardly change whether the leader is worth a rule, or who leads.
  bool is_decided() const;

 private:
  Standing compare(std::size_t contender, std::size_t other) const;

  std::vector<std::vector<double>> times_;  // by contender and round
  std::vector<bool> is_out_;
  std::size_t round_count_ = 0;
};

}  // namespace tutti::tool
