// The tuning file of a process: its path, and whether it fits this machine and job. Reads files; knows no
// rule and no rank.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/config.hpp"
#include "runtime/base/status.hpp"
#include "runtime/selection/tuning.hpp"
#include "topology/topology.hpp"

namespace tutti {

// $XDG_CONFIG_HOME/tutti/tuning.json, else ~/.config/tutti/tuning.json; empty where neither variable is set.
std::string default_tuning_path(const Environment& environment);

// The part of a fingerprint that one process knows: "cpu" (where known) and "machine" (CPUs, sockets,
// caches).
Fingerprint fingerprint_of(const Topology& topology);

// The part that belongs to the job: "node" and "network", the transports within and between nodes (empty:
// none), and "ranks_per_node" where there is a network.
struct JobShape {
  std::string node_transport, network_transport;
  std::uint32_t least_ranks_per_node = 0, most_ranks_per_node = 0;
};
void append_job(Fingerprint& fingerprint, const JobShape& job);

struct TuningFile {
  std::string path;       // empty: none
  bool is_named = false;  // by TUTTI_TUNING_FILE: then it must fit
  Tuning tuning;          // empty where it is not used
  std::string refusal;    // the reason
  // Where measurements of the running job go; empty: nowhere. With TUTTI_AUTOTUNE, `here` is the whole fingerprint.
  std::string save_path;
  Fingerprint here;

  bool is_used() const { return !path.empty() && refusal.empty(); }
  void refuse(std::string reason);
};
// "FILE (origin)", "none", "not used: FILE: it is for cpu ...".
std::string describe(const TuningFile& file);

// The file that measurements will be added to. An empty one where there is none yet, or only one of another machine
// or job (`*what` then says so). Errors: invalid_argument for another kind of file.
Result<Tuning> read_for_extension(const std::string& path, const Fingerprint& here, std::string* what);
// Makes the folder, and never leaves half a file. Errors: invalid_argument.
Status write_tuning(const std::string& path, const Tuning& tuning);
// Adds the setting of named tensors to a file of this job. Errors: invalid_argument; also where the file is of another
// machine or job, or has imported rules, and would be lost.
Status save_fusion(const std::string& path, const Fingerprint& here, std::uint32_t rank_count,
                   const FusionTuning& setting);

// The file of TUTTI_TUNING_FILE, else the one at the default path if there is one; none with
// TUTTI_TUNING_FILE=off. Errors: invalid_argument where a named one cannot be read or does not fit `here`;
// any other is then refused. With TUTTI_AUTOTUNE a named one need not exist yet.
Result<TuningFile> load_tuning(const Environment& environment, const Fingerprint& here);

}  // namespace tutti
