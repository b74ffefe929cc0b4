// The benchmark loop, its sizes and its statistics, shared by `tutti bench` and by the programs of
// bench/peers. Knows no library under test: it is driven by an op() functor and by a rendezvous with two
// primitives, barrier and gather.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/types.hpp"

namespace tutti::bench {

// ---- sizes ----------------------------------------------------------------------------------------------

// One measured call. `count` is the number of elements of the FULL vector m. allgather and gather: received
// in total; reduce_scatter and scatter: contributed in total; alltoall: one rank's send buffer; all others:
// the vector that every rank holds. This is the convention of nccl-tests, so that one row of numbers is
// comparable across collectives.
struct Shape {
  Collective collective = Collective::allreduce;
  Dtype dtype = Dtype::f32;
  int ranks = 1;
  int root = 0;
  std::size_t count = 0;

  std::size_t bytes() const { return count * size_of(dtype); }
  std::size_t block_count() const { return count / static_cast<std::size_t>(ranks); }

  // Elements that this rank passes in; 0 where its input is ignored.
  std::size_t input_count(int rank) const {
    switch (collective) {
      case Collective::barrier:
        return 0;
      case Collective::allgather:
      case Collective::gather:
        return block_count();
      case Collective::broadcast:
      case Collective::scatter:
        return rank == root ? count : 0;
      default:
        return count;
    }
  }
  // Elements that this rank's output holds afterwards; 0 where it has none.
  std::size_t output_count(int rank) const {
    switch (collective) {
      case Collective::barrier:
        return 0;
      case Collective::reduce_scatter:
      case Collective::scatter:
        return block_count();
      case Collective::gather:
      case Collective::reduce:
        return rank == root ? count : 0;
      default:
        return count;
    }
  }
};

constexpr bool is_split_in_blocks(Collective c) {
  return c == Collective::allgather || c == Collective::gather || c == Collective::reduce_scatter ||
         c == Collective::scatter || c == Collective::alltoall;
}

// Elements as the functions of libraries count them: of a block where the vector is made of blocks.
inline std::size_t call_count(const Shape& shape) {
  return is_split_in_blocks(shape.collective) ? shape.block_count() : shape.count;
}

// The shape of about `requested_bytes`: at least one element, rounded UP to a whole number of elements per
// rank where the collective splits the vector. A barrier has no elements. Shape::bytes() is what was really
// measured.
inline Shape make_shape(Collective collective, Dtype dtype, int ranks, std::size_t requested_bytes,
                        int root = 0) {
  Shape shape{collective, dtype, ranks, root, 0};
  if (collective == Collective::barrier) return shape;
  shape.count = std::max<std::size_t>(1, requested_bytes / size_of(dtype));
  if (is_split_in_blocks(collective)) {
    const auto p = static_cast<std::size_t>(ranks);
    shape.count = (shape.count + p - 1) / p * p;
  }
  return shape;
}

// The shapes first, first*factor, ... up to last bytes, without those that rounding made equal. A barrier
// gives one shape.
inline std::vector<Shape> sweep(Collective collective, Dtype dtype, int ranks, std::size_t first_bytes,
                                std::size_t last_bytes, std::size_t factor, int root = 0) {
  std::vector<Shape> shapes;
  std::size_t bytes = std::max<std::size_t>(1, first_bytes);
  while (bytes <= last_bytes) {
    const Shape shape = make_shape(collective, dtype, ranks, bytes, root);
    if (shapes.empty() || shapes.back().count != shape.count) shapes.push_back(shape);
    if (factor < 2 || bytes > last_bytes / factor) break;
    bytes *= factor;
  }
  return shapes;
}

// "4", "64k", "256m", "1g" (binary multiples, either case); nullopt for anything else, also on overflow.
inline std::optional<std::size_t> parse_bytes(std::string_view text) {
  std::size_t value = 0;
  std::size_t used = 0;
  for (; used < text.size() && text[used] >= '0' && text[used] <= '9'; ++used) {
    const auto digit = static_cast<std::size_t>(text[used] - '0');
    if (value > (SIZE_MAX - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  if (used == 0) return std::nullopt;
  int shift = 0;
  if (used < text.size()) {
    switch (text[used++]) {
      case 'k':
      case 'K':
        shift = 10;
        break;
      case 'm':
      case 'M':
        shift = 20;
        break;
      case 'g':
      case 'G':
        shift = 30;
        break;
      default:
        return std::nullopt;
    }
  }
  if (used != text.size() || value > (SIZE_MAX >> shift)) return std::nullopt;
  return value << shift;
}

// busbw = algbw * bus_factor, as nccl-tests defines it: the bytes that a rank must at least move, so that the
// number compares with the hardware's rate for any number of ranks. 0 for a barrier, which moves nothing.
inline double bus_factor(Collective collective, int ranks) {
  const double p = ranks;
  switch (collective) {
    case Collective::allreduce:
      return 2.0 * (p - 1) / p;
    case Collective::allgather:
    case Collective::reduce_scatter:
    case Collective::gather:
    case Collective::scatter:
    case Collective::alltoall:
      return (p - 1) / p;
    case Collective::barrier:
      return 0.0;
    default:
      return 1.0;
  }
}

// ---- the plan of one measurement ------------------------------------------------------------------------

// fresh: every rank rewrites its input before each timed call, as a training step does (the lines are dirty
// in its own cache). hot:   the buffers are touched by nobody in between, as OSU and IMB do. b2b:   a loop
// without a barrier between calls; the fair mode when ranks outnumber cores.
enum class Mode : std::uint8_t { fresh, hot, b2b };
inline constexpr std::string_view kModeNames[] = {"fresh", "hot", "b2b"};
constexpr std::string_view to_string(Mode mode) { return kModeNames[static_cast<std::size_t>(mode)]; }
inline std::optional<Mode> parse_mode(std::string_view name) {
  for (const Mode mode : {Mode::fresh, Mode::hot, Mode::b2b}) {
    if (to_string(mode) == name) return mode;
  }
  return std::nullopt;
}

struct LoopPlan {
  Mode mode = Mode::fresh;
  int warmup_count = 20;
  int iteration_count = 200;    // at most; fewer where the time budget ends first
  int minimum_count = 5;        // never fewer than this (or iteration_count, if that is smaller)
  double budget_seconds = 1.0;  // for warm-up and timed calls of one size together, about
};

// Times are microseconds; each sample is the maximum over the ranks of (end - start) of one call.
// In b2b mode a sample is the mean of one batch of calls (at most kBatchCount batches).
struct Measurement {
  int iteration_count = 0;
  double p50_us = 0;
  double p95_us = 0;
  double min_us = 0;
  double mean_us = 0;
  std::uint64_t last_seed =
      0;  // the seed of the last rewrite: what the outputs must now agree with (fresh mode)
};
inline constexpr int kBatchCount = 10;

inline double algorithm_bandwidth_gbs(std::size_t bytes, double time_us) {
  return time_us > 0 ? static_cast<double>(bytes) / (time_us * 1e3) : 0.0;
}

// ---- the rendezvous -------------------------------------------------------------------------------------

// The requirements of the loop on the ranks of one run. barrier() returns when all ranks have entered it.
// gather() takes n values of every rank and puts all of them, by rank, into `all` (ranks * n values) on EVERY
// rank, so that all ranks decide alike.
template <class R>
concept Rendezvous = requires(R r, std::span<const double> mine, std::span<double> all) {
  { r.rank_count() } -> std::convertible_to<int>;
  r.barrier();
  r.gather(mine, all);
};

// Element by element the maximum over the ranks, equal on every rank.
template <Rendezvous R>
std::vector<double> maximum_over_ranks(R& ranks, std::span<const double> mine) {
  std::vector<double> all(mine.size() * static_cast<std::size_t>(ranks.rank_count()));
  ranks.gather(mine, all);
  std::vector<double> result(mine.begin(), mine.end());
  for (std::size_t i = 0; i < all.size(); ++i) {
    double& value = result[i % mine.size()];
    value = std::max(value, all[i]);
  }
  return result;
}

template <Rendezvous R>
std::uint64_t sum_over_ranks(R& ranks, std::uint64_t mine) {
  std::vector<double> all(static_cast<std::size_t>(ranks.rank_count()));
  const double value = static_cast<double>(mine);
  ranks.gather(std::span(&value, 1), all);
  double sum = 0;
  for (const double v : all) sum += v;
  return static_cast<std::uint64_t>(sum);
}

// ---- statistics -----------------------------------------------------------------------------------------

// Nearest rank: the smallest sample that at least `fraction` of the samples do not exceed. `sorted` must not
// be empty.
inline double percentile(std::span<const double> sorted, double fraction) {
  const double position = std::ceil(fraction * static_cast<double>(sorted.size()));
  const auto rank = static_cast<std::size_t>(std::max(1.0, position));
  return sorted[std::min(rank, sorted.size()) - 1];
}

inline Measurement summarize(std::vector<double> samples_us, int iteration_count, std::uint64_t last_seed) {
  Measurement result;
  result.iteration_count = iteration_count;
  result.last_seed = last_seed;
  if (samples_us.empty()) return result;
  std::sort(samples_us.begin(), samples_us.end());
  double sum = 0;
  for (const double sample : samples_us) sum += sample;
  result.p50_us = percentile(samples_us, 0.50);
  result.p95_us = percentile(samples_us, 0.95);
  result.min_us = samples_us.front();
  result.mean_us = sum / static_cast<double>(samples_us.size());
  return result;
}

// ---- the loop -------------------------------------------------------------------------------------------

namespace detail {

inline double now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

// How many calls of `call_us` fit into `budget_us`, within [minimum, maximum].
inline int fitting_count(double budget_us, double call_us, int minimum, int maximum) {
  const double fitting = call_us > 0 ? budget_us / call_us : maximum;
  if (fitting >= maximum) return maximum;
  return std::max(std::min(minimum, maximum), static_cast<int>(fitting));
}

}  // namespace detail

// Times op() on all ranks at once; every rank calls it with an equal plan. rewrite(seed) puts new values into
// this rank's input (fresh mode only; the seeds 1, 2, ... are equal on all ranks). op() makes one whole call.
// finish() returns when this rank's results of all calls are there: after each, in b2b mode after each batch.
// A failure must throw or end the process, since the other ranks wait. Ranks agree on the plan through
// gather(), so slow and fast ones run the same number of calls.
template <Rendezvous R, class Rewrite, class OpFunctor, class Finish>
Measurement measure(const LoopPlan& plan, R& ranks, Rewrite&& rewrite, OpFunctor&& op, Finish&& finish) {
  std::uint64_t seed = 0;
  auto prepare = [&] {
    if (plan.mode == Mode::fresh) rewrite(++seed);
  };
  auto timed_call = [&] {
    prepare();
    ranks.barrier();
    const double start = detail::now_us();
    op();
    finish();
    return detail::now_us() - start;
  };
  // Wall time per whole iteration, rewriting and waiting included: what the budget is spent on.
  auto wall_us = [&](int call_count) {
    const double start = detail::now_us();
    for (int i = 0; i < call_count; ++i) timed_call();
    const double mine = (detail::now_us() - start) / std::max(1, call_count);
    return maximum_over_ranks(ranks, std::span(&mine, 1))[0];
  };

  // Microseconds per call of a loop of calls: on this rank, and on the slowest.
  auto own_batch_us = [&](int call_count) {
    ranks.barrier();
    const double start = detail::now_us();
    for (int i = 0; i < call_count; ++i) op();
    finish();
    return (detail::now_us() - start) / call_count;
  };
  auto batch_us = [&](int call_count) {
    const double mine = own_batch_us(call_count);
    return maximum_over_ranks(ranks, std::span(&mine, 1))[0];
  };

  // The first call of a size pays for connections, page faults and registration. So the second call sizes the
  // warm-up, and the warm-up sizes the timed part.
  const double budget_us = plan.budget_seconds * 1e6;
  timed_call();
  double call_us = wall_us(1);
  const int warmup_count =
      detail::fitting_count(budget_us / 5, call_us, 0, std::max(0, plan.warmup_count - 2));
  if (warmup_count > 0) call_us = plan.mode == Mode::b2b ? batch_us(warmup_count) : wall_us(warmup_count);
  // Where ranks share CPUs they leave a barrier far apart: a loop is sized by what a call takes in a long
  // one.
  const int longest = plan.mode == Mode::b2b ? plan.iteration_count / kBatchCount : 0;
  for (int length = std::max(1, warmup_count);
       length < longest && length * call_us < budget_us / (2 * kBatchCount);) {
    length = std::min(longest, 4 * length);
    call_us = batch_us(length);
  }
  const int iteration_count =
      std::max(1, detail::fitting_count(budget_us, call_us, plan.minimum_count, plan.iteration_count));

  if (plan.mode != Mode::b2b) {
    std::vector<double> mine(static_cast<std::size_t>(iteration_count));
    for (double& sample : mine) sample = timed_call();
    return summarize(maximum_over_ranks(ranks, mine), iteration_count, seed);
  }
  const int batch_count = std::min(kBatchCount, iteration_count);
  const int batch_length = iteration_count / batch_count;
  std::vector<double> mine(static_cast<std::size_t>(batch_count));
  for (double& sample : mine) sample = own_batch_us(batch_length);
  return summarize(maximum_over_ranks(ranks, mine), batch_count * batch_length, seed);
}

// The same of an op() that returns when this rank's result is there.
template <Rendezvous R, class Rewrite, class OpFunctor>
Measurement measure(const LoopPlan& plan, R& ranks, Rewrite&& rewrite, OpFunctor&& op) {
  return measure(plan, ranks, rewrite, op, [] {});
}

}  // namespace tutti::bench
