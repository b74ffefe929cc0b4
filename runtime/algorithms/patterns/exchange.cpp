// The two readings of an exchange pattern: allgather and reduce-scatter.
#include "runtime/algorithms/patterns/exchange.hpp"

#include <algorithm>

namespace tutti {

std::vector<BlockRun> to_runs(std::span<const std::int64_t> blocks) {
  std::vector<BlockRun> runs;
  for (const std::int64_t block : blocks) {
    if (!runs.empty()) {
      BlockRun& run = runs.back();
      if (run.count == 1 && block > run.first) run.stride = static_cast<std::uint32_t>(block - run.first);
      if (block > run.first && block == run.first + std::int64_t{run.count} * run.stride) {
        ++run.count;
        continue;
      }
    }
    runs.push_back({block, 1, 1});
  }
  return runs;
}

void emit_allgather(Builder& b, const ExchangePattern& pattern, OwnBlock where) {
  bool is_copied = where == OwnBlock::in_output;
  const auto copy_own = [&] {
    if (!is_copied) b.copy(b.output(pattern.own), b.input(pattern.own));
    is_copied = true;
  };
  for (const ExchangeRound& round : pattern.rounds) {
    for (const auto& [peer, run] : round.sends) {
      b.send(peer, is_copied ? b.output(run.first, run.count, run.stride)
                             : b.input(run.first, run.count, run.stride));
    }
    for (const auto& [peer, run] : round.recvs) b.recv(peer, b.output(run.first, run.count, run.stride));
    copy_own();
  }
  copy_own();
}

namespace {

// Where this rank's partial sum of a block is, or will be.
struct Place {
  enum class Kind : std::uint8_t { input, output, scratch, gone } kind = Kind::input;
  std::uint32_t slot = 0;

  // Does a slice that starts here hold `next` as its block number k?
  bool reaches(const Place& next, std::uint32_t k) const {
    return kind == next.kind && (kind != Kind::scratch || next.slot == slot + k);
  }
};

struct Arrival {
  std::uint32_t peer = 0;
  std::uint32_t slot = 0;
};

// An addition to come: to all blocks of a run, whose partial sums and arrivals lie side by side.
struct Addition {
  BlockRun run;
  Place from, to;
  std::vector<Arrival> arrivals;
  std::size_t message = 0;  // the message that waits for it
};

constexpr std::size_t kNoMessage = ~std::size_t{0};

class ReduceScatter {
 public:
  ReduceScatter(Builder& b, const ExchangePattern& pattern, PartialSums where);
  Slice emit();

 private:
  struct Outgoing {
    BlockMessage message;
    std::uint32_t slot = 0;  // of its first block, once one of its blocks was added to
    bool has_slots = false;
  };
  // State of one block: the place of its partial sum, and the message that will take it away.
  struct Block {
    Place place;
    std::size_t message = kNoMessage;
    std::uint32_t position = 0;
  };

  std::size_t number(const BlockRun& run, std::uint32_t k) const {
    const std::int64_t n = pattern_.blocks;
    return static_cast<std::size_t>((((run.first + std::int64_t{k} * run.stride) % n) + n) % n);
  }
  std::size_t own() const { return number({pattern_.own}, 0); }
  Slice slice(const Place& place, const BlockRun& run) const;
  Place home_of(std::size_t block);
  std::uint32_t take_slots(std::uint32_t count);

  void send(std::size_t message);
  std::vector<Addition> receive(const std::vector<BlockMessage>& messages, std::uint32_t first_slot);
  void append(std::vector<Addition>& additions, std::size_t block, const std::vector<Arrival>& arrivals);
  void emit(const Addition& addition);

