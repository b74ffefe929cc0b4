// Where a topology comes from: this machine, an hwloc XML file, or a made-up description.
// Knows no user of it. Only hwloc_discovery.cpp knows the library hwloc; a build may be without it.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/config.hpp"
#include "runtime/base/status.hpp"
#include "topology/topology.hpp"

namespace tutti {

// Are GPUs and NICs of this machine to be found as well? It takes longer; files have them anyway.
enum class Devices : bool { skip, find };

// The topology named by TUTTI_TOPOLOGY, else by HWLOC_XMLFILE and hwloc's other variables, else this machine.
// TUTTI_TOPOLOGY is xml:FILE (or FILE.xml) or synthetic:STRING. Errors: invalid_argument and unsupported (a
// build without hwloc), naming the variable and its value.
Result<Topology> discover_topology(const Environment& environment, Devices devices = Devices::skip);

// This machine. PUs are allowed where the affinity of the calling thread and the system's limits (cgroups)
// permit it; the others are listed too. The cgroup's CPU quota is included. Never fails: where hwloc is
// missing or fails the topology is flat and its detail says why. Cost: some milliseconds.
Topology discover_this_machine(Devices devices = Devices::skip);

// `text` is the output of `lstopo --of xml`; `source` names it in the result and in messages. hwloc reads it
// in a child process first, as it does a synthetic topology: an edited file can crash it. Errors:
// invalid_argument, unsupported (a build without hwloc).
Result<Topology> read_topology_xml(std::string_view text, std::string source);
Result<Topology> load_topology_xml(const std::string& path);

// hwloc's notation, from the outermost level to the innermost: "pack:2 l3:4 core:8 pu:1" is 2 sockets with 4
// L3 caches of 8 cores each. Errors: invalid_argument, naming the level; unsupported.
Result<Topology> make_synthetic_topology(std::string_view description);

// One socket with a core for every online CPU, each with an L1 and an L2 of its own below one common L3, of
// the sizes that sysconf() reports. More is not known without hwloc. `detail` says why.
Topology make_flat_topology(std::string detail);

namespace detail {

// The part that needs hwloc. PUs are allowed as the source says, whatever this thread's affinity.
struct HwlocSource {
  enum class Kind { machine, xml, synthetic } kind = Kind::machine;
  std::string text;                 // the XML, or the synthetic description
  Devices devices = Devices::skip;  // of the machine
};
// Errors: unsupported (this build has no hwloc), invalid_argument.
Result<Topology> discover_with_hwloc(const HwlocSource& source);

}  // namespace detail
}  // namespace tutti
