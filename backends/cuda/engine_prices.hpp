// Predicted times of calls on buffers of GPUs, by engine. Pure and in integer arithmetic, so that all ranks
// choose alike. Prices follow from published figures; nothing here asks a GPU or knows which engines there are.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "runtime/base/types.hpp"
#include "runtime/selection/selection.hpp"

namespace tutti {

// Our own kernels on peer memory.
constexpr bool is_kernel(DeviceEngineKind kind) {
  return kind == DeviceEngineKind::one_shot || kind == DeviceEngineKind::two_shot;
}
// Ranks access each other's memory.
constexpr bool reaches_peers(DeviceEngineKind kind) {
  return is_kernel(kind) || kind == DeviceEngineKind::ipc_schedule;
}

// The link between the GPUs of a node.
enum class GpuLink : std::uint8_t { nvlink, pcie };
inline constexpr std::array<std::string_view, 2> kGpuLinkNames = {"nvlink", "pcie"};
constexpr std::string_view to_string(GpuLink link) { return kGpuLinkNames[static_cast<std::size_t>(link)]; }

// One of NCCL's protocols. NCCL chooses by itself; the model takes the cheapest.
struct NcclProtocol {
  std::uint64_t call_ps = 0;
  std::uint64_t hop_ps = 0;          // from one rank to the next on a node
  std::uint64_t network_hop_ps = 0;  // from one node to the next
  std::uint64_t kib_ps = 0;          // 1024 bytes from a rank to the next; 0: not available
  std::uint64_t network_kib_ps = 0;  // at least, if nodes are left
  bool is_switched = false;          // adds in the switch: allreduce of more than two ranks on one node
};

// The costs of a machine with GPUs, in picoseconds.
struct DeviceModel {
  std::uint64_t launch_ps = 0;         // one launch of a kernel, or of a copy on the device
  std::uint64_t word_ps = 0;           // one flag written or awaited by a stream
  std::uint64_t flag_ps = 0;           // until another GPU sees a flag
  std::uint64_t link_kib_ps = 0;       // 1024 bytes between two GPUs
  std::uint64_t memory_kib_ps = 0;     // 1024 bytes read or written in a GPU's memory
  std::uint64_t copy_ps = 0;           // a copy between GPU and host: its latency
  std::uint64_t copy_kib_ps = 0;       // and 1024 bytes of it
  std::uint64_t network_kib_ps = 0;    // 1024 bytes through a network card; NCCL uses one for each GPU
  std::uint64_t turn_ps = 0;           // until the host's thread sees that a copy has arrived
  std::uint64_t host_round_ps = 0;     // one round of a schedule on the host, on a node
  std::uint64_t network_round_ps = 0;  // and between nodes
  std::uint64_t host_kib_ps = 0;       // 1024 bytes between two ranks through the host's memory
  std::array<NcclProtocol, 4> nccl;
};
// H100 with a network card each, by published figures; none was measured by us.
DeviceModel device_model(GpuLink link);

// The nodes of a group, equal on all ranks.
struct DeviceLayout {
  std::uint32_t nodes = 1;
  std::uint32_t per_node = 1;  // of the fullest node
};

struct EnginePrice {
  std::uint64_t total_ps = 0;
  std::uint64_t latency_ps = 0;  // independent of the bytes
  std::uint64_t bytes_ps = 0;
};

struct EngineOffer {
  DeviceEngineKind kind = DeviceEngineKind::staged;
  std::string_view refusal;  // why it never carries out such a call; empty: it does where available
  EnginePrice price;         // 0 of a refusal
};
// All engines for a call, the cheapest first, refusals last. Ignores sizes that ranks do not share. Allocates
// nothing. Not for messages.
using EngineOffers = std::array<EngineOffer, kDeviceEngineCount>;
EngineOffers engine_offers(const Question& question, const DeviceLayout& layout, const DeviceModel& model);

// The default algorithm of ipc_schedule for a vector of `bytes`: one with few rounds.
std::string_view ipc_algorithm(Collective collective, std::uint64_t bytes);

// Whether the newest NCCL reduces elements of that dtype.
bool nccl_reduces(Dtype dtype);

}  // namespace tutti
