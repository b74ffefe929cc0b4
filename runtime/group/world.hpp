// A world at run time: the ranks that joined, the engine of this rank, and the groups that live in it.
// Knows no public API; of transports and collectives only their seams.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/group/diagnosis_frame.hpp"
#include "runtime/group/settings.hpp"
#include "runtime/job/bootstrap.hpp"
#include "runtime/scheduler/engine.hpp"
#include "runtime/scheduler/group_context.hpp"

namespace tutti {

// A group as its world sees it. Every method is called with the world's registry locked, so the object cannot
// go away during the call; none may block or call back into the registry.
class GroupMember {
 public:
  virtual std::uint64_t context() const = 0;
  // Of what fails when this does: a stream's is its group's.
  virtual std::uint64_t failure_context() const = 0;
  // "operation 3", "operation 3 of stream 1".
  virtual std::string name_operation(std::uint32_t sequence) const = 0;
  // This group's rank of a world rank, or -1.
  virtual int group_rank_of(int world_rank) const = 0;
  virtual const std::vector<int>& world_ranks() const = 0;
  // The stamped cause of this group, equal on all its members: peer and text count by ranks of the group.
  virtual void on_failure(const Status& cause) = 0;
  // A member is dead: peer and text count by ranks of the world. Control thread, as on_failure().
  virtual void on_death(int world_rank, const Status& cause) = 0;
  // A member has left the world in peace. Control thread.
  virtual void on_departure(int world_rank) = 0;
  // Why the group has failed here, as far as this rank knows; ok: it has not. Any thread.
  virtual Status local_failure() const = 0;
  // The last collectives submitted, complete or not, at most so many. Any thread.
  virtual CallHistory submitted_calls(std::size_t at_most) const = 0;
  // The following two are called without the registry locked, and may block; the group does not end
  // meanwhile. An operation (0: a message) that nobody waits for has not ended in time.
  virtual void on_deadline(std::uint32_t sequence, const std::string& call) = 0;
  // The process ends.
  virtual void leave() = 0;

 protected:
  ~GroupMember() = default;
};

struct TransportPath {
  std::string transport;  // empty: ourselves
  std::string reason;
};

class WorldState final : private ControlObserver {
 public:
  // Joins the job, agrees with the others, opens the transports. Collective over all ranks; errors of
  // bootstrap(), and invalid_argument if the ranks' settings differ, listing ranks and both values.
  static Result<std::shared_ptr<WorldState>> make(const BootstrapOptions& options, WorldSettings settings);
  // The second half, of ranks that have swapped where they are.
  static Result<std::shared_ptr<WorldState>> make(const BootstrapOptions& options, Meeting meeting,
                                                  WorldSettings settings);
  ~WorldState();
  WorldState(const WorldState&) = delete;
  WorldState& operator=(const WorldState&) = delete;

  const WorldInfo& info() const { return world_.info; }
  // Of the machine and the job, as tuning files name them. Collective over all ranks, which get the same.
  Result<Fingerprint> exchange_fingerprint();
  const WorldSettings& settings() const { return settings_; }
  Engine& engine() { return *engine_; }
  ControlChannel& control() { return *world_.control; }
  const std::vector<PeerAddress>& peers() const { return peers_; }  // by world rank
  // What carries messages to a world rank, and why nothing earlier in the order of preference does.
  const std::vector<TransportPath>& paths() const { return paths_; }
  std::uint32_t contract_hash() const { return contract_hash_; }
  const WorldDomains& domains() const { return domains_; }
  unsigned fork_generation() const { return fork_generation_; }
  // Random, equal on all ranks of this world and on no others.
  const std::string& identity() const { return identity_; }
  // False once a rank has died or left, where rank 0 does not answer, and in a child of fork(): new groups
  // are better off in a world of their own.
  bool is_sound();

  void add(GroupMember& group);
  void remove(GroupMember& group);
  // The process ends with this world open: leaves it as its destructor would, but ends no object, since other
  // threads may be using them. Their operations fail with StatusCode::aborted.
  void leave();

  // Returns when all members of a group that was just added have called this with that step. By the control
  // channel: the group has no endpoints yet. Errors: timeout naming the absent; the failure of the group.
  Status meet(const GroupMember& group, std::uint32_t step, Clock::time_point deadline);

  // Memory of the shared heap for the program; release says whether the memory was ours. Any thread.
  Result<void*> allocate(std::size_t bytes);
  // Memory that ends with its last reference, which may be after the world's end.
  Result<std::shared_ptr<void>> allocate_owned(std::size_t bytes);
  bool release(void* memory);

