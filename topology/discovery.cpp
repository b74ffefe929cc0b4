// Chooses the source of a topology, says what is wrong with one, and knows what is left without hwloc.
// Knows nothing of hwloc but the notation of synthetic topologies.
#include "topology/discovery.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>

#include "topology/affinity.hpp"
#include "topology/cgroup.hpp"

namespace tutti {
namespace {

// A typing mistake must not make hwloc build a machine of millions of PUs: it would do so for minutes.
constexpr std::uint64_t kMaxSyntheticPus = 1U << 14U;
// hwloc compares each new PU with what lies beside it on each level, set by set: some nanoseconds a word.
constexpr std::uint64_t kMaxSyntheticWork = 1U << 30U;
// Far more than the largest machine has.
constexpr std::size_t kMaxXmlBytes = std::size_t{64} << 20U;

std::uint64_t system_value(int name) {
  const long value = ::sysconf(name);
  return value > 0 ? static_cast<std::uint64_t>(value) : 0;
}

// A level is a name, a colon and a number, or a number alone; "[numa]" attaches memory to the level before
// it. hwloc reports only "invalid argument", so mistakes are found here.
struct SyntheticSize {
  std::uint64_t pu_count = 1;
  std::uint64_t neighbour_count = 0;  // of a PU and what it is in, on all levels
};

Status check_synthetic_level(std::string_view level, SyntheticSize* size) {
  if (level.front() == '[') {
    return level.back() == ']' ? Status() : invalid_argument(fmt::format("'{}' has no ']'", level));
  }
  // Attributes stand behind the number (pu:2(indexes=...)) or behind the name (l3(size=1m):4).
  std::string plain(level);
  if (const std::size_t open = plain.find('('); open != std::string::npos) {
    const std::size_t close = plain.find(')', open);
    if (close == std::string::npos) return invalid_argument(fmt::format("'{}' has no ')'", level));
    plain.erase(open, close + 1 - open);
  }
  const std::size_t colon = plain.find(':');
  const std::string_view number = std::string_view(plain).substr(colon == std::string::npos ? 0 : colon + 1);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || end != number.data() + number.size() || value == 0)
    return invalid_argument(fmt::format("'{}' is not TYPE:NUMBER", level));
  if (value > kMaxSyntheticPus / size->pu_count)
    return invalid_argument(fmt::format("'{}' makes more than {} PUs", level, kMaxSyntheticPus));
  size->pu_count *= value;
  size->neighbour_count += value;
  constexpr std::uint64_t kWordBits = 64;
  if (size->pu_count * size->neighbour_count > kMaxSyntheticWork / (size->pu_count / kWordBits + 1))
    return invalid_argument(fmt::format(
        "'{}' puts so many parts side by side that hwloc takes minutes; put levels above it", level));
  return {};
}

// Levels are separated by spaces, but for those inside of brackets.
Status check_synthetic(std::string_view text) {
  SyntheticSize size;
  int depth = 0;
  std::size_t start = std::string_view::npos;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ' ';
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
    const bool is_end = i == text.size() || (c == ' ' && depth == 0);
    if (!is_end && start == std::string_view::npos) start = i;
    if (!is_end || start == std::string_view::npos) continue;
    TUTTI_RETURN_IF_ERROR(check_synthetic_level(text.substr(start, i - start), &size));
    start = std::string_view::npos;
  }
  return {};
}

// hwloc 2.9 dereferences null where an object has a cpuset and no complete_cpuset, or so with nodesets; it
// always writes both itself. This says which object it is; whatever else crashes hwloc does so in a child.
Status check_xml(std::string_view text) {
  for (std::size_t at = text.find("<object "); at != std::string_view::npos; at = text.find("<object ", at)) {
    const std::string_view tag = text.substr(at, text.find('>', at) - at);
    for (const std::string_view set : {"cpuset", "nodeset"}) {
      if (tag.find(fmt::format(" {}=", set)) != std::string_view::npos &&
          tag.find(fmt::format(" complete_{}=", set)) == std::string_view::npos)
        return invalid_argument(fmt::format("an object has a {0} but no complete_{0}: {1}>", set, tag));
    }
    at += tag.size();
  }
  return {};
}

void restrict_to(const std::vector<std::uint32_t>& cpus, Topology* topology) {
  if (cpus.empty()) return;
  for (Pu& pu : topology->pus) {
    const bool is_ours = std::binary_search(cpus.begin(), cpus.end(), pu.os_index);
    topology->is_bound = topology->is_bound || (pu.is_allowed && !is_ours);
    pu.is_allowed = pu.is_allowed && is_ours;
  }
}

// The limits of this process on its own machine.
void add_limits(Topology* topology) {
  restrict_to(affinity_of_this_thread(), topology);
  const CgroupLimits limits = cgroup_limits();
  topology->cpu_quota_milli = limits.cpu_quota_milli;
  topology->memory_limit_bytes = limits.memory_bytes;
}

}  // namespace

