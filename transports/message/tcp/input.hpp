// The receiving side of a connection: frames out of blocks; long messages go straight to their destination.
// Knows of sending only whom to answer through.
//
// A message that has come as a whole is handed to the worker where it lies. The worker hears of a longer one
// as soon as its beginning is here. The rest goes to the posted receive, or into memory if there is none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "transports/message/tcp/objects.hpp"
#include "transports/message/tcp/output.hpp"
#include "transports/message/worker.hpp"

namespace tutti::tcp {

class Input {
 public:
  // Shared by all connections.
  struct Stores {
    BlockPool blocks;
    message::Pool<Incoming> incomings;
  };

  Input(message::Worker& worker, Stores& stores, Output& output, Channel& channel, Connection& connection,
        std::uint64_t peer)
      : worker_(worker),
        stores_(stores),
        output_(output),
        channel_(channel),
        connection_(connection),
        peer_(peer) {}
  ~Input();
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  // Reads what has come. True if something moved.
  bool pull();
  // Would pull() find something although nothing comes?
  bool has_leftover() const;
  // Why nothing more comes; empty while something may.
  const std::string& end() const { return end_; }
  // It ended because a record did not verify.
  bool is_forged() const { return is_forged_; }
  bool has_announced_close() const { return has_announced_close_; }
  // Incomplete messages will never be complete: their receives fail.
  void fail_all();

  // For messages of this connection; see WireDriver. settle() handles messages that are complete, or will
  // never be.
  void fetch(Incoming& incoming, message::RecvOp& op);
  void pump(const message::RecvOp& op);
  void cancel(Incoming& incoming);
  void release(Incoming& incoming);

 private:
  enum class Read : std::uint8_t { nothing, some, all_asked };
  Read read();
  Read read_block(std::size_t most);
  Read read_straight();
  // Evaluates a recv(2) that brought no data.
  Read note_end(ssize_t got);
  void make_room();
  std::size_t phase() const;

  // Takes what lies in the block. False if that must wait for the worker.
  bool parse();
  // False if more of it must come first.
  bool take_frame(const FrameHead& head);
  bool take_message(const FrameHead& head);
  void announce(const FrameHead& head, bool is_announced);
  void begin_data(const FrameHead& head);
  void note_gone(const FrameHead& head);
  void take_payload();
  void deliver_some();
  void end_payload();
  void complete(Incoming& incoming);
  void store(Incoming& incoming, const std::byte* data, std::size_t bytes);
  Incoming* find_granted(std::uint32_t handle) const;
  void remove(const Incoming& incoming);

  // Bytes read while the next frame is unknown. Of a long message that goes to ranges so much is copied.
  static constexpr std::size_t kShortWindow = std::size_t{8} << 10U;

  std::size_t available_bytes() const { return end_at_ - begin_at_; }
  const std::byte* front() const { return block_->data() + begin_at_; }

  message::Worker& worker_;
  Stores& stores_;
  Output& output_;
  Channel& channel_;
  Connection& connection_;
  const std::uint64_t peer_;
  std::string end_;
  bool is_forged_ = false;
  bool has_announced_close_ = false;

  // Bytes that were read and not parsed yet: from begin_at_ to end_at_ in the block, at the same offset modulo
  // kAlignment as in the stream.
  Block* block_ = nullptr;
  std::size_t begin_at_ = 0;
  std::size_t end_at_ = 0;
  std::size_t window_bytes_ = Block::kBytes;
  bool needs_bytes_ = false;          // what lies there is not enough
  std::size_t skip_bytes_ = 0;        // padding still to come
  Incoming* current_ = nullptr;       // its payload comes now;
  std::size_t left_bytes_ = 0;        // so much more of it in this frame,
  std::size_t padding_ = 0;           // and so much behind it
  std::vector<Incoming*> incomings_;  // that are not complete, by slot
  std::vector<std::uint32_t> free_slots_;
};

// Gives it back for good.
void free_incoming(message::Worker& worker, Input::Stores& stores, Incoming& incoming);
// Hands a message in memory to its receive, which fails if the connection ended before all of it had come.
void settle(message::Worker& worker, Input::Stores& stores, Incoming& incoming, message::RecvOp& op);

}  // namespace tutti::tcp
