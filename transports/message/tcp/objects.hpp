// Pooled objects of the driver: blocks that messages are read into, messages on their way in and out.
// Knows no socket.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transports/message/operations.hpp"
#include "transports/message/tcp/wire.hpp"

namespace tutti::tcp {

class Connection;
class Output;

// Base of everything that Arrival::hold may point to.
struct Hold {
  enum class Kind : std::uint8_t { block, incoming };
  explicit Hold(Kind what) : kind(what) {}
  const Kind kind;
};

// Memory that the stream of one connection is read into, and in which messages lie until they are matched.
struct Block : Hold {
  static constexpr std::size_t kBytes = std::size_t{128} << 10U;
  Block() : Hold(Kind::block) {}
  std::uint32_t message_count = 0;  // that lie here
  bool is_current = false;          // a connection reads into it
  // Not initialised: touched where it is used.
  std::unique_ptr<std::byte[], void (*)(std::byte*)> memory{
      static_cast<std::byte*>(::operator new (kBytes, std::align_val_t{kAlignment})),
      [](std::byte* bytes) { ::operator delete (bytes, std::align_val_t{kAlignment}); }};
  std::byte* data() { return memory.get(); }
};

class BlockPool {
 public:
  Block* take() {
    if (idle_.empty()) {
      all_.push_back(std::make_unique<Block>());
      idle_.reserve(all_.size());
      idle_.push_back(all_.back().get());
    }
    Block* const block = idle_.back();
    idle_.pop_back();
    block->is_current = true;
    return block;
  }
  // No connection reads into it any more.
  void retire(Block* block) {
    block->is_current = false;
    if (block->message_count == 0) idle_.push_back(block);
  }
  void release(Block* block) {
    if (--block->message_count == 0 && !block->is_current) idle_.push_back(block);
  }

 private:
  std::vector<std::unique_ptr<Block>> all_;
  std::vector<Block*> idle_;
};

// A message that the worker knows and whose bytes are not all here. The rest is on its way, or will be once it is
// asked for.
struct Incoming : Hold {
  enum class Fate : std::uint8_t {
    open,     // nobody knows yet where it goes
    ranges,   // to op->ranges
    sink,     // to op->sink, in pieces
    memory,   // to `memory`, until somebody wants it
    nowhere,  // nobody wants it
  };
  Incoming() : Hold(Kind::incoming) {}
  Connection* connection = nullptr;  // null: it has ended
  Fate fate = Fate::open;
  bool is_held = false;       // by an arrival that has not been fetched or released
  bool is_announced = false;  // it comes when it is asked for
  std::uint32_t slot = 0;     // in the connection's list, while it has one
  std::uint64_t number = 0;   // of an announced one, the sender's
  std::uint64_t bytes = 0;
  std::uint64_t got_bytes = 0;
  message::RecvOp* op = nullptr;
  ByteRange memory;

  bool is_complete() const { return got_bytes == bytes; }
};

// A frame on its way out, or a message that has been announced.
struct Outgoing {
  Output* output = nullptr;
  FrameHead head;
  std::size_t written_bytes = 0;  // of head, payload and padding
  message::SendOp* op = nullptr;  // its payload is this frame's; null: there is none, or it lies in `copy`
  std::size_t offset = 0;         // of this frame's payload in the op's message
  std::size_t message_bytes = 0;  // of the op
  ByteRange copy;                 // the rest of the payload of an op that was taken back
  std::size_t copied_from = 0;    // where in the payload it begins
  enum class Stage : std::uint8_t {
    queued,     // its frame waits or is being written
    announced,  // waits for the answer
  };
  Stage stage = Stage::queued;

  std::size_t frame_bytes() const {
    const std::size_t payload = payload_bytes(head);
    return sizeof(FrameHead) + payload + padding_of(payload);
  }
};

}  // namespace tutti::tcp
