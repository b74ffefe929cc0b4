// Fuzzes what people write in variables and options: bindings, domains, progress threads' CPUs, interfaces, ports,
// hosts, host files, unique ids, sizes, durations, addresses and dtypes of messages. The first byte says which of them the rest
// is.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/config.hpp"
#include "runtime/base/wire_setting.hpp"
#include "runtime/group/domains.hpp"
#include "runtime/job/launchers/launch.hpp"
#include "runtime/net/network.hpp"
#include "tools/cli/run/hosts.hpp"
#include "topology/binding.hpp"
#include "topology/progress_cpus.hpp"

using namespace tutti;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

// A refusal must have a reason. True if there is a value.
template <class T>
bool is_taken(const Result<T>& result) {
  if (!result)
    require(result.status().code() == StatusCode::invalid_argument && !result.status().message().empty());
  return result.is_ok();
}

// Eight cores of two threads.
const Topology& machine() {
  static const Topology kMachine = *parse_summary(
      "topology1 cores=2x8 pus=0-15 sockets=8x2 numa=0:1000:0:8,1:1000:8:8 caches=3:4096:64:0:8x2");
  return kMachine;
}

void check_pin(std::string_view text) {
  const auto request = parse_pin(text);
  if (!is_taken(request)) return;
  for (const auto& set : request->list) require(!set.empty());
  for (const std::uint32_t ranks : {1U, 3U, 16U, 33U}) {
    const auto placements = plan_placements(machine(), ranks, *request);
    if (!placements) continue;
    require(placements->size() == ranks);
    for (const Placement& placement : *placements) require(!placement.pus.empty());
  }
}

void check_hierarchy(std::string_view text) {
  const auto setting = parse_hierarchy(text);
  if (!is_taken(setting)) return;
  require(setting->kind == HierarchySetting::Kind::sizes || setting->sizes.empty());
  for (const std::uint32_t size : setting->sizes) require(size > 0);
}

void check_progress_cpus(std::string_view text) {
  const auto list = parse_progress_cpus(text);
  if (!is_taken(list)) return;
  for (const std::uint32_t local_rank : {0U, 2U}) {
    const auto plan = plan_progress_cpus(machine(), *list, 3, local_rank, 2);
    if (is_taken(plan)) require(plan->empty() || plan->size() == 2);
  }
}

void check_interfaces(std::string_view text) {
  std::vector<Interface> all;
  for (const char* address : {"127.0.0.1:0", "10.0.0.5:0", "[fd00::5]:0"})
    all.push_back({address[0] == '1' && address[1] == '2' ? "lo" : "eth0", *parse_socket_address(address),
                   address[0] == '[' ? 64U : 24U, true, address[1] == '2'});
  const auto selected = select_interfaces(all, text);
  if (is_taken(selected)) require(!selected->empty() && selected->size() <= all.size());
}

void check_ports(std::string_view text) {
  const auto range = parse_port_range(text);
  if (!is_taken(range)) return;
  require(range->first > 0 && range->first <= range->last);
  require(*parse_port_range(to_text(*range)) == *range);
  require(ports_to_try(*range).size() == range->count());
}

void check_hosts(const Result<std::vector<HostSlots>>& hosts) {
  if (!is_taken(hosts)) return;
  require(!hosts->empty());
  for (const HostSlots& host : *hosts)
    require(!host.host.empty() && host.host.front() != '-' && host.slots > 0);
  require(*parse_hosts(to_text(*hosts)) == *hosts);
  for (const int ranks : {0, 1, 5}) {
    const auto placed = place_ranks(*hosts, ranks);
    if (is_taken(placed) && ranks > 0) {
      int count = 0;
      for (const HostSlots& host : *placed) count += host.slots;
      require(count == ranks);
    }
  }
}

void check_unique_id(std::string_view text) {
  const auto info = launch_from_unique_id(text, 1, 3);
  if (!is_taken(info)) return;
  require(info->rank == 1 && info->size == 3 && !info->secret.empty() && !info->job.empty());
}

void check_wire(std::string_view text) {
  const auto setting = parse_wire_setting(text);
  if (!is_taken(setting)) return;
  require(!setting->dtype || is_wire_dtype(*setting->dtype));
  require(to_text(*setting) == text);
}

void check_numbers(std::string_view text) {
  static_cast<void>(parse_size(text));
  if (const auto duration = parse_duration(text)) require(duration->count() >= 0);
  if (const auto address = parse_socket_address(std::string(text)); is_taken(address))
    require(*parse_socket_address(address->to_text()) == *address);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'p':
      check_pin(text);
      break;
    case 'd':
      check_hierarchy(text);
      break;
    case 'w':
      check_progress_cpus(text);
      break;
    case 'i':
      check_interfaces(text);
      break;
    case 'r':
      check_ports(text);
      break;
    case 'h':
      check_hosts(parse_hosts(text));
      break;
    case 'f':
      check_hosts(parse_hostfile(text));
      break;
    case 'u':
      check_unique_id(text);
      break;
    case 'c':
      check_wire(text);
      break;
    default:
      check_numbers(text);
  }
  return 0;
}
