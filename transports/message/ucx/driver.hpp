// Carrying messages by active messages of UCX: what travels, what arrives, connections.
// Knows no receive and no context; see transports/message/wire_driver.hpp.
#pragma once

#include <ucp/api/ucp.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "transports/message/operations.hpp"
#include "transports/message/ucx/ucp_worker.hpp"
#include "transports/message/wire_driver.hpp"

namespace tutti::ucx {

class UcxDriver final : public message::WireDriver {
 public:
  explicit UcxDriver(std::unique_ptr<UcpWorker> ucp_worker) : ucp_(std::move(ucp_worker)) {}

  Status start(message::Worker& worker) override;
  bool progress(Poll) override { return ucp_->progress(); }
  bool arm() override { return ucp_->arm(); }

  std::unique_ptr<message::Link> connect(message::Peer& peer, std::span<const std::byte> address) override;
  void disconnect(std::unique_ptr<message::Link> link) override;

  Sent send(message::Link& link, message::SendOp& op) override;
  void notify(message::Link& link, const message::Notice& notice) override;
  void flush(message::Link& link) override;

  void release(void* hold) override { ucp_->release(hold); }
  void fetch(message::RecvOp& op, void* hold) override;

  // UCX has no way to cancel an active message; it ends those of a closed peer itself.
  bool finish() override;
  void abandon() override { ucp_->abandon(); }

 private:
  struct NoticeOp {
    UcxDriver* driver = nullptr;
    message::Notice notice;
  };

  static ucs_status_t on_message(void* driver, const void* header, std::size_t header_bytes, void* data,
                                 std::size_t bytes, const ucp_am_recv_param_t* param);
  static ucs_status_t on_notice(void* driver, const void* header, std::size_t header_bytes, void* data,
                                std::size_t bytes, const ucp_am_recv_param_t* param);
  static void on_sent(void* request, ucs_status_t status, void* op);
  static void on_fetched(void* request, ucs_status_t status, std::size_t bytes, void* op);
  static void on_notice_sent(void* request, ucs_status_t status, void* op);
  bool has_closing_links();
  void post_notice(ucp_ep_h endpoint, const message::Notice& notice, std::uint32_t flags);

  std::unique_ptr<UcpWorker> ucp_;
  message::Worker* worker_ = nullptr;
  message::Pool<NoticeOp> notices_;
  std::vector<void*> closings_;  // UCX's requests to close an endpoint
};

}  // namespace tutti::ucx
