// The sending side of a connection: frames in order, and announced messages that the receiver asks for.
// Of arrivals it knows only the answers to announcements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transports/message/tcp/channel.hpp"
#include "transports/message/tcp/objects.hpp"
#include "transports/message/wire_driver.hpp"
#include "transports/message/worker.hpp"
#include "transports/queues.hpp"

namespace tutti::tcp {

class Output {
 public:
  Output(message::Worker& worker, message::Pool<Outgoing>& pool, Channel& channel)
      : worker_(worker), pool_(pool), channel_(channel) {}
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  bool is_empty() const { return queue_.empty() && !channel_.has_unsent(); }
  // Does a message wait for the receiver to ask for it?
  bool has_announced() const { return !announced_.empty(); }

  message::WireDriver::Sent send(message::SendOp& op);
  // A frame without payload.
  void put(const FrameHead& head);
  // Writes what the socket takes. True if something moved. A socket that takes nothing any more shows when it
  // is read.
  bool push();

  // The op is the caller's again. A half-written frame is completed from a copy. The receiver is told that
  // the rest does not come, because it counts messages.
  void cancel(message::SendOp& op);

  // Answers of the receiver.
  void grant(std::uint64_t number, std::uint32_t handle);
  void drop(std::uint64_t number);

  // Nobody will receive anything any more: all sends fail.
  void fail_all();

 private:
  void enqueue(Outgoing& out);
  void finish_front();
  void finish(Outgoing& out);
  void free(Outgoing& out);
  Outgoing* find_announced(std::uint64_t number) const;
  void forget_announced(const Outgoing& out);
  void make_data(Outgoing& out);
  void copy_rest(Outgoing& out);
  void put_gone(std::uint32_t handle);

  message::Worker& worker_;
  message::Pool<Outgoing>& pool_;
  Channel& channel_;  // what is sent waits while it is not open
  Fifo<Outgoing*> queue_;
  std::vector<Outgoing*> announced_;
  std::uint64_t next_number_ = 1;
};

}  // namespace tutti::tcp
