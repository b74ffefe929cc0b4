// Verifies calls and then times them: the common body of `tutti bench` and of the programs of bench/peers.
// Knows no library under test: a call is memory, a shape and a function to run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "bench/harness/compute.hpp"
#include "bench/harness/harness.hpp"
#include "bench/harness/inputs.hpp"
#include "bench/harness/remote_memory.hpp"

namespace tutti::bench {

// One call of one rank. `output_memory` is all memory that the call writes (poisoned before it is checked);
// the input may lie in it.
struct CheckedCall {
  Shape shape;
  void* input = nullptr;
  void* output = nullptr;
  std::span<unsigned char> output_memory;
  std::function<void()> run;
  std::function<void()> finish = nullptr;  // waits for what run() only submits; empty: run() is all of it
};

struct CheckedPlan {
  LoopPlan loop;
  bool in_place = false;
  bool is_checked = true;
  double compute_us = 0;           // of arithmetic, in equal shares in front of the calls
  RemoteMemory* memory = nullptr;  // where the buffers lie; null: in the host's
};

struct CheckedResult {
  Measurement times;
  std::uint64_t wrong_count = 0;  // elements whose bits differ, over all calls, checks and ranks
};

// Times the calls in sequence as ONE measurement (usually a list of one; a backward sweep has many).
// Submitted calls are finished after the last. Verified with poisoned outputs before the timing, which is the
// library's first call of the shape, and once after: in fresh mode the last timed call itself, else one more.
// Every rank calls it with equal shapes and plan.
template <Rendezvous R>
CheckedResult check_and_measure(std::span<const CheckedCall> calls, Inputs& inputs, int rank,
                                const CheckedPlan& plan, R& ranks) {
  BufferAccess buffers(plan.memory);
  std::optional<Compute> compute;
  if (plan.compute_us > 0) compute = Compute::calibrated();
  const double share_us = plan.compute_us / static_cast<double>(std::max<std::size_t>(1, calls.size()));
  const auto run = [&] {
    for (const CheckedCall& call : calls) {
      if (compute) compute->run(share_us);
      call.run();
    }
    for (const CheckedCall& call : calls) {
      if (call.finish) call.finish();
    }
  };
  const auto rewrite = [&](std::uint64_t seed) {
    for (const CheckedCall& call : calls) {
      const std::size_t bytes = call.shape.input_count(rank) * size_of(call.shape.dtype);
      buffers.write(call.input, bytes,
                    [&](void* input) { fill_input(inputs, call.shape, rank, seed, input); });
    }
  };
  const auto count_wrong = [&](std::uint64_t seed) {
    std::uint64_t wrong = 0;
    for (const CheckedCall& call : calls) {
      const std::size_t bytes = call.shape.output_count(rank) * size_of(call.shape.dtype);
      wrong += buffers.read(call.output, bytes, [&](const void* output) {
        return wrong_elements(inputs, call.shape, rank, seed, output);
      });
    }
    return wrong;
  };
  const auto check_once = [&](std::uint64_t seed) {
    for (const CheckedCall& call : calls)
      buffers.fill(call.output_memory.data(), kPoison, call.output_memory.size());
    rewrite(seed);
    ranks.barrier();
    run();
    return count_wrong(seed);
  };
  constexpr std::uint64_t kFirstSeed = 1009, kLastSeed = 2027;  // not among those of the timed calls

  std::uint64_t wrong = 0;
  if (plan.is_checked) wrong += check_once(kFirstSeed);
  if (!plan.is_checked || (plan.in_place && plan.loop.mode != Mode::fresh)) {
    // Hot in-place runs are rewritten by nobody, so sums would grow without bound: zeros stay zeros.
    // Unchecked ones start from zeros too, rather than from whatever a buffer held before.
    for (const CheckedCall& call : calls)
      buffers.fill(call.output_memory.data(), 0, call.output_memory.size());
  }
  CheckedResult result;
  result.times = measure(plan.loop, ranks, rewrite, run, [&] { buffers.wait(); });
  if (plan.is_checked) {
    wrong += plan.loop.mode == Mode::fresh ? count_wrong(result.times.last_seed) : check_once(kLastSeed);
    result.wrong_count = sum_over_ranks(ranks, wrong);
  }
  return result;
}

}  // namespace tutti::bench
