// The connection to the parent. Tries all candidate addresses side by side, and takes the first process that
// proves to know the job's secret. Knows no route, and no meaning of frames after joining.
#pragma once

#include <poll.h>

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/job/control_channel.hpp"
#include "runtime/job/frame_socket.hpp"

namespace tutti {

class ParentConnection {
 public:
  enum class Stage : std::uint8_t {
    searching,
    joining,  // our claim is under way, or the other side awaits the remaining ranks
    over,
  };

  static constexpr int kAnyRank = -1;

  // Tries no candidate before `start`.
  ParentConnection(const ControlOptions& options, MemberClaim claim, Clock::time_point start = {})
      : options_(options), own_claim_(std::move(claim)), next_try_(start) {}

  // Candidates: where to connect, and the rank that must answer. Names are abstract sockets of this network
  // namespace.
  void add_name(const std::string& name, int rank) { candidates_.push_back({name, {}, false, rank, {}}); }
  void add_addresses(const std::vector<SocketAddress>& addresses, int rank) {
    for (const SocketAddress& address : addresses) candidates_.push_back({{}, address, true, rank, {}});
  }
  void forget_name(const std::string& name);

  Stage stage() const { return stage_; }
  // The claim of the parent that was found; rank -1 before.
  const MemberClaim& claim() const { return parent_claim_; }
  bool is_remote() const { return is_remote_; }
  const SocketAddress& address() const { return address_; }  // of a remote one
  FrameSocket& socket() { return socket_; }

  // For poll(2): appends descriptors, then takes their results, as one span of the same length.
  std::size_t append_fds(std::vector<pollfd>& fds);
  // When to call serve() at the latest.
  Clock::time_point next_try() const {
    return stage_ == Stage::searching ? next_try_ : Clock::time_point::max();
  }
  // Errors: refused or unsupported while searching, with a reason that holds at any candidate; peer_failed
  // when the connection ends after the search. Frames that came before are appended all the same.
  Status serve(std::span<const pollfd> fds, std::vector<Frame>& frames);

  // "nobody listens at ..., 10.0.0.1:5 (Connection refused)": what the search found so far.
  std::string describe_search() const;
  // Every candidate has been tried, and none is being tried.
  bool has_failed_everywhere() const;
  // Ends the search, or the connection.
  void abandon();

 private:
  struct Candidate {
    std::string name;
    SocketAddress address;
    bool is_remote = false;
    int rank = kAnyRank;
    std::string outcome;       // of the last try
    bool has_refused = false;  // and is not asked again
    std::string to_text() const {
      return is_remote ? address.to_text() : (name.starts_with('/') ? "socket " : "abstract socket @") + name;
    }
  };
  struct Attempt {
    std::size_t candidate = 0;
    FrameSocket socket;
    bool is_connected = false;
    Nonce nonce{};
    std::optional<Nonce> hub_nonce;  // once we have proved ourselves
    Clock::time_point until;
  };

  Status try_candidates();  // resource_exhausted: no descriptor is left
  void begin(std::size_t candidate, int fd, bool is_connected);
  Status serve_attempt(Attempt& attempt, short revents, std::vector<Frame>& frames);
  Status on_answer(Attempt& attempt, const Frame& frame);
  Status on_refused(Attempt& attempt, const StatusPayload& refusal);
  void on_welcome(Attempt& attempt, const ClaimPayload& welcome);
  void give_up(Attempt& attempt, std::string outcome);

  const ControlOptions& options_;
  MemberClaim own_claim_;
  Stage stage_ = Stage::searching;
  std::vector<Candidate> candidates_;
  std::vector<Attempt> attempts_;
  std::chrono::milliseconds pause_{0};
  Clock::time_point next_try_;
  std::optional<Status> refusal_;  // by a candidate that has not proved itself
  Clock::time_point refused_until_{};
  FrameSocket socket_;
  MemberClaim parent_claim_ = {-1, 0, 0, {}, {}, false};
  bool is_remote_ = false;
  SocketAddress address_;
};

}  // namespace tutti
