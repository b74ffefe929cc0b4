// Sending, fetching and connecting with UCX. Knows no receive; see driver.hpp.
#include "transports/message/ucx/driver.hpp"

#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "transports/message/ucx/library.hpp"
#include "transports/message/worker.hpp"

namespace tutti::ucx {

using message::Arrival;
using message::Link;
using message::MessageHeader;
using message::Notice;
using message::Peer;
using message::RangeList;
using message::RecvOp;
using message::SendOp;

namespace {

// Active message identifiers.
constexpr unsigned kMessageAm = 1;
constexpr unsigned kNoticeAm = 2;
constexpr std::chrono::milliseconds kLongestRest{1000};

struct UcxLink final : Link {
  ucp_ep_h endpoint = nullptr;
  Peer* peer = nullptr;
};

ucp_ep_h endpoint_of(const Link& link) { return static_cast<const UcxLink&>(link).endpoint; }

// Called from within ucp_worker_progress, where the endpoint must not be closed yet.
void on_error(void* peer, ucp_ep_h, ucs_status_t status) {
  static_cast<Peer*>(peer)->note_failure(explain(status));
}

// The arguments for UCX: an address, a count, and the datatype in `param`. One range needs no list.
void* fill(const RangeList& ranges, ucp_request_param_t* param, std::size_t* count) {
  // UCX's form of a range is that of the system.
  static_assert(sizeof(ucp_dt_iov_t) == sizeof(iovec) &&
                offsetof(ucp_dt_iov_t, buffer) == offsetof(iovec, iov_base) &&
                offsetof(ucp_dt_iov_t, length) == offsetof(iovec, iov_len));
  const std::span<const iovec> items = ranges.items();
  *count = items.empty() ? 0 : items.size() == 1 ? items[0].iov_len : items.size();
  if (items.empty()) return nullptr;
  if (items.size() == 1) return items[0].iov_base;
  param->op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
  param->datatype = ucp_dt_make_iov();
  return const_cast<iovec*>(items.data());
}

}  // namespace

Status UcxDriver::start(message::Worker& worker) {
  worker_ = &worker;
  TUTTI_RETURN_IF_ERROR(ucp_->set_handler(kMessageAm, &on_message, this));
  return ucp_->set_handler(kNoticeAm, &on_notice, this);
}

// -- connections --------------------------------------------------------------------------------------------

std::unique_ptr<Link> UcxDriver::connect(Peer& peer, std::span<const std::byte> address) {
  auto link = std::make_unique<UcxLink>();
  link->peer = &peer;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &on_error;
  params.err_handler.arg = &peer;
  const ucs_status_t status = ucp_ep_create(ucp_->handle(), &params, &link->endpoint);
  if (status == UCS_OK) return link;
  peer.note_failure(explain(status));
  return nullptr;
}

void UcxDriver::disconnect(std::unique_ptr<Link> link) {
  has_closing_links();  // those that are closed by now
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  ucs_status_ptr_t closing = ucp_ep_close_nbx(endpoint_of(*link), &param);
  if (closing != nullptr && !UCS_PTR_IS_ERR(closing)) closings_.push_back(closing);
}

bool UcxDriver::has_closing_links() {
  std::erase_if(closings_, [](void* request) {
    if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
    ucp_request_free(request);
    return true;
  });
  return !closings_.empty();
}

// -- sending ------------------------------------------------------------------------------------------------

void UcxDriver::on_sent(void* request, ucs_status_t status, void* op) {
  auto* self = static_cast<SendOp*>(op);
  ucp_request_free(request);
  static_cast<UcxDriver*>(self->work)->worker_->on_sent(*self, status == UCS_OK);
}

message::WireDriver::Sent UcxDriver::send(Link& link, SendOp& op) {
  op.work = this;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = &on_sent;
  param.user_data = &op;
  std::size_t count = 0;
  const void* from = fill(op.ranges, &param, &count);
  const ucs_status_ptr_t sent =
      ucp_am_send_nbx(endpoint_of(link), kMessageAm, &op.header, sizeof(op.header), from, count, &param);
  if (sent == nullptr) return Sent::done;
  if (!UCS_PTR_IS_ERR(sent)) return Sent::pending;
  static_cast<UcxLink&>(link).peer->note_failure(explain(UCS_PTR_STATUS(sent)));
  return Sent::failed;
}

void UcxDriver::notify(Link& link, const Notice& notice) {
  post_notice(endpoint_of(link), notice, notice.kind == Notice::Kind::closing ? UCP_AM_SEND_FLAG_REPLY : 0);
}

void UcxDriver::on_notice_sent(void* request, ucs_status_t, void* op) {
  auto* self = static_cast<NoticeOp*>(op);
  ucp_request_free(request);
  self->driver->notices_.give_back(self);
}

void UcxDriver::post_notice(ucp_ep_h endpoint, const Notice& notice, std::uint32_t flags) {
  NoticeOp* op = notices_.take();
  op->driver = this;
  op->notice = notice;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_EAGER | flags;
  param.cb.send = &on_notice_sent;
  param.user_data = op;
  const ucs_status_ptr_t sent =
      ucp_am_send_nbx(endpoint, kNoticeAm, &op->notice, sizeof(op->notice), nullptr, 0, &param);
  if (sent == nullptr || UCS_PTR_IS_ERR(sent)) notices_.give_back(op);
}

void UcxDriver::flush(Link& link) {
  ucp_request_param_t param{};
  const ucs_status_ptr_t flushing = ucp_ep_flush_nbx(endpoint_of(link), &param);
  if (flushing == nullptr || UCS_PTR_IS_ERR(flushing)) return;
  worker_->drain_patiently([flushing] { return ucp_request_check_status(flushing) != UCS_INPROGRESS; });
  ucp_request_free(flushing);
}

// -- receiving, from within ucp_worker_progress -------------------------------------------------------------

ucs_status_t UcxDriver::on_message(void* driver, const void* header, std::size_t header_bytes, void* data,
                                   std::size_t bytes, const ucp_am_recv_param_t* param) {
  MessageHeader message;
  if (header_bytes != sizeof(message)) return UCS_OK;  // not kept: UCX drops it
  std::memcpy(&message, header, sizeof(message));
  Arrival arrival;
  arrival.bytes = bytes;
  arrival.match_header = message.match_header;
  arrival.sequence = message.sequence;
  arrival.is_remote = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  const bool has_hold = arrival.is_remote || bytes != 0;
  if (has_hold) arrival.hold = data;
  if (!arrival.is_remote) arrival.data = static_cast<const std::byte*>(data);
  const bool is_kept = static_cast<UcxDriver*>(driver)->worker_->take_message(message, arrival);
  return is_kept && has_hold ? UCS_INPROGRESS : UCS_OK;
}

ucs_status_t UcxDriver::on_notice(void* driver, const void* header, std::size_t header_bytes, void*,
                                  std::size_t, const ucp_am_recv_param_t* param) {
  auto* self = static_cast<UcxDriver*>(driver);
  Notice notice;
  if (header_bytes != sizeof(notice)) return UCS_OK;
  std::memcpy(&notice, header, sizeof(notice));
  const std::optional<Notice> answer = self->worker_->take_notice(notice);
  const bool has_reply = (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0;
  if (answer && has_reply) self->post_notice(param->reply_ep, *answer, 0);
  return UCS_OK;
}

void UcxDriver::on_fetched(void* request, ucs_status_t status, std::size_t bytes, void* op) {
  auto* self = static_cast<RecvOp*>(op);
  ucp_request_free(request);
  static_cast<UcxDriver*>(self->work)->worker_->on_fetched(*self, status == UCS_OK && bytes == self->bytes);
}

void UcxDriver::fetch(RecvOp& op, void* hold) {
  op.work = this;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = &on_fetched;
  param.user_data = &op;
  std::size_t count = op.bytes;
  void* to = op.bounce.empty() ? fill(op.ranges, &param, &count) : op.bounce.data();
  const ucs_status_ptr_t fetching = ucp_am_recv_data_nbx(ucp_->handle(), hold, to, count, &param);
  if (fetching == nullptr || UCS_PTR_IS_ERR(fetching)) worker_->on_fetched(op, fetching == nullptr);
}

// -- ending -------------------------------------------------------------------------------------------------

// Connections that peers have opened to us without our asking have endpoints, too, inside UCX. With an answer
// to such a peer still to be sent, destroying the worker aborts the process (an assertion, in UCX 1.13).
bool UcxDriver::finish() {
  const auto is_closed = [this] { return !has_closing_links() && notices_.used_count() == 0; };
  if (!worker_->drain(is_closed, kLongestRest)) return false;
  ucp_request_param_t param{};
  const ucs_status_ptr_t flushing = ucp_worker_flush_nbx(ucp_->handle(), &param);
  if (flushing == nullptr || UCS_PTR_IS_ERR(flushing)) return true;
  const auto is_over = [flushing] { return ucp_request_check_status(flushing) != UCS_INPROGRESS; };
  const bool is_flushed = worker_->drain(is_over, kLongestRest);
  ucp_request_free(flushing);
  return is_flushed;
}

}  // namespace tutti::ucx