  // Asks members how far they have come. Waits up to `at_most` for answers, and up to kTraceTime longer to
  // find where the way to silent members ends. By group rank; a rank that has not answered is missing, or has
  // `behind` set. Not from the control thread. `group_ranks`: whom to ask, the own rank possibly included;
  // empty: all. `calls`: how many of their last calls they tell.
  std::map<int, RankState> ask_members(std::uint64_t context, std::chrono::milliseconds at_most,
                                       const std::vector<int>& group_ranks = {}, std::uint32_t calls = 1);
  // "rank 2 (is alive; its last call was broadcast of 4 f32, root 0), rank 3 (does not answer: ...)": those
  // of `size` members who have not submitted operation `sequence`; empty if all have. `first_missing`: the
  // one to blame, a silent rank before one that has merely made fewer calls.
  std::string describe_missing(std::uint64_t context, const std::map<int, RankState>& states, int size,
                               std::uint32_t sequence, int* first_missing);
  // The call that a rank waits in outside the group of `context`, and why that keeps it from coming there.
  std::string describe_waiting(std::uint64_t context, const RankState& state);
  // The state of a rank that owes a message in the group of `context`: "waits in ..."
  std::string describe_peer(std::uint64_t context, const RankState& state);
  // This rank's wait in that group ends with its deadline: others that ask shortly after are told of it.
  void note_deadline(std::uint64_t context);
  // Where members' calls differ first, among those that are remembered; nullopt: nowhere.
  std::optional<CallDifference> compare_calls(std::uint64_t context, const std::vector<int>& group_ranks,
                                              std::chrono::milliseconds at_most);
  // False if rank 0 did not answer when it was asked a moment ago: then it stamps no cause.
  bool has_root() const;
  // Asks rank 0's control thread whether it is there, and waits up to kTraceTime. As ask_members().
  bool find_root();

 private:
  WorldState(World world, WorldSettings settings);
  static void delete_on_another_thread(WorldState* state);

  Status start(std::string_view build_id);
  Status open_trace();
  Status agree(std::string_view build_id);
  Status open_transports();
  WorkerOptions worker_options() const;
  Status open_transports(const std::vector<std::string>& names);
  Status open_on_one_node();
  Status open_between_nodes();
  using Addresses = std::vector<std::map<std::string, std::string>>;
  Result<Addresses> swap_addresses();
  Result<std::vector<Status>> meet_neighbours(const Addresses& addresses, const Status& own_refusal);
  Status choose_paths(const Addresses& addresses, const std::vector<Status>& apart);
  Result<std::vector<Status>> exchange(const Status& own);
  Status agree_on(const Status& verdict);
  Status judge_tuning();
  void report_transports() const;

  void on_failure(std::uint64_t group, int dead_rank, const Status& cause) override;
  void on_message(int source, std::string_view bytes) override;
  void on_departure(int rank) override;
  void on_stall(const Stall& stall);
  // A member's call that makes no progress; compared with what other members reported of the same operation.
  void on_report(int source, StallReport& report);
  void on_question(int source, const StateQuestion& question);
  void on_answer(int source, StateAnswer& answer);
  void on_arrival(int source, const MemberArrival& arrival);
  void end_unattended(const Stall& stall);
  void warn_of_stall(const Stall& stall, const std::string& operation);
  void note_root(bool is_there);
  void find_obstacles(std::uint64_t context, const std::map<int, int>& asked,
                      std::map<int, RankState>& states);
  std::vector<WaitingCall> list_waiting();
  std::vector<WaitingCall> list_under_way();
  GroupMember* find(std::uint64_t context);  // with groups_mutex_ held

  struct Inquiry {
    std::map<int, RankState> answers;  // by world rank
  };

  World world_;
  WorldSettings settings_;
  unsigned fork_generation_;
  std::string identity_;
  Clock::time_point start_deadline_;  // for everything until all ranks can call
  std::string start_error_;           // why this rank leaves before the world has come to be
  std::uint32_t contract_hash_ = 0;
  WorldDomains domains_;
  // Of this machine, which may hold several nodes.
  std::vector<std::vector<std::uint32_t>> worker_cpus_;  // of the own workers; empty: anywhere
  int cpu_count_ = 1;
  int rank_count_here_ = 0;
  bool is_one_process_ = false;
  std::vector<std::unique_ptr<Transport>> transports_;  // until the engine owns them
  std::vector<PeerAddress> peers_;
  std::vector<TransportPath> paths_;
  std::unique_ptr<Trace> trace_;  // null: not asked for
  std::unique_ptr<Engine> engine_;

  std::mutex memory_mutex_;
  std::map<void*, std::shared_ptr<void>> memory_;  // what the program has allocated, and frees itself

  std::mutex groups_mutex_;
  std::map<std::uint64_t, GroupMember*> groups_;
  std::map<std::uint64_t, int> groups_in_use_;  // by workers; remove() waits for them
  std::condition_variable group_released_;
  // A group that is made only after its failure was stamped, or after the death of a member, fails at once.
  std::map<std::uint64_t, Status> early_failures_;
  std::vector<std::pair<int, Status>> deaths_;
  std::vector<int> departures_;  // world ranks that have left in peace

  std::mutex talk_mutex_;  // the following; never held together with groups_mutex_
  std::condition_variable answered_;
  std::map<std::uint64_t, std::map<int, CallHistory>> reports_;  // of stalled ranks, by context, group rank
  std::map<std::uint64_t, Inquiry> inquiries_;
  std::map<std::uint64_t, std::map<std::uint32_t, std::set<int>>>
      arrivals_;                                                          // world ranks, by context and step
  std::vector<std::pair<Clock::time_point, WaitingCall>> past_deadline_;  // when, and what
  std::atomic<Clock::rep> root_missed_{0};  // when rank 0 did not answer last; 0: it always has
  std::uint64_t next_inquiry_ = 1;
  std::map<std::uint64_t, std::uint32_t>
      warned_;  // last sequence per context that a stall warning was given for
};

}  // namespace tutti
