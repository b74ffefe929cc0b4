// Recognises launchers and reads unique ids. Knows no socket and no protocol.
#include "runtime/launch/launch.hpp"

#include <fmt/format.h>
#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/network.hpp"
#include "runtime/launch/place.hpp"
#include "runtime/launch/pmi1.hpp"
#include "runtime/launch/pmi2.hpp"
#include "runtime/launch/pmix.hpp"
#include "runtime/launch/session.hpp"
#include "runtime/launch/slurm.hpp"

namespace tutti {
namespace {

using namespace detail;

constexpr std::string_view kIdPrefix = "tutti-";
constexpr std::size_t kIdNameDigits = 32;
constexpr std::size_t kIdSecretDigits = 64;
constexpr std::size_t kMaxHostBytes = 255;

constexpr PlaceVariables kTuttiRun = {"tutti run", "TUTTI_RANK", "TUTTI_SIZE", "TUTTI_LOCAL_RANK",
                                      "TUTTI_LOCAL_SIZE"};
constexpr PlaceVariables kTorchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr PlaceVariables kPmi = {"pmi1", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
constexpr PlaceVariables kOpenMpi = {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};

std::string text_of(const Environment& environment, const char* name) {
  return std::string(environment.find(name).value_or(""));
}

bool has(const Environment& environment, const char* name) { return environment.find(name).has_value(); }

Result<LaunchInfo> from_tutti_run(const Environment& environment, Clock::time_point) {
  LaunchInfo info;
  TUTTI_RETURN_IF_ERROR(read_place(environment, kTuttiRun, info));
  // `tutti run` sets both families of names. If another launcher has changed one since, we cannot know whose
  // job this is.
  TUTTI_RETURN_IF_ERROR(check_agreement(environment, kTuttiRun, kTorchrun));
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
  TUTTI_RETURN_IF_ERROR(read_place(environment, kTorchrun, info));
  // torchrun gives ranks as it likes, and may itself be a process of one of these. Variables that are set by
  // hand, or left over, must not give ranks of an equally large job another order.
  if (!has(environment, "TORCHELASTIC_RUN_ID")) {
    for (const PlaceVariables& other : {kPmi, kOpenMpi, kSlurm}) {
      if (environment.find(kTorchrun.size) != environment.find(other.size)) continue;
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
  // The restart count keeps a restarted job apart from ranks of its earlier life that are still dying.
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

// Where the launcher says on which node each rank is, that; else its variables, else nothing.
void count_local(const std::vector<int>& node_of_rank, LaunchInfo& info) {
  if (node_of_rank.empty()) return;
  info.node = node_of_rank[static_cast<std::size_t>(info.rank)];
  const auto self = node_of_rank.begin() + info.rank;
  info.local_rank = static_cast<int>(std::count(node_of_rank.begin(), self, info.node));
  info.local_size = static_cast<int>(std::count(node_of_rank.begin(), node_of_rank.end(), info.node));
}

// What both versions of PMI tell.
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
    TUTTI_RETURN_IF_ERROR(read_place(environment, kPmi, place));
    if (place.size == 1) return place;  // nobody to meet, so nothing to ask and no farewell to say
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
  TUTTI_RETURN_IF_ERROR(read_place(environment, {"pmi2", kPmi.rank, kPmi.size, nullptr, nullptr}, place));
  if (place.size == 1) return place;
  const Result<std::shared_ptr<Pmi2>> session = Pmi2::of_process(environment, deadline);
  if (!session) return session.status();
  return launch_of(*session, "pmi2");
}

Result<LaunchInfo> from_open_mpi(const Environment& environment, Clock::time_point) {
  LaunchInfo info;
  TUTTI_RETURN_IF_ERROR(read_place(environment, kOpenMpi, info));
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
  std::string_view name;  // of TUTTI_LAUNCHER
  bool (*is_seen)(const Environment& environment);
  Result<LaunchInfo> (*read)(const Environment& environment, Clock::time_point deadline);
};

constexpr Launcher kLaunchers[] = {
    {"tutti", [](const Environment& e) { return has(e, "TUTTI_JOB_ID"); }, from_tutti_run},
    {"torchrun", [](const Environment& e) { return has(e, "RANK") || has(e, "WORLD_SIZE"); }, from_torchrun},
    {"pmix", [](const Environment& e) { return has(e, "PMIX_NAMESPACE") && why_no_pmix().empty(); },
     from_pmix},
    // Slurm takes one introduction over PMI-2, which an MPI library has made or will want to make.
    {"pmi2",
     [](const Environment& e) {
       return has(e, "PMI_FD") && has(e, "PMI_JOBID") && !(is_slurm_step(e) && is_mpi_present());
     },
     from_pmi2},
    {"pmi1",
     [](const Environment& e) { return (has(e, "PMI_FD") && !has(e, "PMI_JOBID")) || has(e, "PMI_PORT"); },
     from_pmi1},
    {"openmpi", [](const Environment& e) { return has(e, kOpenMpi.rank); }, from_open_mpi},
    {"slurm", is_slurm_step, [](const Environment& e, Clock::time_point) { return launch_from_slurm(e); }},
};

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace

std::string_view find_launcher(const Environment& environment) {
  const Result<std::string> asked = get_enum(environment, "TUTTI_LAUNCHER");
  for (const Launcher& launcher : kLaunchers) {
    const bool is_named = asked && *asked == launcher.name;
    if (is_named || ((!asked || *asked == "auto") && launcher.is_seen(environment))) return launcher.name;
  }
  return "none";
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

Result<std::string> new_unique_id() {
  if (sodium_init() < 0) return internal_error("libsodium cannot get random numbers");
  std::array<unsigned char, kIdNameDigits / 2> name{};
  std::array<unsigned char, kIdSecretDigits / 2> secret{};
  randombytes_buf(name.data(), name.size());
  randombytes_buf(secret.data(), secret.size());
  // Every address of this machine: which of them reaches it from another node, the other node finds out.
  const auto all = list_interfaces();
  const auto selected = all ? select_interfaces(*all, "") : all;
  if (!selected) return selected.status();
  std::string hosts;
  for (const Interface& interface : *selected) {
    const std::string host = interface.address.host_text();
    if (hosts.size() + 1 + host.size() <= kMaxHostBytes) hosts += (hosts.empty() ? "" : ",") + host;
  }
  return fmt::format("{}{:02x}-{:02x}@{}", kIdPrefix, fmt::join(name, ""), fmt::join(secret, ""), hosts);
}

Result<LaunchInfo> launch_from_unique_id(std::string_view id, int rank, int size) {
  constexpr std::size_t kSecretAt = kIdPrefix.size() + kIdNameDigits + 1;
  constexpr std::size_t kHostAt = kSecretAt + kIdSecretDigits + 1;
  const bool is_well_formed = id.size() >= kHostAt && id.size() <= kHostAt + kMaxHostBytes &&
                              id.starts_with(kIdPrefix) && id[kSecretAt - 1] == '-' &&
                              id[kHostAt - 1] == '@' && is_hex(id.substr(kIdPrefix.size(), kIdNameDigits)) &&
                              is_hex(id.substr(kSecretAt, kIdSecretDigits)) &&
                              is_printable(id.substr(kHostAt));
  // The id is not repeated in the message: it holds the secret.
  if (!is_well_formed) {
    return invalid_argument("unique id: this is not a text that make_unique_id() returned");
  }
  if (size < 1 || size > kMaxSize) {
    return invalid_argument(fmt::format("size={}: expected a number of ranks from 1 to {}", size, kMaxSize));
  }
  if (rank < 0 || rank >= size) {
    return invalid_argument(fmt::format("rank={}: expected a rank from 0 to {}", rank, size - 1));
  }
  LaunchInfo info;
  info.rank = rank;
  info.size = size;
  info.secret = id.substr(kSecretAt, kIdSecretDigits);
  info.host = id.substr(kHostAt);
  info.launcher = "unique id";
  info.job = make_job("id", id.substr(kIdPrefix.size(), kIdNameDigits));
  return info;
}

}  // namespace tutti
