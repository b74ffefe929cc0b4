// The frames of control connections: header, incremental parser and payloads, with a limit on every length.
// Knows no socket. It parses bytes of unauthenticated processes, so it is fuzzed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/base/byte_fields.hpp"
#include "runtime/base/status.hpp"
#include "runtime/base/verdict.hpp"
#include "runtime/net/wire_security.hpp"

namespace tutti {

// "Up" is towards rank 0, "down" away from it.
enum class FrameType : std::uint8_t {
  hello = 1,      // up: HelloPayload
  challenge,      // down: ChallengePayload
  proof,          // up: ProofPayload
  refused,        // down, to `target`: StatusPayload; its connection ends
  ready,          // down, to all: every rank has joined
  goodbye,        // either way: this rank leaves and is not dead
  arrived,        // up: ArrivedPayload: ranks below the sender that have proved themselves
  gone,           // up: GonePayload: a rank below the sender has left or is dead
  gather,         // up: EntriesPayload
  gathered,       // down, to all: GatherPayload with all values in rank order
  gather_failed,  // down, to all: GatherPayload with the reason as one value; source: the rank that is gone
  query_missing,  // up: GatherPayload without values; number 0 asks about the start
  missing,        // down, to `target`: GatherPayload with the missing ranks as one value; source: the first
  failure,        // FailurePayload; up: a cause that a rank reports; down, to all: the cause that holds
  message,        // to `target`: bytes of the layer above
  open_listener,  // down, to the leader of a node: other nodes will connect to it
  listening,      // up: PathPayload of one step: addresses of the sender's listeners, if it can listen
  attach,         // down, to the leader of a node: PathPayload of one step: its new parent
  moving,         // up: the sender has another parent; nothing follows on this connection
  attached,       // up: RanksPayload: the ranks that this connection now reaches
  path,           // down: PathPayload: the sender and its path to rank 0
  departed,       // down, to all: RanksPayload: ranks that have left in an orderly way
  trace,          // to `target`: TracePayload: each control thread on the route answers
  traced,         // to `target`: TracePayload: answer of one control thread
  welcome,        // down: ClaimPayload of the listening side, in answer to a valid proof
  claim,          // up: ClaimPayload of an authenticated process that wants to join
  // Between the members of a group that agree on its successor (agreement.hpp).
  membership,  // down: the leader asks for it; up: MembershipPayload
  proposal,    // down: ProposalPayload
  confirm,     // up: RoundPayload: the sender agrees to that proposal
  commit,      // down: RoundPayload: all have agreed to it
};
inline constexpr FrameType kLastFrameType = FrameType::commit;

struct Frame {
  FrameType type = FrameType::hello;
  std::int32_t source = 0;  // rank; checked by every rank that forwards the frame upwards
  std::int32_t target = 0;  // rank
  std::string payload;
};

inline constexpr std::size_t kFrameHeaderBytes = 16;
inline constexpr std::size_t kMaxStrangerPayloadBytes = 4096;            // before the proof
inline constexpr std::size_t kMaxPayloadBytes = std::size_t{64} << 20U;  // after it

// Empties a buffer. The start takes frames of a hundred KiB and more, whose memory is not kept for the small ones that
// follow.
void clear_buffer(std::string& buffer);

// Appends header and payload.
void append_frame(std::string& out, const Frame& frame);

// Cuts a stream into frames. After an error it stays in error: the connection must be closed.
class FrameParser {
 public:
  void set_limit(std::size_t max_payload_bytes) { limit_ = max_payload_bytes; }
  void feed(std::string_view bytes) { buffer_ += bytes; }
  // Bytes that are in no frame yet.
  std::string take_rest();
  // The next frame; nullopt: more bytes are needed. Errors: refused (unknown type, a length over the limit),
  // decided from the header alone, so a declared length never allocates.
  Result<std::optional<Frame>> next();

