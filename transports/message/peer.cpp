// Making and ending the link to a peer. Knows no message; see peer.hpp.
#include "transports/message/peer.hpp"

#include <utility>

#include "runtime/base/log.hpp"
#include "transports/message/lane.hpp"

namespace tutti::message {

void Peer::set_address(std::vector<std::byte> address) {
  if (address_.empty()) address_ = std::move(address);
}

Link* Peer::connect() {
  if (is_gone_) return nullptr;
  if (link_ == nullptr && !address_.empty()) link_ = lane_.carrier().connect(*this, address_);
  return link_.get();
}

void Peer::note_goodbye() {
  if (std::exchange(is_gone_, true)) return;
  lane_.carrier().note_goodbye(*this);
  lane_.list_all_of(*this);
}

void Peer::note_failure(std::string_view reason) {
  if (std::exchange(has_failed_, true)) return;
  lane_.note_failed_peer();
  if (is_gone_) return;
  log_info("{}: lost a peer: {}", lane_.carrier().name(), reason);
  is_gone_ = true;
  lane_.list_all_of(*this);
}

void Peer::disconnect() {
  if (link_ == nullptr) return;
  is_gone_ = true;
  closing_ = std::move(link_);
  lane_.carrier().disconnect(*closing_);
}

bool Peer::is_disconnecting() {
  if (closing_ == nullptr) return false;
  if (lane_.carrier().is_disconnecting(*closing_)) return true;
  closing_.reset();
  return false;
}

}  // namespace tutti::message
