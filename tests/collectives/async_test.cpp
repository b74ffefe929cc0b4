// Operations that nobody waits for: workers, completion callbacks, deadlines, and many operations of several
// groups at once, by several threads, in different orders. Through the public interface, with threads as
// ranks; knows no algorithm.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <future>
#include <initializer_list>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/test_fraction.hpp"
#include "tests/support/thread_ranks.hpp"
#include "tutti/tutti.hpp"

using namespace tutti;
using namespace std::chrono_literals;

namespace {

// Variables of the environment while a test runs.
class Variables {
 public:
  Variables(std::initializer_list<std::pair<std::string, std::string>> values) : values_(values) {
    for (const auto& [name, value] : values_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Variables() {
    for (const auto& [name, value] : values_) ::unsetenv(name.c_str());
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

 private:
  std::vector<std::pair<std::string, std::string>> values_;
};

// Waits without calling tutti. False after 20 s.
bool becomes_true(const std::atomic<bool>& flag) {
  for (int i = 0; i < 20000 && !flag.load(); ++i) std::this_thread::sleep_for(1ms);
  return flag.load();
}

// What a group's ranks do in one operation: the same on all of them.
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

int scaled(int operations) {
  const char* text = std::getenv("TUTTI_TEST_FRACTION");
  return text == nullptr ? operations
                         : std::max(50, static_cast<int>(operations * std::strtod(text, nullptr)));
}

}  // namespace

TEST_CASE("operations go on while nobody calls", "[async]") {
  const std::string transport = GENERATE("inproc", "shm");
  const std::string workers = GENERATE("1", "2");
  const Variables variables{{"TUTTI_TRANSPORTS", transport}, {"TUTTI_WORKERS", workers}};
  CHECK(with_ranks(3, [](CommGroup& group) -> Verdict {
          for (int round = 0; round < 5; ++round) {
            std::vector<std::int32_t> vector(300000, group.rank() + 1), tiny{1};
            std::atomic<bool> is_done{false}, is_tiny_done{false};
            // The second is submitted by the first's callback.
            group.iallreduce(std::span(vector)).on_complete([&](const Error* error) {
              if (error != nullptr) return;
              is_done = true;
              group.iallreduce(std::span(tiny)).on_complete([&](const Error* then) {
                is_tiny_done = then == nullptr;
              });
            });
            if (!becomes_true(is_tiny_done)) return is_done ? "the second did not end" : "it did not end";
            if (vector.front() != 6 || vector.back() != 6 || tiny[0] != 3) return "wrong sums";
          }
          return {};
        }) == "");
}

TEST_CASE("without workers, callbacks come while something waits or tests", "[async]") {
  const Variables variables{{"TUTTI_WORKERS", "0"}};
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          std::vector<std::int32_t> vector(100000, 1), other(100000, 1);
          bool is_done = false, is_other_done = false;  // nobody but this thread calls back
          const Work first = group.iallreduce(std::span(vector));
          first.on_complete([&](const Error*) { is_done = true; });
          const Work second = group.iallreduce(std::span(other));
          second.on_complete([&](const Error*) { is_other_done = true; });
          second.wait();
          while (!first.test()) std::this_thread::sleep_for(1ms);
          return is_done && is_other_done ? "" : "not called";
        }) == "");
}

TEST_CASE("callbacks: in order, at once where it is complete, and never waiting", "[async]") {
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          std::vector<std::int32_t> vector(200000, 1), other{1};
          std::string order;
          Verdict refused;
          const Work work = group.iallreduce(std::span(vector));
          work.on_complete([&](const Error*) { order += "a"; });
          work.on_complete([&](const Error*) {
            order += "b";
            try {
              group.allreduce(std::span(other));
              refused = "a callback has waited";
            } catch (const Error& error) {
              if (error.code() != StatusCode::invalid_argument) refused = error.what();
            }
          });
          std::atomic<bool> is_done{false};
          work.on_complete([&](const Error*) { is_done = true; });
          work.wait();
          if (!becomes_true(is_done)) return "not called";
          work.on_complete([&](const Error*) { order += "c"; });
          if (order != "abc") return "called in the order " + order;
          try {
            work.on_complete(nullptr);
            return "an empty callback was taken";
          } catch (const Error&) {
          }
          return refused;
        }) == "");
}

