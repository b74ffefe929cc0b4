// Turns what hwloc finds, or reads, into a Topology: the one file that knows hwloc.
// Knows no environment variable of tutti's and no affinity of threads.
#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <unordered_map>

#include "topology/discovery.hpp"
#include "topology/trial.hpp"

namespace tutti::detail {
namespace {

constexpr std::chrono::seconds kLongestLoad{10};

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

// hwloc unloads its plugins with the last topology of the process, and its PCI library then leaks memory. An
// empty topology that stays keeps them loaded.
void keep_plugins_loaded() {
  static hwloc_topology* const kKeeper = [] {
    hwloc_topology* keeper = nullptr;
    hwloc_topology_init(&keeper);
    return keeper;
  }();
  static_cast<void>(kKeeper);
}

Result<Handle> load(const HwlocSource& source) {
  if (source.devices == Devices::find) keep_plugins_loaded();
  hwloc_topology* raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return failure("cannot start");
  Handle handle(raw);
  // CPUs that this process may not use belong to the machine all the same.
  unsigned long flags = HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED;
#if HWLOC_API_VERSION >= 0x00020500
  // Otherwise hwloc binds the calling thread to each CPU in turn to ask it about itself, which takes long on
  // busy machines; Linux knows the same.
  flags |= HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING;
#endif
  hwloc_topology_set_flags(raw, flags);
  if (source.devices == Devices::find) {
    hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    // Otherwise hwloc starts the run time of every vendor that is installed: seconds, memory on each GPU, and
    // state that does not survive a fork. The facts of PCI and the kernel suffice.
    for (const char* vendor : {"cuda", "nvml", "opencl", "rsmi", "levelzero", "gl"})
      hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, vendor);
  }
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

// The OS devices of one PCI device, and what they say about it.
class PciParts {
 public:
  void add(hwloc_obj_t os) { parts_.push_back(os); }

  // A display of the service processor is no GPU; graphics by their class are one only of vendors that make
  // GPUs to compute on.
  bool is_gpu(const hwloc_obj_attr_u::hwloc_pcidev_attr_s& pci) const {
    constexpr unsigned kDisplay3d = 0x0302, kDisplayOther = 0x0380, kVga = 0x0300, kAccelerator = 0x1200;
    constexpr unsigned kNvidia = 0x10de, kAmd = 0x1002;
    if (pci.class_id == kDisplay3d || pci.class_id == kDisplayOther || pci.class_id == kAccelerator)
      return true;
    if (pci.class_id == kVga && (pci.vendor_id == kNvidia || pci.vendor_id == kAmd)) return true;
    return std::any_of(parts_.begin(), parts_.end(), [](hwloc_obj_t os) {
      return os->attr->osdev.type == HWLOC_OBJ_OSDEV_COPROC || is_named(os, "nvml") || is_named(os, "rsmi");
    });
  }

  // 0: no NIC. See Device.
  std::uint32_t nic_preference() const {
    std::uint32_t best = 0;
    for (const hwloc_obj_t os : parts_) {
      std::uint32_t here = 0;
      if (os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS) here = fabric_preference(os);
      // Slingshot and BXI are fabrics without OpenFabrics.
      if (os->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK)
        here = is_named(os, "hsn") || is_of_kind(os, "Slingshot") ? 4 : 2;
      if (is_of_kind(os, "BXI")) here = 4;
      // An interface of a card whose fabric is down is down as well.
      best = best == 0 || here == 1 || (here > best && best != 1) ? here : best;
    }
    return best;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const hwloc_obj_t os : parts_) {
      // The name that programs use comes first: mlx5_0 before ib0, cuda0 before card1.
      const bool is_first = os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS ||
                            os->attr->osdev.type == HWLOC_OBJ_OSDEV_COPROC;
      if (os->name != nullptr) names.insert(is_first ? names.begin() : names.end(), os->name);
    }
    return names;
  }

  std::string model(hwloc_obj_t pci) const {
    for (const hwloc_obj_t os : parts_) {
      if (const char* model = hwloc_obj_get_info_by_name(os, "GPUModel")) return model;
    }
    for (const char* name : {"PCIDevice", "PCIVendor"}) {
      if (const char* text = hwloc_obj_get_info_by_name(pci, name)) return text;
    }
    return "";
  }

  // Programs number GPUs as their vendor's run time does; UINT32_MAX: not known, in the order of PCI.
  std::uint32_t number() const {
    for (const std::string_view family : {"cuda", "rsmi", "ze", "nvml"}) {
      for (const hwloc_obj_t os : parts_) {
        if (!is_named(os, family)) continue;
        std::uint32_t number = 0;
        const char* const digits = os->name + family.size();
        if (std::from_chars(digits, digits + std::strlen(digits), number).ec == std::errc()) return number;
      }
    }
    return UINT32_MAX;
  }

 private:
  static bool is_named(hwloc_obj_t os, std::string_view prefix) {
    return os->name != nullptr && std::string_view(os->name).starts_with(prefix);
  }
  static bool is_of_kind(hwloc_obj_t os, std::string_view kind) {
    return os->subtype != nullptr && os->subtype == kind;
  }
  // "0x0", as hwloc writes an identifier.
  static bool is_zero(std::string_view text) {
    return text.find_first_not_of("0xX") == std::string_view::npos;
  }
  static std::uint32_t fabric_preference(hwloc_obj_t os) {
    constexpr std::string_view kActive = "4";
    bool has_state = false, is_active = false, has_lid = false;
    for (int port = 1; port <= 2; ++port) {
      const char* state = hwloc_obj_get_info_by_name(os, fmt::format("Port{}State", port).c_str());
      if (state == nullptr) continue;
      has_state = true;
      if (state != kActive) continue;
      is_active = true;
      const char* lid = hwloc_obj_get_info_by_name(os, fmt::format("Port{}LID", port).c_str());
      // Ethernet has no local identifiers.
      has_lid = has_lid || (lid != nullptr && !is_zero(lid));
    }
    if (has_state && !is_active) return 1;
    return has_lid || is_named(os, "cxi") || is_named(os, "hfi") ? 4 : 3;
  }

