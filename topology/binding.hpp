// Which CPUs, memory, GPU and NIC each rank of a node gets: a pure function of the topology, the number of
// ranks and a policy. Knows values only; affinity.hpp binds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"
#include "topology/topology.hpp"

namespace tutti {

enum class PinPolicy : std::uint8_t {
  off,        // every rank may run on all allowed PUs
  automatic,  // the allowed cores shared out evenly, nobody across a border that can be kept; as `gpu` where
              // there are as many GPUs as ranks, and at least two
  core,       // one core for each rank, the threads of a core apart only if ranks outnumber cores
  l3,         // all PUs below one L3 (where none is known: of one NUMA node)
  numa,       // of one NUMA node (where none is known: of one socket)
  socket,
  gpu,   // a share of the cores next to the GPU of the rank's number, modulo the number of GPUs
  list,  // as the user says
};

enum class PinOrder : std::uint8_t {
  compact,  // neighbouring ranks are neighbours on the machine
  scatter,  // neighbouring ranks are as far apart as they can be
};

struct PinRequest {
  PinPolicy policy = PinPolicy::off;
  PinOrder order = PinOrder::compact;
  std::vector<std::vector<std::uint32_t>> list;  // the system's CPU numbers, by local rank

  // Does it say where ranks go only on a topology with devices?
  bool needs_devices() const { return policy == PinPolicy::gpu || policy == PinPolicy::automatic; }
};

// One of the names of policies ("auto" is automatic), or a list. "0,1,12-15" gives local rank i the i-th CPU;
// with semicolons, "0-5;6-11", the i-th set. Errors: invalid_argument.
Result<PinRequest> parse_pin(std::string_view text);
std::string_view to_string(PinPolicy policy);

// The CPUs and devices of one local rank.
struct Placement {
  std::vector<std::uint32_t> pus;         // positions, rising, allowed ones only
  std::vector<std::uint32_t> numa_nodes;  // positions of those whose PUs these are; fast memory without PUs
                                          // of its own and memory of GPUs are never among them
  std::optional<std::uint32_t> gpu, nic;  // positions in Topology::devices: near, and spread over the ranks
  // How many threads can compute without taking a core from another rank, or more time than the cgroup's
  // quota grants; at least 1.
  std::uint32_t thread_count = 1;
};

// By local rank. Errors: invalid_argument for a list that is too short or names CPUs that do not exist or are
// not allowed; unsupported for `gpu` where no GPU is known.
Result<std::vector<Placement>> plan_placements(const Topology& topology, std::uint32_t rank_count,
                                               const PinRequest& request);

// For people: its first name, else its address.
std::string name_of(const Device& device);
// The system's numbers of a placement's CPUs, rising.
std::vector<std::uint32_t> cpus_of(const Topology& topology, const Placement& placement);

}  // namespace tutti
