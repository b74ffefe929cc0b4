// Configuration: the one table of TUTTI_* variables, and typed, checked reading of an environment through it.
// Knows the name and syntax of a variable, not its effect; rules are parsed in selection/.
//
// To add a variable: one row here, get_*() where it is used, and docs/environment.md (a test tells how to
// write it). There is no configuration object: the start of a process takes one Environment and hands it
// down.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti {

// Syntax of the text of a variable.
enum class VariableType : std::uint8_t {
  flag,         // 0|1, off|on, no|yes, false|true
  integer,      // decimal
  size,         // bytes: decimal with an optional k, m or g (powers of 1024; a final b is allowed: 64k, 64kb)
  duration,     // a decimal number with us, ms, s or min; a bare number is seconds
  enumeration,  // one of the words in `values`
  text,         // anything
  rule,         // the grammar of algorithm rules
};

// One row. Numbers may be one of the words in `values` too ("auto"), which get_*() return as nullopt.
struct Variable {
  std::string_view name;
  VariableType type = VariableType::text;
  std::string_view default_text;   // empty: not set by default
  std::string_view values;         // words, separated by |
  std::string_view help;           // one line
  std::int64_t minimum = 0;        // of integers
  std::string_view alias_of = {};  // another spelling of that variable
  bool is_secret = false;          // never printed
};

namespace detail {
constexpr std::string_view kRuleHelp = "algorithm rules of this collective, e.g. ring:1m-;recursive_doubling";
constexpr Variable rule_of(std::string_view name) {
  return {name, VariableType::rule, "auto", "", kRuleHelp};
}
}  // namespace detail

