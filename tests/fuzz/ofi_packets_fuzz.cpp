// Fuzzes the packets of the ofi transport: the driver as it is, above an endpoint that has no library and no
// network. The input says which packets arrive, which messages are sent, and when the endpoint takes nothing.
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tests/fuzz/fuzz_input.hpp"
#include "transports/message/endpoint.hpp"
#include "transports/message/ofi/driver.hpp"
#include "transports/message/worker.hpp"

// Stands for libfabric's, which is not linked.
const char* fi_strerror(int) { return "an error"; }

namespace tutti::ofi {
namespace {

constexpr std::uint64_t kOwnInstance = 1, kPeer = 2, kContext = 3, kMatchHeader = 4;
constexpr std::size_t kAddressBytes = 8;
constexpr std::size_t kPacketBytes = 256;
constexpr std::size_t kLongBytes = 100'000;  // more than comes unasked
constexpr std::array<std::size_t, 3> kMessageBytes{100, 5000, kLongBytes};

// The endpoint: what was posted to it, and what it reports.
struct Wire {
  struct Receive {
    std::byte* memory;
    std::size_t bytes;
    void* context;
  };
  struct Completion {
    void* context;
    std::size_t bytes;
    bool is_error;
  };
  std::deque<Receive> receives;
  std::deque<Completion> completions;
  bool takes_nothing = false;
  bool fails_next = false;

