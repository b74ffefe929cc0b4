// The connections from below: lets in who proves to belong to the job, refuses everybody else with a reason.
// Knows no route, and of the frames of those who have joined only whom they come from.
//
// Everything is non-blocking and bounded, for the sockets can be reached by any process of the machine or the
// network. On the unix socket another user's connection is closed unread. A stranger has few bytes and
// seconds. Strangers share a bounded number of places, and a new one takes the place of the one that has come
// least far; a process that has proved itself keeps its own. Where this process has no descriptor left, a
// process that comes is told so, and the owner too.
#pragma once

#include <poll.h>

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/job/control_channel.hpp"
#include "runtime/job/frame_socket.hpp"

namespace tutti {

struct ChildConnection {
  // A stranger that was refused, has said nothing yet, is about to prove itself; one that has; a member; one
  // that has left.
  enum class Stage : std::uint8_t { refused, hello, proof, claim, joined, leaving };
  FrameSocket socket;
  Stage stage = Stage::hello;
  bool is_remote = false;  // came by TCP
  SocketAddress address;   // of a remote one
  MemberClaim claim;       // once it has joined
  Nonce member_nonce{};
  Nonce nonce{};
  Clock::time_point until;  // all stages but joined
};

class ChildConnections {
 public:
  class Owner {
   public:
    // Whether a process that has proved itself may join. Errors: refused.
    virtual Status check(const MemberClaim& claim) = 0;
    virtual void on_joined(ChildConnection& child) = 0;
    virtual void on_frame(ChildConnection& child, Frame frame) = 0;
    // The connection of one that had joined is gone; the child is removed after the call.
    virtual void on_lost(ChildConnection& child, const Status& why) = 0;
    // A process came that could not be let in, for want of a descriptor. At most once a second.
    virtual void on_exhausted(const Status& why) = 0;

   protected:
    ~Owner() = default;
  };

  ChildConnections(const ControlOptions& options, const MemberClaim& own_claim, Owner& owner)
      : options_(options), own_claim_(own_claim), owner_(owner) {}

  // Errors: resource_exhausted.
  Status listen(FrameSocket socket, bool is_remote);
  bool is_listening() const { return !listeners_.empty(); }
  void stop_listening() {
    listeners_.clear();
    reserve_.close();
  }

  // poll(2): what to wait for, then what came of it, as one span of the same length.
  std::size_t append_fds(std::vector<pollfd>& fds);
  void serve(std::span<const pollfd> fds);
  bool has_limit() const;  // something ends by time
  void drop_expired();

  void refuse(ChildConnection& child, const Status& why);
  void send_to_all(const Frame& frame);
  // To all who know us, also those whose proof is on its way: to them we would seem to have died.
  void send_to_all_known(const Frame& frame);
  void say_goodbye(int leaving_rank);
  // After this what a child says is ignored until it closes the connection.
  void dismiss_all() {
    for (const auto& child : children_) dismiss(*child);
  }
  // Writes what is left for everybody, and closes.
  void finish(Clock::time_point until);

 private:
  struct Listener {
    FrameSocket socket;
    bool is_remote = false;
  };

  void accept(const Listener& listener);
  Status reserve();
  // Tells the next process that comes why it cannot come in.
  void turn_away(const Listener& listener, const Status& why);
  void serve(ChildConnection& child);
  void on_stranger_frame(ChildConnection& child, const Frame& frame);
  void on_hello(ChildConnection& child, const Frame& frame);
  void on_proof(ChildConnection& child, const Frame& frame);
  void on_claim(ChildConnection& child, const Frame& frame);
  void dismiss(ChildConnection& child);
  // Closes a stranger to make room; false if there is none. Strangers that sent hello keep their place for
  // `proof_time`.
  bool drop_stranger(Clock::duration proof_time);
  std::size_t count_strangers() const;
  std::size_t stranger_limit() const;

  const ControlOptions& options_;
  const MemberClaim& own_claim_;
  Owner& owner_;
  std::vector<Listener> listeners_;
  std::vector<std::unique_ptr<ChildConnection>> children_;
  // A spare descriptor. It is closed when there are no others, to accept a process and tell it why it is refused.
  FrameSocket reserve_;
  bool may_accept_ = true;
  Clock::time_point next_exhaustion_{};
  std::size_t joined_count_ = 0;  // so far
  Clock::time_point next_warning_{};
  std::size_t unsaid_ = 0;  // refusals since the last warning
};

}  // namespace tutti
