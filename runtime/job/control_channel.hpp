// The control channel of a world: the bootstrap connections, kept open. It is the Exchange of the start.
// Afterwards it detects dead ranks, fixes one cause for each failure, and carries messages between the group
// layers of ranks. Knows no transport and no collective.
//
// The connections form a tree with rank 0 at its root. One thread per process sleeps in poll(2) and does all
// input and output. The methods below only queue frames for it, or wait for frames that it delivers.
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

#include "runtime/base/process_state.hpp"
#include "runtime/job/control_frame.hpp"
#include "runtime/job/exchange.hpp"
#include "runtime/job/frame_socket.hpp"
#include "runtime/net/network.hpp"

namespace tutti {

// Sockets at which ranks of other nodes can connect to this rank.
struct Listeners {
  std::vector<FrameSocket> sockets;      // listening, TCP
  std::vector<SocketAddress> addresses;  // told to the other ranks
};

struct ControlOptions {
  std::string root_name;  // of the abstract unix socket of rank 0, in its network namespace
  // A name that nobody can guess: rank 0 listens here, too. Or a path in a directory of this user alone: it listens
  // here if another user has taken that name. Empty: no such place.
  std::string private_name;
  std::string job;     // sent to any process that answers: any may listen at a port
  std::string secret;  // of the job; a process without it is refused and the job goes on
  WireSecurity security = WireSecurity::off;  // of connections between nodes
  std::string build_id;                       // a process of another build is refused
  std::string host;                           // of this process, for people
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{300000};     // for all ranks to arrive
  std::function<void(const std::string&)> warn;  // called by the control thread: a process was refused

  // Jobs on several nodes. Returns the addresses at which rank 0 may listen; null for rank 0 and in a job of
  // one node. Called by the control thread, and again after an error.
  std::function<Result<std::vector<SocketAddress>>()> find_root;
  std::string node_name;                      // of the abstract unix socket of the leader of this node
  std::chrono::milliseconds lead_after{0};    // wait this long for another process to lead
  std::chrono::milliseconds silence{300000};  // of another host, after which it counts as dead
  // Time for an orphaned rank to find another parent. During the start: time for a new process to replace a
  // dead one.
  std::chrono::milliseconds rejoin_time{30000};
  int degree = 32;  // of the tree of nodes
  // Opens the listeners of a rank that is not rank 0 but becomes the parent of other nodes. Called by the
  // control thread; null: it cannot.
  std::function<Result<Listeners>()> open_listeners;
  // An error ends the start: a rank that is awaited has died. Called by the control thread until this rank is
  // ready. May be null.
  std::function<Status()> watch_start;
};

// Called by the control thread, one call at a time. Must not block and must not call set_observer.
class ControlObserver {
 public:
  // The one cause of a failure, equal on all ranks. group 0: world rank `dead_rank` is dead; groups that need
  // it have failed.
  virtual void on_failure(std::uint64_t group, int dead_rank, const Status& cause) = 0;
  virtual void on_message(int source, std::string_view bytes) = 0;
  // A rank that had a connection with this one is lost, or its way to here led through such a rank: adds its last
  // operations to the verdict.
  virtual void on_loss(RankVerdict& verdict) { static_cast<void>(verdict); }
  // Once a second, or less often if it takes long, on a rank that has neighbours in the tree on other nodes: those whose
  // connections have taken all earlier bytes.
  virtual void on_second(const std::vector<int>& neighbours) { static_cast<void>(neighbours); }
  // World rank `rank` has left in an orderly way. Its groups go on until an operation needs it.
  virtual void on_departure(int rank) { static_cast<void>(rank); }

 protected:
  ~ControlObserver() = default;
};

class ControlChannel : public Exchange {
 public:
  // Blocks until all ranks have joined. Errors: timeout naming the absent ranks; refused (secret, rank, size
  // or build; the job goes on without the refused process); peer_failed. `listeners`: rank 0's, in a job that
  // may span nodes.
  static Result<std::unique_ptr<ControlChannel>> open(const ControlOptions& options,
                                                      Listeners listeners = {});
  // Says goodbye: to the other ranks this rank has left and is not dead.
  ~ControlChannel() override = default;
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  Result<std::vector<std::string>> allgather(std::string_view mine, Clock::time_point deadline) override;

  // Address of a connected process on another node; empty if there is none.
  virtual std::string remote_address() { return {}; }

  // Says goodbye before the destructor does, because the process ends. No rank receives anything of this rank
  // afterwards. Call it once, and not from the control thread.
  void leave();

  // Why the next allgather will fail, as far as that is known already; ok: nothing is. Any thread.
  Status trouble();

  // From now on `observer` gets all events. Earlier failures and departures are delivered at once, by this
  // thread. Null: after the return no callback runs and none follows.
  void set_observer(ControlObserver* observer);

  // Reports `cause` as the failure of a group (not 0) to all ranks; the first cause wins. Returns at once;
  // the observer is called later. Any thread, also from the observer.
  void abort(std::uint64_t group, const Status& cause);
  // While rank 0 does not answer: `cause` holds for this rank and those whose way to rank 0 leads through it, whatever
  // rank 0 decides later. Returns at once. Any thread, also from the observer.
  void settle(std::uint64_t group, const Status& cause);
  // Sends a message to the observer of another rank (or our own). Lost if that rank is gone. Any thread.
  void tell(int target, std::string bytes);
  // Tells all ranks that this one leaves in an orderly way, before its transports close and look like a
  // death. `why`: an error of this rank alone, for ranks that wait for it; else empty. The channel works
  // until it is destroyed. Returns at once.
  void announce_departure(const std::string& why);
  // For each of `ranks`: the first rank on the route to it that does not answer, which may be the rank itself,
  // and the rank before it. -1 if all answer, or if the route is not known. Waits up to `at_most`, less if all
  // answer. Any thread but the control thread.
  struct SilentRank {
    int rank = -1;
    int before = -1;
  };
  std::vector<SilentRank> find_silent(const std::vector<int>& ranks, std::chrono::milliseconds at_most);
  // The state of a rank that has a connection with this one, as far as it can be seen from here. Control thread.
  virtual ProcessState inspect(int rank) { return static_cast<void>(rank), ProcessState(); }

 protected:
  explicit ControlChannel(const ControlOptions& options);
  Status start_thread();
  void stop_thread();  // to be called by the destructor of every final class
  virtual void run() = 0;
  // Hands a frame of this rank to the control thread; false if that has ended (its parent has left or is
  // dead).
  virtual bool submit(Frame frame);

  // For the control thread.
  void deliver(const Frame& frame);  // a frame from the parent, or from rank 0 itself
  void finish_start(Status status);  // ok: ready
  void lose(const Status& cause);    // no later allgather can succeed
  void record_failure(const FailurePayload& failure);
  void record_departure(int rank);
  void complete_verdict(RankVerdict& verdict) {
    const std::lock_guard lock(observer_mutex_);
    if (observer_ != nullptr) observer_->on_loss(verdict);
  }
  void tell_second(const std::vector<int>& neighbours) {
    const std::lock_guard lock(observer_mutex_);
    if (observer_ != nullptr) observer_->on_second(neighbours);
  }
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
  void record_gather(const Frame& frame);

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
// The verdict about a rank whose connection has ended so. `process`: its state, if it runs on this machine.
RankVerdict judge_loss(const MemberClaim& claim, const Status& why, bool is_remote,
                       const ProcessState& process);

}  // namespace tutti