Result<Topology> discover_topology(const Environment& environment, Devices devices) {
  const auto asked = get_text(environment, "TUTTI_TOPOLOGY");
  if (!asked) return asked.status();
  if (!*asked) {
    // hwloc would read these as well. But it falls back to this machine where they cannot be read, and a
    // mistake in them makes it crash or take minutes.
    const auto file = environment.find("HWLOC_XMLFILE"), description = environment.find("HWLOC_SYNTHETIC");
    if (!file && !description) return discover_this_machine(devices);
    auto loaded = file ? load_topology_xml(std::string(*file)) : make_synthetic_topology(*description);
    if (!loaded) return loaded.status().with_context(file ? "HWLOC_XMLFILE" : "HWLOC_SYNTHETIC");
    loaded->is_this_machine = environment.find("HWLOC_THISSYSTEM") == "1";
    if (loaded->is_this_machine) add_limits(&*loaded);
    return loaded;
  }
  const std::string& value = **asked;
  constexpr std::string_view kXml = "xml:", kSynthetic = "synthetic:";
  Result<Topology> found = invalid_argument("expected xml:FILE, FILE.xml or synthetic:STRING");
  if (value.ends_with(".xml")) found = load_topology_xml(value);
  if (value.rfind(kXml, 0) == 0) found = load_topology_xml(value.substr(kXml.size()));
  if (value.rfind(kSynthetic, 0) == 0) found = make_synthetic_topology(value.substr(kSynthetic.size()));
  if (!found) return found.status().with_context(fmt::format("TUTTI_TOPOLOGY='{}'", value));
  return found;
}

Topology discover_this_machine(Devices devices) {
  auto found = detail::discover_with_hwloc({detail::HwlocSource::Kind::machine, {}, devices});
  if (found) {
    found->source = found->is_this_machine ? "this machine" : "what variables of hwloc name";
    if (found->is_this_machine) add_limits(&*found);
    return *std::move(found);
  }
  return make_flat_topology("flat: " + found.status().message());
}

Result<Topology> read_topology_xml(std::string_view text, std::string source) {
  TUTTI_RETURN_IF_ERROR(check_xml(text).with_context(source));
  auto found =
      detail::discover_with_hwloc({detail::HwlocSource::Kind::xml, std::string(text), Devices::find});
  if (!found) return found.status().with_context(source);
  found->source = std::move(source);
  found->is_this_machine = false;
  return found;
}

Result<Topology> load_topology_xml(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) return invalid_argument(fmt::format("{}: {}", path, std::strerror(errno)));
  std::string text;
  std::array<char, 1U << 16U> piece{};
  // read() catches what the buffer throws, for example at a folder, which can be opened all the same.
  while (text.size() <= kMaxXmlBytes && (file.read(piece.data(), piece.size()), file.gcount() > 0))
    text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
  if (file.bad()) return invalid_argument(fmt::format("{}: {}", path, std::strerror(errno)));
  if (text.size() > kMaxXmlBytes)
    return invalid_argument(fmt::format("{}: more than {} bytes are no topology", path, kMaxXmlBytes));
  return read_topology_xml(text, "xml:" + path);
}

Result<Topology> make_synthetic_topology(std::string_view description) {
  const std::string source = fmt::format("synthetic:{}", description);
  TUTTI_RETURN_IF_ERROR(check_synthetic(description).with_context(source));
  auto found = detail::discover_with_hwloc(
      {detail::HwlocSource::Kind::synthetic, std::string(description), Devices::find});
  if (!found) return found.status().with_context(source);
  found->source = source;
  found->is_this_machine = false;
  return found;
}

Topology make_flat_topology(std::string detail) {
  Topology topology;
  topology.source = "this machine";
  topology.detail = std::move(detail);
  topology.is_this_machine = true;
  const std::vector<std::uint32_t> allowed = affinity_of_this_thread();
  // CPU numbers may have gaps, of which only the affinity tells.
  std::vector<std::uint32_t> cpus = allowed;
  for (std::uint32_t cpu = 0; cpu < std::min<std::uint64_t>(system_value(_SC_NPROCESSORS_ONLN), kMaxPus);
       ++cpu) {
    if (!std::binary_search(allowed.begin(), allowed.end(), cpu)) cpus.push_back(cpu);
  }
  if (cpus.empty()) cpus.push_back(0);
  std::sort(cpus.begin(), cpus.end());
  const auto count = static_cast<std::uint32_t>(cpus.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    topology.pus.push_back({cpus[i], true});
    topology.cores.push_back({i, 1});
  }
  add_limits(&topology);
  topology.sockets.push_back({0, count});
  topology.numa_nodes.push_back({0, system_value(_SC_PHYS_PAGES) * system_value(_SC_PAGESIZE), {0, count}});
  const auto add_private = [&](std::uint32_t level, int bytes, int line) {
    if (system_value(bytes) == 0) return;
    for (std::uint32_t i = 0; i < count; ++i)
      topology.caches.push_back(
          {level, system_value(bytes), static_cast<std::uint32_t>(system_value(line)), {i, 1}});
  };
  add_private(1, _SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL1_DCACHE_LINESIZE);
  add_private(2, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL2_CACHE_LINESIZE);
  if (const std::uint64_t bytes = system_value(_SC_LEVEL3_CACHE_SIZE); bytes > 0) {
    topology.caches.push_back(
        {3, bytes, static_cast<std::uint32_t>(system_value(_SC_LEVEL3_CACHE_LINESIZE)), {0, count}});
  }
  return topology;
}

}  // namespace tutti
