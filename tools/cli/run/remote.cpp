// Command lines for jobs on several hosts. Knows no process; see remote.hpp.
#include "tools/cli/run/remote.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string_view>

#include "runtime/base/config.hpp"
#include "runtime/net/network.hpp"

namespace tutti {
namespace {

// Variables that a remote shell would not have. Some are read by tutti or a library, so that the settings of
// all ranks are equal; the others find programs.
constexpr std::array kForwardedPrefixes = {"TUTTI_", "NCCL_", "MLSL_", "I_MPI_", "HOROVOD_",
                                           "HWLOC_", "OMP_",  "UCX_",  "FI_"};
constexpr std::array kForwarded = {"PATH",        "LD_LIBRARY_PATH", "PYTHONPATH",
                                   "VIRTUAL_ENV", "MASTER_ADDR",     "MASTER_PORT"};
// By these, launchers tell a process its own place.
constexpr std::array kNotForwardedPrefixes = {"HOROVOD_RANK",     "HOROVOD_SIZE",
                                              "HOROVOD_LOCAL_",   "HOROVOD_CROSS_",
                                              "HOROVOD_HOSTNAME", "HOROVOD_GLOO_RENDEZVOUS_",
                                              "I_MPI_HYDRA_"};
// Set for each rank; the secret must not stand on a command line, which every user of the host can read.
constexpr std::array kNotForwarded = {
    "TUTTI_RANK",    "TUTTI_SIZE",   "TUTTI_LOCAL_RANK", "TUTTI_LOCAL_SIZE", "TUTTI_JOB_ID",
    "TUTTI_ADDRESS", "TUTTI_SECRET", "TUTTI_NODE_ID",    "TUTTI_ELASTIC",    "TUTTI_MIN_RANKS"};

bool is_forwarded(std::string_view name) {
  for (const std::string_view no : kNotForwarded) {
    if (name == no) return false;
  }
  for (const std::string_view prefix : kNotForwardedPrefixes) {
    if (name.starts_with(prefix)) return false;
  }
  for (const std::string_view yes : kForwarded) {
    if (name == yes) return true;
  }
  for (const std::string_view prefix : kForwardedPrefixes) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

// Where the others find rank 0. A name that means this machine here would mean another one there.
std::string address_of(const RunOptions& options) {
  const std::string& host = options.hosts.front().host;
  const std::size_t at = host.find('@');
  if (!is_here(host)) return at == std::string::npos ? host : host.substr(at + 1);
  std::string addresses;
  const auto all = list_interfaces();
  const auto selected = all ? select_interfaces(*all, "") : all;
  if (!selected) return host;
  for (const Interface& interface : *selected)
    addresses += (addresses.empty() ? "" : ",") + interface.address.host_text();
  return addresses;
}

bool is_installed(std::string_view program) {
  const char* const path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::size_t colon = rest.find(':');
    const std::string file = fmt::format("{}/{}", rest.substr(0, colon), program);
    if (::access(file.c_str(), X_OK) == 0) return true;
    rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
  }
  return false;
}

bool is_open_mpi() {
  std::FILE* const pipe = ::popen("mpiexec --version 2>/dev/null", "re");
  if (pipe == nullptr) return false;
  std::array<char, 256> line{};
  bool is_found = false;
  while (std::fgets(line.data(), line.size(), pipe) != nullptr) {
    const std::string_view text = line.data();
    // Up to version 4 the launcher calls itself OpenRTE.
    is_found = is_found || text.find("Open MPI") != text.npos || text.find("OpenRTE") != text.npos;
  }
  ::pclose(pipe);
  return is_found;
}

// Options of a part that its ranks or their output need.
std::string part_options(const RunOptions& options, const std::vector<HostSlots>& placed) {
  std::string words = fmt::format(" --grace {}", static_cast<double>(options.grace.count()) / 1000);
  if (!options.has_prefix) words += " --no-prefix";
  if (options.has_times) words += " --prefix-output-with-timestamp";
  if (options.is_verbose) words += " --verbose";
  if (!options.output_folder.empty()) words += " --output-filename " + quote_for_shell(options.output_folder);
  if (options.is_horovod) words += " --horovod --placement " + quote_for_shell(to_text(placed));
  if (options.bind) words += " --bind " + quote_for_shell(options.bind_text);
  if (options.bind_order)
    words +=
        std::string(" --bind-order ") + (*options.bind_order == PinOrder::scatter ? "scatter" : "compact");
  if (options.reports_bindings) words += " --report-bindings";
  if (options.is_elastic())
    words += fmt::format(" --min-np {} --elastic-timeout {}", options.elastic.min_ranks,
                         options.elastic.timeout.count());
  return words;
}

std::vector<std::string> ssh_command(const RunOptions& options, const std::string& host) {
  std::vector<std::string> words{"ssh", "-o", "BatchMode=yes"};
  if (options.ssh_connect_seconds > 0)
    words.insert(words.end(), {"-o", fmt::format("ConnectTimeout={}", options.ssh_connect_seconds)});
  // The host may vanish, and the job goes on without it.
  if (options.is_elastic()) words.insert(words.end(), {"-o", "ServerAliveInterval=5"});
  if (options.ssh_port > 0) words.insert(words.end(), {"-p", std::to_string(options.ssh_port)});
  if (!options.ssh_identity.empty()) words.insert(words.end(), {"-i", options.ssh_identity});
  words.push_back(host);
  return words;
}

}  // namespace

std::string quote_for_shell(std::string_view word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

bool is_here(const std::string& host) {
  std::array<char, 256> name{};
  return host == "localhost" || host == "127.0.0.1" ||
         (::gethostname(name.data(), name.size() - 1) == 0 && host == name.data());
}

std::map<std::string, std::string> forwarded_variables(const RunOptions& options) {
  std::map<std::string, std::string> forwarded;
  const Environment own = Environment::of_process();
  for (const auto& [name, value] : own.values()) {
    if (is_forwarded(name)) forwarded[name] = value;
  }
  for (const ExportedVariable& variable : options.exported) forwarded[variable.name] = variable.value;
  return forwarded;
}

RemotePart part_of(const RunOptions& options, const std::string& self, const std::string& job_id,
                   const std::vector<HostSlots>& placed, std::size_t index) {
  std::string environment;
  for (const auto& [name, value] : forwarded_variables(options))
    environment += fmt::format(" {}", quote_for_shell(fmt::format("{}={}", name, value)));
  std::string program;
  for (const std::string& word : options.program) program += " " + quote_for_shell(word);
  std::array<char, 4096> folder{};
  const char* const here = ::getcwd(folder.data(), folder.size());
  int first = 0, size = 0;
  for (std::size_t i = 0; i < placed.size(); ++i) {
    if (i < index) first += placed[i].slots;
    size += placed[i].slots;
  }
  const HostSlots& host = placed[index];
  const std::string command = fmt::format(
      "cd {} && exec env{} {} run --part {},{},{} --address {} --job {}{} --{}",
      quote_for_shell(here == nullptr ? "/" : here), environment, quote_for_shell(self), first, host.slots,
      size, quote_for_shell(address_of(options)), job_id, part_options(options, placed), program);
  RemotePart part{host.host, {}};
  if (is_here(host.host) && options.agent.empty()) {
    part.command = {"sh", "-c", command};
  } else if (options.agent.empty()) {
    part.command = ssh_command(options, host.host);
    part.command.push_back(command);
  } else {
    part.command = {"sh", "-c", options.agent + " \"$@\"", "sh", host.host, command};
  }
  return part;
}

std::vector<RemotePart> parts_of(const RunOptions& options, const std::string& self,
                                 const std::string& job_id) {
  std::vector<RemotePart> parts;
  for (std::size_t i = 0; i < options.hosts.size(); ++i)
    parts.push_back(part_of(options, self, job_id, options.hosts, i));
  return parts;
}

std::string choose_way(const RunOptions& options) {
  if (!options.way.empty()) return options.way;
  const bool is_in_slurm = std::getenv("SLURM_JOB_ID") != nullptr && is_installed("srun");
  return is_in_slurm && options.agent.empty() ? "srun" : "ssh";
}

namespace {

// --bind and --report-bindings in the words of another launcher. Errors: unsupported for what it has none
// for.
// Has more than 15 decisions because there is one for each launcher and unit.
Result<std::vector<std::string>> binding_words(const RunOptions& options, std::string_view way) {
  const bool is_open = way == "mpiexec" && is_open_mpi();
  std::vector<std::string> words;
  const auto missing = [&](std::string_view what) {
    return unsupported(fmt::format("{} cannot be said to {}; use its own options", what, way));
  };
  if (options.bind_order) return missing("--bind-order");
  std::string unit;
  if (options.bind) {
    const bool is_srun = way == "srun";
    switch (options.bind->policy) {
      case PinPolicy::off:
        unit = "none";
        break;
      case PinPolicy::core:
        unit = is_srun ? "cores" : "core";
        break;
      case PinPolicy::socket:
        unit = is_srun ? "sockets" : "socket";
        break;
      case PinPolicy::numa:
        unit = is_srun ? "ldoms" : "numa";
        break;
      case PinPolicy::l3:
        unit = is_srun ? "" : is_open ? "l3cache" : "l3";
        break;
      default:
        break;
    }
    if (unit.empty()) return missing("--bind " + options.bind_text);
  }
  if (way == "srun") {
    const std::string verbose = options.reports_bindings ? unit.empty() ? "verbose" : "verbose," : "";
    if (!unit.empty() || !verbose.empty()) words.push_back("--cpu-bind=" + verbose + unit);
    return words;
  }
  if (!unit.empty()) words = {is_open ? "--bind-to" : "-bind-to", unit};
  if (options.reports_bindings && !is_open) return missing("--report-bindings");
  if (options.reports_bindings) words.push_back("--report-bindings");
  return words;
}

}  // namespace

Result<std::vector<std::string>> hand_over(const RunOptions& options) {
  const std::string way = choose_way(options);
  for (const auto& [is_given, name] : {std::pair(!options.output_folder.empty(), "--output-filename"),
                                       std::pair(options.has_times, "--prefix-output-with-timestamp")}) {
    if (is_given) return unsupported(fmt::format("{} cannot be said to {}; use its own options", name, way));
  }
  if (!is_installed(way))
    return unsupported(fmt::format("--through {}: there is no {} on the PATH", way, way));
  const std::string count = std::to_string(options.rank_count);
  std::vector<std::string> command;
  if (way == "srun") {
    command = {"srun", "-n", count};
    if (!options.hosts.empty()) {
      std::string list;
      for (const HostSlots& host : options.hosts) {
        for (int i = 0; i < host.slots; ++i) list += (list.empty() ? "" : ",") + host.host;
      }
      command.insert(command.end(), {"--distribution=arbitrary", "--nodelist=" + list});
    }
  } else {
    command = {"mpiexec", "-n", count, is_open_mpi() ? "--host" : "-hosts", to_text(options.hosts)};
  }
  // srun and Hydra hand the whole environment on, Open MPI what it is told.
  if (way == "mpiexec" && is_open_mpi()) {
    for (const auto& [name, value] : forwarded_variables(options)) {
      if (name != "PATH" && name != "LD_LIBRARY_PATH") command.insert(command.end(), {"-x", name});
    }
  }
  const auto binding = binding_words(options, way);
  if (!binding) return binding.status();
  command.insert(command.end(), binding->begin(), binding->end());
  command.insert(command.end(), options.program.begin(), options.program.end());
  return command;
}

}  // namespace tutti
