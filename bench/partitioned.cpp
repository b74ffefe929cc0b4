// Measures a plan with partitions: how long a bucket whose parts become ready one by one is waited for behind the last
// one, beside an allreduce of one part. A rank of a job; not part of any test. Knows the public interface only.
// usage: tutti run -n RANKS partitioned [sleep|spin [ROUNDS]]
//
// 64 MiB in 16 parts; each rank takes 1 ms for a part, asleep or computing. Medians of the slowest rank, in turns:
// one part alone; behind the last ready() of all ranks until that part, and until all, are complete; incomplete parts before it.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tutti/tutti.hpp"

namespace {

using namespace tutti;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr std::size_t kParts = 16, kElements = (std::size_t{64} << 20U) / sizeof(float);
constexpr std::chrono::milliseconds kPartTime{1};

// Of the clock that the processes of a machine share.
double now() { return Milliseconds(Clock::now().time_since_epoch()).count(); }

void work_on_part(bool computes) {
  if (!computes) return std::this_thread::sleep_for(kPartTime);
  for (const auto begin = Clock::now(); Clock::now() - begin < kPartTime;) {
  }
}

struct Round {
  double one_part = 0, last_part = 0, all_parts = 0, incomplete = 0, ready_at = 0;
};

Round measure(const CommGroup& world, const CallPlan& plan, std::vector<float>& bucket, bool computes) {
  Round round;
  world.barrier();
  const double begin = now();
  world.allreduce(std::span<float>(bucket).first(kElements / kParts), Op::avg);
  round.one_part = now() - begin;
  world.barrier();
  plan.start();
  for (std::size_t part = 0; part < kParts; ++part) {
    work_on_part(computes);
    if (part + 1 == kParts) {
      for (std::size_t before = 0; before < part; ++before)
        round.incomplete += plan.is_complete(before) ? 0 : 1;
    }
    round.ready_at = now();
    plan.ready(part);
  }
  plan.wait(kParts - 1);
  round.last_part = now();
  plan.wait();
  round.all_parts = now();
  // The ranks drift apart while they make the parts: what counts begins with the last rank.
  world.allreduce(std::span<double>(&round.one_part, 5), Op::max);
  round.last_part -= round.ready_at;
  round.all_parts -= round.ready_at;
  return round;
}

double median(const std::vector<Round>& rounds, double Round::*figure) {
  std::vector<double> figures;
  figures.reserve(rounds.size());
  for (const Round& round : rounds) figures.push_back(round.*figure);
  std::nth_element(figures.begin(), figures.begin() + static_cast<std::ptrdiff_t>(figures.size() / 2),
                   figures.end());
  return figures[figures.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const bool computes = argc > 1 && std::string(argv[1]) == "spin";
    const long count = argc > 2 ? std::strtol(argv[2], nullptr, 10) : 60;
    const CommGroup world = init();
    std::vector<float> bucket(kElements, 1);
    const std::vector<std::uint64_t> parts(kParts, kElements / kParts);
    const CallPlan plan = world.make_plan(
        {.input = bucket.data(), .output = bucket.data(), .count = kElements, .op = Op::avg}, parts);
    std::vector<Round> rounds;
    for (long i = 0; i < 5 + count; ++i) {
      rounds.push_back(measure(world, plan, bucket, computes));
      if (i == 4) rounds.clear();
    }
    if (world.rank() == 0) {
      const double one = median(rounds, &Round::one_part), all = median(rounds, &Round::all_parts);
      std::printf(
          "%d ranks, %s: one part %.2f ms; behind the last: %.2f ms, all %.2f ms, %.2f times one part; %.0f "
          "parts incomplete before it\n",
          world.size(), computes ? "computing" : "asleep", one, median(rounds, &Round::last_part), all,
          all / one, median(rounds, &Round::incomplete));
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
