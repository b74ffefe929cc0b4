// Operations, their orders and what they must give.
#include "tests/support/async_traffic.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>

namespace tutti {
namespace {

using namespace std::chrono_literals;

// One operation of a group, equal on all its ranks.
struct Step {
  Collective collective = Collective::allreduce;
  std::size_t count = 0;
  int root = 0;
};

Step next_step(std::mt19937_64& random, int size) {
  constexpr std::array<Collective, 5> kCollectives = {Collective::allreduce, Collective::broadcast,
                                                      Collective::allgather, Collective::alltoall,
                                                      Collective::barrier};
  // Mostly short, some of several epochs.
  Step step;
  step.collective = kCollectives[random() % kCollectives.size()];
  const std::uint64_t kind = random() % 64;
  step.count = kind == 0 ? 20000 + random() % 20000 : kind < 12 ? 256 + random() % 2048 : random() % 64;
  step.root = static_cast<int>(random() % static_cast<std::uint64_t>(size));
  return step;
}

struct Pending {
  Step step;
  std::int32_t number = 0;
  std::vector<std::int32_t> input, output;
  Work work;
};

std::int32_t element(int rank, std::int32_t number, std::size_t i) {
  return rank * 1000 + number % 997 + static_cast<std::int32_t>(i % 31);
}

void start(const CommGroup& group, Pending& pending) {
  const auto p = static_cast<std::size_t>(group.size());
  const std::size_t n = pending.step.count;
  pending.input.resize(pending.step.collective == Collective::alltoall ? n * p : n);
  for (std::size_t i = 0; i < pending.input.size(); ++i)
    pending.input[i] = element(group.rank(), pending.number, i);
  pending.output.assign(n * p, -1);
  switch (pending.step.collective) {
    case Collective::broadcast:
      pending.output = pending.input;
      pending.work = group.ibroadcast(pending.output.data(), n, Dtype::i32, pending.step.root);
      break;
    case Collective::allgather:
      pending.work = group.iallgather(pending.input.data(), pending.output.data(), n, Dtype::i32);
      break;
    case Collective::alltoall:
      pending.work = group.ialltoall(pending.input.data(), pending.output.data(), n, Dtype::i32);
      break;
    case Collective::barrier:
      pending.work = group.ibarrier();
      break;
    default:
      pending.work = group.iallreduce(pending.input.data(), pending.output.data(), n, Dtype::i32);
  }
}

bool is_right(const CommGroup& group, const Pending& pending) {
  const auto p = static_cast<std::size_t>(group.size());
  const std::size_t n = pending.step.count;
  for (std::size_t i = 0; i < n; ++i) {
    const auto of = [&](std::size_t rank, std::size_t at) {
      return element(static_cast<int>(rank), pending.number, at);
    };
    switch (pending.step.collective) {
      case Collective::broadcast:
        if (pending.output[i] != of(static_cast<std::size_t>(pending.step.root), i)) return false;
        break;
      case Collective::allgather:
        for (std::size_t r = 0; r < p; ++r)
          if (pending.output[r * n + i] != of(r, i)) return false;
        break;
      case Collective::alltoall:
        for (std::size_t r = 0; r < p; ++r)
          if (pending.output[r * n + i] != of(r, static_cast<std::size_t>(group.rank()) * n + i))
            return false;
        break;
      case Collective::barrier:
        break;
      default: {
        std::int32_t sum = 0;
        for (std::size_t r = 0; r < p; ++r) sum += of(r, i);
        if (pending.output[i] != sum) return false;
      }
    }
  }
  return true;
}

// So many operations of a group, of which up to 12 are under way, ended in an order of this rank's own: by
// waiting, by testing, or by a callback.
Verdict run_stream(const CommGroup& group, std::uint64_t seed, int operations) {
  std::mt19937_64 shared(seed), own(seed * 31 + static_cast<std::uint64_t>(group.rank()));
  std::vector<std::unique_ptr<Pending>> pending;
  std::atomic<int> called{0};
  int with_callback = 0;
  for (int number = 0; number < operations || !pending.empty();) {
    if (number < operations && pending.size() < 12 && own() % 4 != 0) {
      auto& made = pending.emplace_back(std::make_unique<Pending>());
      made->step = next_step(shared, group.size());
      made->number = number++;
      start(group, *made);
      if (own() % 3 == 0) {
        ++with_callback;
        made->work.on_complete([&called](const Error* error) { called += error == nullptr ? 1 : 1000000; });
      }
      continue;
    }
    if (pending.empty()) continue;
    const std::size_t chosen = own() % pending.size();
    if (own() % 4 == 0) {
      if (!pending[chosen]->work.test()) continue;
    }
    pending[chosen]->work.wait();
    if (!is_right(group, *pending[chosen])) {
      return "operation " + std::to_string(pending[chosen]->number) + " of collective " +
             std::to_string(static_cast<int>(pending[chosen]->step.collective)) + " is wrong";
    }
    pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(chosen));
  }
  for (int i = 0; i < 20000 && called.load() != with_callback; ++i) std::this_thread::sleep_for(1ms);
  if (called.load() != with_callback)
    return std::to_string(called.load()) + " callbacks instead of " + std::to_string(with_callback);
  return {};
}

// Heavy cases shrink with TUTTI_TEST_FRACTION.
int scaled(int operations) {
  const char* text = std::getenv("TUTTI_TEST_FRACTION");
  return text == nullptr ? operations
                         : std::max(50, static_cast<int>(operations * std::strtod(text, nullptr)));
}

}  // namespace

Verdict run_overlapping_groups(CommGroup& world, int operations) {
  std::vector<CommGroup> groups;
  groups.push_back(world.stream(1));
  groups.push_back(world.split(0, -world.rank()));
  const CommGroup low = world.split(world.rank() < 3 ? 0 : -1, 0);
  const CommGroup high = world.split(world.rank() > 0 ? 0 : -1, 0);
  if (low.is_open()) groups.push_back(low);
  if (high.is_open()) groups.push_back(high);
  return with_threads(groups, [&](const CommGroup& group, std::size_t i) {
    const std::uint64_t seed = group.size() == 4 ? i : low.is_open() && i == 2 ? 2 : 3;
    return run_stream(group, seed + 1, scaled(operations));
  });
}

}  // namespace tutti
