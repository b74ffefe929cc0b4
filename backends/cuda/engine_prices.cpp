// The figures of a machine with GPUs, and the sums that make prices of them.
#include "backends/cuda/engine_prices.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <tuple>

#include "backends/cuda/peer_limits.hpp"
#include "runtime/base/ops.hpp"
#include "runtime/selection/cost_walk.hpp"

namespace tutti {
namespace {

using detail::of_kib;

// No GPU holds more; keeps products small.
constexpr std::uint64_t kMostBytes = 1ULL << 40U;

// 1024 bytes at that many GB/s.
constexpr std::uint64_t at_gb_per_second(std::uint64_t speed) { return 1024 * 1000 / speed; }
constexpr std::uint64_t of_ns(std::uint64_t ns) { return 1000 * ns; }

std::uint64_t log2_up(std::uint32_t number) { return static_cast<std::uint64_t>(std::bit_width(number - 1)); }

// The bytes of a call: the most that a rank must send or receive, and those copied between a rank's GPU and its
// host before and after.
struct Volumes {
  std::uint64_t moved = 0, to_host = 0, to_device = 0;
};
Volumes volumes_of(Collective collective, std::uint64_t m, std::uint32_t size) {
  const std::uint64_t block = m / size, others = m - block;
  switch (collective) {
    case Collective::allreduce:
      return {2 * others, m, m};
    case Collective::reduce_scatter:
      return {others, m, block};
    case Collective::allgather:
      return {others, block, m};
    case Collective::alltoall:
      return {others, m, m};
    // Between root and others: the longest way is out of one rank's GPU and into another's.
    case Collective::gather:
      return {others, block, m};
    case Collective::scatter:
      return {others, m, block};
    default:
      return {m, m, m};
  }
}

struct Hops {
  std::uint64_t on_node = 0, between_nodes = 0;
};
// NCCL's: rings, of an allreduce trees between the nodes; moves without a collective of its own meet all
// partners at a time.
Hops nccl_hops(const Question& q, const DeviceLayout& layout) {
  const bool is_ring = is_reducing(q.collective) ||
                       (q.has_equal_counts && q.collective != Collective::alltoall &&
                        q.collective != Collective::gather && q.collective != Collective::scatter);
  if (q.size < 2) return {};
  if (!is_ring) return layout.nodes > 1 ? Hops{0, 1} : Hops{1, 0};
  if (q.collective == Collective::allreduce)
    return {2 * (layout.per_node - std::uint64_t{1}), 2 * log2_up(layout.nodes)};
  return {q.size - layout.nodes, layout.nodes - std::uint64_t{1}};
}

EnginePrice sum(std::uint64_t latency_ps, std::uint64_t bytes_ps) {
  return {latency_ps + bytes_ps, latency_ps, bytes_ps};
}

EnginePrice price_nccl(const Question& q, std::uint64_t bytes, const DeviceLayout& layout,
                       const DeviceModel& model) {
  const Hops hops = nccl_hops(q, layout);
  const std::uint64_t moved = volumes_of(q.collective, bytes, q.size).moved;
  EnginePrice best;
  best.total_ps = std::numeric_limits<std::uint64_t>::max();
  for (const NcclProtocol& way : model.nccl) {
    const bool is_for_switch = q.collective == Collective::allreduce && q.size > 2 && layout.nodes == 1;
    if (way.kib_ps == 0 || (way.is_switched && !is_for_switch)) continue;
    std::uint64_t kib_ps = way.kib_ps;
    // All cards of a node carry a share.
    if (layout.nodes > 1)
      kib_ps = std::max({kib_ps, way.network_kib_ps, model.network_kib_ps / layout.per_node});
    const std::uint64_t latency_ps =
        way.call_ps + hops.on_node * way.hop_ps + hops.between_nodes * way.network_hop_ps;
    const EnginePrice price = sum(latency_ps, of_kib(moved, kib_ps));
    if (price.total_ps < best.total_ps) best = price;
  }
  return best;
}

// Data beside flags: twice the bytes to every rank, and as many from the own memory.
EnginePrice price_one_shot(std::uint32_t size, std::uint64_t bytes, const DeviceModel& model) {
  return sum(model.launch_ps + model.flag_ps, of_kib(2 * bytes * (size - 1), model.link_kib_ps) +
                                                  of_kib(4 * bytes * size, model.memory_kib_ps));
}

// As between processes: copied into a staging buffer and out again, piece by piece. Threads of one process
// skip the copies and are faster than this price.
EnginePrice price_two_shot(std::uint32_t size, std::uint64_t bytes, const DeviceModel& model) {
  const std::uint64_t pieces =
      std::max<std::uint64_t>(1, (bytes + kTwoShotPieceBytes - 1) / kTwoShotPieceBytes);
  // All meet, inputs are fetched (there and back), all meet.
  const std::uint64_t latency_ps = pieces * (3 * model.launch_ps + 4 * model.flag_ps);
  return sum(latency_ps, of_kib(volumes_of(Collective::allreduce, bytes, size).moved, model.link_kib_ps) +
                             of_kib(4 * bytes, model.memory_kib_ps));
}

// By ipc_algorithm(): copy into the own staging buffer, exchange flags with all, read the others' buffers;
// a scan does so, with whole vectors, in rounds. Piece by piece.
EnginePrice price_ipc_schedule(const Question& q, std::uint64_t bytes, const DeviceModel& model) {
  const std::uint64_t pieces =
      std::max<std::uint64_t>(1, (bytes + kSchedulePieceBytes - 1) / kSchedulePieceBytes);
  const std::uint64_t others = q.size - std::uint64_t{1};
  const bool is_scan = q.collective == Collective::scan || q.collective == Collective::exscan;
  const std::uint64_t scan_rounds = is_scan ? log2_up(q.size) : 1;
  const std::uint64_t rounds = q.collective == Collective::allreduce ? 2 : scan_rounds;
  // A fold is one launch; moves are one launch for each source rank.
  const std::uint64_t launches = is_reducing(q.collective) ? 2 : 1 + others;
  const std::uint64_t round_ps = launches * model.launch_ps + 3 * others * model.word_ps + model.flag_ps;
  const std::uint64_t moved = scan_rounds * volumes_of(q.collective, bytes, q.size).moved;
  return sum(pieces * rounds * round_ps,
             of_kib(moved, model.link_kib_ps) + of_kib(4 * bytes, model.memory_kib_ps));
}

// Our schedules of least rounds and least bytes; on the network the ranks of a node share a card.
EnginePrice price_staged(const Question& q, std::uint64_t bytes, const DeviceLayout& layout,
                         const DeviceModel& model) {
  const Volumes volumes = volumes_of(q.collective, bytes, q.size);
  const bool has_network = layout.nodes > 1;
  const std::uint64_t rounds = q.size > 1 ? log2_up(q.size) : 0;
  const std::uint64_t round_ps = has_network ? model.network_round_ps : model.host_round_ps;
  const std::uint64_t kib_ps =
      has_network ? std::max(model.host_kib_ps, model.network_kib_ps * layout.per_node) : model.host_kib_ps;
  return sum(2 * model.copy_ps + model.turn_ps + rounds * round_ps,
             of_kib(volumes.to_host + volumes.to_device, model.copy_kib_ps) + of_kib(volumes.moved, kib_ps));
}

// The limits of kernels and schedules on peer memory.
std::string_view reach_refusal(const Question& q, const DeviceLayout& layout) {
  static_assert(kMostPeers == 16, "as the text says");
  if (layout.nodes > 1) return "the memory of ranks is reached on one machine only";
  if (q.size < 2 || q.size > kMostPeers) return "the memory of 2 to 16 ranks is reached";
  if (!q.is_commutative) return "a user-defined op is a function of the host";
  return {};
}

std::string_view ipc_refusal(const Question& q, const DeviceLayout& layout) {
  if (!q.has_equal_counts) return "plans over memory that all ranks reach have blocks of one length";
  return reach_refusal(q, layout);
}

std::string_view kernel_refusal(DeviceEngineKind kind, const Question& q, std::uint64_t bytes,
                                const DeviceLayout& layout) {
  static_assert(kMostOneShotBytes == 262144, "as the text says");
  if (q.collective != Collective::allreduce) return "our kernels carry allreduce only";
  if (const std::string_view refusal = reach_refusal(q, layout); !refusal.empty()) return refusal;
  if (kind == DeviceEngineKind::one_shot && bytes > kMostOneShotBytes)
    return "one shot carries at most 262144 bytes";
  return {};
}

std::string_view refusal_of(DeviceEngineKind kind, const Question& q, std::uint64_t bytes,
                            const DeviceLayout& layout) {
  if (kind == DeviceEngineKind::staged) return {};
  if (kind == DeviceEngineKind::ipc_schedule) return ipc_refusal(q, layout);
  if (is_kernel(kind)) return kernel_refusal(kind, q, bytes, layout);
  if (q.collective == Collective::scan || q.collective == Collective::exscan) return "NCCL has no scans";
  return q.is_commutative ? std::string_view() : "NCCL takes no op of the user's";
}

EnginePrice price_of(DeviceEngineKind kind, const Question& q, std::uint64_t bytes,
                     const DeviceLayout& layout, const DeviceModel& model) {
  switch (kind) {
    case DeviceEngineKind::nccl:
      return price_nccl(q, bytes, layout, model);
    case DeviceEngineKind::one_shot:
      return price_one_shot(q.size, bytes, model);
    case DeviceEngineKind::two_shot:
      return price_two_shot(q.size, bytes, model);
    case DeviceEngineKind::ipc_schedule:
      return price_ipc_schedule(q, bytes, model);
    case DeviceEngineKind::staged:
      break;
  }
  return price_staged(q, bytes, layout, model);
}

}  // namespace

// Sources. NCCL's own model for Hopper (src/graph/tuning.cc, topo.h): latencies of its rings by protocol and
// of NVLS, 18 NVLinks of 20.6 GB/s each way, of which LL gets half and at most 141 GB/s (20 between nodes),
// LL128 92 %. NVLS moves 475 GB/s by SimAI's calbusbw.h. Data sheet of H100 SXM: 3.35 TB/s of memory,
// PCIe 5.0 x16 (63 GB/s by its standard); of DGX H100: a network card of 400 Gbit/s for each GPU. A kernel's
// launch takes 4 to 6 us (pegainfer, "From Launch Overhead to CUDA Graph"), a copy 5 to 7 (DualPath, arXiv
// 2602.21548, section 5.2). What the host takes are orders of magnitude: a thread that is woken is there
// after 20 to 40 us.
DeviceModel device_model(GpuLink link) {
  const bool has_nvlink = link == GpuLink::nvlink;
  const std::uint64_t speed = has_nvlink ? 370 : 63;
  const std::uint64_t hop_ps = of_ns(has_nvlink ? 600 : 1000);
  DeviceModel model{.launch_ps = of_ns(5000),
                    .word_ps = of_ns(1000),
                    .flag_ps = hop_ps,
                    .link_kib_ps = at_gb_per_second(speed),
                    .memory_kib_ps = at_gb_per_second(3350),
                    .copy_ps = of_ns(6000),
                    .copy_kib_ps = at_gb_per_second(63),
                    .network_kib_ps = at_gb_per_second(50),
                    .turn_ps = of_ns(30000),
                    .host_round_ps = of_ns(1000),
                    .network_round_ps = of_ns(15000),
                    .host_kib_ps = at_gb_per_second(10),
                    .nccl = {}};
  NcclProtocol &ll = model.nccl[0], &simple = model.nccl[1], &ll128 = model.nccl[2], &nvls = model.nccl[3];
  ll = {.call_ps = of_ns(6600),
        .hop_ps = hop_ps,
        .network_hop_ps = of_ns(2700),
        .kib_ps = at_gb_per_second(std::min<std::uint64_t>(speed / 2, 141)),
        .network_kib_ps = at_gb_per_second(20)};
  simple = {.call_ps = of_ns(8400),
            .hop_ps = of_ns(has_nvlink ? 3400 : 5700),
            .network_hop_ps = of_ns(14000),
            .kib_ps = at_gb_per_second(speed)};
  if (!has_nvlink) return model;
  ll128 = {.call_ps = of_ns(14000),
           .hop_ps = of_ns(1900),
           .network_hop_ps = of_ns(4000),
           .kib_ps = at_gb_per_second(speed * 92 / 100)};
  nvls = {.call_ps = of_ns(25000), .kib_ps = at_gb_per_second(475), .is_switched = true};
  return model;
}

EngineOffers engine_offers(const Question& question, const DeviceLayout& layout, const DeviceModel& model) {
  const std::uint64_t bytes = question.has_known_bytes ? std::min(question.bytes, kMostBytes) : 0;
  EngineOffers offers;
  for (std::size_t i = 0; i < offers.size(); ++i) {
    EngineOffer& offer = offers[i];
    offer.kind = static_cast<DeviceEngineKind>(i);
    offer.refusal = refusal_of(offer.kind, question, bytes, layout);
    if (offer.refusal.empty()) offer.price = price_of(offer.kind, question, bytes, layout, model);
  }
  const auto rank = [](const EngineOffer& offer) {
    return std::tuple(!offer.refusal.empty(), offer.price.total_ps, offer.kind);
  };
  std::sort(offers.begin(), offers.end(),
            [&](const EngineOffer& a, const EngineOffer& b) { return rank(a) < rank(b); });
  return offers;
}

std::string_view ipc_algorithm(Collective collective, std::uint64_t bytes) {
  constexpr std::uint64_t kShort = 1 << 20;
  switch (collective) {
    case Collective::allreduce:
      return bytes <= kMostOneShotBytes ? "one_shot" : "two_shot";
    case Collective::broadcast:
      return bytes <= kShort ? "linear" : "scatter_allgather";
    case Collective::reduce:
      return bytes <= kShort ? "linear" : "direct";
    case Collective::reduce_scatter:
    case Collective::allgather:
      return "direct";
    case Collective::scan:
    case Collective::exscan:
      return "recursive_doubling";
    default:
      return "linear";
  }
}

bool nccl_reduces(Dtype dtype) {
  return is_scalar(dtype) && dtype != Dtype::i16 && dtype != Dtype::u16 && dtype != Dtype::boolean;
}

}  // namespace tutti
