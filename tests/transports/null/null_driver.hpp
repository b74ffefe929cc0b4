// The smallest network: ranks are threads of one process, and a message is an entry of a queue in memory.
// It shows what a network has to bring, and it is the fake that the conformance test of wire drivers runs on.
// Knows no receive and no context; see transports/message/wire_driver.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tests/transports/null/mailbox.hpp"
#include "transports/message/operations.hpp"
#include "transports/message/wire_driver.hpp"

namespace tutti::null {

class NullDriver final : public message::WireDriver {
 public:
  NullDriver();
  ~NullDriver() override;
  NullDriver(const NullDriver&) = delete;
  NullDriver& operator=(const NullDriver&) = delete;

  message::WireFacts facts() const;

  Status start(message::Worker& worker) override;
  bool progress(Poll which) override;
  bool arm() override;

  std::unique_ptr<message::Link> connect(message::Peer& peer, std::span<const std::byte> address) override;
  void disconnect(std::unique_ptr<message::Link> link) override;

  Sent send(message::Link& link, message::SendOp& op) override;
  void notify(message::Link& link, const message::Notice& notice) override;

  void release(void* hold) override;
  void fetch(message::RecvOp& op, void* hold) override;
  bool cancel_send(message::SendOp& op) override;

 private:
  struct NullLink;
  // A long message that the receiver has neither fetched nor dropped.
  struct Offer {
    message::SendOp* op = nullptr;
    std::shared_ptr<Remote> remote;
    const NullLink* link = nullptr;
  };
  void take(std::unique_ptr<Packet> packet);
  void post(Mailbox& to, const message::Notice& notice);
  bool complete_offers();

  message::Worker* worker_ = nullptr;
  std::shared_ptr<Mailbox> mailbox_;
  std::vector<NullLink*> links_;
  std::vector<Offer> offers_;
};

}  // namespace tutti::null
