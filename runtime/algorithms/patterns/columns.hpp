// The columns of a hierarchy, and the steps inside of domains that hierarchical collectives share.
// Knows no collective's promise. What runs between domains is a flat row of the catalogue, put in by
// compose.hpp.
//
// In every domain the first `count` members are *carriers*; column j is the j-th carrier of every domain, and
// carries its share of the vector between domains. With as many columns as the smallest domain has members no
// rank leads: all work. With one column the first member of each domain leads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/algorithms/catalog.hpp"
#include "runtime/algorithms/patterns/exchange.hpp"
#include "runtime/schedule/compose.hpp"

namespace tutti {

class Columns {
 public:
  static constexpr std::uint32_t kNobody = ~0U;
  // At most `wanted` columns (0: as many as there can be). `first` comes first in its domain: a root, which
  // then carries column 0. view.hierarchy must be usable (check_hierarchy).
  Columns(const GroupView& view, std::uint32_t wanted, std::uint32_t first = kNobody);

  std::uint32_t count() const { return count_; }
  std::uint32_t domain() const { return domain_; }      // own
  std::uint32_t position() const { return position_; }  // in the own domain; of a carrier its column
  bool is_carrier() const { return position_ < count_; }
  // The own domain, carriers first.
  std::span<const std::uint32_t> mates() const { return mates_; }
  std::uint32_t domain_count() const { return hierarchy_.domain_count(); }

  // The views that flat rows are emitted over; valid while this object lives. Of a rank that is no carrier
  // the column is that of the first one: it emits nothing there but needs to know the grid.
  GroupView domain_view() const;
  GroupView column_view() const;

  // Where blocks belong to ranks: those of domain `domain` that column `column` carries.
  std::vector<std::uint32_t> carried(std::uint32_t domain, std::uint32_t column) const;

 private:
  const Hierarchy& hierarchy_;
  std::uint32_t count_ = 1, domain_ = 0, position_ = 0;
  std::vector<std::uint32_t> mates_, column_;
};

// Errors: unsupported without a hierarchy over all members that is not flat.
Status check_hierarchy(const GroupView& view);

// The flat row that runs between domains, by AlgorithmParams::across.
const AlgorithmRow& across_row(Collective collective, std::uint32_t across);
std::uint32_t across_count(Collective collective);
// Emits it over this rank's column.
Result<Schedule> emit_across(Collective collective, std::uint32_t across, std::uint32_t root, bool in_place,
                             const Columns& columns);

// Blocks of a column: where scratch holds them, the run begins at that slot.
struct ColumnRun {
  BlockRun blocks;
  std::uint32_t slot = 0;
};
// Column j of a grid in which every column is a range of `width` blocks.
std::vector<std::vector<ColumnRun>> ranges_of_columns(const Columns& columns, std::uint32_t width);

// Reduce-scatter inside the domain: column j of all mates' inputs reaches carrier j, who adds them in rank
// order, in one pass, into `sums` (output, or scratch as the runs say). A domain of one has nothing to add:
// its sums are its input. Returns where this carrier's sums are.
PartBuffer emit_domain_sums(Builder& b, const Columns& columns,
                            const std::vector<std::vector<ColumnRun>>& runs, Buffer sums);

// Allgather inside the domain: column j of carrier j's output (`source` of this carrier's) reaches the output
// of its mates, but for `has_all` (kNobody: none).
void emit_domain_spread(Builder& b, const Columns& columns, const std::vector<std::vector<ColumnRun>>& runs,
                        Buffer source = Buffer::output, std::uint32_t has_all = Columns::kNobody);

// Gather and scatter, for the only carrier of its domain: where the part that runs across has its blocks, in
// ascending order of rank. At the root in its user buffer; elsewhere in scratch, or for a domain of one in
// the `own` buffer, which holds just that block. The part is emitted in place, so it has one buffer.
PartPlace place_of_leader(const Columns& columns, std::uint32_t root, Buffer at_root, Buffer own);
// Block number `index` of the own domain there.
Slice slice_at_leader(const Builder& b, const Columns& columns, const PartPlace& place, std::uint32_t index);

// Allreduce, and barrier: sums in the domain, the flat row in each column, and back.
Result<Schedule> emit_hierarchical_allreduce(const CollectiveSpec& spec, const GroupView& view,
                                             const AlgorithmParams& params);

}  // namespace tutti
