// A world at run time: the ranks that joined, the progress engine of this rank, and its groups. Knows no
// public API; of transports and collectives only their seams.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/group/diagnosis_frame.hpp"
#include "runtime/group/machine_reports.hpp"
#include "runtime/group/member_reports.hpp"
#include "runtime/group/rank_record.hpp"
#include "runtime/group/settings.hpp"
#include "runtime/group/sole_caller.hpp"
#include "runtime/group/world_engine.hpp"
#include "runtime/job/bootstrap.hpp"
#include "runtime/record/metrics_server.hpp"
#include "runtime/record/rank_file.hpp"
#include "runtime/scheduler/engine.hpp"
#include "runtime/scheduler/group_context.hpp"

namespace tutti {

// A group as its world sees it. The world calls every method with its registry locked, so the object cannot
// go away meanwhile. No method may block or call back into the registry.
class GroupMember {
 public:
  virtual std::uint64_t context() const = 0;
  // The context that fails together with this one: a stream's is its group's.
  virtual std::uint64_t failure_context() const = 0;
  // "operation 3", "operation 3 of stream 1".
  virtual std::string name_operation(std::uint32_t sequence) const = 0;
  // This group's rank of a world rank, or -1.
  virtual int group_rank_of(int world_rank) const = 0;
  virtual const std::vector<int>& world_ranks() const = 0;
  // The one cause of failure of this group, equal on all its members: peer and text count by ranks of the
  // group.
  virtual void on_failure(const Status& cause) = 0;
  // The death of a member as a failure of this group. `cause` counts by ranks of the world.
  virtual Status count_death(int world_rank, const Status& cause) const = 0;
  // A member has left the world in an orderly way. Control thread.
  virtual void on_departure(int world_rank) = 0;
  // The cause of failure as far as this rank knows; ok: not failed. Any thread.
  virtual Status local_failure() const = 0;
  // The last submitted collectives, complete or not, at most `at_most`. Any thread.
  virtual CallHistory submitted_calls(std::size_t at_most) const = 0;
  // Of every wait without a limit of its own.
  virtual std::chrono::milliseconds timeout() const = 0;
  // The following two are called without the registry locked, and may block; the group does not end
  // meanwhile. An operation (0: a message) that nobody waits for has not ended in time.
  virtual void on_deadline(std::uint32_t sequence, const std::string& call) = 0;
  // The process ends.
  virtual void leave() = 0;

 protected:
  ~GroupMember() = default;
};

struct TransportPath {
  std::string transport;  // empty: this rank itself
  std::string reason;
};

class WorldState final : private ControlObserver, private StallReceiver {
 public:
  // Joins the job, agrees with the others, opens the transports. Collective over all ranks; errors of
  // bootstrap(), and invalid_argument if the ranks' settings differ, listing ranks and both values.
  static Result<std::shared_ptr<WorldState>> make(const BootstrapOptions& options, WorldSettings settings);
  // The second half, for ranks that have already exchanged their locations.
  static Result<std::shared_ptr<WorldState>> make(const BootstrapOptions& options, Meeting meeting,
                                                  WorldSettings settings);
  // A world of members of a group of `old`. Collective over the ranks of `meeting`. `ranks_before`: the ranks of all
  // in `old`, -1 for those that join by make(). It then keeps the engine and the paths of `old`, if the joining ones
  // can use the same transports. Empty, on all: it opens transports of its own. Errors: peer_failed if a rank is lost
  // meanwhile.
  static Result<std::shared_ptr<WorldState>> make_successor(WorldState& old, Meeting meeting,
                                                            const std::vector<int>& ranks_before,
                                                            std::chrono::milliseconds timeout);
  ~WorldState();
  WorldState(const WorldState&) = delete;
  WorldState& operator=(const WorldState&) = delete;

  const WorldInfo& info() const { return world_.info; }
  // Of the machine and the job, as tuning files name them. Collective over all ranks, which get the same.
  Result<Fingerprint> exchange_fingerprint();
  const WorldSettings& settings() const { return settings_; }
  Engine& engine() { return engine_->engine(); }
  ControlChannel& control() { return *world_.control; }
  const WorldKeys& keys() const { return world_.keys; }
  // World ranks that are known to be dead.
  std::vector<int> dead_ranks();
  // The addresses of these ranks; the list that was made last, if it is theirs and in use. Any thread.
  std::shared_ptr<const PeerList> peers_of(const std::vector<int>& world_ranks);
  // The transport for each world rank, and why preferred ones cannot be used.
  const std::vector<TransportPath>& paths() const { return paths_; }
  std::uint32_t contract_hash() const { return contract_hash_; }
  const WorldDomains& domains() const { return domains_; }
  unsigned fork_generation() const { return fork_generation_; }
  record::RankFile* record() { return record_.get(); }  // null: groups record in memory only
  // Random, equal on all ranks of this world and on no others.
  const std::string& identity() const { return identity_; }
  // False once a rank has died or left, where rank 0 does not answer, and in a child of fork(). New groups
  // should then get a new world.
  bool is_sound();

