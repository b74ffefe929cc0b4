// Packets: what libfabric sends and receives for us, in memory of ours that is registered where the provider
// wants that. User buffers are never given to it, so nothing is left to take back when an endpoint closes.
// Knows no connection's state and no message.
#pragma once

#include <rdma/fabric.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "transports/message/ofi/fabric.hpp"
#include "transports/message/wire.hpp"

namespace tutti::ofi {

struct PacketHeader {
  enum class Kind : std::uint32_t {
    message,   // a whole message or control message
    announce,  // a longer one, `bytes` long, which the sender calls `request_id`: its first bytes
    early,     // more of it, unasked, up to early_bytes(); message.match_header is the offset
    go,    // to `request_id` of an announcement: send the rest to request message.match_header; 0: not wanted
    data,  // to `request_id` of a go; message.match_header is the offset
    notice,  // a Notice; of `closing` also the address that the answer goes to
    ping,    // nothing: whether it can be sent is the news
  };
  Kind kind = Kind::ping;
  std::uint32_t payload_bytes = 0;  // that follow in this packet
  message::MessageHeader message;
  std::uint64_t bytes = 0;
  std::uint64_t request_id = 0;
};
// Payloads keep the alignment of packets, for kernels that read messages where they lie.
static_assert(sizeof(PacketHeader) == 64);

inline constexpr std::uint64_t kPacketTag = 1;

struct Connection;

struct Packet {
  fi_context2 context{};  // libfabric's; the first member, since completions name it
  std::byte* memory = nullptr;
  void* descriptor = nullptr;
  bool is_sending = false;
  Connection* connection = nullptr;  // where it is sent to

  PacketHeader* header() const { return reinterpret_cast<PacketHeader*>(memory); }
  std::byte* payload() const { return memory + sizeof(PacketHeader); }
};

class PacketPool {
 public:
  explicit PacketPool(Fabric& fabric) : fabric_(fabric), packet_bytes_(fabric.packet_bytes()) {}
  PacketPool(const PacketPool&) = delete;
  PacketPool& operator=(const PacketPool&) = delete;

  std::size_t packet_bytes() const { return packet_bytes_; }
  std::size_t payload_bytes() const { return packet_bytes_ - sizeof(PacketHeader); }
  // How much of a long message comes without being asked for. A longer trip costs more than this much memory.
  std::size_t early_bytes() const {
    constexpr std::size_t kEarlyBytes = std::size_t{64} << 10U;
    return payload_bytes() * std::max<std::size_t>(1, kEarlyBytes / packet_bytes_);
  }
  // Null if there is no memory.
  Packet* take() {
    if (idle_.empty() && !make_more()) return nullptr;
    Packet* packet = idle_.back();
    idle_.pop_back();
    return packet;
  }
  void give_back(Packet* packet) { idle_.push_back(packet); }
  // False if there is no memory. Unused memory is not touched.
  bool make_more() {
    const std::size_t bytes = kPacketsInSlab * packet_bytes_;
    Slab slab;
    slab.memory.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment, std::nothrow)));
    if (slab.memory == nullptr) return false;
    void* descriptor = nullptr;
    if (!fabric_.add_memory({slab.memory.get(), bytes}, &descriptor)) return false;
    slab.packets = std::make_unique<Packet[]>(kPacketsInSlab);
    idle_.reserve((slabs_.size() + 1) * kPacketsInSlab);
    for (std::size_t i = kPacketsInSlab; i-- > 0;) {
      Packet& packet = slab.packets[i];
      packet.memory = slab.memory.get() + i * packet_bytes_;
      packet.descriptor = descriptor;
      idle_.push_back(&packet);
    }
    slabs_.push_back(std::move(slab));
    return true;
  }
  // In a child of fork(): what libfabric may still write to stays.
  void abandon() {
    for (Slab& slab : slabs_) static_cast<void>(slab.memory.release());
  }

 private:
  static constexpr std::size_t kPacketsInSlab = 256;
  static constexpr std::align_val_t kAlignment{4096};
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
  };
  struct Slab {
    std::unique_ptr<std::byte, Free> memory;
    std::unique_ptr<Packet[]> packets;
  };

  Fabric& fabric_;
  std::size_t packet_bytes_;
  std::vector<Slab> slabs_;
  std::vector<Packet*> idle_;
};

}  // namespace tutti::ofi
