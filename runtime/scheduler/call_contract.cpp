// Packing calls into contracts and reading them back for error messages.
#include "runtime/scheduler/call_contract.hpp"

#include <fmt/format.h>

namespace tutti {
namespace {

constexpr std::uint64_t kFieldMask = 0xff, kWireMask = 0x7f;
constexpr unsigned kUnevenShift = 24, kWireShift = 25, kRootShift = 32;

}  // namespace

std::uint64_t extend_digest(std::uint64_t digest, std::string_view text) {
  for (const char c : text) digest = extend_digest(digest, std::uint64_t{static_cast<unsigned char>(c)});
  return extend_digest(digest, std::uint64_t{text.size()});
}

CallContract contract_of(const Call& call, std::uint64_t settings) {
  CallContract contract;
  const std::uint64_t root = is_rooted(call.collective) ? call.root : 0U;
  const auto op = is_reducing(call.collective) ? static_cast<std::uint64_t>(call.op.op) : 0U;
  const std::uint64_t wire = call.wire_dtype ? static_cast<std::uint64_t>(*call.wire_dtype) + 1 : 0U;
  contract.kind = static_cast<std::uint64_t>(call.collective) | static_cast<std::uint64_t>(call.dtype) << 8U |
                  op << 16U | std::uint64_t{has_uneven_blocks(call)} << kUnevenShift | wire << kWireShift |
                  root << kRootShift;
  contract.count = call.count;
  contract.hash = extend_digest(settings, contract.kind);
  if (call.dtype == Dtype::opaque) contract.hash = extend_digest(contract.hash, element_bytes(call));
  // The root alone has the counts: the lengths of its messages tell whether they are right.
  if (call.has_counts_at_root) return contract;
  if (!call.counts.empty()) {
    contract.count = 0;
    const bool shares_counts = call.collective != Collective::alltoall;
    for (const std::uint64_t count : call.counts) {
      contract.count += count;
      if (shares_counts) contract.hash = extend_digest(contract.hash, count);
    }
    if (!shares_counts) return contract;
  }
  contract.hash = extend_digest(contract.hash, contract.count);
  return contract;
}

std::string describe_contract(std::uint64_t kind, std::uint64_t count) {
  const auto collective = static_cast<std::uint32_t>(kind & kFieldMask),
             dtype = static_cast<std::uint32_t>(kind >> 8U & kFieldMask),
             op = static_cast<std::uint32_t>(kind >> 16U & kFieldMask),
             wire = static_cast<std::uint32_t>(kind >> kWireShift & kWireMask);
  if (collective >= kCollectiveCount || dtype >= kDtypeCount || op >= kOpCount || wire > kDtypeCount)
    return fmt::format("an unknown call {:#x}", kind);
  Call call;
  call.collective = static_cast<Collective>(collective);
  call.dtype = static_cast<Dtype>(dtype);
  call.op.op = static_cast<Op>(op);
  call.root = static_cast<std::uint32_t>(kind >> kRootShift);
  call.count = count;
  if (wire != 0) call.wire_dtype = static_cast<Dtype>(wire - 1);
  return describe_call(call) + ((kind >> kUnevenShift & 1U) != 0 ? ", counts by rank" : "");
}

bool needs_data_of(std::uint64_t kind, std::uint64_t count, std::uint32_t waiting, std::uint32_t other) {
  const auto collective = static_cast<std::uint32_t>(kind & kFieldMask);
  const auto root = static_cast<std::uint32_t>(kind >> kRootShift);
  if (collective >= kCollectiveCount || (kind >> kUnevenShift & 1U) != 0 || waiting == other) return false;
  const auto called = static_cast<Collective>(collective);
  if (called == Collective::barrier) return true;
  if (count == 0) return false;
  switch (called) {
    case Collective::broadcast:
    case Collective::scatter:
      return other == root;
    case Collective::reduce:
    case Collective::gather:
      return waiting == root;
    case Collective::scan:
    case Collective::exscan:
      return other < waiting;
    default:
      return waits_for_all(called);
  }
}

std::string describe_message(std::uint64_t word, std::uint64_t bytes) {
  const auto collective = static_cast<std::uint32_t>(word & kFieldMask),
             dtype = static_cast<std::uint32_t>(word >> 8U & kFieldMask);
  if (collective != static_cast<std::uint32_t>(Collective::send_recv) || dtype >= kDtypeCount)
    return fmt::format("a message of {} bytes that is no send_recv", bytes);
  const auto type = static_cast<Dtype>(dtype);
  if (type == Dtype::opaque)
    return fmt::format("send_recv of {} bytes, number {} of the pair", bytes, word >> 32U);
  return fmt::format("send_recv of {} {}, number {} of the pair", bytes / size_of(type), to_string(type),
                     word >> 32U);
}

}  // namespace tutti
