// The connections of child ranks. Admits processes that prove to belong to the job, and refuses all others
// with a reason. Knows no route; of the frames of joined ranks it knows only the connection.
//
// Everything is non-blocking and bounded, because any process of the machine or network can reach the
// sockets. On the unix socket another user's connection is closed unread. A stranger is a process that has
// not proved itself. It has few bytes and seconds, and strangers share a bounded number of slots. A new one
// replaces the one that has come least far; a process that has proved itself keeps its slot. Without a free
// descriptor, new processes and the owner are told so.
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
  // In order: a refused stranger, one that has sent nothing, one that owes its proof; a proved process that
  // owes its claim; a member; a former member.
  enum class Stage : std::uint8_t { refused, hello, proof, claim, joined, leaving };
  FrameSocket socket;
  Stage stage = Stage::hello;
  bool is_remote = false;  // came by TCP
  SocketAddress address;   // of a remote one
  int listener_fd = -1;    // where it came
  MemberClaim claim;       // once it has joined
  ProcessState process;    // of a lost member of this machine
  Nonce member_nonce{};
  Nonce nonce{};
  Clock::time_point until;  // all stages but joined
};

class ChildConnections {
 public:
  class Owner {
   public:
    // Whether a proved process may join. Errors: refused.
    virtual Status check(const MemberClaim& claim) = 0;
    virtual void on_joined(ChildConnection& child) = 0;
    virtual void on_frame(ChildConnection& child, Frame frame) = 0;
    // The connection of a joined child is lost; the child is removed after the call.
    virtual void on_lost(ChildConnection& child, const Status& why) = 0;
    // A process could not be admitted, because no descriptor is left. At most once a second.
    virtual void on_exhausted(const Status& why) = 0;

   protected:
    ~Owner() = default;
  };

  ChildConnections(const ControlOptions& options, const MemberClaim& own_claim, Owner& owner)
      : options_(options), own_claim_(own_claim), owner_(owner) {}

  // Errors: resource_exhausted.
  Status listen(FrameSocket socket, bool is_remote);
  bool is_listening() const { return !listeners_.empty(); }
  // Sockets for other nodes at which nobody has joined are closed, before the next poll.
  void close_unused_listeners() { must_close_unused_ = true; }
  void stop_listening() {
    listeners_.clear();
    reserve_.close();
  }

  // For poll(2): appends descriptors, then takes their results, as one span of the same length.
  std::size_t append_fds(std::vector<pollfd>& fds);
  void serve(std::span<const pollfd> fds);
  bool has_limit() const;  // some child has a deadline
  void drop_expired();

  // Members on other nodes.
  std::vector<const ChildConnection*> remote_members() const;
  bool has_remote_members() const;

  void refuse(ChildConnection& child, const Status& why);
  void send_to_all(const Frame& frame);
  // Also to proved processes whose claim is under way: they would take silence for our death.
  void send_to_all_known(const Frame& frame);
  void say_goodbye(int leaving_rank);
  // Later frames of children are ignored until they close their connections.
  void dismiss_all() {
    for (const auto& child : children_) dismiss(*child);
  }
  // Writes the remaining output of all children, and closes.
  void finish(Clock::time_point until);

 private:
  struct Listener {
    FrameSocket socket;
    bool is_remote = false;
    bool is_used = false;  // a rank has joined here
  };

  void accept(const Listener& listener);
  Status reserve();
  // Accepts the next process only to tell it why it is refused.
  void turn_away(const Listener& listener, const Status& why);
  void serve(ChildConnection& child);
  void on_stranger_frame(ChildConnection& child, const Frame& frame);
  void on_hello(ChildConnection& child, const Frame& frame);
  void on_proof(ChildConnection& child, const Frame& frame);
  void on_claim(ChildConnection& child, const Frame& frame);
  void dismiss(ChildConnection& child);
  // Closes a stranger to make room; false if there is none. Strangers that sent hello keep their slot for
  // `proof_time`.
  bool drop_stranger(Clock::duration proof_time);
  std::size_t count_strangers() const;
  std::size_t stranger_limit() const;

  const ControlOptions& options_;
  const MemberClaim& own_claim_;
  Owner& owner_;
  std::vector<Listener> listeners_;
  std::vector<std::unique_ptr<ChildConnection>> children_;
  // A spare descriptor. It is closed when no other is left, to accept a process and tell it why it is
  // refused.
  FrameSocket reserve_;
  bool may_accept_ = true;
  bool must_close_unused_ = false;
  Clock::time_point next_exhaustion_{};
  std::size_t joined_count_ = 0;  // since the start
  Clock::time_point next_warning_{};
  std::size_t unsaid_ = 0;  // refusals since the last warning
};

}  // namespace tutti
