// The topology of a node as a plain value: sockets, NUMA nodes, caches, cores and processing units, the GPUs
// and network interfaces next to them, and questions about them. Knows no discovery, no file and no
// environment (discovery.hpp does).
//
// A processing unit (PU) is a hardware thread of a core, the unit to which the system schedules threads. PUs
// lie in the order of the hierarchy, so that neighbours share most. A core, a cache, a socket and a NUMA node
// are ranges of positions in `pus`. Every function of this page takes positions; find_pu() turns the system's
// CPU number into one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti {

// The PUs at positions first, first + 1, ..., first + count - 1.
struct PuRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;

  std::uint32_t end() const { return first + count; }
  bool contains(std::uint32_t pu) const { return pu >= first && pu - first < count; }
  bool operator==(const PuRange&) const = default;
};

struct Pu {
  std::uint32_t os_index = 0;  // the number that affinity masks use
  bool is_allowed = true;      // may this process run here?
  bool operator==(const Pu&) const = default;
};

// A data or unified cache; instruction caches are left out.
struct Cache {
  std::uint32_t level = 0;  // 1 to 5
  std::uint64_t bytes = 0;  // 0: not known
  std::uint32_t line_bytes = 0;
  PuRange pus;  // that share it
  bool operator==(const Cache&) const = default;
};

// Memory, and the PUs next to it. Two nodes may have the same PUs (ordinary and fast memory).
struct NumaNode {
  std::uint32_t os_index = 0;
  std::uint64_t bytes = 0;
  PuRange pus;
  bool operator==(const NumaNode&) const = default;
};

// A GPU or a network interface (NIC).
struct Device {
  enum class Kind : std::uint8_t { gpu, nic } kind = Kind::gpu;
  std::vector<std::string> names;      // that the system has for it: "cuda0", "nvml0"; "mlx5_0", "ib0"
  std::string address;                 // "0004:04:00.0", of PCI
  std::string model;                   // for people; may be empty
  PuRange pus;                         // next to it: all of them where nothing is known
  std::vector<std::uint32_t> bridges;  // of PCI above it, the outermost first; equal numbers, equal bridge
  // How well a NIC is suited; ranks take the highest: 4 a fabric that is up, 3 RDMA over Ethernet or of
  // unknown state, 2 Ethernet, 1 RDMA that is down.
  std::uint32_t preference = 0;
  bool operator==(const Device&) const = default;
};

struct Topology {
  std::vector<Pu> pus;
  std::vector<PuRange> cores, sockets;  // each PU lies in exactly one of either
  std::vector<NumaNode> numa_nodes;
  std::vector<Cache> caches;          // by level, then by position
  std::vector<Device> devices;        // GPUs in the order of their numbers, then NICs; empty if nobody looked
  std::uint32_t cpu_quota_milli = 0;  // CPU time that the cgroup gives, in thousandths of a CPU; 0: no limit
  std::uint64_t memory_limit_bytes = 0;  // that the cgroup sets; 0: no limit
  std::string cpu_model;                 // of the first socket; empty: not known
  bool is_bound = false;         // the affinity of this thread leaves out PUs that the system would allow
  bool is_this_machine = false;  // false: read from a file or made up, so nobody may be bound by it
  std::string source;            // "this machine", "xml:FILE", "synthetic:STRING", "summary"
  std::string detail;            // how it was found out, or why so little is known

  std::uint32_t pu_count() const { return static_cast<std::uint32_t>(pus.size()); }
  std::optional<std::uint32_t> find_pu(std::uint32_t os_index) const;
  std::vector<std::uint32_t> allowed_pus() const;  // positions, rising

  // The smallest cache that both PUs share; null if they share none. a == b gives that PU's first cache.
  const Cache* smallest_shared_cache(std::uint32_t a, std::uint32_t b) const;
  // The PU's cache of a level; null if there is none.
  const Cache* cache_of(std::uint32_t pu, std::uint32_t level) const;
  // The PU's cache of the highest level; null if there is none.
  const Cache* last_level_cache_of(std::uint32_t pu) const;
  // 0 where there is no such cache.
  std::uint64_t l2_bytes(std::uint32_t pu) const;
  // The PU's last-level cache divided by the cores that share it. They may be more than this process may use,
  // because others are busy there. 0 where no cache is known.
  std::uint64_t last_level_share_bytes(std::uint32_t pu) const;

  // Groups for hierarchies: each PU is in exactly one, in order of position. A PU without such a cache, or in
  // no NUMA node, is a group of its own. Of several NUMA nodes of a PU the one with fewest PUs counts.
  std::vector<PuRange> groups_by_cache(std::uint32_t level) const;
  std::vector<PuRange> groups_by_socket() const { return sockets; }
  std::vector<PuRange> groups_by_numa() const;

  // Positions in `devices`.
  std::vector<std::uint32_t> devices_of(Device::Kind kind) const;

  // The highest level of any cache; 0 if there is none.
  std::uint32_t last_level() const;

  // Checks the invariants that every reader relies on (see the members), for topologies from outside. Errors:
  // invalid_argument.
  Status check() const;

  bool operator==(const Topology&) const = default;
};

inline constexpr std::uint32_t kMaxPus = 1U << 16U;

// The machine as one short line of digits and letters, for contracts: equal machines have equal summaries.
// parse_summary(to_summary(t)) is t without source, detail, model and devices, with every PU allowed and no
// quota: the limits of a process do not belong to the machine.
std::string to_summary(const Topology& topology);
// Errors: invalid_argument, with the field that is wrong.
Result<Topology> parse_summary(std::string_view summary);

// "0-3,8,10-11", as the system writes CPU numbers; sorts.
std::string cpu_list_text(std::vector<std::uint32_t> numbers);

}  // namespace tutti