  std::vector<hwloc_obj_t> parts_;
};

// Reads one loaded topology.
class Reader {
 public:
  explicit Reader(hwloc_topology_t handle) : handle_(handle) {}

  Result<Topology> read() {
    Topology topology;
    read_pus(&topology);
    TUTTI_RETURN_IF_ERROR(read_partition(HWLOC_OBJ_CORE, "core", &topology.cores));
    TUTTI_RETURN_IF_ERROR(read_partition(HWLOC_OBJ_PACKAGE, "package", &topology.sockets));
    topology.cpu_model = cpu_model();
    TUTTI_RETURN_IF_ERROR(read_caches(&topology));
    TUTTI_RETURN_IF_ERROR(read_numa_nodes(&topology));
    read_devices(&topology);
    topology.is_this_machine = hwloc_topology_is_thissystem(handle_) != 0;
    topology.detail = hwloc_version();
    TUTTI_RETURN_IF_ERROR(topology.check().with_context("hwloc found"));
    return topology;
  }

 private:
  std::string cpu_model() const {
    const hwloc_obj_t socket = hwloc_get_obj_by_type(handle_, HWLOC_OBJ_PACKAGE, 0);
    const char* const model = socket == nullptr ? nullptr : hwloc_obj_get_info_by_name(socket, "CPUModel");
    return model == nullptr ? "" : model;
  }

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

  // Next to an ancestor that is no device; all PUs where that says nothing.
  PuRange locality_of(hwloc_obj_t object) const {
    const PuRange all{0, static_cast<std::uint32_t>(positions_.size())};
    const hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(handle_, object);
    if (place == nullptr) return all;
    const auto range = range_of(place, "the place of a device");
    return range && range->count > 0 ? *range : all;
  }

  // An OS device belongs to the PCI device that has it; several may (a GPU is "cuda0", "nvml0" and "card1").
  void read_devices(Topology* topology) const {
    std::map<hwloc_obj_t, PciParts> found;
    std::vector<hwloc_obj_t> order;
    for (hwloc_obj_t pci = nullptr; (pci = hwloc_get_next_pcidev(handle_, pci)) != nullptr;)
      order.push_back(pci);
    for (hwloc_obj_t os = nullptr; (os = hwloc_get_next_osdev(handle_, os)) != nullptr;) {
      hwloc_obj_t pci = os->parent;
      while (pci != nullptr && pci->type != HWLOC_OBJ_PCI_DEVICE) pci = pci->parent;
      if (pci != nullptr) found[pci].add(os);
    }
    std::vector<std::pair<std::uint32_t, Device>> gpus;
    std::vector<Device> nics;
    for (const hwloc_obj_t pci : order) {
      const PciParts& parts = found[pci];
      const bool is_gpu = parts.is_gpu(pci->attr->pcidev);
      const std::uint32_t preference = is_gpu ? 0 : parts.nic_preference();
      if (!is_gpu && preference == 0) continue;
      Device device;
      device.kind = is_gpu ? Device::Kind::gpu : Device::Kind::nic;
      device.names = parts.names();
      const auto& attributes = pci->attr->pcidev;
      device.address = fmt::format("{:04x}:{:02x}:{:02x}.{:x}", attributes.domain, attributes.bus,
                                   attributes.dev, attributes.func);
      device.model = parts.model(pci);
      device.pus = locality_of(pci);
      for (hwloc_obj_t up = pci->parent; up != nullptr && up->type == HWLOC_OBJ_BRIDGE; up = up->parent)
        device.bridges.insert(device.bridges.begin(), up->logical_index);
      device.preference = preference;
      if (is_gpu) {
        gpus.emplace_back(parts.number(), std::move(device));
      } else {
        nics.push_back(std::move(device));
      }
    }
    std::stable_sort(gpus.begin(), gpus.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [number, device] : gpus) topology->devices.push_back(std::move(device));
    for (Device& device : nics) topology->devices.push_back(std::move(device));
  }

  hwloc_topology_t handle_;
  std::unordered_map<std::uint32_t, std::uint32_t> positions_;  // of the PUs, by the system's number
};

}  // namespace

Result<Topology> discover_with_hwloc(const HwlocSource& source) {
  // hwloc trusts what it reads: an edited file can end the process, or take minutes. It also leaks memory when it
  // refuses a text, so a refusal of the child is final.
  if (source.kind != HwlocSource::Kind::machine) {
    const auto read = [&] {
      const auto handle = load(source);
      return handle ? Reader(handle->get()).read().status() : handle.status();
    };
    Status outcome;
    TUTTI_RETURN_IF_ERROR(
        try_in_child(read, kLongestLoad, &outcome).with_context("hwloc cannot load this topology"));
    TUTTI_RETURN_IF_ERROR(outcome);
  }
  const auto handle = load(source);
  if (!handle) return handle.status();
  return Reader(handle->get()).read();
}

}  // namespace tutti::detail
