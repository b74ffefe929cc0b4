// The memory that a channel of an endpoint needs before its first message. It is made on all siblings at
// once, so that the next one in turn allocates nothing. Knows no protocol.
#include <algorithm>
#include <new>
#include <utility>

#include "transports/memory/endpoint.hpp"

namespace tutti::memory {

void MemoryEndpoint::join_siblings() {
  std::shared_ptr<Siblings>& last = worker_->last_siblings;
  const bool can_join = last && !last->is_used && !last->members.empty() &&
                        last->members.size() < Siblings::kMaxMembers &&
                        last->members.front()->peer_nonce_ == peer_nonce_;
  if (!can_join) last = std::make_shared<Siblings>();
  last->members.push_back(this);
  siblings_ = last;
}

void MemoryEndpoint::leave_siblings() {
  if (siblings_) std::erase(siblings_->members, this);
  siblings_.reset();
}

// On this endpoint's channel first: memory may be short.
template <class Work>
void MemoryEndpoint::for_siblings(std::uint32_t channel_index, const Work& work) {
  work(*this, *channels_[channel_index]);
  if (!siblings_) return;
  for (MemoryEndpoint* member : siblings_->members) {
    Channel* c = member->channels_[channel_index].get();
    if (member != this && c != nullptr) work(*member, *c);
  }
}

void MemoryEndpoint::add_channel(std::uint32_t index) {
  channels_[index] = std::make_unique<Channel>();
  channels_[index]->index = index;
  host_->instance().promise_links(2);  // cells and a ring
}

// Control messages take no turns: their channel is made where it is used.
Channel* MemoryEndpoint::make_channel(std::uint32_t index) {
  if (siblings_ && index != kControlChannel) {
    siblings_->is_used = true;
    for (MemoryEndpoint* member : siblings_->members) {
      if (!member->channels_[index]) member->add_channel(index);
    }
  }
  if (!channels_[index]) add_channel(index);
  return channels_[index].get();
}

void MemoryEndpoint::make_room(std::uint32_t index, std::size_t send_count, std::size_t recv_count) {
  for_siblings(index, [&](MemoryEndpoint&, Channel& c) {
    c.sends.reserve(std::min(send_count, kMaxQueued));
    c.recvs.reserve(std::min(recv_count, kMaxQueued));
  });
}

bool MemoryEndpoint::prepare_cells(Channel& c) {
  if (c.cells != nullptr) return true;
  for_siblings(c.index, [](MemoryEndpoint& member, Channel& its) { member.make_cells(its); });
  if (c.cells == nullptr) memory_.give_up();  // pending posts fail at the next progress, see trouble_
  return c.cells != nullptr;
}

void MemoryEndpoint::make_cells(Channel& c) {
  if (c.cells != nullptr) return;
  Instance& instance = host_->instance();
  Result<std::uint64_t> place = instance.allocate_promised_link(sizeof(CellRing), Instance::Need::vital);
  if (!place) {
    trouble_ = place.status();
    return;
  }
  c.cells_place = *place;
  c.cells = new (instance.at<std::byte>(*place)) CellRing;
  for (CellLine& line : c.cells->lines) line.sequence.store(0, std::memory_order_relaxed);
  block_->cell_places[c.index].store(*place, std::memory_order_release);
}

// The rings of siblings are of one size: a call is not to be slow because its turn is.
void MemoryEndpoint::prepare_ring(Channel& c) {
  if (c.ring != nullptr || memory_.is_gone()) return;
  Instance& instance = host_->instance();
  const MemoryOptions& options = instance.options();
  std::size_t ring_count = 0;
  for_siblings(c.index, [&](MemoryEndpoint&, Channel& its) { ring_count += its.ring == nullptr ? 1 : 0; });
  std::size_t piece_bytes = options.piece_bytes;
  while (piece_bytes > kMinimalPieceBytes &&
         !instance.has_staging_room(ring_count * StagedRing::total_bytes(options.piece_count, piece_bytes))) {
    piece_bytes = (piece_bytes / 2) & ~(kLineBytes - 1);
  }
  for_siblings(c.index, [&](MemoryEndpoint& member, Channel& its) { member.make_ring(its, piece_bytes); });
  if (c.ring == nullptr) memory_.give_up();
}

// With pieces of that size, else smaller, at last the minimal ring.
void MemoryEndpoint::make_ring(Channel& c, std::size_t piece_bytes) {
  if (c.ring != nullptr) return;
  Instance& instance = host_->instance();
  std::uint32_t piece_count = instance.options().piece_count;
  std::uint64_t place = 0;  // never the place of a block: segment 0 starts with its page
  auto allocate = [&](Instance::Need need) {
    Result<std::uint64_t> got =
        instance.allocate_promised_link(StagedRing::total_bytes(piece_count, piece_bytes), need);
    if (got) {
      place = *got;
    } else if (need == Instance::Need::vital) {
      trouble_ = got.status();
    }
  };
  while (place == 0 && piece_bytes > kMinimalPieceBytes) {
    allocate(Instance::Need::optional);
    if (place == 0) piece_bytes = (piece_bytes / 2) & ~(kLineBytes - 1);
  }
  if (place == 0) {
    piece_bytes = std::min(piece_bytes, kMinimalPieceBytes);
    piece_count = std::min(piece_count, kMinimalPieces);
    allocate(Instance::Need::vital);
  }
  if (place == 0) return;
  c.ring_place = place;
  c.ring = new (instance.at<std::byte>(place)) StagedRing;
  for (PieceLine& line : c.ring->lines) line.sequence.store(0, std::memory_order_relaxed);
  c.ring->piece_count = piece_count;
  c.ring->piece_bytes = static_cast<std::uint32_t>(piece_bytes);
  block_->ring_places[c.index].store(place, std::memory_order_release);
}

// The link memory of a closed endpoint, to be given back.
std::vector<std::uint64_t> MemoryEndpoint::take_blocks() {
  Instance& instance = host_->instance();
  std::vector<std::uint64_t> blocks{block_place_};
  std::size_t unused_count = 0;
  auto take = [&](std::uint64_t place) {
    if (place == 0) {
      ++unused_count;
    } else {
      blocks.push_back(place);
    }
  };
  for (const std::unique_ptr<Channel>& c : channels_) {
    if (!c) continue;
    take(c->cells_place);
    take(c->ring_place);
  }
  instance.withdraw_links(unused_count);
  return blocks;
}

}  // namespace tutti::memory
