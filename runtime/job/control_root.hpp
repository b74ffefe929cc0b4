// What rank 0 alone keeps of a world: who has arrived, what is being gathered, which causes are stamped.
// Knows no connection: frames go out through a router, and it has no meaning for the messages it does not
// see.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/work.hpp"
#include "runtime/job/control_frame.hpp"

namespace tutti {

// The way to the ranks of the world, our own included.
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

  // Whether a process that has proved itself may have its rank. Errors: refused.
  Status check(const MemberClaim& claim) const;
  void admit(const MemberClaim& claim);
  bool is_complete() const { return present_count_ == members_.size(); }
  // Not those who came and gave up waiting, unless nobody else is missing.
  std::vector<int> absent_ranks() const;

  // Before all have arrived the member becomes free again, and who is not dead has given up waiting;
  // afterwards the death is told to all, as `text` says.
  void on_gone(int rank, bool is_dead, const std::string& text);
  // The way to a rank is gone. If it finds no other until then, it is gone, too.
  void on_orphaned(int rank, bool is_dead, const std::string& text, Clock::time_point until);
  void on_attached(int rank);
  // Who was connected to a rank says that it is dead, which holds as soon as nobody else leads to it.
  void on_reported(const GonePayload& gone);
  // Before all have arrived: a rank that had come is dead since `since`, and nobody has come in its member.
  // Ok: there is none.
  Status find_loss(Clock::time_point since) const;
  void drop_overdue(Clock::time_point now);
  Clock::time_point next_overdue() const;
  void on_gather(const EntriesPayload& payload);
  void on_query_missing(int source, std::uint64_t number);
  void on_failure_request(FailurePayload failure);
  // Tells all who has left in peace since the last call: at the end of a job most ranks leave together.
  void tell_departures();

 private:
  enum class Presence : std::uint8_t { absent, present, departed, dead };
  struct Member {
    Presence presence = Presence::absent;
    bool has_given_up = false;
    std::string who;    // "pid 12 on node1"
    std::string cause;  // of death, or why it has left
    Clock::time_point died;
  };
  struct Orphan {
    Clock::time_point until;
    bool is_dead = false;
    std::string text;
  };
  struct Gather {
    std::vector<std::optional<std::string>> values;
    std::size_t arrived = 0;
    bool is_failed = false;
  };

  void settle(std::uint64_t number, Gather& gather);
  std::vector<int> ranks_not_in(const Gather& gather) const;
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
  std::map<int, std::string> reported_;
  std::map<std::uint64_t, Gather> gathers_;
  RanksPayload departures_;                          // not told yet
  std::map<std::uint64_t, FailurePayload> decided_;  // by group
};

}  // namespace tutti