  void add(GroupMember& group);
  void remove(GroupMember& group);
  // The process ends with this world open: leaves it as its destructor would, but destroys no object that
  // other threads may be using. Their operations fail with StatusCode::aborted.
  void leave();

  // Returns when all members of a new group have called this with that step. Uses the control channel: the
  // group has no endpoints yet. Errors: timeout naming the absent members; the failure of the group.
  Status meet(const GroupMember& group, std::uint32_t step, Clock::time_point deadline);

  // Memory of the shared heap for the program; release returns whether the memory belongs to this world. Any
  // thread.
  Result<void*> allocate(std::size_t bytes);
  // Memory that is freed with its last reference, possibly after the end of the world.
  Result<std::shared_ptr<void>> allocate_owned(std::size_t bytes);
  bool release(void* memory);

  // Asks members for their progress. Waits up to `at_most` for answers, and up to kTraceTime longer to find
  // the silent rank on the route to silent members, and its state. By group rank, with an entry for each rank
  // that was asked. Not from the control thread. `group_ranks`: the ranks to ask, possibly this one; empty: all.
  // `calls`: the number of last calls that each returns.
  std::map<int, RankState> ask_members(std::uint64_t context, std::chrono::milliseconds at_most,
                                       const std::vector<int>& group_ranks = {}, std::uint32_t calls = 1);
  // Verdicts about the members that have not submitted operation `sequence`. Empty if all have. The first one is
  // the rank to blame: a silent rank before one that has merely made fewer calls. The others are marked as its
  // consequences where they wait for it or are reached through it. `states`: of all members.
  std::vector<RankVerdict> find_missing(std::uint64_t context, const std::map<int, RankState>& states,
                                        std::uint32_t sequence);
  // The verdict about one member.
  RankVerdict judge_member(std::uint64_t context, int group_rank, const RankState& state);
  // Adds the last completed operation of a rank that cannot be asked, as far as this rank knows.
  void note_recorded(std::uint64_t context, RankVerdict& verdict) const;
  // Those of all its groups: by its record on this machine, else by what it has reported to this rank.
  CompletedCalls read_completed(int world_rank) const;
  // By its record; nullopt: that does not lie on this machine.
  std::optional<CompletedCalls> read_recorded(int world_rank) const;
  // This rank's wait in that group has reached its deadline: ranks that ask shortly after get that answer.
  void note_deadline(std::uint64_t context);
  // The first difference between the remembered calls of members; nullopt: none.
  std::optional<CallDifference> compare_calls(std::uint64_t context, const std::vector<int>& group_ranks,
                                              std::chrono::milliseconds at_most);
  // The group of `context` has failed with `cause`, whose ranks count by the group. The first failure of this world
  // goes into the file of TUTTI_ERROR_FILE, and its root cause is printed once; the later ones are its consequences.
  // Any thread.
  void note_failure(std::uint64_t context, const Status& cause);
  // The threads that call; each notes itself.
  SoleCaller& callers() { return callers_; }
  // False if rank 0 did not answer recently: then it decides no cause of failure.
  bool has_root() const;
  // Probes rank 0's control thread, and waits up to kTraceTime. As ask_members().
  bool find_root();

 private:
  // Taken by a world from the one before; by rank.
  struct Inheritance {
    std::shared_ptr<WorldEngine> engine;  // null: nothing is taken
    std::vector<PeerAddress> peers;       // without transport: a newcomer, or the own rank
    std::vector<TransportPath> paths;
    std::vector<RankRecord> records;  // empty: they are exchanged
    bool has_newcomers = false;
  };
  WorldState(World world, WorldSettings settings, Inheritance taken);
  static Result<std::shared_ptr<WorldState>> start(World joined, WorldSettings settings, Inheritance taken,
                                                   Clock::time_point deadline);
  static void delete_on_another_thread(WorldState* state);

  Status start();
  Status open_trace();
  Status open_record();
  void end_record(bool has_whole_trace);
  void merge_traces(std::size_t ranks_here) const;
  Status agree();
  Status swap_records();
  Status open_transports();
  ProgressThreadOptions progress_thread_options() const;
  HelperOptions helper_options() const;
  struct Refusals {
    Status all;     // by all transports that cannot be used here
    Status memory;  // by shared memory
  };
  bool may_extend_engine() const;
  void drop_engine();
  Refusals open_listed(const std::vector<std::string>& names);
  std::vector<Transport*> list_transports() const;
  Status open_transports(const std::vector<std::string>& names);
  Status open_on_one_node();
  Status open_between_nodes();
  using Addresses = std::vector<std::map<std::string, std::string>>;
  Result<Addresses> swap_addresses();
  std::map<std::size_t, std::span<const std::byte>> find_neighbours(const Transport& shm,
                                                                    const Addresses& addresses) const;
  Result<std::vector<Status>> meet_neighbours(const Addresses& addresses, const Status& own_refusal);
  Status choose_paths(const Addresses& addresses, const std::vector<Status>& apart);
  Result<std::vector<Status>> exchange(const Status& own);
  Status agree_on(const Status& verdict);
  Status judge_tuning();
  void report_transports() const;

