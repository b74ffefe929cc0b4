// The running job behind `tutti run`: rank processes, their output, signals and the end.
// Knows nothing of what the ranks do; a rank is a process with an exit status.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/owned_fd.hpp"
#include "runtime/base/status.hpp"
#include "tools/cli/run/binding.hpp"
#include "tools/cli/run/descendants.hpp"
#include "tools/cli/run/elastic_folder.hpp"
#include "tools/cli/run/elastic_plan.hpp"
#include "tools/cli/run/host_discovery.hpp"
#include "tools/cli/run/master_address.hpp"
#include "tools/cli/run/output.hpp"
#include "tools/cli/run/part_messages.hpp"
#include "tools/cli/run/remote.hpp"
#include "tools/cli/run/run.hpp"

namespace tutti {

// One thread, one poll loop. Only the write to our own stdout and stderr blocks: so a slow reader slows the
// ranks down as it would without us.
class Job {
 public:
  explicit Job(const RunOptions& options) : options_(options) {}
  int run();
  // After run(): the host without which the job, an elastic one, is to be started anew.
  const std::optional<std::string>& unreachable_host() const { return unreachable_host_; }

 private:
  using Clock = std::chrono::steady_clock;

  static constexpr int kSignalStatusBase = 128;

  struct Rank {
    pid_t pid = -1;
    bool is_running = false;
    bool joins = false;  // a job that runs
    int number = 0;      // for people, and for all but a new rank its first rank in the job
    PartMessage::Kind reported = PartMessage::Kind::start;  // of an elastic job: waiting, member
  };
  // A failure of a rank. The one that ends the job gives the status we return.
  struct Cause {
    int rank = -1;
    int exit_status = 0;
    bool is_signal = false;
    std::string text;
  };
  struct SpawnError {
    int error = 0;
    std::string what;
  };

  static int status_of(const SpawnError& error);  // as a shell has it
  Status prepare();                               // names the job, and where to start what
  Status prepare_ranks();
  Status prepare_parts();    // on other hosts
  Status prepare_binding();  // where the ranks go on this machine, reported if asked for
  std::optional<SpawnError> spawn(int rank);
  [[noreturn]] void exec_rank(int rank, pid_t parent, int in, int out, int err, int report);
  void choose_stdin();
  bool is_part() const { return options_.part.world_size > 0; }
  bool has_parts() const { return !parts_.empty(); }
  // It starts ranks when it is told to.
  bool is_elastic_part() const { return is_part() && options_.is_elastic(); }
  // Parts write prefixes and files themselves.
  bool reads_output() const {
    return !has_parts() && (options_.has_prefix || options_.has_times || !options_.output_folder.empty() ||
                            is_elastic_part());
  }
  void add_output(int rank, OwnedFd out, OwnedFd err);
  // "rank 3", or "the ranks of host node1".
  std::string name_of(int member) const;
  void watch_parent();
  void loop();
  bool may_read_terminal() const;
  void pump_stdin();
  void end_if_nobody_reads();
  void handle_signals();
  void pass_on(int signal);
  void suspend();
  void reap();
  std::optional<Cause> failure_of(int rank, int wait_status) const;
  void judge();  // failures_
  // Of an elastic job, in job_elastic.cpp.
  Status prepare_elastic();
  void serve_elastic();
  std::chrono::milliseconds time_to_tick() const;
  void read_discovery();
  void read_news();
  void read_last_news();
  void read_messages();
  void read_folder();
  void report(const PartMessage& message);
  void note(std::size_t host, const PartMessage& message);
  void tell_of_waiting(const ElasticPlace& place, const std::string& process);
  void carry_out(const ElasticPlan::Steps& steps);
  void command(const ElasticPlace& place, const PartMessage& message);
  void obey(const PartMessage& message);
  void start_here(const PartMessage& message);
  bool open_part(std::size_t host);
  void start_first_ranks(std::size_t host);
  void send(std::size_t part, const PartMessage& message) const;
  int number_of(const ElasticPlace& place);
  std::string name_of(const ElasticPlace& place);
  bool starts_without(std::size_t host);
  bool end_elastic(int member, const std::optional<Cause>& failure);
  std::optional<std::string> go_on_without(const std::vector<Cause>& failures);
  void end_job();  // SIGTERM now, SIGKILL after the grace
  void signal_ranks(int signal) const;
  void kill_leftovers();
  bool has_running_rank() const;
  bool is_over() const { return !has_running_rank() && (!is_elastic_part() || cause_); }
  int poll_timeout() const;

  const RunOptions& options_;
  std::string job_id_, secret_, self_;
  MasterAddress master_;
  std::vector<RemotePart> parts_;     // on several hosts: what we start instead of ranks
  std::vector<OwnedFd> part_inputs_;  // their standard inputs, open as long as the job
  RunBinding binding_;                // where our ranks are bound, if we start ranks
  std::vector<Rank> ranks_;
  RankOutput output_;
  std::vector<OutputFiles> copies_;  // --output-filename: of the ranks that are not started yet
  Keeper keeper_;
  std::vector<pid_t> strangers_;  // children that are not of the job
  OwnedFd signals_;
  OwnedFd terminal_pipe_;  // to rank 0's stdin, when ours is a terminal
  std::string words_;      // of whoever started this part, as far as they have come
  bool has_terminal_input_ = false;
  std::optional<Cause> cause_;
  std::optional<Clock::time_point> kill_at_;
  bool was_interrupted_ = false;
  std::vector<Cause> failures_;  // that are not judged yet
  std::optional<ElasticPlan>
      plan_;              // of an elastic job, where it is decided; its hosts are parts_, if there are any
  ElasticFolder folder_;  // of an elastic job, where ranks run
  std::string invitation_;
  std::vector<HostSlots> placed_;   // the hosts of parts_
  std::vector<bool> has_answered_;  // by part
  std::optional<std::string> unreachable_host_;
  std::vector<ElasticPlace> numbers_;                          // by Rank::number
  std::vector<std::pair<ElasticPlace, std::string>> waiting_;  // to join
  bool has_news_ = false;                                      // for plan_
  std::optional<HostDiscovery> discovery_;
  std::string discovery_problem_;  // that was said
  Clock::time_point next_tick_{};
  std::optional<Cause> last_failure_;  // without which the job goes on
};

}  // namespace tutti
