// The byte stream of a tcp connection: greetings, then frames. Knows no socket.
// Both ends run the same build on machines of one byte order, which the addresses ensure.
//
// A frame is a head of 64 bytes, the payload, and padding. It begins at a multiple of 64 bytes of the stream, so that
// messages lie aligned where they were read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transports/message/wire.hpp"

namespace tutti::tcp {

inline constexpr std::size_t kAlignment = 64;
// Longer messages are announced, and sent when the receiver asks for them, since an unexpected message must
// be kept in memory.
inline constexpr std::size_t kMaxMessageBytes = std::size_t{512} << 10U;
// Of an announced message; what waits behind a long one gets its turn between them.
inline constexpr std::size_t kMaxDataBytes = std::size_t{1} << 20U;

// Part of an address. A connector must prove that it knows it; it is not sent in a greeting.
using Secret = std::array<std::byte, 16>;
using Nonce = std::array<std::byte, 16>;

// The first 64 bytes that each end sends.
struct Greeting {
  enum class Kind : std::uint64_t {
    hello = 0x7475747469686931,   // connector: knows the secret of the acceptor's address
    answer = 0x7475747469686932,  // acceptor: is the instance that you look for
    begin = 0x7475747469686933,  // connector: has made this connection now, and chooses it among its attempts
  };
  Kind kind = Kind::hello;
  std::uint64_t sender = 0;  // instance
  std::uint64_t target = 0;  // instance
  Nonce nonce{};             // of hello and answer
  std::array<std::byte, 16> tag{};
  std::uint8_t security = 0;  // what the sender wants: WireOffer
  std::uint8_t has_aes = 0;
  std::array<std::byte, 6> unused{};
};
static_assert(sizeof(Greeting) == kAlignment);

struct FrameHead {
  enum class Kind : std::uint32_t {
    message = 1,  // `bytes` of payload follow
    lost,         // in place of a message of so many bytes: its sender has closed
    notice,
    announce,  // a message of so many bytes can be asked for, by `number`
    grant,     // answer to it: send it, for receive `handle`
    drop,      // answer to it: nobody wants it
    data,      // of the message that receive `handle` has asked for: the next `bytes`
    gone,      // there will be no more data for receive `handle`
  };
  Kind kind = Kind::message;
  std::uint32_t handle = 0;
  std::uint64_t bytes = 0;
  message::MessageHeader header;
  std::uint64_t number = 0;
};
static_assert(sizeof(FrameHead) == kAlignment);

// A notice has its context, count and kind in the head's header.
inline FrameHead to_frame(const message::Notice& notice) {
  FrameHead head;
  head.kind = FrameHead::Kind::notice;
  head.header.sender = notice.sender;
  head.header.context = notice.context;
  head.header.channel = static_cast<std::uint64_t>(notice.kind);
  head.header.match_header = notice.message_count;
  return head;
}
inline message::Notice to_notice(const FrameHead& head) {
  message::Notice notice;
  notice.kind = static_cast<message::Notice::Kind>(head.header.channel);
  notice.sender = head.header.sender;
  notice.context = head.header.context;
  notice.message_count = head.header.match_header;
  return notice;
}

inline std::size_t payload_bytes(const FrameHead& head) {
  const bool has_payload = head.kind == FrameHead::Kind::message || head.kind == FrameHead::Kind::data;
  return has_payload ? head.bytes : 0;
}
inline std::size_t padding_of(std::size_t payload_bytes) {
  return (kAlignment - payload_bytes % kAlignment) % kAlignment;
}

// Can this come from that peer? Our objects check the references to them.
inline bool is_sound(const FrameHead& head, std::uint64_t peer) {
  using Kind = FrameHead::Kind;
  const message::MessageHeader& header = head.header;
  switch (head.kind) {
    case Kind::message:
      return header.sender == peer && head.bytes <= kMaxMessageBytes &&
             (header.channel < message::kChannels ||
              (header.channel == message::kControlChannel && head.bytes <= message::kControlBytes));
    case Kind::lost:
      return header.sender == peer && header.channel <= message::kControlChannel;
    case Kind::announce:
      return header.sender == peer && header.channel < message::kChannels && head.bytes != 0;
    case Kind::notice:
      return header.sender == peer &&
             header.channel <= static_cast<std::uint64_t>(message::Notice::Kind::closing_ack);
    case Kind::data:
      return head.bytes != 0 && head.bytes <= kMaxDataBytes;
    case Kind::grant:
    case Kind::drop:
    case Kind::gone:
      return true;
  }
  return false;
}

}  // namespace tutti::tcp
