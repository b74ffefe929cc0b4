// Who carries a call on buffers of GPUs, and what each would take. Pure and in integer arithmetic, so that
// all ranks choose alike; knows no GPU: prices follow from a few published figures, and who is there at all
// is for others to say.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/base/types.hpp"
#include "runtime/selection/selection.hpp"

namespace tutti {

// NCCL, kernels that reach the memory of all ranks, our schedules over such memory, and our schedules by way
// of the host's. Of equal prices the one that stands first is taken.
enum class DeviceCarrier : std::uint8_t { nccl, one_shot, two_shot, mapped, staged };
inline constexpr std::array<std::string_view, 5> kDeviceCarrierNames = {"nccl", "one_shot", "two_shot",
                                                                        "mapped", "staged"};
inline constexpr std::size_t kDeviceCarrierCount = kDeviceCarrierNames.size();

constexpr std::string_view to_string(DeviceCarrier carrier) {
  return kDeviceCarrierNames[static_cast<std::size_t>(carrier)];
}
constexpr bool is_kernel(DeviceCarrier carrier) {
  return carrier == DeviceCarrier::one_shot || carrier == DeviceCarrier::two_shot;
}
constexpr bool reaches_peers(DeviceCarrier carrier) {
  return is_kernel(carrier) || carrier == DeviceCarrier::mapped;
}

// What connects the GPUs of a node.
enum class GpuLink : std::uint8_t { nvlink, pcie };
inline constexpr std::array<std::string_view, 2> kGpuLinkNames = {"nvlink", "pcie"};
constexpr std::string_view to_string(GpuLink link) { return kGpuLinkNames[static_cast<std::size_t>(link)]; }

// One of the ways in which NCCL moves data, which it chooses from by itself; the model does so by price.
struct NcclProtocol {
  std::uint64_t call_ps = 0;
  std::uint64_t hop_ps = 0;          // from one rank to the next on a node
  std::uint64_t network_hop_ps = 0;  // from one node to the next
  std::uint64_t kib_ps = 0;          // 1024 bytes from a rank to the next; 0: there is no such way
  std::uint64_t network_kib_ps = 0;  // at least, if nodes are left
  bool is_switched = false;          // adds in the switch: allreduce of more than two ranks on one node
};

// A machine with GPUs, as far as prices go; picoseconds.
struct DeviceModel {
  std::uint64_t launch_ps = 0;         // to put a kernel, or a copy on the device, on a stream
  std::uint64_t word_ps = 0;           // to write a word from a stream, or to wait for one
  std::uint64_t flag_ps = 0;           // until another GPU sees a word that was stored for it
  std::uint64_t link_kib_ps = 0;       // 1024 bytes out of a GPU, or into it, from another
  std::uint64_t memory_kib_ps = 0;     // 1024 bytes read from a GPU's memory, or written to it
  std::uint64_t copy_ps = 0;           // of a copy between GPU and host, whatever its length
  std::uint64_t copy_kib_ps = 0;       // of its 1024 bytes
  std::uint64_t network_kib_ps = 0;    // 1024 bytes through a network card; of NCCL each GPU has one
  std::uint64_t turn_ps = 0;           // until a thread of the host has seen that a copy has arrived
  std::uint64_t host_round_ps = 0;     // of our schedules on the host: from rank to rank on a node
  std::uint64_t network_round_ps = 0;  // and between nodes
  std::uint64_t host_kib_ps = 0;       // 1024 bytes from rank to rank through the host's memory
  std::array<NcclProtocol, 4> nccl;
};
// H100 with a network card each, by published figures; none was measured by us.
DeviceModel device_model(GpuLink link);

// Where the ranks of a group are, equal on all of them.
struct DevicePlaces {
  std::uint32_t nodes = 1;
  std::uint32_t per_node = 1;  // of the fullest node
};

struct DevicePrice {
  std::uint64_t total_ps = 0;
  std::uint64_t latency_ps = 0;  // whatever the bytes
  std::uint64_t bytes_ps = 0;
};

struct DeviceOffer {
  DeviceCarrier carrier = DeviceCarrier::staged;
  std::string_view refusal;  // why it never carries such a call; empty: it can, where it is there
  DevicePrice price;         // nothing, of a refusal
};
// What is offered for a call, the cheapest first, refusals last. Sizes that ranks do not share are not looked
// at. Allocates nothing. Not for messages.
using DeviceOffers = std::array<DeviceOffer, kDeviceCarrierCount>;
DeviceOffers device_offers(const Question& question, const DevicePlaces& places, const DeviceModel& model);

// The algorithm by which schedules carry a call of so many bytes over memory that all ranks reach: one hop.
std::string_view mapped_algorithm(Collective collective, std::uint64_t bytes);

// Whom a rule's item or an argument means: a row that kernels have means these, every other one is schedules,
// over memory that all ranks reach where that can be; null if it leaves the choice.
std::optional<DeviceCarrier> carrier_named_by(Carrier carrier, const AlgorithmRow* row);

// Whether the newest NCCL reduces elements of that dtype.
bool nccl_reduces(Dtype dtype);

}  // namespace tutti
