// Making and ending the UCX endpoint to a peer. Knows no message; see peer.hpp.
#include "transports/ucx/peer.hpp"

#include <utility>

#include "runtime/base/log.hpp"
#include "transports/ucx/lane.hpp"
#include "transports/ucx/library.hpp"

namespace tutti::ucx {

namespace {

// Called from within ucp_worker_progress, where the endpoint must not be closed yet.
void on_error(void* peer, ucp_ep_h, ucs_status_t status) { static_cast<Peer*>(peer)->note_failure(status); }

}  // namespace

void Peer::set_address(std::vector<std::byte> address) {
  if (address_.empty()) address_ = std::move(address);
}

ucp_ep_h Peer::connect() {
  if (is_gone_) return nullptr;
  if (endpoint_ != nullptr || address_.empty()) return endpoint_;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address_.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &on_error;
  params.err_handler.arg = this;
  const ucs_status_t status = ucp_ep_create(lane_.worker().handle(), &params, &endpoint_);
  if (status != UCS_OK) {
    endpoint_ = nullptr;
    note_failure(status);
  }
  return endpoint_;
}

void Peer::note_goodbye() {
  if (std::exchange(is_gone_, true)) return;
  lane_.list_all_of(*this);
}

void Peer::note_failure(ucs_status_t status) {
  if (std::exchange(has_failed_, true)) return;
  lane_.note_failed_peer();
  if (is_gone_) return;
  log_info("ucx: lost a peer: {}", explain(status));
  is_gone_ = true;
  lane_.list_all_of(*this);
}

void Peer::disconnect() {
  if (endpoint_ == nullptr) return;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  ucs_status_ptr_t closing = ucp_ep_close_nbx(std::exchange(endpoint_, nullptr), &param);
  is_gone_ = true;
  if (closing != nullptr && !UCS_PTR_IS_ERR(closing)) closing_ = closing;
}

bool Peer::is_disconnecting() {
  if (closing_ == nullptr) return false;
  if (ucp_request_check_status(closing_) == UCS_INPROGRESS) return true;
  ucp_request_free(std::exchange(closing_, nullptr));
  return false;
}

}  // namespace tutti::ucx