 private:
  std::size_t limit_ = kMaxStrangerPayloadBytes;
  std::size_t consumed_ = 0;
  std::string buffer_;
};

using Nonce = std::array<unsigned char, 32>;
using Proof = std::array<unsigned char, 32>;

inline constexpr std::uint32_t kControlProtocolVersion = 6;

// -- payloads, by encode() and decode() of byte_fields.hpp --------------------------------------------------

inline bool are_valid(const std::vector<RankVerdict>& verdicts) {
  return std::all_of(verdicts.begin(), verdicts.end(),
                     [](const RankVerdict& verdict) { return verdict.is_valid(); });
}

struct HelloPayload {
  std::uint32_t version = kControlProtocolVersion;
  Nonce nonce{};
  std::string job;  // that the sender belongs to: any process may listen at a port
  static auto fields(auto& self) { return std::tie(self.version, self.nonce, self.job); }
};
// The identity that a process claims. Covered by its proof.
struct MemberClaim {
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::int32_t pid = 0;
  std::string host;  // for people
  std::string build_id;
  bool is_moving = false;  // belongs to the job already, and changes its parent
  bool is_again = false;   // a leader that has died may have announced it already
  WireOffer offer{};       // of a process that answers; one that connects has made it with its proof

  MemberClaim as_moving() const {
    MemberClaim claim = *this;
    claim.is_moving = true;
    return claim;
  }
  MemberClaim as_again() const {
    MemberClaim claim = *this;
    claim.is_again = true;
    return claim;
  }
  static auto fields(auto& self) {
    return std::tie(self.rank, self.size, self.pid, self.host, self.build_id, self.is_moving, self.is_again,
                    self.offer);
  }
};
// Reveals nothing of the listening side: any process may ask for it.
struct ChallengePayload {
  Nonce nonce{};
  static auto fields(auto& self) { return std::tie(self.nonce); }
};
struct ProofPayload {
  Proof proof{};      // the sender knows the secret, and the offer is its own
  WireOffer offer{};  // of protection of all that follows the answer
  static auto fields(auto& self) { return std::tie(self.proof, self.offer); }
};
struct ClaimPayload {
  Proof proof{};  // the sender knows the secret, and the claim is its own
  MemberClaim claim;
  static auto fields(auto& self) { return std::tie(self.proof, self.claim); }
};
struct ArrivedPayload {
  std::vector<MemberClaim> claims;
  static auto fields(auto& self) { return std::tie(self.claims); }
};
struct GonePayload {
  std::int32_t rank = 0;
  bool is_dead = false;     // otherwise it has left in an orderly way
  bool may_return = false;  // orphaned: its path to rank 0 is lost, and it may find another
  std::string text;
  std::vector<RankVerdict> verdicts;  // if it is dead; of an orphan: its parent's death comes first
  static auto fields(auto& self) {
    return std::tie(self.rank, self.is_dead, self.may_return, self.text, self.verdicts);
  }
  bool is_valid() const { return are_valid(verdicts); }
};
struct RanksPayload {
  std::vector<std::int32_t> ranks;
  static auto fields(auto& self) { return std::tie(self.ranks); }
};
// The listeners of a rank for others of the job; text of join_addresses().
struct PathStep {
  std::int32_t rank = 0;
  std::string addresses;
  bool operator==(const PathStep&) const = default;
  static auto fields(auto& self) { return std::tie(self.rank, self.addresses); }
};
struct PathPayload {
  std::vector<PathStep> steps;  // in order, towards rank 0
  static auto fields(auto& self) { return std::tie(self.steps); }
};
// The route of a frame to a rank, hop by hop.
struct TracePayload {
  std::uint64_t number = 0;  // of the query, counted by the rank that asks
  std::int32_t rank = -1;    // the route to this rank is asked for
  std::int32_t hop = -1;     // answer: this rank has got the query
  // Answer: `hop` has forwarded the query to this one. Itself: it is the target; -1: no route.
  std::int32_t next_hop = -1;
  static auto fields(auto& self) { return std::tie(self.number, self.rank, self.hop, self.next_hop); }
};
struct StatusPayload {
  StatusCode code = StatusCode::ok;
  std::string message;
  std::int32_t peer = Status::kNoPeer;
  static auto fields(auto& self) { return std::tie(self.code, self.message, self.peer); }
};
struct GatherPayload {
  std::uint64_t number = 0;
  std::vector<std::string> values;
  static auto fields(auto& self) { return std::tie(self.number, self.values); }
};
struct EntriesPayload {
  std::uint64_t number = 0;
  std::vector<std::pair<std::int32_t, std::string>> entries;  // rank, value
  static auto fields(auto& self) { return std::tie(self.number, self.entries); }
};
// Where a process can be reached as long as it lives; see member_listener.hpp.
struct MemberPlace {
  std::string scope;      // the network namespace in which `name` exists
  std::string name;       // of an abstract unix socket
  std::string addresses;  // of TCP listeners, text of join_addresses(); empty: there are none
  bool operator==(const MemberPlace&) const = default;
  static auto fields(auto& self) { return std::tie(self.scope, self.name, self.addresses); }
};
struct Member {
  std::int32_t id = 0;  // of this process in all epochs of its group
  MemberPlace place;
  static auto fields(auto& self) { return std::tie(self.id, self.place); }
};
// The members of a group between two changes, in order of their ranks and of their ids.
struct Membership {
  std::uint64_t epoch = 0;   // changes so far
  std::int32_t next_id = 0;  // of the next process that joins; no id is used twice
  std::vector<Member> members;
  static auto fields(auto& self) { return std::tie(self.epoch, self.next_id, self.members); }
};
struct MembershipPayload {
  std::string gone;                // encode(RanksPayload): ids of members that the sender knows to be gone
  std::uint64_t engine_epoch = 0;  // Membership::epoch in which a process last opened transports for it
  Membership membership;           // of a process that wants to join: itself
  static auto fields(auto& self) { return std::tie(self.gone, self.engine_epoch, self.membership); }
};
// The successor of a group. Its rank 0 makes the proposal.
struct Successor {
  std::string job;                // of its bootstrap
  std::string root_addresses;     // of its rank 0, for ranks of other network namespaces
  bool keeps_transports = false;  // all but newcomers have opened theirs together; else all open new ones
  std::string newcomers;          // encode(RanksPayload): ids of members that have opened no transports yet
  Membership membership;
  static auto fields(auto& self) {
    return std::tie(self.job, self.root_addresses, self.keeps_transports, self.newcomers, self.membership);
  }
};
// How a process can join a group.
struct Invitation {
  std::string lineage;  // AgreementOptions::control.job
  std::string secret;   // as proofs use it
  WireSecurity security = WireSecurity::off;
  Membership membership;
  bool is_valid() const { return security <= WireSecurity::encrypt; }
  static auto fields(auto& self) {
    return std::tie(self.lineage, self.secret, self.security, self.membership);
  }
};
struct ProposalPayload {
  std::uint64_t round = 0;
  Successor successor;
  static auto fields(auto& self) { return std::tie(self.round, self.successor); }
};
struct RoundPayload {
  std::uint64_t round = 0;
  static auto fields(auto& self) { return std::tie(self.round); }
};
struct FailurePayload {
  std::uint64_t group = 0;      // 0: `dead_rank` is gone
  std::int32_t dead_rank = -1;  // world rank
  std::int32_t peer = -1;       // Status::peer
  StatusCode code = StatusCode::internal;
  std::string message;
  std::vector<RankVerdict> verdicts;
  static auto fields(auto& self) {
    return std::tie(self.group, self.dead_rank, self.peer, self.code, self.message, self.verdicts);
  }
  bool is_valid() const { return code != StatusCode::ok && are_valid(verdicts); }
  Status to_status() const { return Status(code, message, peer).with_verdicts(verdicts); }
};
inline FailurePayload make_failure(std::uint64_t group, int dead_rank, const Status& cause) {
  return {group, dead_rank, cause.peer(), cause.code(), cause.message(), cause.verdicts()};
}
// The death of a rank as a failure for all ranks.
inline FailurePayload make_death(const GonePayload& gone) {
  return {0, gone.rank, gone.rank, StatusCode::peer_failed, gone.text, gone.verdicts};
}

}  // namespace tutti