  void bring(const PacketHeader& header, std::span<const std::byte> payload, std::size_t bytes) {
    if (receives.empty()) return;
    const Receive to = receives.front();
    receives.pop_front();
    std::memcpy(to.memory, &header, sizeof(header));
    const std::size_t copied = std::min(payload.size(), to.bytes - sizeof(header));
    std::memcpy(to.memory + sizeof(header), payload.data(), copied);
    completions.push_back({to.context, std::min(bytes, to.bytes), std::exchange(fails_next, false)});
  }
  // A peer answers `closing`, which the close handshake waits for.
  void on_sent(const void* memory) {
    PacketHeader header;
    std::memcpy(&header, memory, sizeof(header));
    if (header.kind != PacketHeader::Kind::notice) return;
    message::Notice notice;
    std::memcpy(&notice, static_cast<const std::byte*>(memory) + sizeof(header), sizeof(notice));
    if (notice.kind != message::Notice::Kind::closing) return;
    const message::Notice ack{message::Notice::Kind::closing_ack, kPeer, 0, 0};
    PacketHeader answer;
    answer.kind = PacketHeader::Kind::notice;
    answer.payload_bytes = sizeof(ack);
    bring(answer, std::as_bytes(std::span(&ack, 1)), sizeof(answer) + sizeof(ack));
  }
};
Wire* wire = nullptr;  // of the input that runs

ssize_t receive(fid_ep*, void* memory, std::size_t bytes, void*, fi_addr_t, std::uint64_t, std::uint64_t,
                void* context) {
  wire->receives.push_back({static_cast<std::byte*>(memory), bytes, context});
  return 0;
}
ssize_t send(fid_ep*, const void* memory, std::size_t, void*, fi_addr_t, std::uint64_t, void* context) {
  if (wire->takes_nothing) return -FI_EAGAIN;
  wire->completions.push_back({context, 0, std::exchange(wire->fails_next, false)});
  wire->on_sent(memory);
  return 0;
}
ssize_t inject(fid_ep*, const void* memory, std::size_t, fi_addr_t, std::uint64_t) {
  if (wire->takes_nothing) return -FI_EAGAIN;
  wire->on_sent(memory);
  return 0;
}
ssize_t read(fid_cq*, void* to, std::size_t most) {
  auto* entries = static_cast<fi_cq_msg_entry*>(to);
  std::size_t count = 0;
  for (; count < most && !wire->completions.empty(); wire->completions.pop_front()) {
    const Wire::Completion& next = wire->completions.front();
    if (next.is_error) return count != 0 ? static_cast<ssize_t>(count) : -FI_EAVAIL;
    entries[count++] = {next.context, 0, next.bytes};
  }
  return count != 0 ? static_cast<ssize_t>(count) : -FI_EAGAIN;
}
ssize_t read_error(fid_cq*, fi_cq_err_entry* to, std::uint64_t) {
  to->op_context = wire->completions.front().context;
  to->err = FI_EIO;
  wire->completions.pop_front();
  return 1;
}

fi_ops_tagged tagged_ops() {
  fi_ops_tagged ops{};
  ops.size = sizeof(ops);
  ops.recv = &receive;
  ops.send = &send;
  ops.inject = &inject;
  return ops;
}
fi_ops_cq queue_ops() {
  fi_ops_cq ops{};
  ops.size = sizeof(ops);
  ops.read = &read;
  ops.readerr = &read_error;
  return ops;
}

fi_tx_attr transmit_attributes() {
  fi_tx_attr attributes{};
  attributes.inject_size = sizeof(PacketHeader);  // so that pings need no completion
  return attributes;
}

}  // namespace

// The endpoint's owner without a library: what fabric.cpp is elsewhere.
Result<std::unique_ptr<Fabric>> Fabric::make(const FabricChoice&) {
  static fi_ops_tagged tagged = tagged_ops();
  static fi_ops_cq reads = queue_ops();
  static fi_tx_attr transmit = transmit_attributes();
  static fi_info info;
  static fid_ep endpoint;
  static fid_cq queue;
  info.tx_attr = &transmit;
  endpoint.tagged = &tagged;
  queue.ops = &reads;
  std::unique_ptr<Fabric> fabric(new Fabric);
  fabric->info_ = &info;
  fabric->endpoint_ = &endpoint;
  fabric->queue_ = &queue;
  return fabric;
}
Fabric::~Fabric() = default;
bool Fabric::try_wait() { return true; }
std::vector<std::byte> Fabric::address() const { return std::vector<std::byte>(kAddressBytes); }
std::size_t Fabric::packet_bytes() const { return kPacketBytes; }
fi_addr_t Fabric::insert(std::span<const std::byte> address) {
  return address.size() == kAddressBytes ? 0 : FI_ADDR_NOTAVAIL;
}
Status Fabric::add_memory(ByteRange, void** descriptor) {
  *descriptor = nullptr;
  return {};
}

namespace {

void bring_packet(fuzz::Input& input, bool is_plausible) {
  auto header = input.take<PacketHeader>();
  const std::span<const std::byte> payload = input.take_bytes(input.take<std::uint8_t>());
  std::size_t bytes = sizeof(header) + payload.size();
  if (is_plausible) {
    header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  } else {
    bytes = input.take<std::uint16_t>();
  }
  wire->bring(header, payload, bytes);
}

void run(fuzz::Input input) {
  auto driver = std::make_unique<OfiDriver>(std::move(*Fabric::make({})));
  message::Worker worker(std::move(driver), "ofi", message::Fetch::piecewise, kOwnInstance);
  if (!worker.start()) std::abort();
  std::vector<std::byte> memory(kMessageBytes.size() * kLongBytes), sent(kLongBytes);
  std::vector<ByteRange> to;
  for (std::size_t i = 0; i < kMessageBytes.size(); ++i)
    to.push_back(ByteRange(memory).subspan(i * kLongBytes, kMessageBytes[i]));
  message::Inbox& inbox = worker.find_inbox(kPeer, kContext);
  inbox.peer.set_address(std::vector<std::byte>(kAddressBytes));
  message::MessageEndpoint endpoint(worker, inbox);
  for (std::uint32_t i = 0; i < to.size(); ++i)
    endpoint.recv(i, kMatchHeader, {{&to[i], 1}, kMessageBytes[i], nullptr, nullptr}, i + 1);
  std::array<Event, 8> events;
  while (!input.rest.empty()) {
    const auto choice = input.take<std::uint8_t>();
    switch (choice % 8) {
      case 0:
        wire->takes_nothing = (choice & 8U) != 0;
        break;
      case 1:
        wire->fails_next = true;
        break;
      case 2: {
        const ConstByteRange range(sent.data(), kMessageBytes[choice / 8U % kMessageBytes.size()]);
        endpoint.send(0, kMatchHeader, {&range, 1}, 9);
        break;
      }
      case 3:
        bring_packet(input, false);
        break;
      default:
        bring_packet(input, true);
        break;
    }
    worker.progress(events);
  }
  wire->takes_nothing = false;
  wire->fails_next = false;
  for (int quiet = 0; quiet < 2;)
    quiet = worker.progress(events) == 0 && wire->completions.empty() ? quiet + 1 : 0;
  endpoint.close(false);
}

}  // namespace
}  // namespace tutti::ofi

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tutti::ofi::Wire own;
  tutti::ofi::wire = &own;
  tutti::ofi::run({{reinterpret_cast<const std::byte*>(data), size}});
  tutti::ofi::wire = nullptr;
  return 0;
}
