// The leading side of an agreement. See agreement.hpp.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/job/agreement.hpp"
#include "runtime/job/child_connections.hpp"

namespace tutti {

class AgreementLeader final : public AgreementSide, private ChildConnections::Owner {
 public:
  // `gone`: all members below this one are in it.
  AgreementLeader(const AgreementOptions& options, std::set<std::int32_t> gone);
  // Errors: see agree_on_successor().
  Result<Successor> lead();
  Status watch() override;
  Listeners take_listeners() override { return std::move(network_); }

 private:
  // Another member that is not known to be gone.
  struct Candidate {
    ChildConnection* child = nullptr;  // that it has come by; null: it has not
    std::uint64_t confirmed = 0;       // the last proposal
    std::uint64_t engine_epoch = kNoEngine;
    std::optional<MemberProbe> probe;
  };
  // A process that wants to join.
  struct Joiner {
    ChildConnection* child = nullptr;
    MemberPlace place;
    std::uint64_t confirmed = 0;
  };

  Status check(const MemberClaim& claim) override;
  // A membership may be longer than a process may send that has not joined, so the leader asks for it.
  void on_joined(ChildConnection& child) override {
    child.socket.send(Frame{FrameType::membership, claim_.rank, 0, {}});
  }
  void on_frame(ChildConnection& child, Frame frame) override;
  void on_lost(ChildConnection& child, const Status& why) override;
  void on_exhausted(const Status& why) override { trouble_ = why; }

  void on_membership(ChildConnection& child, const Frame& frame);
  void on_joiner(ChildConnection& child, const MembershipPayload& payload);
  void adopt(const Membership& membership);
  void forget_members_that_join();
  void mark_gone(std::int32_t id);
  void poll_once(std::chrono::milliseconds at_most);
  void probe_absent();
  std::vector<int> absent_ids() const;
  // Ranks of the other members that are not known to be gone.
  std::vector<int> list_ranks(const std::function<bool(const Candidate&)>& is_listed) const;
  Status describe_missing() const;  // at the deadline
  // As far as joiners are wanted, enough wait.
  bool has_joiners() const;
  std::size_t joiners_to_admit() const;
  Status propose();
  bool is_one_scope() const;  // of the members of successor_
  bool is_confirmed() const;
  Status end(const Status& why);

  const AgreementOptions options_;
  const MemberClaim claim_;
  Membership membership_;
  std::set<std::int32_t> gone_;
  std::map<std::int32_t, Candidate> candidates_;
  std::vector<Joiner> joiners_;  // in order of arrival
  const Clock::time_point begin_ = Clock::now();
  ChildConnections children_;
  Listeners network_;
  Status trouble_;
  Status lost_;  // a member was lost after the commit
  bool is_committed_ = false;
  bool is_proposed_ = false;  // and no member was lost since
  std::uint64_t round_ = 0;
  Successor successor_;
};

}  // namespace tutti
