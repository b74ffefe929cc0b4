// Hierarchical alltoall: each block goes to the mate that leads for its receiver, then all blocks between two
// leaders travel together, and the leader at the other end passes on the blocks of other members.
// Knows nothing of transports, dtypes, time or memory; the hierarchy is an argument.
//
// p = 6, domains {0 1} {2 3} {4 5}; 0 leads for 2 and 4, 1 for 3 and 5
//   domain   0 -> 1: blocks 3, 5 of 0    1 -> 0: blocks 2, 4 of 1
//   across   0 -> 2: block 2 of 0 and 1    0 -> 4: block 4 of 0 and 1    1 -> 3: ...
//   domain   0 <-> 1: their blocks for each other
// With fewer leaders than members a message holds blocks for several receivers, destination by destination.
//
// input: p blocks, block d for rank d; output: p blocks, block s from rank s
// scratch of a leader: the blocks that leave and arrive through it; in place also its domain's blocks
// rounds 2 (+1 where not every rank is a leader)
// bytes sent per rank 2p-D-n of p blocks (D even domains of n, all leaders): twice what direct sends, at most
// bytes that leave a domain n(p-n)/p m, as with every alltoall, in D-1 messages per leader
//   instead of p-n per rank (and never more than p blocks in one message)
// A slot takes blocks of several pairs of ranks -> equal counts.
#include <algorithm>

#include "runtime/algorithms/patterns/leaders.hpp"

namespace tutti {
namespace {

class Relay {
 public:
  Relay(const CollectiveSpec& spec, const GroupView& view, const Leaders& leaders)
      : b_(spec, view, view.size), leaders_(leaders), hierarchy_(*view.hierarchy) {
    if (!b_.in_place()) return;
    // A block from a mate would overwrite one that is not yet sent to it.
    for_runs(leaders_.mates(), [&](std::uint32_t offset, const BlockRun& run) {
      b_.copy(b_.scratch(offset, run.first, run.count, run.stride),
              b_.input(run.first, run.count, run.stride));
    });
    slot_ = mate_count();
  }

  // Exchanges the blocks of mates for other domains that go through this rank or through them. Scratch is in
  // the order domain, destination, mate, so that blocks which leave together are adjacent.
  void collect() {
    const std::uint32_t own = leaders_.position(), n = mate_count();
    for (std::uint32_t d = 1; d < leaders_.domain_count(); ++d) {
      const std::uint32_t domain = domain_at(d);
      const std::vector<std::uint32_t> blocks =
          leaders_.is_leader() ? leaders_.blocks_of(domain, own) : std::vector<std::uint32_t>{};
      const std::uint32_t first_slot = slot_;
      slot_ += static_cast<std::uint32_t>(blocks.size()) * n;
      leaving_.push_back(first_slot);
      for (std::uint32_t k = 0; k < blocks.size(); ++k)
        b_.copy(b_.scratch(first_slot + k * n + own, blocks[k]), b_.input(blocks[k]));
      for (std::uint32_t step = 1; step < n; ++step) {
        const std::uint32_t to = (own + step) % n, from = (own + n - step) % n;
        for (std::uint32_t k = 0; k < blocks.size(); ++k)
          b_.recv(leaders_.mates()[from], b_.scratch(first_slot + k * n + from, blocks[k]));
        if (to >= leaders_.count()) continue;
        for (const std::uint32_t block : leaders_.blocks_of(domain, to))
          b_.send(leaders_.mates()[to], b_.input(block));
      }
    }
  }

  void exchange_across() {
    if (!leaders_.is_leader()) return;
    const std::uint32_t own = leaders_.position();
    const std::vector<std::uint32_t> mine = leaders_.blocks_of(leaders_.domain(), own);
    for (std::uint32_t d = 1; d < leaders_.domain_count(); ++d) {
      const std::vector<std::uint32_t>& sources = hierarchy_.members(domain_at(d, true));
      if (mine.size() == 1) {  // this rank alone: to where it belongs
        for_runs(sources, [&](std::uint32_t, const BlockRun& run) {
          b_.recv(sources[own], b_.output(run.first, run.count, run.stride));
        });
        continue;
      }
      arrived_.push_back(slot_);
      for_messages(mine.size(), sources, [&](std::uint32_t offset, std::uint32_t count) {
        b_.recv(sources[own], b_.scratch(slot_ + offset, sources[0], count));
      });
      slot_ += static_cast<std::uint32_t>(mine.size() * sources.size());
    }
    for (std::uint32_t d = 1; d < leaders_.domain_count(); ++d) {
      const std::uint32_t domain = domain_at(d), peer = hierarchy_.members(domain)[own];
      const std::uint32_t first_slot = leaving_[d - 1];
      const std::size_t destinations = leaders_.blocks_of(domain, own).size();
      if (destinations == 1) {
        for_runs(leaders_.mates(), [&](std::uint32_t offset, const BlockRun& run) {
          b_.send(peer, b_.scratch(first_slot + offset, run.first, run.count, run.stride));
        });
        continue;
      }
      for_messages(destinations, leaders_.mates(), [&](std::uint32_t offset, std::uint32_t count) {
        b_.send(peer, b_.scratch(first_slot + offset, leaders_.mates()[0], count));
      });
    }
  }

