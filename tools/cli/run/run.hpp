// `tutti run`: starts the ranks of one job on this machine, or its parts on several, and supervises them
// until the last has ended. Knows nothing of groups or transports; ranks find each other through the
// environment it sets.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"
#include "tools/cli/run/elastic_plan.hpp"
#include "tools/cli/run/hosts.hpp"
#include "topology/binding.hpp"

namespace tutti {

// This process starts some of the ranks of a job for another `tutti run`. That one writes the secret to our
// standard input; when this input ends, the other has ended.
struct RunPart {
  int first_rank = 0;
  int world_size = 0;  // 0: we start the whole job
  std::string address;
  std::string job_id;
  std::vector<HostSlots> placement;  // of the whole job, for HOROVOD_CROSS_RANK
};

// A variable that -x names.
struct ExportedVariable {
  std::string name;
  std::string value;
  bool operator==(const ExportedVariable&) const = default;
};

struct RunOptions {
  int rank_count = 0;                      // that this process starts, or hands over
  bool has_prefix = true;                  // "[rank] " before every line of output
  std::chrono::milliseconds grace{5000};   // from SIGTERM to SIGKILL when the job is ended
  std::vector<std::string> program;        // the program and its arguments
  std::vector<HostSlots> hosts;            // with the ranks of each; empty: this machine
  std::string way;                         // --through: ssh, srun or mpiexec; empty: chosen
  std::string agent;                       // instead of ssh: a shell command that takes a host and a command
  std::vector<ExportedVariable> exported;  // -x: set for all ranks, on other hosts too
  std::optional<PinRequest> bind;          // --bind; unset: what TUTTI_PIN says
  std::string bind_text;                   // as it was given
  std::optional<PinOrder> bind_order;
  bool reports_bindings = false;
  RunPart part;
  bool wants_help = false;
  // Of horovodrun. Values for the ranks are in `exported`, under Horovod's names.
  bool is_horovod = false;           // ranks find Horovod's variables, and tutti where they import Horovod
  std::vector<std::string> answers;  // one sentence for each flag that has no effect
  std::string config_path;           // --config-file
  std::string output_folder;         // --output-filename
  bool has_times = false;            // before each line of output
  bool is_verbose = false;
  int ssh_port = 0, ssh_connect_seconds = 0;  // 0: ssh decides
  std::string ssh_identity;
  bool has_rank_count = false;     // -n was given
  ElasticLimits elastic;           // with min_ranks: ranks may fail, join and leave
  std::vector<HostSlots> offered;  // of an elastic job: `hosts` with all their slots
  std::string discovery_script;    // lists them instead
  int slots_per_host = 1;          // where the script gives no number
  bool is_elastic() const { return elastic.min_ranks > 0; }
  bool wants_check_build = false;
  bool wants_version = false;
};

constexpr int kMostJobRanks = 1 << 20;
// As a shell has it, of a program that is not there.
constexpr int kNotFoundStatus = 127;

// Reads what follows the word `run` or `horovodrun`: options up to the first word that is none, then the program.
// Without -n there are as many ranks as CPUs this process may use, or slots of the hosts; horovodrun insists on it.
// Errors: invalid_argument naming the option; unsupported for jobs that change in a way that they cannot.
Result<RunOptions> parse_run_options(std::span<const std::string_view> arguments, bool is_horovodrun = false);

// Decides where the ranks go, from `hosts` and `offered`. Errors: invalid_argument where they do not fit.
Status place_job(RunOptions& options);

// For an elastic job that has not begun: whether the other hosts have slots for the fewest ranks, and the placement on
// them, which then fits.
bool has_slots_without(const RunOptions& options, std::string_view host);
void drop_host(RunOptions& options, std::string_view host);

// Starts the ranks and returns the exit status of the job: 0 if every rank ended with 0, else the status of
// the rank whose failure ended the job (128 + signal if killed): the first one, or in an elastic job the one that
// left too few. 127 if the program is not found, 126 if it cannot be
// executed. Prints one line with the cause to stderr. While it runs the process is a child subreaper, and on
// return no process that the ranks started is left. Call it from a process with one thread.
// Environment of each rank:
//   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, and the same as TUTTI_RANK, TUTTI_SIZE, TUTTI_LOCAL_RANK,
//   TUTTI_LOCAL_SIZE; MASTER_ADDR and MASTER_PORT for torch's env:// (unless they are set);
//   TUTTI_ADDRESS, TUTTI_JOB_ID (random), TUTTI_SECRET (random; never in an argument, never printed).
//   In an elastic job TUTTI_ELASTIC (a folder, see elastic_folder.hpp), TUTTI_MIN_RANKS and HOROVOD_ELASTIC.
//   With is_horovod also HOROVOD_RANK, SIZE, LOCAL_RANK, LOCAL_SIZE, CROSS_RANK, CROSS_SIZE and HOSTNAME.
// With --bind or TUTTI_PIN each rank is bound before its program starts. It finds OMP_NUM_THREADS, unless
// that is set, and TUTTI_PIN=off, since binding is done.
// With hosts, each of them gets a part: a `tutti run` of its own, which ends with the connection to it.
// Standard input is for jobs on one machine. An elastic job begins anew without a host that does not answer at its start.
int run_job(RunOptions& options);

// The sub-commands: argv[0] is the name. Return the exit status of the process.
int run_command(int argc, char** argv);
int horovodrun_command(int argc, char** argv);

// How many CPUs this process may use (sched_getaffinity), at least 1.
int count_allowed_cpus();

}  // namespace tutti
