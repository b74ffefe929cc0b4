// Demands of the collectives, and the time they take under the ceilings.
// Knows no algorithm and nothing of how ceilings are measured.
#include "bench/roofline/bound.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>

namespace tutti::bench {
namespace {

struct Term {
  double us = 0;
  double rate_gbs = 0;
  double left_out = 0;  // bytes of the demand that it does not count
};

// Bytes that one carried-out step of this many bytes loads and stores.
double traffic_factor(Ceiling c) { return is_sum(c) ? 3 : 2; }

// The best of the curves that were measured; `bytes` are moved in steps of `step_bytes`, each of which counts
// factor(c) * step_bytes of them.
template <class Factor>
Term best_of(const Ceilings& ceilings, std::initializer_list<Ceiling> kinds, double bytes, double step_bytes,
             Factor factor) {
  std::optional<double> least;
  for (const Ceiling c : kinds) {
    if (ceilings.of(c).is_empty()) continue;
    const double us = bytes / (factor(c) * step_bytes) * ceilings.of(c).time_us(step_bytes);
    least = std::min(least.value_or(us), us);
  }
  if (!least || *least <= 0) return {};
  return {*least, bytes / (*least * 1e3), 0};
}

// The part of the working set that a cache can hold.
double cached_bytes(const Demand& demand, const Ceilings& ceilings) {
  const auto cache = static_cast<double>(std::max(ceilings.l2_bytes, ceilings.last_level_bytes));
  return cache > 0 ? std::min(demand.working_set, cache) : demand.working_set;
}

// Copies and sums touch a source and a destination of n bytes each, so a working set of W is at n = W / 2.
Term crossing_term(const Demand& demand, const Ceilings& ceilings) {
  if (demand.crossing <= 0) return {};
  const double cached = cached_bytes(demand, ceilings);
  const double bytes = demand.crossing * cached / demand.working_set;
  Term term = best_of(ceilings, {Ceiling::copy_fresh, Ceiling::add_fresh, Ceiling::vm_read}, bytes,
                      cached / 2, [](Ceiling) { return 1.0; });
  term.left_out = demand.crossing - bytes;
  return term;
}

Term traffic_term(const Demand& demand, const Ceilings& ceilings) {
  if (demand.load + demand.store <= 0) return {};
  return best_of(ceilings, {Ceiling::copy, Ceiling::copy_nt, Ceiling::add, Ceiling::add_nt},
                 demand.load + demand.store, demand.working_set / 2, traffic_factor);
}

}  // namespace

// Many decisions: one for each collective.
Demand demand_of(Collective collective, int ranks, std::uint64_t bytes, bool in_place) {
  const auto m = static_cast<double>(bytes);
  const double p = ranks;
  const double block = m / p, others = m - block;
  Demand d;
  switch (collective) {
    case Collective::allreduce:
      d = {2 * others, m, m, 0, "2m(p-1)/p", "2m"};
      break;
    case Collective::reduce_scatter:
      d = {others, m, block, 0, "m(p-1)/p", "m+m/p"};
      break;
    case Collective::allgather:
      d = {others, block, m, 0, "m(p-1)/p", "m/p+m"};
      if (in_place) d.store = others, d.traffic_text = "m";
      break;
    case Collective::broadcast:  // the root's buffer is in place always
      d = {m, block, others, 0, "m", "m"};
      break;
    case Collective::reduce:
      d = {m, m, block, 0, "m", "m+m/p"};
      break;
    case Collective::alltoall:
      d = {others, m, m, 0, "m(p-1)/p", "2m"};
      if (in_place) d.load = d.store = others, d.traffic_text = "2m(p-1)/p";
      break;
    case Collective::gather:
      d = {others, block, block, 0, "m(p-1)/p", "2m/p"};
      break;
    case Collective::scatter:
      d = {block, block, block, 0, "m/p", "2m/p"};
      break;
    case Collective::scan:
    case Collective::send_recv:
      d = {m, m, m, 0, "m", "2m"};
      break;
    case Collective::exscan:
      d = {m, others, others, 0, "m", "2m(p-1)/p"};
      break;
    case Collective::barrier:
      return {};
  }
  if (ranks == 1) d.crossing = 0;
  if (ranks == 1 && (in_place || collective == Collective::broadcast || collective == Collective::exscan))
    return {};
  d.working_set = in_place ? std::max(d.load, d.store) : d.load + d.store;
  return d;
}

std::vector<std::uint64_t> sizes_that_matter(const Demand& demand, const Ceilings& caches) {
  constexpr double kLeast = 1024, kStep = 64;
  if (demand.working_set <= 0) return {};
  std::vector<std::uint64_t> sizes;
  for (const double touched : {cached_bytes(demand, caches), demand.working_set}) {
    const double bytes = std::max(kLeast, std::ceil(touched / 2 / kStep) * kStep);
    if (sizes.empty() || sizes.back() < static_cast<std::uint64_t>(bytes))
      sizes.push_back(static_cast<std::uint64_t>(bytes));
  }
  return sizes;
}

std::string_view level_of(double working_set_bytes, const Ceilings& ceilings) {
  if (ceilings.l2_bytes == 0 && ceilings.last_level_bytes == 0) return "caches unknown";
  if (working_set_bytes <= static_cast<double>(ceilings.l2_bytes)) return "L2";
  return working_set_bytes <= static_cast<double>(ceilings.last_level_bytes) ? "LLC" : "DRAM";
}

Bound bound_of(Collective collective, int ranks, std::uint64_t bytes, const Ceilings& ceilings,
               bool in_place) {
  const Demand demand = demand_of(collective, ranks, bytes, in_place);
  const Term crossing = crossing_term(demand, ceilings);
  const Term traffic = traffic_term(demand, ceilings);
  Bound bound;
  if (ranks > 1) {
    const bool is_mutual = waits_for_all(collective) && ceilings.exchange_us > 0;
    bound.us = is_mutual ? ceilings.exchange_us : ceilings.line_us;
    bound.formula = fmt::format("{} {:.2f} us", is_mutual ? "exchange" : "line", bound.us);
  }
  const bool is_crossing = crossing.us >= traffic.us;
  const Term& larger = is_crossing ? crossing : traffic;
  if (larger.us <= 0) return bound;
  bound.us += larger.us;
  if (!bound.formula.empty()) bound.formula += " + ";
  if (larger.left_out > 0) {
    bound.formula += fmt::format("{:.1f} MB of ", (demand.crossing - larger.left_out) / 1e6);
  }
  bound.formula += fmt::format(
      "{} {} at {:.1f} GB/s ({})", is_crossing ? demand.crossing_text : demand.traffic_text,
      is_crossing ? "crossing" : "traffic", larger.rate_gbs, level_of(demand.working_set, ceilings));
  return bound;
}

}  // namespace tutti::bench
