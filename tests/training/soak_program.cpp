// Training steps for long: 4 ranks that are threads submit tensors of the world and of two process sets, each in a
// random order of its own, while one rank is late at times; every value is compared. Knows the public interface.
// usage: soak_program TRANSPORT [STEPS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/thread_ranks.hpp"
#include "tutti/tensors.hpp"

using namespace tutti;

namespace {

constexpr int kRanks = 4, kLateEvery = 100;
constexpr std::chrono::milliseconds kLate{5};

// A queue of some ranks, and its tensors of a step.
class Set {
 public:
  Set(const CommGroup& world, std::vector<int> ranks, std::vector<std::size_t> lengths)
      : ranks_(std::move(ranks)), queue_(world.create(ranks_)), world_rank_(world.rank()) {
    for (const std::size_t length : lengths) values_.emplace_back(length);
  }
  std::size_t tensor_count() const { return values_.size(); }

  Work submit(std::size_t tensor, int step) {
    std::vector<std::int32_t>& values = values_[tensor];
    std::fill(values.begin(), values.end(), value_of(world_rank_, tensor, step));
    const std::uint64_t shape = values.size();
    return queue_.submit(
        "layer" + std::to_string(tensor),
        {.input = values.data(), .output = values.data(), .dtype = Dtype::i32, .shape = {&shape, 1}});
  }
  bool is_right(int step) const {
    for (std::size_t tensor = 0; tensor < values_.size(); ++tensor) {
      std::int32_t sum = 0;
      for (const int rank : ranks_) sum += value_of(rank, tensor, step);
      for (const std::int32_t value : values_[tensor]) {
        if (value != sum) return false;
      }
    }
    return true;
  }

 private:
  static std::int32_t value_of(int rank, std::size_t tensor, int step) {
    return 31 * rank + 7 * static_cast<std::int32_t>(tensor) + step;
  }

  std::vector<int> ranks_;
  TensorQueue queue_;
  int world_rank_;
  std::vector<std::vector<std::int32_t>> values_;
};

Verdict soak(const CommGroup& world, int steps) {
  std::vector<std::unique_ptr<Set>> sets;
  for (const auto& [ranks, lengths] :
       {std::pair<std::vector<int>, std::vector<std::size_t>>{{0, 1, 2, 3}, {1, 37, 700}},
        {{0, 1, 2}, {5, 64}},
        {{1, 3}, {9, 128}}}) {
    if (std::find(ranks.begin(), ranks.end(), world.rank()) != ranks.end())
      sets.push_back(std::make_unique<Set>(world, ranks, lengths));
  }
  std::vector<std::pair<Set*, std::size_t>> order;
  for (const auto& set : sets) {
    for (std::size_t tensor = 0; tensor < set->tensor_count(); ++tensor)
      order.emplace_back(set.get(), tensor);
  }
  std::mt19937 random(static_cast<unsigned>(world.rank()));
  for (int step = 0; step < steps; ++step) {
    std::shuffle(order.begin(), order.end(), random);
    if (step % kLateEvery == 0 && step / kLateEvery % kRanks == world.rank())
      std::this_thread::sleep_for(kLate);
    std::vector<Work> works;
    for (const auto& [set, tensor] : order) works.push_back(set->submit(tensor, step));
    for (const Work& work : works) work.wait();
    for (const auto& set : sets) {
      if (!set->is_right(step)) return "step " + std::to_string(step) + " is wrong";
    }
  }
  world.barrier();
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: soak_program TRANSPORT [STEPS]\n");
    return 2;
  }
  const int steps = argc > 2 ? static_cast<int>(std::strtol(argv[2], nullptr, 10)) : 1000;
  const Variables variables({{"TUTTI_TRANSPORTS", argv[1]}, {"TUTTI_FUSION_CYCLE", "0"}});
  const auto begun = std::chrono::steady_clock::now();
  const Verdict verdict = with_ranks(kRanks, [&](const CommGroup& world) { return soak(world, steps); });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  std::printf("%s: %d steps, %.1f s: %s\n", argv[1], steps, took.count(),
              verdict.empty() ? "right" : verdict.c_str());
  return verdict.empty() ? 0 : 1;
}
