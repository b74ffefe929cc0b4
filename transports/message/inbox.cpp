// Keeping what arrives in order. Knows no receive; see inbox.hpp.
#include "transports/message/inbox.hpp"

#include <utility>

#include "transports/message/peer.hpp"

namespace tutti::message {

void Inbox::add(std::uint64_t channel, const Arrival& arrival) {
  std::unique_ptr<Channel>& c = channels_[channel];
  if (!c) c = std::make_unique<Channel>();
  Fifo<Arrival>& arrivals = c->arrivals;
  arrivals.push_back(arrival);
  if (is_closed_by_peer_ && arrival.is_remote && !arrival.is_coming) {
    release(arrival);
    arrivals[arrivals.count() - 1].is_lost = true;
  }
  for (std::size_t i = arrivals.count() - 1; i > 0 && arrivals[i - 1].sequence > arrivals[i].sequence; --i) {
    std::swap(arrivals[i - 1], arrivals[i]);
  }
}

bool Inbox::has_next(std::uint64_t channel) const {
  Channel* c = channels_[channel].get();
  return c != nullptr && !c->arrivals.empty() && c->arrivals.front().sequence == c->next_sequence;
}

bool Inbox::take(std::uint64_t channel, Arrival* next) {
  if (!has_next(channel)) return false;
  Channel* c = channels_[channel].get();
  *next = c->arrivals.front();
  c->arrivals.pop_front();
  ++c->next_sequence;
  return true;
}

void Inbox::clear() {
  for (std::unique_ptr<Channel>& c : channels_) {
    if (!c) continue;
    for (; !c->arrivals.empty(); c->arrivals.pop_front()) release(c->arrivals.front());
  }
}

void Inbox::release(const Arrival& arrival) {
  if (arrival.hold != nullptr && !arrival.is_lost) driver_.release(arrival.hold);
}

void Inbox::close_by_peer(std::uint64_t message_count) {
  is_closed_by_peer_ = true;
  last_count_ = message_count;
  for (std::unique_ptr<Channel>& c : channels_) {
    if (!c) continue;
    for (std::size_t i = 0; i < c->arrivals.count(); ++i) {
      Arrival& arrival = c->arrivals[i];
      if (!arrival.is_remote || arrival.is_coming || arrival.is_lost) continue;
      release(arrival);
      arrival.is_lost = true;
    }
  }
}

bool Inbox::is_ended() const {
  return peer.is_gone() || (is_closed_by_peer_ && message_count_ >= last_count_);
}

}  // namespace tutti::message
