// The transports' own figures as a cost model.
#include "tools/cli/starting_model.hpp"

#include <algorithm>

#include "runtime/base/ops.hpp"
#include "runtime/group/settings.hpp"
#include "transports/registry.hpp"

namespace tutti::tool {
namespace {

// About a quarter of a message's fixed cost keeps its ends busy; the rest overlaps with other messages. So
// many messages in a row take less than their sum. Measurements of `tutti tune` replace all of this.
constexpr std::uint64_t kBusyShare = 4;
// 8 GB/s of vectors added and 16 GB/s copied: one core, whose data come from memory or a common cache.
constexpr std::uint64_t kReducePsPerByte = 125, kCopyPsPerByte = 60;
// Measured by build/bench/kernels/bench_kernels on a virtual CPU of an EPYC with AVX-512, f32: 20 to 39 ps a byte from
// 512 B to 2 KiB, 15 to 26 up to 128 KiB.
constexpr std::uint64_t kCachedReducePsPerByte = 40;
// Where no message transport is in this build: kernel TCP at 10 Gbit/s.
constexpr std::uint64_t kNetworkAlphaNs = 20000, kNetworkBetaPsPerByte = 800;

LinkCost link_of(std::uint64_t alpha_ns, std::uint64_t beta_ps_per_byte) {
  const std::uint64_t alpha_ps = alpha_ns * 1000;
  return {alpha_ps - alpha_ps / kBusyShare, alpha_ps / kBusyShare, beta_ps_per_byte * 1024, 0};
}

// The first message transport that works here.
std::unique_ptr<Transport> find_network(const TransportSettings& settings) {
  for (const TransportEntry& entry : transport_entries()) {
    if (!entry.missing.empty()) continue;
    auto transport = make_transport(entry.name, settings);
    if (transport && (*transport)->caps().family == Family::message &&
        (*transport)->caps().unavailable.empty())
      return *std::move(transport);
  }
  return nullptr;
}

}  // namespace

Result<StartingModel> starting_model(const Environment& environment, std::string_view transport,
                                     bool has_network, Dtype dtype, const MachineClass& machine) {
  const auto settings = read_transport_settings(environment);
  if (!settings) return settings.status();
  StartingModel start;
  auto named = make_transport(transport.empty() || has_network ? "shm" : transport, *settings);
  if (!named) return named.status();
  const TransportCaps& node = (*named)->caps();
  start.node_transport = node.name;
  start.shares_memory = node.heap != nullptr;
  start.model.link(Level::node) = link_of(node.alpha_ns, node.beta_ps_per_byte);
  use_lines(machine, start.model);
  if (!has_network) start.model.call_ps = machine.call_ps;
  LinkCost& network = start.model.link(Level::network);
  network = link_of(kNetworkAlphaNs, kNetworkBetaPsPerByte);
  start.network_transport = "tcp";
  if (has_network) {
    std::unique_ptr<Transport> beyond_node;
    if (transport.empty()) {
      beyond_node = find_network(*settings);
    } else {
      auto made = make_transport(transport, *settings);
      if (!made) return made.status();
      beyond_node = *std::move(made);
    }
    if (beyond_node != nullptr) {
      start.network_transport = beyond_node->caps().name;
      network = link_of(beyond_node->caps().alpha_ns, beyond_node->caps().beta_ps_per_byte);
    }
  }
  network.shared_kib_ps = network.kib_ps;                      // one NIC for all ranks of a node
  const std::uint64_t width = is_narrow_float(dtype) ? 4 : 1;  // such numbers are widened first
  start.model.reduce_kib_ps = kReducePsPerByte * 1024 * width;
  start.model.cached_reduce_kib_ps = kCachedReducePsPerByte * 1024 * width;
  start.model.copy_kib_ps = kCopyPsPerByte * 1024;
  start.model.complete();
  return start;
}

}  // namespace tutti::tool