// The table, in the order of `tutti info --env` and docs/environment.md.
inline constexpr Variable kVariables[] = {
    {"TUTTI_LOG", VariableType::enumeration, "warn", "error|warn|info|debug|trace",
     "how much to write to standard error"},
    {"TUTTI_TIMEOUT", VariableType::duration, "5min", "", "longest wait for a peer before a call fails"},
    {"TUTTI_STALL_WARNING", VariableType::duration, "60s", "",
     "a wait this long is reported, once; 0 is never"},
    {"TUTTI_TRACE", VariableType::text, "", "",
     "write what each call was, when it ran and why so to this file of each rank, for ui.perfetto.dev "
     "(%r: the rank)"},
    {"TUTTI_ERROR_FILE", VariableType::text, "", "",
     "write the failure that ends a world to this file of each rank, as JSON: which rank is late, elsewhere, "
     "frozen, dead or unreachable (%r: the rank)"},
    {"TUTTI_RECORDER", VariableType::text, "auto", "auto|off",
     "folder for the record of each rank's last operations, which tutti doctor reads; auto: "
     "$TMPDIR/tutti-<user id>"},
    {"TUTTI_STATS", VariableType::flag, "off", "",
     "print a table of all calls, with their times and the ranks that came last, when the last rank of a "
     "machine "
     "ends"},
    {"TUTTI_METRICS", VariableType::text, "", "",
     "path of a unix socket at which the first rank of each machine serves all its ranks' statistics in "
     "Prometheus' text form"},
    {"TUTTI_CHECK", VariableType::enumeration, "local", "off|local|group",
     "check arguments: not, against this rank's own state, or also against the other ranks' before running"},
    {"TUTTI_WAIT", VariableType::enumeration, "auto", "auto|spin|yield|sleep",
     "how a blocked call waits; auto spins while it pays, then yields, then sleeps"},
    {"TUTTI_SPIN", VariableType::integer, "auto", "auto",
     "polls before a waiting thread yields; auto is 0 when ranks outnumber the CPUs"},
    {"TUTTI_TRANSPORTS", VariableType::text, "auto", "auto",
     "transports to consider, in order of preference: shm,inproc,tcp,ucx,ofi"},
    {"TUTTI_OFI_PROVIDER", VariableType::text, "auto", "auto",
     "libfabric's provider for the transport ofi, as fi_info writes it: tcp;ofi_rxm"},
    {"TUTTI_IFACE", VariableType::text, "", "",
     "network interfaces to use, by name or network: eth0,ib0 or 10.0.0.0/24, of which each node takes those "
     "that it has; ^docker0,lo is all but these"},
    {"TUTTI_PORTS", VariableType::text, "", "",
     "TCP ports to listen at, for sites with a firewall: 20000-20100, equal on all nodes; some for each rank "
     "(default: 16 that follow from the job for rank 0, and any)"},
    {"TUTTI_WIRE_SECURITY", VariableType::enumeration, "off", "off|auth|encrypt",
     "what goes between nodes: auth detects every change of it, encrypt also hides it (transport tcp); off: "
     "connections prove the job's secret, and what follows is plain"},
    {"TUTTI_CUDA_LIBRARY", VariableType::text, "", "",
     "the CUDA driver's library (default: libcuda.so.1, where a program or call needs it)"},
    {"TUTTI_NCCL_LIBRARY", VariableType::text, "", "",
     "NCCL's library (default: libnccl.so.2, once a group's calls are on GPUs)"},
    {"TUTTI_MODULE_PATH", VariableType::text, "", "",
     "folders with modules, separated by colons (default: beside the library, and where it "
     "was installed)"},
    {"TUTTI_SHM_BYTES", VariableType::size, "256m", "", "bound of the shared memory that one process takes"},
    {"TUTTI_SINGLE_COPY", VariableType::enumeration, "auto", "auto|off|on",
     "read peers' memory directly (process_vm_readv) where permitted; on also asks the kernel to let peers "
     "do so"},
    {"TUTTI_CONTROL_BLOCKS", VariableType::flag, "on", "",
     "carry collectives out in shared memory where all ranks of a group share it; off: by messages"},
    {"TUTTI_BOARDS", VariableType::flag, "", "", "deprecated spelling of TUTTI_CONTROL_BLOCKS", 0,
     "TUTTI_CONTROL_BLOCKS"},
    {"TUTTI_STAGING", VariableType::enumeration, "auto", "auto|cached|streamed",
     "stores into staging buffers, which other ranks read: cached, streamed (non-temporal), or auto: "
     "whichever is measured to be faster"},
    {"TUTTI_TOPOLOGY", VariableType::text, "", "",
     "take this for the machine: xml:FILE (of lstopo) or synthetic:STRING (pack:2 l3:1 core:8 pu:1)"},
    {"TUTTI_PIN", VariableType::text, "off", "",
     "bind each rank: off, auto (an even share), core, l3, numa, socket, gpu, or CPUs by local rank "
     "(0,1,12,13 or 0-5;6-11); not where the launcher has"},
    {"TUTTI_PIN_ORDER", VariableType::enumeration, "compact", "compact|scatter",
     "neighbouring ranks are neighbours on the machine, or far apart"},
    {"TUTTI_PROGRESS_THREADS", VariableType::integer, "1", "",
     "threads that carry operations on while the program computes; 0: only calls do (else MLSL_NUM_SERVERS "
     "says)"},
    {"TUTTI_PROGRESS_AFFINITY", VariableType::text, "auto", "",
     "CPUs of the progress threads of all ranks of a machine, shared out in rank order: 0,1,12,13 or sets, "
     "0-1;12-13 (else MLSL_SERVER_AFFINITY says)"},
    {"TUTTI_HELPERS", VariableType::text, "auto", "",
     "threads of each rank that share its long passes over data: auto (as many as it has idle cores of its "
     "own), or a number; 0: none"},
    {"TUTTI_WORKERS", VariableType::integer, "", "", "deprecated spelling of TUTTI_PROGRESS_THREADS", 0,
     "TUTTI_PROGRESS_THREADS"},
    {"TUTTI_WORKER_AFFINITY", VariableType::text, "", "", "deprecated spelling of TUTTI_PROGRESS_AFFINITY", 0,
     "TUTTI_PROGRESS_AFFINITY"},
    {"TUTTI_FUSION_BYTES", VariableType::size, "64m", "",
     "named tensors: bytes of one operation that carries several; 0: each tensor is its own"},
    {"TUTTI_FUSION_CYCLE", VariableType::duration, "1ms", "",
     "named tensors: between two negotiations while tensors are under way"},
    {"TUTTI_FUSION_COUNT", VariableType::integer, "0", "",
     "submitted calls without names: up to so many consecutive small allreduces of one kind share an "
     "operation; 0: none"},
    {"TUTTI_AUTOTUNE", VariableType::flag, "off", "",
     "named tensors: measure fusion bytes and cycle while the job trains, and write the best to the tuning "
     "file"},
    {"TUTTI_AUTOTUNE_LOG", VariableType::text, "", "",
     "named tensors: rank 0 writes each measurement of TUTTI_AUTOTUNE to this file, as CSV"},
    {"TUTTI_CACHE_CAPACITY", VariableType::integer, "1024", "",
     "named tensors: how many ranks remember to have agreed on; 0: none"},
    {"TUTTI_STALL_TIMEOUT", VariableType::duration, "0", "",
     "named tensors: one that some ranks lack for this long fails on the others; 0 is never"},
    {"TUTTI_PRIORITY", VariableType::enumeration, "none", "none|direct|lifo",
     "named tensors: the order of those that are ready: as they came, by the priority of each call, or the "
     "latest first"},
    {"TUTTI_TIMELINE", VariableType::text, "", "",
     "named tensors: rank 0 writes the phases of each tensor to this file, for ui.perfetto.dev"},
    {"TUTTI_TIMELINE_FORM", VariableType::enumeration, "horovod", "horovod|ranks",
     "a process of the timeline for each tensor, with the phases of rank 0, or for each rank, with its "
     "tensors"},
    {"TUTTI_TIMELINE_MARK_CYCLES", VariableType::flag, "off", "",
     "the timeline shows when negotiations begin"},
    {"TUTTI_WIRE_DTYPE", VariableType::text, "none", "",
     "messages of sums of f32 between nodes travel as bf16, f16, f8e4m3 or f8e5m2; with :all behind it "
     "within nodes, "
     "too"},
    {"TUTTI_ERROR_FEEDBACK", VariableType::flag, "off", "",
     "named tensors: what rounding to the wire dtype lost is added at the tensor's next step"},
    {"TUTTI_HIERARCHY", VariableType::text, "auto", "",
     "domains for hierarchical algorithms: auto (shared caches, else sockets), off, or sizes in rank order "
     "(2,2,3)"},
    detail::rule_of("TUTTI_ADJUST_ALLREDUCE"),
    detail::rule_of("TUTTI_ADJUST_BROADCAST"),
    {"TUTTI_ADJUST_BCAST", VariableType::rule, "", "", "another spelling of TUTTI_ADJUST_BROADCAST", 0,
     "TUTTI_ADJUST_BROADCAST"},
    detail::rule_of("TUTTI_ADJUST_REDUCE"),
    detail::rule_of("TUTTI_ADJUST_ALLGATHER"),
    detail::rule_of("TUTTI_ADJUST_REDUCE_SCATTER"),
    detail::rule_of("TUTTI_ADJUST_ALLTOALL"),
    detail::rule_of("TUTTI_ADJUST_GATHER"),
    detail::rule_of("TUTTI_ADJUST_SCATTER"),
    detail::rule_of("TUTTI_ADJUST_BARRIER"),
    detail::rule_of("TUTTI_ADJUST_SCAN"),
    detail::rule_of("TUTTI_ADJUST_EXSCAN"),
    {"TUTTI_TUNING_FILE", VariableType::text, "auto", "auto|off",
     "a file of `tutti tune`; auto: $XDG_CONFIG_HOME/tutti/tuning.json (~/.config/tutti/tuning.json) where "
     "it is there and fits"},
    {"TUTTI_TORCH_INSTALL_AS", VariableType::text, "", "",
     "backends of torch.distributed that are tutti in this process, e.g. gloo: for programs that hard-code "
     "them"},
    {"TUTTI_LAUNCHER", VariableType::enumeration, "auto",
     "auto|none|tutti|horovod|torchrun|pmix|pmi2|pmi1|openmpi|slurm",
     "whose variables tell this process its place; none: a world of one"},
    {"TUTTI_RANK", VariableType::integer, "", "", "this process's rank; set by `tutti run`", 0},
    {"TUTTI_SIZE", VariableType::integer, "", "", "number of ranks of the job; set by `tutti run`", 1},
    {"TUTTI_LOCAL_RANK", VariableType::integer, "", "", "rank among those of this node; set by `tutti run`",
     0},
    {"TUTTI_LOCAL_SIZE", VariableType::integer, "", "", "number of ranks on this node; set by `tutti run`",
     1},
    {"TUTTI_NODE_ID", VariableType::text, "", "",
     "name of this node; ranks of one name share memory (default: boot id and network namespace)"},
    {"TUTTI_JOB_ID", VariableType::text, "", "",
     "tells jobs apart that share an address; set by `tutti run`"},
    {"TUTTI_ADDRESS", VariableType::text, "", "",
     "host of rank 0, or host:port; local for one node; set by `tutti run`"},
    {"TUTTI_SECRET",
     VariableType::text,
     "",
     "",
     "what a process has to know to join the job; set by `tutti run`",
     0,
     {},
     true},
    {"TUTTI_ELASTIC", VariableType::text, "", "",
     "the folder by which ranks of an elastic job hear of changes; set by `tutti run`"},
    {"TUTTI_MIN_RANKS", VariableType::integer, "", "",
     "fewest ranks with which an elastic job goes on; set by `tutti run`", 1},
    {"TUTTI_TEST_FRACTION", VariableType::text, "1", "",
     "the seeded share of the heavy cases that tests run"},
    {"TUTTI_FUZZ_SECONDS", VariableType::integer, "30", "",
     "how long each live fuzz target runs, in the tests", 1},
};

