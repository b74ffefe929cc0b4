// Carrying messages by active messages of UCX: what travels, what arrives, connections.
// Knows no receive and no context; see transports/message/carrier.hpp.
#pragma once

#include <ucp/api/ucp.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "transports/message/carrier.hpp"
#include "transports/message/operations.hpp"
#include "transports/message/ucx/worker.hpp"

namespace tutti::ucx {

class UcxCarrier final : public message::Carrier {
 public:
  explicit UcxCarrier(std::unique_ptr<Worker> worker) : worker_(std::move(worker)) {}

  std::string_view name() const override { return "ucx"; }
  Status start(message::Lane& lane) override;
  bool progress() override { return worker_->progress(); }
  bool arm() override { return worker_->arm(); }
  int event_fd() const override { return worker_->event_fd(); }

  std::unique_ptr<message::Link> connect(message::Peer& peer, std::span<const std::byte> address) override;
  void disconnect(message::Link& link) override;
  bool is_disconnecting(message::Link& link) override;
  // UCX ends what is under way itself.
  void note_goodbye(const message::Peer&) override {}
  void note_closed(const message::Inbox&) override {}

  Sent send(message::Link& link, message::SendOp& op) override;
  void notify(message::Link& link, const message::Notice& notice) override;
  void flush(message::Link& link) override;

  void release(void* hold) override { worker_->release(hold); }
  void fetch(message::RecvOp& op, void* hold) override;
  bool has_pieces() const override { return false; }
  void pump(message::RecvOp&) override {}

  // There is no way to cancel an active message.
  bool cancel(message::SendOp&) override { return false; }
  bool cancel(message::RecvOp&) override { return false; }
  bool finish() override;
  void abandon() override { worker_->abandon(); }

 private:
  struct NoticeOp {
    UcxCarrier* carrier = nullptr;
    message::Notice notice;
  };

  static ucs_status_t on_message(void* carrier, const void* header, std::size_t header_bytes, void* data,
                                 std::size_t bytes, const ucp_am_recv_param_t* param);
  static ucs_status_t on_notice(void* carrier, const void* header, std::size_t header_bytes, void* data,
                                std::size_t bytes, const ucp_am_recv_param_t* param);
  static void on_sent(void* request, ucs_status_t status, void* op);
  static void on_fetched(void* request, ucs_status_t status, std::size_t bytes, void* op);
  static void on_notice_sent(void* request, ucs_status_t status, void* op);
  void post_notice(ucp_ep_h endpoint, const message::Notice& notice, std::uint32_t flags);

  std::unique_ptr<Worker> worker_;
  message::Lane* lane_ = nullptr;
  message::Pool<NoticeOp> notices_;
};

}  // namespace tutti::ucx
