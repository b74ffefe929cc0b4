// The promise of each collective, checked against a symbolic run of all ranks.
#include "runtime/schedule/verify.hpp"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "runtime/schedule/check_steps.hpp"
#include "runtime/schedule/passes/fuse.hpp"
#include "runtime/schedule/symbolic_run.hpp"

namespace tutti {

namespace {

using detail::kUnwritten;
using detail::SymbolicRun;

// The required contents of an output atom: contributions of ranks [first, last) to an atom. An empty range:
// anything.
struct Promise {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  std::uint32_t atom = 0;
};

Promise promise(const Schedule& s, std::uint32_t atom) {
  const std::uint32_t block = atom / s.segments;
  switch (s.collective) {
    case Collective::broadcast:
    case Collective::scatter:
      return {s.root, s.root + 1, atom};
    case Collective::allgather:
    case Collective::gather:
      return {block, block + 1, atom};
    case Collective::alltoall:
      return {block, block + 1, s.rank * s.segments + atom % s.segments};
    case Collective::scan:
      return {0, s.rank + 1, atom};
    case Collective::exscan:
      return {0, s.rank, atom};
    default:
      return {0, s.size, atom};
  }
}

Status check_promises(std::span<const Schedule> ranks, const SymbolicRun& run) {
  for (const Schedule& s : ranks) {
    const Window owed = result_window(s);
    for (std::uint32_t a = owed.first; a < owed.first + owed.count; ++a) {
      const Promise want = promise(s, a);
      const detail::Value have = run.value(s.rank, Buffer::output, a);
      if (run.values().is_range(have, want.first, want.last, want.atom)) continue;
      const std::string of_atom = have == kUnwritten || run.values().atom_of(have) == want.atom
                                      ? ""
                                      : fmt::format(" to block {}", run.values().atom_of(have) / s.segments);
      return internal_error(fmt::format(
          "rank {} ends with {}{} in {} instead of {}", s.rank, run.values().describe(have), of_atom,
          detail::describe_location(s, s.atoms() + a),
          want.last - want.first == 1
              ? fmt::format("the contribution of rank {} to block {}", want.first, want.atom / s.segments)
              : fmt::format("the contributions of ranks {}-{}", want.first, want.last - 1)));
    }
  }
  return {};
}

// Do ranks that are promised the same value hold the same tree?
Status check_trees(std::span<const Schedule> ranks, const SymbolicRun& run, VerifyReport& report) {
  std::unordered_map<std::uint64_t, detail::Value> first_seen;
  report.same_bits = true;
  for (const Schedule& s : ranks) {
    const Window owed = result_window(s);
    for (std::uint32_t a = owed.first; a < owed.first + owed.count; ++a) {
      const Promise want = promise(s, a);
      const detail::Value have = run.value(s.rank, Buffer::output, a);
      if (have == kUnwritten)
        return internal_error(fmt::format("rank {} ends with nothing in {}", s.rank,
                                          detail::describe_location(s, s.atoms() + a)));
      // Of the promises of one collective, atom and last rank (scan) tell different values apart.
      const std::uint64_t key = std::uint64_t{want.last} * s.atoms() + want.atom;
      if (first_seen.try_emplace(key, have).first->second != have) report.same_bits = false;
      report.roundings = std::max(report.roundings, run.values().roundings(have));
    }
  }
  return {};
}

}  // namespace

Result<VerifyReport> verify(std::span<const Schedule> ranks, Algebra algebra) {
  TUTTI_RETURN_IF_ERROR(detail::check_structure(ranks));
  if (ranks[0].collective == Collective::send_recv)
    return invalid_argument("send_recv promises nothing over a group: there is nothing to prove");
  if (std::uint64_t{ranks[0].atoms()} * ranks.size() > (1U << 30))
    return invalid_argument("more than 2^30 contributions: too large to verify explicitly");
  bool lowered = false;
  for (const Schedule& s : ranks) lowered = lowered || detail::is_lowered(s);
  for (const Schedule& s : ranks) {
    if (!lowered) TUTTI_RETURN_IF_ERROR(detail::check_local_order(s));
    TUTTI_RETURN_IF_ERROR(check_fusion(s));
    TUTTI_RETURN_IF_ERROR(detail::check_rounding(s));
  }
  SymbolicRun run(ranks, algebra);
  TUTTI_RETURN_IF_ERROR(run.run());
  VerifyReport report = run.report();
  if (algebra == Algebra::expression && ranks[0].collective != Collective::barrier) {
    TUTTI_RETURN_IF_ERROR(check_trees(ranks, run, report));
  } else {
    TUTTI_RETURN_IF_ERROR(check_promises(ranks, run));
  }
  return report;
}

}  // namespace tutti
