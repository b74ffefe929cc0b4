// One worker: the driver, the peers, everything that has arrived, and what is under way.
// Knows no matching: endpoints do that when they are told that there is news. Everything belongs to the
// worker's owner.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/base/running_clock.hpp"
#include "transports/message/inbox.hpp"
#include "transports/message/operations.hpp"
#include "transports/message/peer.hpp"
#include "transports/message/wire_driver.hpp"
#include "transports/queues.hpp"
#include "transports/transport.hpp"

namespace tutti::message {

class Worker {
 public:
  Worker(std::unique_ptr<WireDriver> driver, std::string_view name, Fetch fetch, std::uint64_t instance);
  ~Worker();  // leaves
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Status start() { return driver_->start(*this); }

  std::size_t progress(std::span<Event> events);
  bool arm();
  // Transport::leave(): the close handshake with all peers, then the end of the connections.
  void leave();

  // -- for endpoints and peers ------------------------------------------------------------------------------

  WireDriver& driver() { return *driver_; }
  std::string_view name() const { return name_; }  // of the transport
  Fetch fetch() const { return fetch_; }
  std::uint64_t instance() const { return instance_; }
  Peer& find_peer(std::uint64_t instance);
  Inbox& find_inbox(std::uint64_t instance, std::uint64_t context);
  Pool<SendOp>& sends() { return sends_; }
  Pool<RecvOp>& recvs() { return recvs_; }
  BouncePool& bounces() { return bounces_; }
  void give_back(RecvOp& op);
  Fifo<Event>& waiting() { return waiting_; }

  // The inbox has news: something arrived, completed or ended.
  void list(Inbox& inbox);
  void list_all_of(const Peer& peer);
  void note_failed_peer() { has_failed_peers_ = true; }
  // A receive waits for this peer.
  void want_peer(Inbox& inbox);
  void notify(Peer& peer, Notice notice);  // fills in the sender
  // The memory of a control event's data is kept until the next progress().
  void lend(void* hold) { lent_.push_back(hold); }

  // Takes in what has come already.
  void settle();
  // Progresses until `condition` holds. False after `at_most`.
  bool drain(const std::function<bool()>& condition, std::chrono::milliseconds at_most) {
    return drain(condition, at_most, at_most);
  }
  // False in a child of fork(), which must not touch what it shares with its parent.
  bool is_own_process() const;

  // Drains while something closes towards a peer that may not answer, as long as something moves. After each
  // failure the next bound is half as long, so closing many endpoints takes at most twice the first bound.
  bool drain_patiently(const std::function<bool()>& condition);
  std::chrono::milliseconds patience();

  // -- for the driver --------------------------------------------------------------------------------------

  // True if the arrival is kept; otherwise nobody wants it.
  bool take_message(const MessageHeader& header, const Arrival& arrival);
  // Returns the answer to send, if there is one.
  std::optional<Notice> take_notice(const Notice& notice);
  // The operation is the worker's again.
  void on_sent(SendOp& op, bool is_ok);
  void on_fetched(RecvOp& op, bool is_ok);
  // There is something for the driver to pump.
  void note_piece(const RecvOp& op);

 private:
  struct Key {
    std::uint64_t instance = 0;
    std::uint64_t context = 0;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      return static_cast<std::size_t>((key.instance ^ (key.context * 0x9e3779b97f4a7c15U)) *
                                      0xff51afd7ed558ccdU);
    }
  };

  // False also after `at_rest` in which nothing has moved.
  bool drain(const std::function<bool()>& condition, std::chrono::milliseconds at_rest,
             std::chrono::milliseconds at_most);
  void close_failed();
  void connect_wanted();
  bool advance(Inbox& inbox, EventSink& out);
  void close_handshake();

  std::unique_ptr<WireDriver> driver_;
  std::string_view name_;
  Fetch fetch_;
  std::uint64_t instance_;
  ::pid_t pid_;
  bool has_failed_peers_ = false;
  bool is_ending_ = false;
  // Before what refers to it.
  Pool<SendOp> sends_;
  Pool<RecvOp> recvs_;
  BouncePool bounces_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Peer>> peers_;
  std::unordered_map<Key, std::unique_ptr<Inbox>, KeyHash> inboxes_;
  std::vector<Inbox*> listed_;   // have news
  std::vector<Inbox*> wanting_;  // wants_peer
  std::vector<void*> lent_;
  Fifo<Event> waiting_;
  std::chrono::milliseconds patience_;
  Clock::time_point lost_patience_at_{};
};

}  // namespace tutti::message