  void on_failure(std::uint64_t group, int dead_rank, const Status& cause) override;
  void note_death(int dead_rank, const Status& cause);
  void print_root_cause(const std::vector<int>& world_ranks, const Status& cause) const;
  void on_message(int source, std::string_view bytes) override;
  void on_loss(RankVerdict& verdict) override;
  void on_second(const std::vector<int>& neighbours) override;
  void on_machine_report(int source, MachineReport report);
  void on_departure(int rank) override;
  bool has_group(std::uint64_t context) override;
  void on_stall(const Stall& stall) override;
  // Compares a stalled call of a member with reports of other members about the same operation.
  void on_report(int source, StallReport& report);
  // Finds that this rank and the sender wait for each other in two groups.
  void compare_orders(int source, const StallReport& report);
  // Called by the thread that waits. The operation, if this thread makes all calls and goes on only once that is
  // complete; else 0.
  std::uint32_t note_lasting_wait(const Stall& stall);
  // The same for any thread.
  std::optional<CallId> lasting_wait();
  void on_question(int source, const StateQuestion& question);
  void on_answer(int source, StateAnswer& answer);
  void on_arrival(int source, const MemberArrival& arrival);
  void end_unattended(const Stall& stall);
  void warn_of_stall(const Stall& stall, const std::string& operation);
  void note_root(bool is_there);
  void find_obstacles(std::uint64_t context, const std::map<int, int>& asked,
                      std::map<int, RankState>& states);
  // The state of a rank that does not answer, and its last operation in the group of `context`, as the rank `before`
  // it on the route sees it.
  RankState inspect(std::uint64_t context, int world_rank, int before);
  // Sends the question to ranks of the world, and waits for their answers.
  std::map<int, RankState> ask(const std::vector<int>& world_ranks, StateQuestion question,
                               std::chrono::milliseconds at_most);
  // The call outside the group of `context` that a rank waits in, and how it blocks this group.
  std::string describe_waiting(std::uint64_t context, const RankState& state);
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
  Clock::time_point start_deadline_;  // of the whole start
  std::string start_error_;           // why this rank leaves during the start
  std::uint32_t contract_hash_ = 0;
  std::vector<RankRecord> records_;  // by rank
  bool has_newcomers_ = false;       // ranks that do not have the engine's transports yet
  WorldDomains domains_;
  std::vector<std::vector<std::uint32_t>> progress_cpus_;  // of its progress threads; empty: anywhere
  std::vector<std::uint32_t> own_cpus_;                    // that this rank may use, rising
  std::uint32_t helper_count_ = 0;
  // Of this machine, which may hold several nodes.
  int cpu_count_ = 1;
  int rank_count_here_ = 0;
  bool is_one_process_ = false;
  std::vector<std::unique_ptr<Transport>> transports_;  // until the engine owns them
  PeerList peers_;                                      // by world rank
  struct PeersMade {
    std::mutex mutex;
    std::vector<int> world_ranks;
    std::weak_ptr<const PeerList> list;
  } last_peers_;
  std::vector<TransportPath> paths_;
  std::unique_ptr<Trace> trace_;                    // until the engine owns it; null: not asked for
  std::unique_ptr<record::RankFile> record_;        // null: groups record in memory only
  std::unique_ptr<record::MetricsServer> metrics_;  // null: not asked for, or another rank's
  std::shared_ptr<WorldEngine> engine_;
  bool is_successor_;  // of a world whose engine it has taken

  MachineReports machine_reports_;

  std::atomic<bool> is_record_ended_{false};
  SoleCaller callers_;

  std::mutex memory_mutex_;
  std::map<void*, std::shared_ptr<void>> memory_;  // allocated by the program, which frees it

  std::mutex groups_mutex_;
  std::map<std::uint64_t, GroupMember*> groups_;
  std::map<std::uint64_t, int> groups_in_use_;  // by workers; remove() waits for them
  std::condition_variable group_released_;
  // A group that is made after its failure was decided, or after the death of a member, fails at once.
  std::map<std::uint64_t, Status> early_failures_;
  std::vector<std::pair<int, Status>> deaths_;
  std::atomic<bool> has_noted_failure_{false};
  std::vector<int> departures_;  // world ranks that have left in an orderly way

  std::mutex talk_mutex_;  // the following; never held together with groups_mutex_
  std::condition_variable answered_;
  std::map<std::uint64_t, MemberReports> reports_;  // of stalled ranks, by context
  std::map<std::uint64_t, Inquiry> inquiries_;
  std::map<std::uint64_t, std::map<std::uint32_t, std::set<int>>>
      arrivals_;                                                          // world ranks, by context and step
  std::vector<std::pair<Clock::time_point, WaitingCall>> past_deadline_;  // when, and what
  std::atomic<Clock::rep> root_missed_{0};  // time of the last missing answer of rank 0; 0: none
  std::uint64_t next_inquiry_ = 1;
  std::map<std::uint64_t, std::uint32_t>
      warned_;  // last sequence per context that a stall warning was given for
};

}  // namespace tutti
