// The state of a world that rank 0 alone keeps: arrived ranks, running gathers, causes of failure. Knows no
// connection: frames go out through a router.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/work.hpp"
#include "runtime/job/control_frame.hpp"

namespace tutti {

// Sends frames to the ranks of the world, our own included.
class ControlRouter {
 public:
  virtual void send_to(int rank, const Frame& frame) = 0;
  virtual void send_to_all(const Frame& frame) = 0;

 protected:
  ~ControlRouter() = default;
};

class ControlRoot {
 public:
  ControlRoot(int size, ControlRouter& router) : router_(router), members_(static_cast<std::size_t>(size)) {}

  // Whether a proved process may have its rank. Errors: refused.
  Status check(const MemberClaim& claim) const;
  void admit(const MemberClaim& claim);
  bool is_complete() const { return present_count_ == members_.size(); }
  // Without the ranks that came and gave up waiting, unless no other is missing.
  std::vector<int> absent_ranks() const;

  // Before all ranks have joined, the rank becomes free again; if it is not dead, it has given up waiting.
  // Afterwards its death is told to all ranks, as it was reported before, or as it was seen.
  void on_gone(const GonePayload& seen);
  // The path to a rank is lost. The rank counts as gone if it has no new parent by `until`.
  void on_orphaned(const GonePayload& gone, Clock::time_point until);
  void on_attached(int rank);
  // A former parent or child reports a death, not that the rank is orphaned. It holds as soon as no other connection
  // reaches the rank.
  void on_reported(const GonePayload& gone);
  // Before all ranks have joined: the error for a joined rank that died before `since` and was not replaced.
  // Ok: there is none.
  Status find_loss(Clock::time_point since) const;
  void drop_overdue(Clock::time_point now);
  Clock::time_point next_overdue() const;
  void on_gather(const EntriesPayload& payload);
  void on_query_missing(int source, std::uint64_t number);
  void on_failure_request(FailurePayload failure);
  // Tells all ranks which have left since the last call. One frame serves many: most ranks of a job leave
  // together.
  void tell_departures();

 private:
  enum class Presence : std::uint8_t { absent, present, departed, dead };
  struct Member {
    Presence presence = Presence::absent;
    bool has_given_up = false;
    std::string who;    // "pid 12 on node1"
    std::string cause;  // of its death or departure
    Clock::time_point died;
  };
  struct Orphan {
    Clock::time_point until;
    GonePayload gone;
  };
  struct Gather {
    std::vector<std::optional<std::string>> values;
    std::size_t arrived = 0;
    bool is_failed = false;
  };

  void settle(std::uint64_t number, Gather& gather);
  std::vector<int> ranks_not_in(const Gather& gather) const;
  void note_early_death(const GonePayload& gone);
  bool is_present(int rank) const {
    return rank >= 0 && rank < size() &&
           members_[static_cast<std::size_t>(rank)].presence == Presence::present;
  }
  int size() const { return static_cast<int>(members_.size()); }

  ControlRouter& router_;
  std::vector<Member> members_;
  std::size_t present_count_ = 0;
  bool was_complete_ = false;
  std::map<int, Orphan> orphans_;  // by rank
  std::map<int, GonePayload> reported_;
  std::map<std::uint64_t, Gather> gathers_;
  RanksPayload departures_;                          // not told yet
  std::map<std::uint64_t, FailurePayload> decided_;  // by group
};

}  // namespace tutti
