// One lane: the UCX worker, the peers, everything that has arrived, and what is under way.
// Knows no matching: endpoints do that when they are told that there is news. Everything belongs to the
// lane's owner.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "transports/queues.hpp"
#include "transports/transport.hpp"
#include "transports/ucx/card.hpp"
#include "transports/ucx/inbox.hpp"
#include "transports/ucx/operations.hpp"
#include "transports/ucx/peer.hpp"
#include "transports/ucx/worker.hpp"

namespace tutti::ucx {

class Lane {
 public:
  Lane(std::unique_ptr<Worker> worker, std::uint64_t instance);
  // Says goodbye to all peers, and waits for their answers a little.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Errors: unsupported if UCX does not take handlers.
  Status start();

  std::size_t progress(std::span<Event> events);
  bool arm();

  // -- for endpoints and peers ------------------------------------------------------------------------------

  Worker& worker() { return *worker_; }
  std::uint64_t instance() const { return instance_; }
  Peer& find_peer(std::uint64_t instance);
  Inbox& find_inbox(std::uint64_t instance, std::uint64_t context);
  Pool<SendOp>& sends() { return sends_; }
  Pool<RecvOp>& recvs() { return recvs_; }
  BouncePool& bounces() { return bounces_; }
  Fifo<Event>& waiting() { return waiting_; }

  // The inbox has news: something arrived, completed or ended.
  void list(Inbox& inbox);
  void list_all_of(const Peer& peer);
  void note_failed_peer() { has_failed_peers_ = true; }
  // A receive waits for this peer.
  void want_peer(Inbox& inbox);
  void notify(Peer& peer, const Notice& notice);
  // Data of a control event: valid until the next progress().
  void lend(void* data) { lent_.push_back(data); }

  // Takes in what has come already.
  void settle();
  // Progresses until `condition` holds. False after `at_most`.
  bool drain(const std::function<bool()>& condition, std::chrono::milliseconds at_most);
  // False in a child of fork(), which must not touch what it shares with its parent.
  bool is_own_process() const;

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

  static ucs_status_t on_message(void* lane, const void* header, std::size_t header_bytes, void* data,
                                 std::size_t bytes, const ucp_am_recv_param_t* param);
  static ucs_status_t on_notice(void* lane, const void* header, std::size_t header_bytes, void* data,
                                std::size_t bytes, const ucp_am_recv_param_t* param);
  void take_notice(const Notice& notice, ucp_ep_h reply);
  void answer(ucp_ep_h endpoint, const Notice& notice, std::uint32_t flags);
  void close_failed();
  void connect_wanted();
  bool advance(Inbox& inbox, EventSink& out);
  void say_goodbye();
  bool flush_worker();

  std::unique_ptr<Worker> worker_;
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
};

}  // namespace tutti::ucx
