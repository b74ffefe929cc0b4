// Leaders of a hierarchy, and the direct exchanges inside of a domain.
#include "runtime/algorithms/patterns/leaders.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace tutti {
namespace {

struct AcrossRows {
  Collective collective;
  std::array<std::string_view, 4> names;
};

// All of them keep the order of domains, so that domains of neighbours keep rank order. The first is for
// short vectors.
constexpr AcrossRows kAcrossRows[] = {
    {Collective::allreduce, {"recursive_doubling", "two_shot", "rabenseifner", "hierarchical"}},
    {Collective::broadcast, {"binomial", "linear", "circulant", "hierarchical"}},
    {Collective::reduce, {"linear", "direct"}},
    {Collective::allgather, {"direct", "ring", "bruck"}},
    {Collective::reduce_scatter, {"direct"}},
    {Collective::gather, {"linear", "binomial"}},
    {Collective::scatter, {"linear", "binomial"}},
    {Collective::barrier, {"dissemination"}},
};

const AcrossRows& rows_across(Collective collective) {
  const auto* found = std::find_if(std::begin(kAcrossRows), std::end(kAcrossRows),
                                   [&](const AcrossRows& rows) { return rows.collective == collective; });
  TUTTI_ASSERT(found != std::end(kAcrossRows), "hierarchical rows are listed in kAcrossRows");
  return *found;
}

}  // namespace

Leaders::Leaders(const GroupView& view, const Hierarchy& hierarchy, std::uint32_t wanted, std::uint32_t first)
    : hierarchy_(hierarchy), domain_(hierarchy_.domain_of(view.rank)) {
  const std::uint32_t most = hierarchy_.smallest_domain();
  count_ = wanted == 0 ? most : std::min(wanted, most);
  const auto ordered = [&](std::uint32_t domain) {
    std::vector<std::uint32_t> members = hierarchy_.members(domain);
    const auto at = std::find(members.begin(), members.end(), first);
    if (at != members.end()) std::rotate(members.begin(), at, at + 1);
    return members;
  };
  mates_ = ordered(domain_);
  position_ = static_cast<std::uint32_t>(std::find(mates_.begin(), mates_.end(), view.rank) - mates_.begin());
  for (std::uint32_t d = 0; d < domain_count(); ++d)
    group_.push_back(ordered(d)[is_leader() ? position_ : 0]);
}

GroupView Leaders::domain_view() const {
  return {position_, static_cast<std::uint32_t>(mates_.size()), 0, 1, mates_.data()};
}

GroupView Leaders::group_view() const {
  return {domain_, domain_count(), 0, 1, group_.data(), hierarchy_.upper()};
}

std::vector<std::uint32_t> Leaders::blocks_of(std::uint32_t domain, std::uint32_t leader) const {
  const std::vector<std::uint32_t>& members = hierarchy_.members(domain);
  std::vector<std::uint32_t> blocks;
  for (std::size_t i = leader; i < members.size(); i += count_) blocks.push_back(members[i]);
  return blocks;
}

Status check_hierarchy(const GroupView& view) {
  if (view.hierarchy != nullptr && view.hierarchy->size() == view.size && !view.hierarchy->is_flat())
    return {};
  return unsupported("needs a hierarchy of domains over all ranks");
}

const AlgorithmRow& across_row(Collective collective, std::uint32_t across, const Hierarchy& hierarchy) {
  const auto& names = rows_across(collective).names;
  const AlgorithmRow* row = find_algorithm(collective, names.at(across));
  TUTTI_ASSERT(row != nullptr, "kAcrossRows names rows of the catalogue");
  if (!row->legality.needs_hierarchy || hierarchy.upper() != nullptr) return *row;
  return *find_algorithm(collective, names[0]);
}

AlgorithmParams across_params(const AlgorithmRow& row, const AlgorithmParams& params) {
  return row.legality.needs_hierarchy ? params : default_params(row);
}

std::uint32_t across_count(Collective collective) {
  const auto& names = rows_across(collective).names;
  return static_cast<std::uint32_t>(
      std::count_if(names.begin(), names.end(), [](std::string_view name) { return !name.empty(); }));
}

Result<Schedule> emit_across(Collective collective, const AlgorithmParams& params, std::uint32_t root,
                             bool in_place, const Leaders& leaders, bool nests) {
  const std::uint32_t count = across_count(collective);
  if (params.across >= count)
    return invalid_argument(fmt::format("across={}: expected 0 to {}", params.across, count - 1));
  const AlgorithmRow& row = nests ? *find_algorithm(collective, "hierarchical")
                                  : across_row(collective, params.across, leaders.hierarchy());
  return row.emit({collective, root, in_place}, leaders.group_view(), across_params(row, params));
}

const Hierarchy& hierarchy_of(const Hierarchy& hierarchy, const AlgorithmParams& params) {
  if (params.leaders == 1 && hierarchy.clusters() != nullptr) return *hierarchy.clusters();
  return joined_of(hierarchy, params);
}

const Hierarchy& joined_of(const Hierarchy& hierarchy, const AlgorithmParams& params) {
  return params.mates == 1 && hierarchy.joined() != nullptr ? *hierarchy.joined() : hierarchy;
}

std::vector<std::vector<LeaderRun>> ranges_of_leaders(const Leaders& leaders, std::uint32_t width) {
  std::vector<std::vector<LeaderRun>> runs;
  for (std::uint32_t j = 0; j < leaders.count(); ++j)
    runs.push_back({{{std::int64_t{j} * width, width, 1}, 0}});
  return runs;
}