  Builder& b_;
  const ExchangePattern& pattern_;
  const PartialSums where_;
  std::vector<Block> blocks_;
  std::vector<Outgoing> outgoing_;
  std::vector<Addition> pending_;  // of the round before
  Place own_home_{Place::Kind::output};
  std::vector<bool> is_slot_taken_;          // scratch: (own sum,) arrivals, then partial sums
  std::uint32_t first_arrival_[2] = {0, 0};  // slots of the arrivals of even and of odd rounds
};

ReduceScatter::ReduceScatter(Builder& b, const ExchangePattern& pattern, PartialSums where)
    : b_(b), pattern_(pattern), where_(where), blocks_(pattern.blocks) {
  std::uint32_t most_arrivals[2] = {0, 0};
  if (where == PartialSums::all_in_scratch) {
    own_home_ = {Place::Kind::scratch, 0};
    first_arrival_[0] = 1;
  }
  if (where == PartialSums::from_output) {
    for (Block& block : blocks_) block.place.kind = Place::Kind::output;
  }
  std::uint32_t parity = 0;
  for (auto round = pattern.rounds.rbegin(); round != pattern.rounds.rend(); ++round, parity ^= 1) {
    for (const BlockMessage& message : round->recvs) {
      for (std::uint32_t k = 0; k < message.blocks.count; ++k) {
        Block& block = blocks_[number(message.blocks, k)];
        block.message = outgoing_.size();
        block.position = k;
      }
      outgoing_.push_back({message});
    }
    std::uint32_t arrivals = 0;
    for (const BlockMessage& message : round->sends) arrivals += message.blocks.count;
    most_arrivals[parity] = std::max(most_arrivals[parity], arrivals);
  }
  first_arrival_[1] = first_arrival_[0] + most_arrivals[0];
  is_slot_taken_.assign(first_arrival_[1] + most_arrivals[1], true);
}

Slice ReduceScatter::slice(const Place& place, const BlockRun& run) const {
  switch (place.kind) {
    case Place::Kind::scratch:
      return b_.scratch(place.slot, run.first, run.count, run.stride);
    case Place::Kind::input:
      return b_.input(run.first, run.count, run.stride);
    default:
      return b_.output(run.first, run.count, run.stride);
  }
}

// First fit; slots are free again once their message is emitted (the builder makes the next writer wait for
// it).
std::uint32_t ReduceScatter::take_slots(std::uint32_t count) {
  std::size_t first = 0;
  for (std::size_t i = 0; i < is_slot_taken_.size() && i < first + count; ++i) {
    if (is_slot_taken_[i]) first = i + 1;
  }
  is_slot_taken_.resize(std::max(is_slot_taken_.size(), first + count));
  std::fill_n(is_slot_taken_.begin() + static_cast<std::ptrdiff_t>(first), count, true);
  return static_cast<std::uint32_t>(first);
}

// Where a block's partial sum belongs: beside those that leave in the same message.
Place ReduceScatter::home_of(std::size_t block) {
  if (where_ == PartialSums::in_output || where_ == PartialSums::from_output) return {Place::Kind::output};
  if (block == own()) return own_home_;
  Outgoing& out = outgoing_[blocks_[block].message];
  if (!out.has_slots) out.slot = take_slots(out.message.blocks.count);
  out.has_slots = true;
  return {Place::Kind::scratch, out.slot + blocks_[block].position};
}

void ReduceScatter::send(std::size_t message) {
  const auto waiting = [message](const Addition& a) { return a.message == message; };
  for (const Addition& addition : pending_) {
    if (waiting(addition)) emit(addition);
  }
  pending_.erase(std::remove_if(pending_.begin(), pending_.end(), waiting), pending_.end());

  const auto& [peer, run] = outgoing_[message].message;
  bool is_untouched = true;
  for (std::uint32_t k = 0; k < run.count; ++k)
    is_untouched = is_untouched && blocks_[number(run, k)].place.kind == Place::Kind::input;
  const Place from = is_untouched ? Place{} : home_of(number(run, 0));
  for (std::uint32_t k = 0; k < run.count; ++k) {
    const std::size_t block = number(run, k);
    const BlockRun alone{static_cast<std::int64_t>(block)};
    if (!is_untouched && blocks_[block].place.kind == Place::Kind::input)
      b_.copy(slice(home_of(block), alone), b_.input(alone.first));
    blocks_[block].place.kind = Place::Kind::gone;
  }
  b_.send(peer, slice(from, run));
  if (outgoing_[message].has_slots)
    std::fill_n(is_slot_taken_.begin() + outgoing_[message].slot, run.count, false);
}

std::vector<Addition> ReduceScatter::receive(const std::vector<BlockMessage>& messages,
                                             std::uint32_t first_slot) {
  std::vector<std::size_t> order;  // blocks as they first appear
  std::vector<std::vector<Arrival>> arrivals(blocks_.size());
  std::uint32_t slot = first_slot;
  for (const auto& [peer, run] : messages) {
    if (blocks_[number(run, 0)].place.kind == Place::Kind::gone) {  // finished
      b_.recv(peer, slice(own_home_, run));
      continue;
    }
    b_.recv(peer, b_.scratch(slot, run.first, run.count, run.stride));
    for (std::uint32_t k = 0; k < run.count; ++k, ++slot) {
      const std::size_t block = number(run, k);
      if (arrivals[block].empty()) order.push_back(block);
      arrivals[block].push_back({peer, slot});
    }
  }
  std::vector<Addition> additions;
  for (const std::size_t block : order) {
    std::sort(arrivals[block].begin(), arrivals[block].end(),
              [](const Arrival& a, const Arrival& c) { return a.peer < c.peer; });
    append(additions, block, arrivals[block]);
  }
  return additions;
}

void ReduceScatter::append(std::vector<Addition>& additions, std::size_t block,
                           const std::vector<Arrival>& arrivals) {
  const Place from = blocks_[block].place, to = home_of(block);
  const std::size_t message = blocks_[block].message;
  const auto n = static_cast<std::int64_t>(pattern_.blocks);
  blocks_[block].place = to;
  if (!additions.empty()) {
    Addition& last = additions.back();
    const std::uint32_t k = last.run.count;
    const std::int64_t step = (static_cast<std::int64_t>(block) - last.run.first + n) % n;
    const std::int64_t stride = k == 1 ? step : last.run.stride;
    bool is_next = last.message == message && last.from.reaches(from, k) && last.to.reaches(to, k) &&
                   step == (stride * k) % n && last.arrivals.size() == arrivals.size();
    for (std::size_t i = 0; is_next && i < arrivals.size(); ++i) {
      is_next = last.arrivals[i].peer == arrivals[i].peer && last.arrivals[i].slot + k == arrivals[i].slot;
    }
    if (is_next) {
      last.run.stride = static_cast<std::uint32_t>(stride);
      ++last.run.count;
      return;
    }
  }
  additions.push_back({{static_cast<std::int64_t>(block)}, from, to, arrivals, message});
}

void ReduceScatter::emit(const Addition& addition) {
  std::vector<Slice> sources;
  bool has_own = false;
  for (const Arrival& arrival : addition.arrivals) {
    if (!has_own && arrival.peer > b_.rank()) {
      sources.push_back(slice(addition.from, addition.run));
      has_own = true;
    }
    sources.push_back(slice({Place::Kind::scratch, arrival.slot}, addition.run));
  }
  if (!has_own) sources.push_back(slice(addition.from, addition.run));
  b_.reduce(slice(addition.to, addition.run), sources);
}

Slice ReduceScatter::emit() {
  std::size_t message = 0;
  std::uint32_t parity = 0;
  const auto emit_pending = [this] {
    for (const Addition& addition : pending_) emit(addition);
    pending_.clear();
  };
  for (auto round = pattern_.rounds.rbegin(); round != pattern_.rounds.rend(); ++round, parity ^= 1) {
    for (std::size_t i = 0; i < round->recvs.size(); ++i) send(message++);
    std::vector<Addition> additions = receive(round->sends, first_arrival_[parity]);
    emit_pending();
    pending_ = std::move(additions);
  }
  emit_pending();
  Place& own_place = blocks_[own()].place;
  const BlockRun own_run{pattern_.own};
  if (own_place.kind == Place::Kind::gone) own_place = own_home_;  // it arrived finished
  if (own_place.kind == Place::Kind::input && where_ != PartialSums::all_in_scratch) {
    b_.copy(b_.output(pattern_.own), b_.input(pattern_.own));
    own_place = {Place::Kind::output};
  }
  return slice(own_place, own_run);
}

}  // namespace

Slice emit_reduce_scatter(Builder& b, const ExchangePattern& pattern, PartialSums where) {
  return ReduceScatter(b, pattern, where).emit();
}

}  // namespace tutti