// A snapshot of environment variables. A value: tests make their own, and later setenv() calls do not matter.
class Environment {
 public:
  Environment() = default;
  Environment(std::initializer_list<std::pair<const std::string, std::string>> variables)
      : values_(variables) {}
  // Copies the environment of this process. Not to be called while another thread changes it.
  static Environment of_process();

  // nullopt if unset. A variable set to the empty string counts as unset.
  std::optional<std::string_view> find(std::string_view name) const;
  void set(std::string name, std::string value) { values_[std::move(name)] = std::move(value); }
  const std::map<std::string, std::string, std::less<>>& values() const { return values_; }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

// The text of a variable, and the name by which it is set: its own, another spelling (an alias of the table, or
// one of Horovod's variables), or none for the default. The variable itself wins.
struct ValueInEffect {
  std::string_view name;
  std::string text;  // empty: there is none
};
ValueInEffect find_value(const Environment& environment, std::string_view name);

// Typed reading. The variable must be in the table with that type (a broken invariant otherwise). A value
// that does not parse is invalid_argument; the error names variable, value and expectation. Unset: the
// default. nullopt: unset without a default, or one of the row's words such as "auto". A variable itself wins
// over its other spellings.
Result<bool> get_flag(const Environment& environment, std::string_view name);
Result<std::optional<std::int64_t>> get_integer(const Environment& environment, std::string_view name);
Result<std::optional<std::uint64_t>> get_size(const Environment& environment, std::string_view name);
Result<std::optional<std::chrono::nanoseconds>> get_duration(const Environment& environment,
                                                             std::string_view name);
Result<std::string> get_enum(const Environment& environment, std::string_view name);
// Text and rules.
Result<std::optional<std::string>> get_text(const Environment& environment, std::string_view name);
// Is it set, under this name or another spelling?
bool is_set(const Environment& environment, std::string_view name);

// The parsers alone, for command lines that write sizes and durations the same way. nullopt if malformed or
// too large.
std::optional<std::uint64_t> parse_size(std::string_view text);
std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text);

// The row of a name, aliases included; null if there is none.
const Variable* find_variable(std::string_view name);
// One sentence per TUTTI_* variable that the table lacks, with the nearest known name if one is near.
std::vector<std::string> check_unknown(const Environment& environment);
// Parses every variable that is set; the first error. For the start of a program.
Status check_values(const Environment& environment);

// For `tutti info --env`: each variable with its value here, the origin of the value, and its meaning.
std::string describe_environment_text(const Environment& environment);
// The whole of docs/environment.md.
std::string describe_environment_markdown();

}  // namespace tutti