PartBuffer emit_domain_sums(Builder& b, const Leaders& leaders,
                            const std::vector<std::vector<LeaderRun>>& runs, Buffer sums) {
  const auto n = static_cast<std::uint32_t>(leaders.mates().size()), own = leaders.position();
  if (n == 1) return {Buffer::input};
  std::uint32_t slot = b.scratch_slots();
  if (leaders.is_leader() && sums == Buffer::scratch) {
    for (const auto& [blocks, at] : runs[own]) slot = std::max(slot, at + blocks.count);
  }
  // Arrivals, by mate and run. Starting behind the own position, so that not all send to one at a time.
  std::vector<std::vector<Slice>> arrivals(n);
  for (std::uint32_t d = 1; d < n; ++d) {
    const std::uint32_t to = (own + d) % n, from = (own + n - d) % n;
    if (to < leaders.count()) {
      for (const auto& [blocks, at] : runs[to])
        b.send(leaders.mates()[to], b.input(blocks.first, blocks.count, blocks.stride));
    }
    if (!leaders.is_leader()) continue;
    for (const auto& [blocks, at] : runs[own]) {
      arrivals[from].push_back(b.scratch(slot, blocks.first, blocks.count, blocks.stride));
      b.recv(leaders.mates()[from], arrivals[from].back());
      slot += blocks.count;
    }
  }
  if (!leaders.is_leader()) return {sums};
  std::vector<std::uint32_t> order(n);  // positions, by rank: a root stands first whatever its rank
  for (std::uint32_t i = 0; i < n; ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t x, std::uint32_t y) { return leaders.mates()[x] < leaders.mates()[y]; });
  for (std::size_t i = 0; i < runs[own].size(); ++i) {
    const auto& [blocks, at] = runs[own][i];
    std::vector<Slice> terms;
    terms.reserve(n);
    for (const std::uint32_t from : order)
      terms.push_back(from == own ? b.input(blocks.first, blocks.count, blocks.stride) : arrivals[from][i]);
    b.reduce(sums == Buffer::scratch ? b.scratch(at, blocks.first, blocks.count, blocks.stride)
                                     : b.output(blocks.first, blocks.count, blocks.stride),
             terms);
  }
  return {sums};
}

void emit_domain_spread(Builder& b, const Leaders& leaders, const std::vector<std::vector<LeaderRun>>& runs,
                        Buffer source, std::uint32_t has_all) {
  const auto n = static_cast<std::uint32_t>(leaders.mates().size()), own = leaders.position();
  for (std::uint32_t d = 1; d < n; ++d) {
    const std::uint32_t to = (own + d) % n, from = (own + n - d) % n;
    if (leaders.is_leader() && leaders.mates()[to] != has_all) {
      for (const auto& [blocks, at] : runs[own])
        b.send(leaders.mates()[to], source == Buffer::input
                                        ? b.input(blocks.first, blocks.count, blocks.stride)
                                        : b.output(blocks.first, blocks.count, blocks.stride));
    }
    if (from < leaders.count() && b.rank() != has_all) {
      for (const auto& [blocks, at] : runs[from])
        b.recv(leaders.mates()[from], b.output(blocks.first, blocks.count, blocks.stride));
    }
  }
}

PartPlace place_of_leader(const Leaders& leaders, std::uint32_t root, Buffer at_root, Buffer own) {
  PartPlace place;
  for (std::uint32_t d = 0; d < leaders.domain_count(); ++d) {
    place.blocks.push_back(leaders.blocks_of(d, 0));
  }
  const bool is_root = leaders.mates()[0] == root;
  place.output = {is_root ? at_root : leaders.mates().size() == 1 ? own : Buffer::scratch};
  return place;
}

Slice slice_at_leader(const Builder& b, const Leaders& leaders, const PartPlace& place, std::uint32_t index) {
  const std::uint32_t block = place.blocks[leaders.domain()][index];
  switch (place.output.buffer) {
    case Buffer::input:
      return b.input(block);
    case Buffer::output:
      return b.output(block);
    default:
      return b.scratch(leaders.domain() * place.width() + index, block);
  }
}

Result<Schedule> emit_hierarchical_allreduce(const CollectiveSpec& spec, const GroupView& view,
                                             const AlgorithmParams& params) {
  TUTTI_RETURN_IF_ERROR(check_hierarchy(view));
  const Hierarchy& hierarchy = hierarchy_of(*view.hierarchy, params);
  const Leaders leaders(view, hierarchy, params.leaders);
  // A domain of one hands its input on as it is.
  const bool in_place = spec.in_place || leaders.mates().size() > 1;
  const auto part =
      emit_across(spec.collective, params, 0, in_place, leaders, &hierarchy == view.hierarchy->clusters());
  if (!part) return part.status();
  const std::uint32_t width = part->blocks;
  Builder b(spec, view, leaders.count() * width);
  const auto runs = ranges_of_leaders(leaders, width);
  const PartBuffer sums = emit_domain_sums(b, leaders, runs, Buffer::output);
  if (leaders.is_leader()) {
    const PartPlace place{neighbouring_blocks(leaders.position() * width, width, 1), sums, {}};
    TUTTI_RETURN_IF_ERROR(splice(b, *part, place));
  }
  emit_domain_spread(b, leaders, runs);
  return std::move(b).finish();
}

}  // namespace tutti
