// The Endpoint of the message family: posting, matching, completing, closing.
// Knows that a driver sends and fetches messages; connections are the peer's business, arrivals the inbox's.
// receive.cpp holds the receiving half.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transports/message/inbox.hpp"
#include "transports/message/operations.hpp"
#include "transports/queues.hpp"
#include "transports/transport.hpp"

namespace tutti::message {

class Worker;

class MessageEndpoint final : public Endpoint {
 public:
  MessageEndpoint(Worker& worker, Inbox& inbox);
  ~MessageEndpoint() override;
  MessageEndpoint(const MessageEndpoint&) = delete;
  MessageEndpoint& operator=(const MessageEndpoint&) = delete;

  Post send(std::uint32_t channel, std::uint64_t match_header, std::span<const ConstByteRange> ranges,
            RequestId request) override;
  Post recv(std::uint32_t channel, std::uint64_t expected_header, const Sink& sink,
            RequestId request) override;
  Post control(ConstByteRange bytes) override;
  Status trouble() const override;
  void close(bool fence) override;

  // Matches what has arrived, completes what is complete. True if it is to be called again although nothing
  // arrives: events found no room.
  bool advance(EventSink& out);

  Inbox& inbox() { return inbox_; }

  // The driver is done with it. A send is the worker's again afterwards.
  void on_sent(SendOp& op, bool is_ok);
  void on_fetched(RecvOp& op, bool is_ok);

 private:
  static constexpr std::size_t kMaxSends = 1024;  // under way; beyond that send answers `again`

  // Receiving half of a channel. Receives complete in order, whatever order the driver finishes
  // them in.
  struct Channel {
    Fifo<RecvOp*> recvs;
    std::size_t matched_count = 0;  // of them, from the front
    // A receive has failed because its message had not come by the peer's end. A late message belongs to
    // that one, and no later receive may take it.
    bool is_over = false;
  };

  Post post_failed(RequestId request);
  bool is_peer_lost() const;
  // endpoint.cpp
  Post submit(SendOp* op);
  Event event_of(Event::Kind kind, RequestId request);
  void set_pending_recvs(std::uint64_t channels);
  void fail_all();
  void stop_transfers();

  // receive.cpp
  Post poll(std::uint32_t channel, RequestId request);
  void match(std::uint32_t index);
  void begin(RecvOp& op, const Arrival& arrival);
  void fetch(RecvOp& op, const Arrival& arrival);
  void pump(Channel& c);
  void cancel_fetches(Channel& c);
  void cancel_sends();
  static void put(const RecvOp& op, ConstByteRange data);
  bool complete(Channel& c, EventSink& out);
  bool hand_out_controls(EventSink& out);

  Worker& worker_;
  Inbox& inbox_;
  bool is_closed_ = false;
  std::uint64_t message_count_ = 0;  // sent
  std::uint64_t pending_recvs_ = 0;  // bit per channel
  OpList<SendOp> sends_;             // the driver works on them,
  OpList<RecvOp> fetching_;          // and on these
  std::array<std::uint64_t, kChannels + 1> next_sequence_{};
  std::array<std::unique_ptr<Channel>, kChannels> channels_;
};

}  // namespace tutti::message
