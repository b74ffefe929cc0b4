// Making and ending the link to a peer. Knows no message; see peer.hpp.
#include "transports/message/peer.hpp"

#include <utility>

#include "runtime/base/log.hpp"
#include "transports/message/worker.hpp"

namespace tutti::message {

void Peer::set_address(std::vector<std::byte> address) {
  if (address_.empty()) address_ = std::move(address);
}

Link* Peer::connect() {
  if (is_gone_) return nullptr;
  if (link_ == nullptr && !address_.empty()) link_ = worker_.driver().connect(*this, address_);
  return link_.get();
}

void Peer::note_close() {
  if (std::exchange(is_gone_, true)) return;
  worker_.list_all_of(*this);
}

void Peer::note_failure(std::string_view reason) {
  if (std::exchange(has_failed_, true)) return;
  worker_.note_failed_peer();
  if (is_gone_) return;
  log_info("{}: lost a peer: {}", worker_.name(), reason);
  is_gone_ = true;
  worker_.list_all_of(*this);
}

void Peer::disconnect() {
  if (link_ == nullptr) return;
  is_gone_ = true;
  worker_.driver().disconnect(std::move(link_));
}

}  // namespace tutti::message
