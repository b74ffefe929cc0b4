// The header in front of a message, and the notices that two workers exchange beside messages. Knows no
// object and no library; both ends run the same build on machines of one byte order, which the addresses
// ensure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::message {

inline constexpr std::uint32_t kChannels = 64;               // for messages
inline constexpr std::uint32_t kControlChannel = kChannels;  // one more, for control()
inline constexpr std::size_t kControlBytes = 256;

// Of messages and control messages. How many bytes follow is for the driver to say.
struct MessageHeader {
  std::uint64_t sender = 0;  // instance
  std::uint64_t context = 0;
  std::uint64_t channel = 0;
  std::uint64_t sequence = 0;  // in the channel, from 0: one may overtake another
  std::uint64_t match_header = 0;
};

struct Notice {
  enum class Kind : std::uint64_t {
    hello,           // a receive of this context waits: answer if the context is closed
    context_closed,  // the sender has closed this context, after message_count messages
    closing,         // the sender ends: nothing comes after this in any context
    closing_ack,     // answer to closing: everything was received
  };
  Kind kind = Kind::hello;
  std::uint64_t sender = 0;
  std::uint64_t context = 0;
  std::uint64_t message_count = 0;
};

}  // namespace tutti::message