TEST_CASE("an operation that nobody waits for fails at the deadline, naming who is missing", "[async]") {
  std::atomic<int> ended{0};  // of the two ranks that call
  CHECK(with_ranks(
            3,
            [&](CommGroup& group) -> Verdict {
              if (group.rank() == 1) {  // it makes no call
                for (int i = 0; i < 20000 && ended.load() < 2; ++i) std::this_thread::sleep_for(1ms);
                return {};
              }
              std::vector<std::int32_t> vector(1000, 1);
              std::atomic<bool> is_done{false};
              Verdict said = "no error";
              group.iallreduce(std::span(vector)).on_complete([&](const Error* error) {
                if (error != nullptr)
                  said = error->code() == StatusCode::timeout && error->peer() == 1 ? "" : error->what();
                is_done = true;
              });
              if (!becomes_true(is_done)) return "it never ended";
              ++ended;
              return said;
            },
            2s) == "");
}

TEST_CASE("an abort reaches callbacks, and so does the end of the group", "[async]") {
  std::atomic<bool> is_abort_due{false};
  CHECK(with_ranks(2, [&](CommGroup& group) -> Verdict {
          std::vector<std::int32_t> vector(1000, 1), other(1000, 1);
          std::atomic<bool> is_done{false}, is_other_done{false};
          std::string said, other_said;
          if (group.rank() == 0) {
            // Rank 1 calls neither.
            CommGroup pair = group.split(0, 0);
            pair.iallreduce(std::span(other)).on_complete([&](const Error* error) {
              other_said = error == nullptr ? "no error" : error->what();
              is_other_done = true;
            });
            pair = {};
            if (!becomes_true(is_other_done)) return "the end of the group was not told";
            if (other_said.find("destroyed") == std::string::npos) return other_said;
            group.iallreduce(std::span(vector)).on_complete([&](const Error* error) {
              said = error == nullptr ? "no error" : error->what();
              is_done = true;
            });
            is_abort_due = true;
            if (!becomes_true(is_done)) return "the abort was not told";
            return said.find("enough of it") == std::string::npos ? said : "";
          }
          const CommGroup pair = group.split(0, 0);
          const bool is_due = becomes_true(is_abort_due);
          group.abort("enough of it");
          return is_due ? "" : "the other rank has not submitted anything";
        }) == "");
}

TEST_CASE("many operations of overlapping groups, by four threads, in different orders", "[async]") {
  const std::string transport = GENERATE("inproc", "shm");
  const std::string workers = GENERATE("0", "1", "2");
  const Variables variables{{"TUTTI_TRANSPORTS", transport}, {"TUTTI_WORKERS", workers}};
  // Two threads work on all ranks, in groups of their own; the others on three of four.
  constexpr int kOperations = 6000;  // of each group; 24,000 for each of the six cases
  CHECK(with_ranks(
            4,
            [&](CommGroup& world) -> Verdict {
              std::vector<CommGroup> groups;
              groups.push_back(world.split(0, world.rank()));
              groups.push_back(world.split(0, -world.rank()));
              const CommGroup low = world.split(world.rank() < 3 ? 0 : -1, 0);
              const CommGroup high = world.split(world.rank() > 0 ? 0 : -1, 0);
              if (low.is_open()) groups.push_back(low);
              if (high.is_open()) groups.push_back(high);
              std::vector<std::future<Verdict>> threads;
              for (std::size_t i = 0; i < groups.size(); ++i) {
                const std::uint64_t seed = groups[i].size() == 4 ? i : low.is_open() && i == 2 ? 2 : 3;
                threads.push_back(std::async(std::launch::async, [&group = groups[i], seed]() -> Verdict {
                  try {
                    return run_stream(group, seed + 1, scaled(kOperations));
                  } catch (const Error& error) {
                    return std::string("threw ") + error.what();
                  }
                }));
              }
              Verdict verdict;
              for (auto& thread : threads) {
                if (Verdict one = thread.get(); verdict.empty()) verdict = std::move(one);
              }
              return verdict;
            },
            60s) == "");
}

TEST_CASE("the last handle of a world may go in a callback", "[async]") {
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          std::vector<std::int32_t> vector(200000, 1);
          std::atomic<bool> is_done{false};
          auto handle = std::make_shared<CommGroup>(std::move(group));
          {
            const Work work = handle->iallreduce(std::span(vector));
            work.on_complete([&, handle](const Error*) mutable {
              handle.reset();
              is_done = true;
            });
          }
          handle.reset();
          return becomes_true(is_done) ? "" : "not called";
        }) == "");
}
