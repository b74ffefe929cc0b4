// Opening, moving and ending a connection. Knows no frame; see connection.hpp.
#include "transports/message/tcp/connection.hpp"

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace tutti::tcp {

void Connection::open(Socket socket, const WireSession& session) {
  socket_ = std::move(socket);
  state_ = State::open;
  channel_.open(socket_.fd(), session);
  is_ready = true;
}

void Connection::watch() {
  if (std::exchange(is_watched_, true)) return;
  is_ready = true;  // what came before
  if (!poller_.add(socket_.fd(), *this, wants_write_ = false)) end(std::strerror(errno));
}

void Connection::ignore() {
  if (std::exchange(is_watched_, false) && socket_.is_open()) poller_.remove(socket_.fd(), *this);
  wants_write_ = false;
}

void Connection::close() {
  ignore();
  socket_.close();
  channel_.close();
}

void Connection::end(std::string_view reason) {
  if (std::exchange(state_, State::ended) == State::ended) return;
  close();
  if (!reason.empty()) worker_.find_peer(peer_).note_failure(reason);
  output.fail_all();
  input.fail_all();
}

bool Connection::push() {
  const bool has_moved = output.push();
  if (wants_write_ && output.is_empty()) poller_.change(socket_.fd(), *this, wants_write_ = false);
  return has_moved;
}

bool Connection::pull() {
  is_ready = false;
  const bool has_moved = input.pull();
  if (input.end().empty()) return has_moved;
  if (input.is_forged()) worker_.find_peer(peer_).note_trouble(forged_record());
  end(input.has_announced_close() ? std::string_view() : input.end());
  return true;
}

bool Connection::arm() {
  if (input.has_leftover()) return false;
  watch();
  if (state_ == State::ended) return false;
  if (wants_write_ == output.is_empty())
    poller_.change(socket_.fd(), *this, wants_write_ = !output.is_empty());
  return true;
}

}  // namespace tutti::tcp
