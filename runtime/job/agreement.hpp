// How the members of a group agree on its successor when some of them may be dead. Knows no group and no
// collective; of a world only the places of its members (member_listener.hpp).
//
//   member                                leader: the lowest member that is alive
//   connects to it                  ->    waits until every member has come or is gone
//                                  <-     proposal  the successor's members
//   confirm                         ->    a death meanwhile: a new proposal, with fewer members
//                                  <-     commit    once all of its members have confirmed
//
// The kernel refuses connections to a dead process, so nobody needs the control tree, whose root may be dead. If
// the leader dies, the next member leads. A member that has got the commit takes its membership along, so those
// that have not got it learn of it. The connections last until the successor has started: watch() tells of deaths.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "runtime/job/control_channel.hpp"
#include "runtime/job/member_listener.hpp"

namespace tutti {

inline constexpr std::uint64_t kNoEngine = ~std::uint64_t{0};
inline constexpr std::int32_t kJoining = -1;  // instead of an id

struct AgreementOptions {
  ControlOptions control;  // job: equal for all epochs of the group; rank: the own id, or kJoining
  MemberListener* listener = nullptr;
  Membership membership;                   // as this member knows it
  std::uint64_t engine_epoch = kNoEngine;  // MembershipPayload::engine_epoch
  std::set<std::int32_t> gone;             // ids of members that are dead, or left out
  // Processes that join: none; or as many as make this size, or as many as wait (0).
  std::optional<std::size_t> new_size;
  Clock::time_point deadline;
};

// Either side of an agreement.
class AgreementSide {
 public:
  virtual ~AgreementSide() = default;
  // The death of a process that the start of the successor awaits; ok: none is known.
  virtual Status watch() = 0;
  // Of the leader, where the successor has members in other network namespaces.
  virtual Listeners take_listeners() { return {}; }
};

struct Agreed {
  Successor successor;
  std::shared_ptr<AgreementSide> side;  // to be kept until the successor has started
};

// Collective over the members that are alive and not left out. Errors: timeout naming the members that are alive
// and have not come; refused if the others go on without this one; resource_exhausted.
Result<Agreed> agree_on_successor(const AgreementOptions& options);

// The same for a process that joins; `options.membership` is that of its invitation. It knows its id by its place.
// Errors: timeout if it is not admitted; refused for a wrong secret.
Result<Agreed> ask_to_join(const AgreementOptions& options);

// An invitation as text: it holds the secret of the job.
std::string to_text(const Invitation& invitation);
// Errors: invalid_argument; the text is not repeated.
Result<Invitation> parse_invitation(std::string_view text);

// For both sides: adds where a process listens that may be in another network namespace.
class ParentConnection;
void add_place(ParentConnection& connection, const Member& member);

}  // namespace tutti
