// The reasons for which a row of the catalogue may not run in a group.
#include <fmt/format.h>

#include "runtime/algorithms/catalog.hpp"

namespace tutti {
namespace {

// The first reason against a row; found without allocating.
enum class Obstacle : std::uint8_t {
  none,
  order,
  power_of_two,
  evenness,
  counts,
  placement,
  limit,
  hierarchy,
  domain_order
};

// Many decisions: one for each condition of a row.
Obstacle find_obstacle(const AlgorithmRow& row, std::uint32_t p, bool is_commutative, bool in_place,
                       bool has_equal_counts, const Hierarchy* hierarchy) {
  const Legality& need = row.legality;
  if (need.needs_commutative && !is_commutative) return Obstacle::order;
  if (need.needs_power_of_two && (p & (p - 1)) != 0) return Obstacle::power_of_two;
  if (need.needs_even && p > 1 && p % 2 != 0) return Obstacle::evenness;
  if (need.equal_counts_only && !has_equal_counts) return Obstacle::counts;
  if (need.is_out_of_place_only && in_place) return Obstacle::placement;
  if (need.max_size != 0 && p > need.max_size) return Obstacle::limit;
  if (!need.needs_hierarchy) return Obstacle::none;
  if (hierarchy == nullptr || hierarchy->size() != p || hierarchy->is_flat()) return Obstacle::hierarchy;
  const bool has_order = is_commutative || !is_reducing(row.collective) || hierarchy->is_contiguous();
  return has_order ? Obstacle::none : Obstacle::domain_order;
}

std::string describe(Obstacle obstacle, const Legality& need, std::uint32_t p) {
  switch (obstacle) {
    case Obstacle::order:
      return "combines contributions out of rank order; the op is not commutative";
    case Obstacle::power_of_two:
      return fmt::format("needs a power of two of ranks, not {}", p);
    case Obstacle::evenness:
      return fmt::format("needs an even number of ranks, not {}", p);
    case Obstacle::counts:
      return "needs equal counts on all ranks";
    case Obstacle::placement:
      return "cannot run in place";
    case Obstacle::limit:
      return fmt::format("is limited to {} ranks, not {}", need.max_size, p);
    case Obstacle::hierarchy:
      return "needs a hierarchy: at least two domains (caches, sockets; TUTTI_HIERARCHY), not all of one "
             "rank";
    case Obstacle::domain_order:
      return "combines domain by domain; the op is not commutative and the domains are no ranges of ranks";
    case Obstacle::none:
      break;
  }
  return {};
}

}  // namespace

bool may_run(const AlgorithmRow& row, std::uint32_t p, bool is_commutative, bool in_place,
             bool has_equal_counts, const Hierarchy* hierarchy) {
  return find_obstacle(row, p, is_commutative, in_place, has_equal_counts, hierarchy) == Obstacle::none;
}

Status check_legality(const AlgorithmRow& row, std::uint32_t p, bool is_commutative, bool in_place,
                      bool has_equal_counts, const Hierarchy* hierarchy) {
  const Obstacle found = find_obstacle(row, p, is_commutative, in_place, has_equal_counts, hierarchy);
  if (found == Obstacle::none) return {};
  return unsupported(
      fmt::format("{} {}: {}", to_string(row.collective), row.name, describe(found, row.legality, p)));
}

}  // namespace tutti
