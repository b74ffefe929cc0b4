// The leaders of a hierarchy, and the steps inside of domains that hierarchical collectives share.
// Knows no collective's promise. Between domains runs a flat row of the catalogue (schedule/compose.hpp).
//
// In every domain the first `count` members are *leaders*. Leader j of every domain moves share j of the
// vector between domains; together they form leader group j. With one leader the others of its domain wait;
// with as many as the smallest domain has members, nearly all ranks work.
//
//   domains {0 1 2} {3 4 5}, 2 leaders       group 0: 0 3    group 1: 1 4    no leaders: 2 5
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/algorithms/catalog.hpp"
#include "runtime/algorithms/patterns/exchange.hpp"
#include "runtime/schedule/compose.hpp"

namespace tutti {

class Leaders {
 public:
  static constexpr std::uint32_t kNobody = ~0U;
  // At most `wanted` leaders in each domain (0: as many as there can be). `first` comes first in its domain: a
  // root, which is then leader 0. view.hierarchy must be usable (check_hierarchy).
  Leaders(const GroupView& view, std::uint32_t wanted, std::uint32_t first = kNobody)
      : Leaders(view, *view.hierarchy, wanted, first) {}
  // Over another hierarchy of the same members.
  Leaders(const GroupView& view, const Hierarchy& hierarchy, std::uint32_t wanted,
          std::uint32_t first = kNobody);

  std::uint32_t count() const { return count_; }
  std::uint32_t domain() const { return domain_; }      // own
  std::uint32_t position() const { return position_; }  // in the own domain; leader j has position j
  bool is_leader() const { return position_ < count_; }
  // The own domain, leaders first.
  std::span<const std::uint32_t> mates() const { return mates_; }
  std::uint32_t domain_count() const { return hierarchy_.domain_count(); }
  const Hierarchy& hierarchy() const { return hierarchy_; }

  // The views that flat rows are emitted over; valid while this object lives. A rank that is no leader gets
  // the view of group 0: it emits nothing there but needs the grid.
  GroupView domain_view() const;
  GroupView group_view() const;

  // Where blocks belong to ranks: the blocks of domain `domain` that leader `leader` moves.
  std::vector<std::uint32_t> blocks_of(std::uint32_t domain, std::uint32_t leader) const;

 private:
  const Hierarchy& hierarchy_;
  std::uint32_t count_ = 1, domain_ = 0, position_ = 0;
  std::vector<std::uint32_t> mates_, group_;
};

// Errors: unsupported without a hierarchy over all members that is not flat.
Status check_hierarchy(const GroupView& view);

// The row that runs between domains, by AlgorithmParams::across: a flat one, or the hierarchical row itself over the
// next level of the hierarchy. Where there is none that is the first row of the list.
const AlgorithmRow& across_row(Collective collective, std::uint32_t across, const Hierarchy& hierarchy);
// The parameters with which it runs: the hierarchical row's own, others' defaults.
AlgorithmParams across_params(const AlgorithmRow& row, const AlgorithmParams& params);
std::uint32_t across_count(Collective collective);
// Emits it over this rank's leader group. `nests`: the hierarchical row, whatever `across` says; it says what runs at the top.
Result<Schedule> emit_across(Collective collective, const AlgorithmParams& params, std::uint32_t root,
                             bool in_place, const Leaders& leaders, bool nests = false);

// With one leader and clusters: the hierarchy of clusters, above which the row runs once more. With mates=1: that of joined
// domains. Else the view's own.
const Hierarchy& hierarchy_of(const Hierarchy& hierarchy, const AlgorithmParams& params);

// With mates=1 and joined domains: those. Else the same.
const Hierarchy& joined_of(const Hierarchy& hierarchy, const AlgorithmParams& params);

// Blocks that a leader moves: where scratch holds them, the run begins at that slot.
struct LeaderRun {
  BlockRun blocks;
  std::uint32_t slot = 0;
};
// The blocks of each leader where share j is the j-th range of `width` blocks.
std::vector<std::vector<LeaderRun>> ranges_of_leaders(const Leaders& leaders, std::uint32_t width);

// Reduce-scatter inside the domain: leader j receives share j of all mates' inputs and adds them in rank order,
// in one pass, into `sums` (output, or scratch as the runs say). A domain of one has nothing to add: its sums
// are its input. Returns where this leader's sums are.
PartBuffer emit_domain_sums(Builder& b, const Leaders& leaders,
                            const std::vector<std::vector<LeaderRun>>& runs, Buffer sums);

// Allgather inside the domain: share j goes from leader j's `source` to the outputs of its mates, except to
// the rank `has_all` (kNobody: to all).
void emit_domain_spread(Builder& b, const Leaders& leaders, const std::vector<std::vector<LeaderRun>>& runs,
                        Buffer source = Buffer::output, std::uint32_t has_all = Leaders::kNobody);

// Gather and scatter, for the only leader of its domain: where the row across finds its blocks, in ascending
// order of rank. At the root in its user buffer; elsewhere in scratch, or for a domain of one in the `own`
// buffer, which holds just that block. The row is emitted in place, so it has one buffer.
PartPlace place_of_leader(const Leaders& leaders, std::uint32_t root, Buffer at_root, Buffer own);
// Block number `index` of the own domain there.
Slice slice_at_leader(const Builder& b, const Leaders& leaders, const PartPlace& place, std::uint32_t index);

// Allreduce, and barrier: sums in the domain, the flat row in each leader group, and back.
Result<Schedule> emit_hierarchical_allreduce(const CollectiveSpec& spec, const GroupView& view,
                                             const AlgorithmParams& params);

}  // namespace tutti