  // Behind what leaves, since the way across is the longer one.
  void exchange_inside() {
    const std::uint32_t own = leaders_.position(), n = mate_count();
    b_.copy(b_.output(b_.rank()), b_.input(b_.rank()));
    for (std::uint32_t step = 1; step < n; ++step) {
      const std::uint32_t to = (own + step) % n, from = (own + n - step) % n;
      const std::uint32_t receiver = leaders_.mates()[to], sender = leaders_.mates()[from];
      b_.recv(sender, b_.output(sender));
      b_.send(receiver, b_.in_place() ? b_.scratch(to, receiver) : b_.input(receiver));
    }
  }

  void hand_on() {
    const std::uint32_t own = leaders_.position();
    const std::vector<std::uint32_t> mine = leaders_.blocks_of(leaders_.domain(), own % leaders_.count());
    if (mine.size() == 1) return;
    for (std::uint32_t d = 1; d < leaders_.domain_count(); ++d) {
      const std::vector<std::uint32_t>& sources = hierarchy_.members(domain_at(d, true));
      const auto width = static_cast<std::uint32_t>(sources.size());
      for_runs(sources, [&](std::uint32_t offset, const BlockRun& run) {
        const Slice output = b_.output(run.first, run.count, run.stride);
        if (!leaders_.is_leader()) return b_.recv(leaders_.mates()[own % leaders_.count()], output);
        for (std::uint32_t k = 0; k < mine.size(); ++k) {
          const Slice here =
              b_.scratch(arrived_[d - 1] + k * width + offset, run.first, run.count, run.stride);
          if (mine[k] == b_.rank()) {
            b_.copy(output, here);
          } else {
            b_.send(mine[k], here);
          }
        }
      });
    }
  }

  Result<Schedule> finish() && { return std::move(b_).finish(); }

 private:
  std::uint32_t mate_count() const { return static_cast<std::uint32_t>(leaders_.mates().size()); }
  // The domain d places behind the own one, or before it: not all send to one at a time.
  std::uint32_t domain_at(std::uint32_t d, bool is_before = false) const {
    const std::uint32_t count = leaders_.domain_count();
    return (leaders_.domain() + (is_before ? count - d : d)) % count;
  }
  // Blocks of these ranks, as few slices as there can be; `visit` gets how many came before.
  template <class Visit>
  static void for_runs(std::span<const std::uint32_t> ranks, Visit visit) {
    std::uint32_t offset = 0;
    for (const BlockRun& run : to_runs(std::vector<std::int64_t>(ranks.begin(), ranks.end()))) {
      visit(offset, run);
      offset += run.count;
    }
  }
  // Blocks from all `sources` for each destination: as many destinations in one message as a slice may hold.
  template <class Visit>
  void for_messages(std::size_t destinations, std::span<const std::uint32_t> sources, Visit visit) const {
    const std::size_t most = b_.size() / sources.size();
    for (std::size_t k = 0; k < destinations; k += most) {
      visit(static_cast<std::uint32_t>(k * sources.size()),
            static_cast<std::uint32_t>(std::min(most, destinations - k) * sources.size()));
    }
  }

  Builder b_;
  const Leaders& leaders_;
  const Hierarchy& hierarchy_;
  std::uint32_t slot_ = 0;
  std::vector<std::uint32_t> leaving_, arrived_;  // first slots, by distance of the domain
};

}  // namespace

Result<Schedule> alltoall_hierarchical(const CollectiveSpec& spec, const GroupView& view,
                                       const AlgorithmParams& params) {
  TUTTI_RETURN_IF_ERROR(check_hierarchy(view));
  const Leaders leaders(view, params.leaders);
  Relay relay(spec, view, leaders);
  relay.collect();
  relay.exchange_across();
  relay.exchange_inside();
  relay.hand_on();
  return std::move(relay).finish();
}

}  // namespace tutti
