// Recognises launchers and reads the variables of those that speak no protocol. Knows no socket.
#include "runtime/job/launchers/launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/ascii.hpp"
#include "runtime/job/launchers/horovod.hpp"
#include "runtime/job/launchers/pmi1.hpp"
#include "runtime/job/launchers/pmi2.hpp"
#include "runtime/job/launchers/pmix.hpp"
#include "runtime/job/launchers/rank_variables.hpp"
#include "runtime/job/launchers/session.hpp"
#include "runtime/job/launchers/slurm.hpp"

namespace tutti {
namespace {

using namespace detail;

constexpr RankVariables kTuttiRun = {"tutti run", "TUTTI_RANK", "TUTTI_SIZE", "TUTTI_LOCAL_RANK",
                                     "TUTTI_LOCAL_SIZE"};
constexpr RankVariables kTorchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr RankVariables kPmi = {"pmi1", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
constexpr RankVariables kOpenMpi = {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};

constexpr RankVariables kPmix = {"pmix", "PMIX_RANK", nullptr, nullptr, nullptr};

std::string text_of(const Environment& environment, const char* name) {
  return std::string(environment.find(name).value_or(""));
}

bool has(const Environment& environment, const char* name) { return environment.find(name).has_value(); }

// TUTTI_LAUNCHER names a launcher: then variables of others do not count.
bool is_named(const Environment& environment) {
  return environment.find("TUTTI_LAUNCHER").value_or("auto") != "auto";
}

// Whether the job of `other` is smaller than `size` ranks, so that each of its processes may have started
// several of them. Also true where nothing is known of `other`.
bool is_smaller(const Environment& environment, const RankVariables& other, int size) {
  const auto number = [&](const char* name) {
    return name == nullptr ? -1 : parse_number<int>(environment.find(name).value_or("")).value_or(-1);
  };
  return number(other.size) < size && number(other.rank) < size;
}

Result<LaunchInfo> from_tutti_run(const Environment& environment, Clock::time_point) {
  LaunchInfo info;
  TUTTI_RETURN_IF_ERROR(read_rank(environment, kTuttiRun, info));
  // `tutti run` sets both families of names. If another launcher has changed one since, the job is ambiguous.
  if (!is_named(environment)) TUTTI_RETURN_IF_ERROR(check_agreement(environment, kTuttiRun, kTorchrun));
  for (const char* name : {"TUTTI_JOB_ID", "TUTTI_SECRET"}) {
    if (const auto text = require(environment, name, info.launcher); !text) return text.status();
  }
  info.secret = text_of(environment, "TUTTI_SECRET");
  info.job = make_job("run", text_of(environment, "TUTTI_JOB_ID"));
  if (text_of(environment, "TUTTI_ADDRESS") != "local") info.host = text_of(environment, "TUTTI_ADDRESS");
  return info;
}

Result<LaunchInfo> from_torchrun(const Environment& environment, Clock::time_point) {
  LaunchInfo info;
  TUTTI_RETURN_IF_ERROR(read_rank(environment, kTorchrun, info));
  // torchrun chooses ranks itself, and may be a process of one of these launchers. Variables set by hand, or
  // left over, must not reorder the ranks of an equally large job, nor split a larger one.
  if (!has(environment, "TORCHELASTIC_RUN_ID") && !is_named(environment)) {
    for (const RankVariables& other : {kPmi, kOpenMpi, kSlurm, kPmix}) {
      if (is_smaller(environment, other, info.size)) continue;
      TUTTI_RETURN_IF_ERROR(check_agreement(environment, kTorchrun, other));
    }
  }
  const Result<std::string> address = require(environment, "MASTER_ADDR", info.launcher);
  if (!address) return address.status();
  const Result<std::string> port_text = require(environment, "MASTER_PORT", info.launcher);
  if (!port_text) return port_text.status();
  const Result<int> port = parse_int("MASTER_PORT", *port_text, 1, 65535, "a port");
  if (!port) return port.status();
  info.secret = text_of(environment, "TUTTI_SECRET");
  info.host = *address;
  // The restart count tells a restarted job from ranks of its earlier run that are still ending.
  info.job = make_job("torchrun",
                      fmt::format("{}|{}|{}|{}", *address, *port, text_of(environment, "TORCHELASTIC_RUN_ID"),
                                  text_of(environment, "TORCHELASTIC_RESTART_COUNT")));
  return info;
}

Result<LaunchInfo> from_pmix(const Environment& environment, Clock::time_point deadline) {
  Result<LaunchInfo> info = launch_from_pmix(environment, deadline);
  if (info) info->launcher = "pmix";
  return info;
}

// Counts the ranks of this node, if the launcher gives the node of each rank.
void count_local(const std::vector<int>& node_of_rank, LaunchInfo& info) {
  if (node_of_rank.empty()) return;
  info.node = node_of_rank[static_cast<std::size_t>(info.rank)];
  const auto self = node_of_rank.begin() + info.rank;
  info.local_rank = static_cast<int>(std::count(node_of_rank.begin(), self, info.node));
  info.local_size = static_cast<int>(std::count(node_of_rank.begin(), node_of_rank.end(), info.node));
}

// The launch data that both versions of PMI give.
template <class Session>
LaunchInfo launch_of(const std::shared_ptr<Session>& session, const char* launcher) {
  LaunchInfo info;
  info.launcher = launcher;
  info.rank = session->rank();
  info.size = session->size();
  count_local(session->node_of_rank(), info);
  info.job = make_job(launcher, session->space_name());
  info.store = make_piecewise_store(session);
  return info;
}

Result<LaunchInfo> from_pmi1(const Environment& environment, Clock::time_point deadline) {
  LaunchInfo place;
  if (has(environment, "PMI_FD")) {
    TUTTI_RETURN_IF_ERROR(read_rank(environment, kPmi, place));
    if (place.size == 1) return place;  // no peer, so there is nothing to ask or to finalize
  }
  const Result<std::shared_ptr<Pmi1>> session = Pmi1::of_process(environment, deadline);
  if (!session) return session.status();
  LaunchInfo info = launch_of(*session, "pmi1");
  if (info.node < 0) {
    info.local_rank = place.local_rank;
    info.local_size = place.local_size;
  }
  return info;
}

Result<LaunchInfo> from_pmi2(const Environment& environment, Clock::time_point deadline) {
  LaunchInfo place;
  TUTTI_RETURN_IF_ERROR(read_rank(environment, {"pmi2", kPmi.rank, kPmi.size, nullptr, nullptr}, place));
  if (place.size == 1) return place;
  const Result<std::shared_ptr<Pmi2>> session = Pmi2::of_process(environment, deadline);
  if (!session) return session.status();
  return launch_of(*session, "pmi2");
}

Result<LaunchInfo> from_open_mpi(const Environment& environment, Clock::time_point) {
  LaunchInfo info;
  TUTTI_RETURN_IF_ERROR(read_rank(environment, kOpenMpi, info));
  std::string names;
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"}) {
    names += text_of(environment, name);
  }
  if (names.empty()) return require(environment, "PMIX_NAMESPACE", info.launcher).status();
  info.secret = text_of(environment, "TUTTI_SECRET");
  info.job = make_job("openmpi", names);
  return info;
}

struct Launcher {
  std::string_view name;       // of TUTTI_LAUNCHER
  std::string_view variables;  // that identify it or are read, separated by spaces
  bool (*is_seen)(const Environment& environment);
  Result<LaunchInfo> (*read)(const Environment& environment, Clock::time_point deadline);
};

constexpr Launcher kLaunchers[] = {
    {"tutti",
     "TUTTI_JOB_ID TUTTI_RANK TUTTI_SIZE TUTTI_LOCAL_RANK TUTTI_LOCAL_SIZE TUTTI_ADDRESS TUTTI_SECRET",
     [](const Environment& e) { return has(e, "TUTTI_JOB_ID"); }, from_tutti_run},
    {"horovod",
     "HOROVOD_RANK HOROVOD_SIZE HOROVOD_LOCAL_RANK HOROVOD_LOCAL_SIZE HOROVOD_CROSS_RANK "
     "HOROVOD_GLOO_RENDEZVOUS_ADDR HOROVOD_GLOO_RENDEZVOUS_PORT TUTTI_SECRET",
     [](const Environment& e) { return has(e, "HOROVOD_RANK"); }, launch_from_horovod},
    {"torchrun",
     "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID "
     "TORCHELASTIC_RESTART_COUNT TUTTI_SECRET",
     [](const Environment& e) { return has(e, "RANK") || has(e, "WORLD_SIZE"); }, from_torchrun},
    {"pmix", "PMIX_NAMESPACE PMIX_RANK",
     [](const Environment& e) { return has(e, "PMIX_NAMESPACE") && why_no_pmix().empty(); }, from_pmix},
    // Slurm accepts one initialisation over PMI-2, which an MPI library makes itself.
    {"pmi2", "PMI_FD PMI_JOBID PMI_RANK PMI_SIZE",
     [](const Environment& e) {
       return has(e, "PMI_FD") && has(e, "PMI_JOBID") && !(is_slurm_step(e) && is_mpi_present());
     },
     from_pmi2},
    {"pmi1", "PMI_FD PMI_RANK PMI_SIZE PMI_PORT PMI_ID MPI_LOCALRANKID MPI_LOCALNRANKS",
     [](const Environment& e) { return (has(e, "PMI_FD") && !has(e, "PMI_JOBID")) || has(e, "PMI_PORT"); },
     from_pmi1},
    {"openmpi",
     "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE "
     "OMPI_MCA_ess_base_jobid OMPI_MCA_orte_hnp_uri TUTTI_SECRET",
     [](const Environment& e) { return has(e, kOpenMpi.rank); }, from_open_mpi},
    {"slurm",
     "SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_STEP_ID SLURM_JOB_ID SLURM_RESTART_COUNT SLURM_CLUSTER_NAME "
     "SLURM_NODEID SLURM_LOCALID SLURM_STEP_TASKS_PER_NODE SLURM_STEP_NODELIST TUTTI_SECRET",
     is_slurm_step, [](const Environment& e, Clock::time_point) { return launch_from_slurm(e); }},
};

}  // namespace

std::string_view find_launcher(const Environment& environment) {
  const Result<std::string> asked = get_enum(environment, "TUTTI_LAUNCHER");
  for (const Launcher& launcher : kLaunchers) {
    const bool is_named = asked && *asked == launcher.name;
    if (is_named || ((!asked || *asked == "auto") && launcher.is_seen(environment))) return launcher.name;
  }
  return "none";
}

std::vector<LauncherSight> list_launchers(const Environment& environment) {
  std::vector<LauncherSight> sights;
  for (const Launcher& launcher : kLaunchers) {
    LauncherSight sight{launcher.name, launcher.is_seen(environment), {}};
    for (std::string_view rest = launcher.variables; !rest.empty();) {
      const std::string_view name = rest.substr(0, rest.find(' '));
      if (environment.find(name)) sight.variables.push_back(name);
      rest = rest.substr(std::min(name.size() + 1, rest.size()));
    }
    sights.push_back(std::move(sight));
  }
  return sights;
}

Result<LaunchInfo> detect_launch(const Environment& environment, Clock::time_point deadline) {
  if (const Result<std::string> asked = get_enum(environment, "TUTTI_LAUNCHER"); !asked)
    return asked.status();
  const std::string_view found = find_launcher(environment);
  for (const Launcher& launcher : kLaunchers) {
    if (launcher.name == found) return launcher.read(environment, deadline);
  }
  LaunchInfo alone;
  alone.launcher = "none";
  return alone;
}

}  // namespace tutti
