// Turns what hwloc finds, or reads, into a Topology: the one file that knows hwloc.
// Knows no environment variable of tutti's and no affinity of threads.
#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "topology/discovery.hpp"

namespace tutti::detail {
namespace {

struct Destroy {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Handle = std::unique_ptr<hwloc_topology, Destroy>;

// The library tells the version of its interface only.
std::string hwloc_version() {
  const unsigned version = hwloc_get_api_version();
  return fmt::format("hwloc, API {}.{}", version >> 16U, (version >> 8U) & 0xffU);
}

Status failure(std::string_view what) {
  const int error = errno;
  return invalid_argument(fmt::format("hwloc {} ({})", what, std::strerror(error)));
}

Result<Handle> load(const HwlocSource& source) {
  hwloc_topology* raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return failure("cannot start");
  Handle handle(raw);
  // CPUs that this process may not use belong to the machine all the same.
  unsigned long flags = HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED;
#if HWLOC_API_VERSION >= 0x00020500
  // Else it binds the calling thread to one CPU after the other to ask each about itself, which takes long
  // where they are busy and many; Linux knows the same.
  flags |= HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING;
#endif
  hwloc_topology_set_flags(raw, flags);
  if (source.kind == HwlocSource::Kind::xml) {
    // The size counts the zero at the end.
    if (source.text.size() >= INT_MAX ||
        hwloc_topology_set_xmlbuffer(raw, source.text.c_str(), static_cast<int>(source.text.size()) + 1) != 0)
      return failure("finds no topology in the XML");
  }
  if (source.kind == HwlocSource::Kind::synthetic &&
      hwloc_topology_set_synthetic(raw, source.text.c_str()) != 0)
    return failure(
        "refuses the description; levels go from the outermost to the innermost, pu last, as in 'pack:2 "
        "l3:1 core:8 pu:1'");
  if (hwloc_topology_load(raw) != 0) {
    return failure(source.kind == HwlocSource::Kind::xml ? "cannot read the XML: it is damaged or incomplete"
                                                         : "cannot load the topology");
  }
  return handle;
}

// Reads one loaded topology.
class Reader {
 public:
  explicit Reader(hwloc_topology_t handle) : handle_(handle) {}

  Result<Topology> read() {
    Topology topology;
    read_pus(&topology);
    TUTTI_RETURN_IF_ERROR(read_partition(HWLOC_OBJ_CORE, "core", &topology.cores));
    TUTTI_RETURN_IF_ERROR(read_partition(HWLOC_OBJ_PACKAGE, "package", &topology.sockets));
    TUTTI_RETURN_IF_ERROR(read_caches(&topology));
    TUTTI_RETURN_IF_ERROR(read_numa_nodes(&topology));
    topology.is_this_machine = hwloc_topology_is_thissystem(handle_) != 0;
    topology.detail = hwloc_version();
    TUTTI_RETURN_IF_ERROR(topology.check().with_context("hwloc found"));
    return topology;
  }

 private:
  // Objects of a type, in hwloc's logical order, which is the order of the hierarchy.
  template <class Visit>
  Status for_each(hwloc_obj_type_t type, Visit visit) const {
    for (hwloc_obj_t object = nullptr;
         (object = hwloc_get_next_obj_by_type(handle_, type, object)) != nullptr;)
      TUTTI_RETURN_IF_ERROR(visit(object));
    return {};
  }

  void read_pus(Topology* topology) {
    const hwloc_const_cpuset_t allowed = hwloc_topology_get_allowed_cpuset(handle_);
    for (hwloc_obj_t pu = nullptr; (pu = hwloc_get_next_obj_by_type(handle_, HWLOC_OBJ_PU, pu)) != nullptr;) {
      positions_.emplace(pu->os_index, topology->pu_count());
      topology->pus.push_back({pu->os_index, hwloc_bitmap_isset(allowed, pu->os_index) != 0});
    }
  }

  // The PUs of an object. An object of the hierarchy has them side by side, unless an edited XML says
  // otherwise.
  Result<PuRange> range_of(hwloc_obj_t object, std::string_view name) const {
    const auto malformed = [&](std::string_view what) {
      return invalid_argument(fmt::format("{} {} {}", name, object->logical_index, what));
    };
    if (object->cpuset == nullptr) return PuRange{};
    if (hwloc_bitmap_weight(object->cpuset) < 0) return malformed("has endlessly many PUs");
    PuRange range;
    std::uint32_t last = 0;
    for (int number = hwloc_bitmap_first(object->cpuset); number >= 0;
         number = hwloc_bitmap_next(object->cpuset, number)) {
      const auto found = positions_.find(static_cast<std::uint32_t>(number));
      if (found == positions_.end())
        return malformed(fmt::format("has the PU {}, which is not there", number));
      range.first = range.count == 0 ? found->second : std::min(range.first, found->second);
      last = std::max(last, found->second);
      ++range.count;
    }
    if (range.count > 0 && last - range.first + 1 != range.count)
      return malformed("has PUs that do not lie side by side");
    return range;
  }

  // Cores or sockets. Where there are none, as in many synthetic topologies, a PU is a core, and what is left
  // between sockets is one socket.
  Status read_partition(hwloc_obj_type_t type, std::string_view name, std::vector<PuRange>* ranges) const {
    const auto fill_up_to = [&](std::uint32_t end) {
      const std::uint32_t next = ranges->empty() ? 0 : ranges->back().end();
      if (next >= end) return;
      if (type == HWLOC_OBJ_PACKAGE) {
        ranges->push_back({next, end - next});
      } else {
        for (std::uint32_t pu = next; pu < end; ++pu) ranges->push_back({pu, 1});
      }
    };
    TUTTI_RETURN_IF_ERROR(for_each(type, [&](hwloc_obj_t object) -> Status {
      const auto range = range_of(object, name);
      if (!range) return range.status();
      if (range->count == 0) return {};
      fill_up_to(range->first);
      ranges->push_back(*range);
      return {};
    }));
    fill_up_to(static_cast<std::uint32_t>(positions_.size()));
    return {};
  }

  Status read_caches(Topology* topology) const {
    constexpr hwloc_obj_type_t kTypes[] = {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE,
                                           HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L5CACHE};
    for (const hwloc_obj_type_t type : kTypes) {
      const auto level = static_cast<std::uint32_t>(type - HWLOC_OBJ_L1CACHE + 1);
      TUTTI_RETURN_IF_ERROR(for_each(type, [&](hwloc_obj_t object) -> Status {
        const auto range = range_of(object, fmt::format("L{} cache", level));
        if (!range) return range.status();
        const auto& cache = object->attr->cache;
        if (range->count > 0) topology->caches.push_back({level, cache.size, cache.linesize, *range});
        return {};
      }));
    }
    return {};
  }

  Status read_numa_nodes(Topology* topology) const {
    return for_each(HWLOC_OBJ_NUMANODE, [&](hwloc_obj_t object) -> Status {
      const auto range = range_of(object, "NUMA node");
      if (!range) return range.status();
      topology->numa_nodes.push_back({object->os_index, object->attr->numanode.local_memory, *range});
      return {};
    });
  }

  hwloc_topology_t handle_;
  std::unordered_map<std::uint32_t, std::uint32_t> positions_;  // of the PUs, by the system's number
};

}  // namespace

Result<Topology> discover_with_hwloc(const HwlocSource& source) {
  const auto handle = load(source);
  if (!handle) return handle.status();
  return Reader(handle->get()).read();
}

}  // namespace tutti::detail
