// Passes that helper threads share: they cover every byte once, make way, and give the bits that one thread gives.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/base/ops.hpp"
#include "runtime/scheduler/helper_threads.hpp"
#include "tests/scheduler/mixed_operation.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/test_fraction.hpp"

namespace tutti::test {
namespace {

HelperOptions helpers_that_stay(std::uint32_t count) {
  HelperOptions options;
  options.count = count;
  options.stands_back = false;
  return options;
}

// Passes until helpers have taken a part of one. They come when the system lets them, which may take several.
template <class OnePass>
bool run_until_shared(const HelperThreads& helpers, OnePass one_pass) {
  const std::uint64_t before = helpers.taken_parts();
  for (const auto end = Clock::now() + kPatience; helpers.taken_parts() == before;) {
    if (Clock::now() > end || !one_pass()) return false;
  }
  return true;
}

// Numbers without NaNs in every dtype, whose bits differ from element to element.
std::vector<std::byte> bytes_of_rank(std::uint32_t rank, std::size_t bytes) {
  std::mt19937 random(rank + 1);
  std::vector<std::byte> made(bytes);
  for (std::byte& byte : made) byte = static_cast<std::byte>(0x38U + random() % 12U);
  return made;
}

struct Form {
  const char* name = "";
  bool is_shared = false;  // buffers
  bool streams = false;
  bool has_control_blocks = true;
};

std::vector<ReduceOp> legal_ops(Dtype dtype) {
  std::vector<ReduceOp> ops;
  for (int i = 0; i < kOpCount; ++i) {
    const auto op = static_cast<Op>(i);
    if (op == Op::user || !is_legal(op, dtype)) continue;
    const bool is_integer = class_of(dtype) == DtypeClass::integer;
    ops.push_back(op != Op::premul_sum ? ReduceOp(op)
                  : is_integer         ? ReduceOp::premul_sum_integer(3)
                                       : ReduceOp::premul_sum(0.75));
  }
  return ops;
}

// The results of both ranks of every op of the dtypes on vectors of an odd number of elements, as hashes.
std::vector<std::size_t> run_ops(World& world, const Form& form, std::size_t vector_bytes) {
  std::array<std::vector<std::size_t>, 2> results;
  const std::string wrong = world.run([&](Member& member) -> std::string {
    const WordBuffer input(member, form.is_shared, vector_bytes / 4 + 4);
    const WordBuffer output(member, form.is_shared, vector_bytes / 4 + 4);
    const std::vector<std::byte> bytes = bytes_of_rank(member.rank, input.words().size_bytes());
    std::memcpy(input.words().data(), bytes.data(), bytes.size());
    for (int i = 0; i < kDtypeCount; ++i) {
      const auto dtype = static_cast<Dtype>(i);
      if (dtype == Dtype::opaque) continue;
      for (const ReduceOp& op : legal_ops(dtype)) {
        // The same calls in every world: a share of them in slow builds.
        if (!is_selected(100 * static_cast<std::uint64_t>(i) + static_cast<std::uint64_t>(op.op)) &&
            op.op != Op::sum)
          continue;
        Call call;
        call.dtype = dtype;
        call.op = op;
        call.input = input.words().data();
        call.output = output.words().data();
        call.count = vector_bytes / size_of(dtype) | 1U;
        if (Status s = member.run(call); !s) return s.to_string();
        const std::string_view bits(reinterpret_cast<const char*>(output.words().data()),
                                    call.count * size_of(dtype));
        results[member.rank].push_back(std::hash<std::string_view>()(bits));
      }
    }
    return {};
  });
  REQUIRE(wrong == "");
  CHECK(results[0] == results[1]);
  return results[0];
}

}  // namespace

TEST_CASE("a shared pass covers every byte once, and parts are whole powers of two", "[helpers]") {
  HelperThreads helpers(helpers_that_stay(3));
  constexpr std::size_t kBytes = HelperThreads::kLeastBytes + 12345;
  std::vector<std::atomic<std::uint8_t>> seen(kBytes);
  std::atomic<std::size_t> odd_parts{0};
  std::uint8_t passes = 0;
  CHECK(run_until_shared(helpers, [&] {
    const auto end = helpers.run(0, kBytes, nullptr, [&](std::size_t first, std::size_t length, bool) {
      if (first % HelperThreads::kLeastPartBytes != 0 || length > HelperThreads::kMostPartBytes) ++odd_parts;
      for (std::size_t i = first; i < first + length; ++i) seen[i].fetch_add(1, std::memory_order_relaxed);
    });
    ++passes;
    return end == kBytes &&
           std::all_of(seen.begin(), seen.end(), [&](const auto& count) { return count == passes; });
  }));
  CHECK(odd_parts == 0);
}

TEST_CASE("a shared pass that is wanted elsewhere ends behind the parts under way, and goes on there",
          "[helpers]") {
  HelperThreads helpers(helpers_that_stay(2));
  constexpr std::size_t kBytes = std::size_t{1} << 20U;
  std::vector<std::uint8_t> seen(kBytes);
  std::atomic<std::uint32_t> wanting{1};
  const auto part = [&](std::size_t first, std::size_t length, bool) {
    for (std::size_t i = first; i < first + length; ++i) ++seen[i];
  };
  CHECK(run_until_shared(helpers, [&] {
    std::fill(seen.begin(), seen.end(), 0);
    std::size_t at = 0;
    while (at < kBytes) {
      const std::size_t end = helpers.run(at, kBytes, &wanting, part);
      const auto done = seen.begin() + static_cast<std::ptrdiff_t>(end);
      if (end <= at || std::any_of(seen.begin(), done, [](std::uint8_t n) { return n != 1; }) ||
          std::any_of(done, seen.end(), [](std::uint8_t n) { return n != 0; }))
        return false;
      at = end;
    }
    return true;
  }));
}

TEST_CASE("passes of several threads at once are all carried out", "[helpers]") {
  HelperThreads helpers(helpers_that_stay(2));
  constexpr std::size_t kBytes = std::size_t{1} << 20U;
  constexpr std::size_t kCallers = 3, kPasses = 20;
  std::vector<std::size_t> done(kCallers);
  std::vector<std::thread> callers;
  for (std::size_t k = 0; k < kCallers; ++k) {
    callers.emplace_back([&helpers, &sum = done[k]] {
      for (std::size_t pass = 0; pass < kPasses; ++pass) {
        std::atomic<std::size_t> bytes{0};
        helpers.run(0, kBytes, nullptr, [&](std::size_t, std::size_t length, bool) { bytes += length; });
        sum += bytes;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const std::size_t bytes : done) CHECK(bytes == kPasses * kBytes);
}

TEST_CASE("results with helpers have the bits of those without", "[helpers]") {
  constexpr std::size_t kVectorBytes = std::size_t{600} << 10U;
  for (const Form& form : {Form{"staged"}, Form{"staged, streamed", false, true}, Form{"direct", true},
                           Form{"direct, streamed", true, true}, Form{"messages", false, false, false}}) {
    CAPTURE(form.name);
    std::vector<std::size_t> alone;
    World::Adjust adjust;
    adjust.group = [&](std::uint32_t, GroupContext::Options& options) {
      options.uses_control_blocks = form.has_control_blocks;
      if (form.streams) options.lowered_limits.stream_bytes = kVectorBytes / 2;
    };
    for (const std::uint32_t count : {0U, 3U}) {
      Engine::Options options = World::oversubscribed();
      options.helpers = helpers_that_stay(count);
      World world(WorldTransport::inproc, 2, options, {}, adjust);
      const std::vector<std::size_t> results = run_ops(world, form, kVectorBytes);
      if (count == 0) {
        CHECK(world.member(0).engine->helpers() == nullptr);
        alone = results;
        continue;
      }
      CHECK(results == alone);
      // The calls have passes that helpers share. These come late on a loaded machine: call until one has.
      CHECK(run_until_shared(*world.member(0).engine->helpers(),
                             [&] { return run_ops(world, form, kVectorBytes) == alone; }));
    }
  }
}

}  // namespace tutti::test
