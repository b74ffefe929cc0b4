// The following side of an agreement. See agreement.hpp.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "runtime/job/agreement.hpp"
#include "runtime/job/parent_connection.hpp"

namespace tutti {

class AgreementFollower final : public AgreementSide {
 public:
  // `leaders`: where one may answer; more than one only for a process that joins. `leader_rank`: of the membership,
  // for messages.
  AgreementFollower(const AgreementOptions& options, std::vector<Member> leaders, std::size_t leader_rank,
                    std::set<std::int32_t> gone);
  // nullopt: the leader is gone. Errors: see agree_on_successor().
  Result<std::optional<Successor>> follow();
  Status watch() override;

 private:
  void connect();
  // The end of the connection, with the frames before it.
  Status poll_once(std::chrono::milliseconds at_most, std::vector<Frame>& frames);
  Result<bool> on_frame(const Frame& frame);  // true: committed
  void introduce();
  Status late() const;
  bool is_joining() const { return claim_.rank == kJoining; }

  const AgreementOptions options_;
  const MemberClaim claim_;
  const std::vector<Member> leaders_;
  const std::size_t leader_rank_;
  const std::set<std::int32_t> gone_;
  std::optional<ParentConnection> parent_;
  std::optional<MemberProbe> probe_;  // while the leader does not answer
  std::optional<ProposalPayload> proposal_;
};

}  // namespace tutti
