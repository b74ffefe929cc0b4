// The control channel of a world: the bootstrap connections, kept open. It is the Exchange of the start,
// notices the death of ranks, stamps one cause of failure for everybody and carries messages between the
// group layers of ranks. Knows no transport and no collective.
//
// The connections form a tree with rank 0 at its root. One thread per process sleeps in poll(2) and does
// everything; the methods below only leave frames for it or wait for what it delivers.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/job/control_frame.hpp"
#include "runtime/job/exchange.hpp"
#include "runtime/job/frame_socket.hpp"
#include "runtime/net/network.hpp"

namespace tutti {

// Where ranks of other nodes can connect to us.
struct Listeners {
  std::vector<FrameSocket> sockets;      // listening, TCP
  std::vector<SocketAddress> addresses;  // what to tell the others
};

struct ControlOptions {
  std::string root_name;  // of the abstract unix socket of rank 0, in its network namespace
  // Where rank 0 listens instead if another user has taken that name: one that nobody can guess, or a path in
  // a directory of this user alone. Empty: nowhere.
  std::string private_name;
  std::string job;       // told to whoever answers: at a port anybody may listen
  std::string secret;    // of the job; a process without it is refused and the job goes on
  std::string build_id;  // a process of another build is refused
  std::string host;      // of this process, for people
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{300000};     // for all ranks to arrive
  std::function<void(const std::string&)> warn;  // called by the control thread: a process was refused

  // Jobs on several nodes.
  // Where rank 0 may listen; null for rank 0 and in a job of one node. Called by the control thread, and
  // again after an error.
  std::function<Result<std::vector<SocketAddress>>()> find_root;
  std::string node_name;                      // of the abstract unix socket of who leads this node
  std::chrono::milliseconds lead_after{0};    // wait this long for somebody else to do so
  std::chrono::milliseconds silence{300000};  // of another host, after which it counts as dead
  // For a rank that has lost its parent to find another one, and for a process to take the place of one that
  // died during the start.
  std::chrono::milliseconds rejoin_time{30000};
  int degree = 32;  // of the tree of nodes
  // Opens a listener of a rank that is not rank 0, for it may have to connect other nodes to it. Called by the
  // control thread; null: it cannot.
  std::function<Result<Listeners>()> open_listeners;
};

// Called by the control thread, one call at a time. Must not block and must not call set_observer.
class ControlObserver {
 public:
  // A stamped cause, equal on all ranks. group 0: world rank `dead_rank` is gone, whoever needs it has
  // failed.
  virtual void on_failure(std::uint64_t group, int dead_rank, const Status& cause) = 0;
  virtual void on_message(int source, std::string_view bytes) = 0;
  // World rank `rank` has left in peace. Groups with it go on until an operation needs it.
  virtual void on_departure(int rank) { static_cast<void>(rank); }

 protected:
  ~ControlObserver() = default;
};

class ControlChannel : public Exchange {
 public:
  // Blocks until all ranks have joined. Errors: timeout naming who did not arrive; refused (secret, rank,
  // size, build; on the refused process only, the job goes on); peer_failed.
  // `listeners`: rank 0's, in a job that may span nodes.
  static Result<std::unique_ptr<ControlChannel>> open(const ControlOptions& options,
                                                      Listeners listeners = {});
  // Says goodbye: for the others this rank has left and is not dead.
  ~ControlChannel() override = default;
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  Result<std::vector<std::string>> allgather(std::string_view mine, Clock::time_point deadline) override;

  // Of a process on another node that we are connected to; empty if there is none.
  virtual std::string remote_address() { return {}; }

  // Says goodbye now, before the destructor: the process is ending. Afterwards nobody hears of this rank. Not
  // from the control thread; once.
  void leave();

  // From now on `observer` hears everything; failures stamped before are told at once, by this thread. Null:
  // after the return no call is under way and none follows.
  void set_observer(ControlObserver* observer);

  // Asks for `cause` to be stamped as the failure of a group (not 0) on all ranks; the first cause wins.
  // Returns at once, the observer hears of it. Any thread, also from the observer.
  void abort(std::uint64_t group, const Status& cause);
  // Sends a message to the observer of another rank (or our own). Lost if that rank is gone. Any thread.
  void tell(int target, std::string bytes);
  // Tells all others that this rank leaves in peace, before its transports close and look like a death.
  // `why`: an error of this rank alone, for those that wait for it; else empty. The channel goes on until it
  // is destroyed. Returns at once.
  void announce_departure(const std::string& why);
  // The rank at which the way to each of `ranks` ends: the rank itself if only its own control thread does
  // not answer, another one if that is on the way to it and does not, -1 if all answer or the way is not
  // known. Waits up to `at_most`, less if all answer. Any thread but the control thread.
  std::vector<int> find_silent(const std::vector<int>& ranks, std::chrono::milliseconds at_most);

 protected:
  explicit ControlChannel(const ControlOptions& options);
  Status start_thread();
  void stop_thread();  // to be called by the destructor of every final class
  virtual void run() = 0;
  // Hands a frame of this rank to the control thread; false if that has ended (who connects it has left, or
  // is dead).
  virtual bool submit(Frame frame);

  // For the control thread.
  void deliver(const Frame& frame);  // what came from above, or from rank 0 itself
  void finish_start(Status status);  // ok: ready
  void lose(const Status& cause);    // no allgather can succeed any more
  void record_failure(const FailurePayload& failure);
  void record_departure(int rank);
  void drain_wake();
  std::vector<Frame> take_outbox();
  bool is_stopping();
  void warn(const std::string& text) const {
    if (options_.warn) options_.warn(text);
  }

  const ControlOptions options_;
  const Clock::time_point deadline_;
  int wake_ = -1;  // eventfd

 private:
  struct Missing {
    std::string names;
    int first;
  };
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopping_ = false;
  bool is_over_ = false;         // the thread has ended
  std::optional<Status> start_;  // how joining ended
  std::optional<Status> lost_;
  std::vector<Frame> outbox_;
  std::uint64_t gather_count_ = 0;
  std::map<std::uint64_t, Result<std::vector<std::string>>> gathered_;
  std::map<std::uint64_t, Missing> missing_;
  std::uint64_t trace_count_ = 0;
  std::map<std::uint64_t, std::map<int, std::map<int, int>>>
      traces_;                 // by number, rank: next hop of each hop
  std::mutex observer_mutex_;  // held during calls of the observer; taken before mutex_
  ControlObserver* observer_ = nullptr;
  std::vector<FailurePayload> failures_;  // guarded by observer_mutex_, as the next one
  std::vector<int> departures_;
};

std::unique_ptr<ControlChannel> make_control_tree(const ControlOptions& options, Listeners listeners);

// "pid 123 on node1".
std::string describe_process(const MemberClaim& claim);
// "rank 3 (pid 123 on node1) is gone: ...", from how its connection ended.
std::string describe_loss(const MemberClaim& claim, const Status& why, bool is_remote);

}  // namespace tutti
