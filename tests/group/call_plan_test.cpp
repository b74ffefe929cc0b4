// Calls that are started again and again, whole and in partitions, over ranks that are threads.
#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/thread_ranks.hpp"
#include "tutti/tutti.hpp"

using namespace tutti;

namespace {

// Partitions of different lengths, one of them empty.
std::vector<std::uint64_t> partition_counts(std::size_t partitions) {
  std::vector<std::uint64_t> counts(partitions);
  for (std::size_t i = 0; i < partitions; ++i) counts[i] = i * i * 911;
  return counts;
}

std::vector<std::size_t> shuffled(std::size_t size, unsigned seed) {
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 random(seed);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

// The sum over the ranks of value_of().
std::int32_t value_of(int rank, int run, std::size_t partition) {
  return rank * 3 + run * 7 + static_cast<int>(partition);
}
std::int32_t sum_of(int size, int run, std::size_t partition) {
  std::int32_t sum = 0;
  for (int rank = 0; rank < size; ++rank) sum += value_of(rank, run, partition);
  return sum;
}

// A buffer of partitions and its plan.
struct Bucket {
  Bucket(const CommGroup& group, std::size_t partitions) : Bucket(group, partition_counts(partitions)) {}
  Bucket(const CommGroup& group, std::vector<std::uint64_t> of_partitions)
      : counts(std::move(of_partitions)), begins(1, 0) {
    for (const std::uint64_t count : counts) begins.push_back(begins.back() + count);
    values.resize(begins.back());
    plan = group.make_plan(
        {.input = values.data(), .output = values.data(), .count = values.size(), .dtype = Dtype::i32},
        counts);
  }
  void fill(std::size_t partition, std::int32_t value) {
    std::fill(values.begin() + static_cast<std::ptrdiff_t>(begins[partition]),
              values.begin() + static_cast<std::ptrdiff_t>(begins[partition + 1]), value);
  }
  bool holds(std::size_t partition, std::int32_t value) const {
    return std::all_of(values.begin() + static_cast<std::ptrdiff_t>(begins[partition]),
                       values.begin() + static_cast<std::ptrdiff_t>(begins[partition + 1]),
                       [&](std::int32_t v) { return v == value; });
  }

  std::vector<std::uint64_t> counts, begins;
  std::vector<std::int32_t> values;
  CallPlan plan;
};

// Runs in which the partitions become ready in an order of each rank's own, and are awaited in another.
Verdict train(CommGroup& group, int runs, std::size_t partitions) {
  Bucket bucket(group, partitions);
  for (int run = 0; run < runs; ++run) {
    const auto seed = static_cast<unsigned>(run * 100 + group.rank());
    bucket.plan.start();
    for (const std::size_t partition : shuffled(partitions, seed)) {
      bucket.fill(partition, value_of(group.rank(), run, partition));
      bucket.plan.ready(partition);
    }
    for (const std::size_t partition : shuffled(partitions, seed + 50)) {
      bucket.plan.wait(partition);
      if (!bucket.plan.is_complete(partition)) return "a partition was awaited and is not complete";
      if (!bucket.holds(partition, sum_of(group.size(), run, partition)))
        return "run " + std::to_string(run) + ", partition " + std::to_string(partition) + " is wrong";
    }
    bucket.plan.wait();
    if (!bucket.plan.is_complete()) return "the run was awaited and is not complete";
  }
  group.barrier();
  return {};
}

}  // namespace

TEST_CASE("partitions become ready in another order on each rank, run after run") {
  for (const char* transport : {"shm", "tcp", "inproc"}) {
    for (int size = 1; size <= 5; ++size) {
      INFO(transport << ", " << size << " ranks");
      const Variables variables({{"TUTTI_TRANSPORTS", transport}});
      CHECK(with_ranks(size, [](CommGroup& group) { return train(group, 6, 7); }) == "");
    }
  }
}

TEST_CASE("messages and a check of every call carry partitions, too") {
  for (const auto& [name, value] : {std::pair{"TUTTI_CONTROL_BLOCKS", "off"},
                                    {"TUTTI_CHECK", "group"},
                                    {"TUTTI_PROGRESS_THREADS", "0"}}) {
    INFO(name << "=" << value);
    const Variables variables({{name, value}});
    CHECK(with_ranks(3, [](CommGroup& group) { return train(group, 3, 5); }) == "");
  }
}

TEST_CASE("communication starts on what is ready") {
  CHECK(with_ranks(3, [](CommGroup& group) -> Verdict {
          Bucket bucket(group, 4);
          // The last partition first: in the first run it waits for the others, in the next one it goes
          // first.
          for (int run = 0; run < 2; ++run) {
            bucket.plan.start();
            std::fill(bucket.values.begin(), bucket.values.end(), 1);
            bucket.plan.ready(3);
            if (run == 0 && bucket.plan.is_complete(3)) return "it went before its predecessors";
            if (run == 1) bucket.plan.wait(3);
            if (run == 1 && !bucket.holds(3, 3)) return "it is wrong";
            if (run == 1 && bucket.plan.is_complete()) return "the others are not ready";
            bucket.plan.ready(0, 3);
            bucket.plan.wait();
          }
          group.barrier();
          return {};
        }) == "");
}

TEST_CASE("partitions are marked by one thread and awaited by another") {
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          Bucket bucket(group, 6);
          for (int run = 0; run < 20; ++run) {
            bucket.plan.start();
            std::thread producer([&] {
              for (const std::size_t partition : shuffled(6, static_cast<unsigned>(run))) {
                bucket.fill(partition, 1);
                bucket.plan.ready(partition);
              }
            });
            bucket.plan.wait();
            producer.join();
            for (std::size_t partition = 0; partition < 6; ++partition) {
              if (!bucket.holds(partition, 2)) return "partition " + std::to_string(partition) + " is wrong";
            }
          }
          group.barrier();
          return {};
        }) == "");
}

TEST_CASE("plans are started in different orders, with calls of the group between them") {
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          std::array<float, 1000> a{}, b{};
          const CallPlan first = group.make_plan({.input = a.data(), .output = a.data(), .count = a.size()});
          const CallPlan second = group.make_plan({.input = b.data(), .output = b.data(), .count = b.size()});
          for (int run = 0; run < 50; ++run) {
            a.fill(1);
            b.fill(2);
            (group.rank() == 0 ? first : second).start();
            group.barrier();
            (group.rank() == 0 ? second : first).start();
            first.wait();
            second.wait();
            if (a.back() != 2 || b.back() != 4) return "wrong sums";
          }
          return first.partition_count() == 0 && first.is_complete() ? ""
                                                                     : "it has no partitions and is complete";
        }) == "");
}

TEST_CASE("other collectives are started again and again") {
  CHECK(with_ranks(3, [](CommGroup& group) -> Verdict {
          const std::vector<std::uint64_t> counts{1, 0, 4};
          const auto own = counts[static_cast<std::size_t>(group.rank())];
          std::array<std::int32_t, 3> each{}, to_all{};
          std::array<std::int32_t, 5> uneven{};
          std::array<std::int32_t, 4> mine{};
          std::int32_t value = 0, sum = 0, root = 0;
          const auto call = [](Collective c, const void* input, void* output, std::size_t count) {
            return CollectiveCall{
                .collective = c, .input = input, .output = output, .count = count, .dtype = Dtype::i32};
          };
          CollectiveCall v = call(Collective::allgather, mine.data(), uneven.data(), 0);
          CollectiveCall b = call(Collective::broadcast, nullptr, &root, 1);
          b.root = 1;
          std::vector<CallPlan> plans;
          {
            const std::vector<std::uint64_t> lent = counts;  // gone before the first start
            v.counts = lent;
            plans.push_back(group.make_plan(v));
          }
          plans.push_back(group.make_plan(b));
          plans.push_back(group.make_plan(call(Collective::allgather, &value, each.data(), 1)));
          plans.push_back(group.make_plan(call(Collective::alltoall, each.data(), to_all.data(), 1)));
          plans.push_back(group.make_plan(call(Collective::scan, &value, &sum, 1)));
          plans.push_back(group.make_plan({.collective = Collective::barrier}));
          for (int run = 0; run < 30; ++run) {
            value = group.rank() + run;
            root = group.rank() == 1 ? run : -1;
            mine.fill(value);
            for (const CallPlan& plan : plans) {
              plan.start();
              plan.wait();
            }
            if (own > 0 && uneven[group.rank() == 0 ? 0 : 1] != value) return "allgatherv is wrong";
            if (root != run) return "broadcast is wrong";
            if (each != std::array<std::int32_t, 3>{run, run + 1, run + 2}) return "allgather is wrong";
            if (to_all != std::array<std::int32_t, 3>{value, value, value}) return "alltoall is wrong";
            if (sum != (group.rank() + 1) * run + group.rank() * (group.rank() + 1) / 2)
              return "scan is wrong";
          }
          return {};
        }) == "");
}

TEST_CASE("misuse is refused, and changes nothing") {
  CHECK(
      with_ranks(2, [](CommGroup& group) -> Verdict {
        Bucket bucket(group, 3);
        const CallPlan& plan = bucket.plan;
        const auto expect = [](const std::function<void()>& call, const std::string& text) -> Verdict {
          const std::string error = error_of(call);
          return error.find(text) == std::string::npos ? "expected '" + text + "', not '" + error + "'\n"
                                                       : "";
        };
        Verdict wrong;
        plan.wait();  // not started
        wrong += expect([&] { plan.ready(0); }, "ready: the plan has not been started");
        plan.start();
        wrong += expect([&] { plan.ready(2, 2); }, "first=2 and count=2: expected partitions of 0 to 2");
        wrong += expect([&] { plan.wait(3); }, "expected partitions of 0 to 2");
        wrong += expect([&] { static_cast<void>(plan.is_complete(1, 5)); }, "expected partitions of 0 to 2");
        plan.ready(1);
        wrong += expect([&] { plan.ready(0, 2); }, "partition 1 is ready already");
        wrong += expect([&] { plan.start(); }, "start: a run is under way: partition 0 of 3 is not complete");
        plan.ready(0);
        plan.ready(2);
        plan.wait();
        wrong += expect([&] { plan.ready(2); }, "partition 2 is ready already");
        wrong += expect([&] { CallPlan().start(); }, "start: this CallPlan is closed");
        float x = 0;
        CollectiveCall call{.input = &x, .output = &x, .count = 1};
        const CallPlan whole = group.make_plan(call);
        wrong += expect([&] { whole.ready(0); }, "ready: this plan has no partitions");
        const std::vector<std::uint64_t> two{1, 1};
        wrong += expect([&] { static_cast<void>(group.make_plan(call, two)); },
                        "partitions: they have 2 elements together, and the buffer 1");
        call.collective = Collective::scan;
        call.count = 2;
        wrong += expect([&] { static_cast<void>(group.make_plan(call, two)); }, "partitions: scan has none");
        call.collective = Collective::reduce;
        call.root = 2;
        wrong += expect([&] { static_cast<void>(group.make_plan(call)); },
                        "make_plan(reduce): root: 2 is no rank of the group; expected 0 to 1");
        group.barrier();
        return wrong;
      }) == "");
}

TEST_CASE("a plan that ends in the middle of a run fails on all ranks, and the group goes on") {
  for (const char* transport : {"shm", "tcp", "inproc"}) {
    INFO(transport);
    const Variables variables({{"TUTTI_TRANSPORTS", transport}});
    CHECK(with_ranks(3, [](CommGroup& group) -> Verdict {
            auto bucket = std::make_unique<Bucket>(group, 4);
            // Rank 1 may have ended its plan before this rank begins.
            const std::string error = error_of([&] {
              bucket->plan.start();
              bucket->plan.ready(0, 2);
              if (group.rank() == 1) return bucket.reset();
              bucket->plan.ready(2, 2);
              bucket->plan.wait();
            });
            if (group.rank() != 1) {
              if (error.find("rank 1 aborted the group: it ended its plan while a run was under way") ==
                  std::string::npos)
                return "said: " + error;
              if (error_of([&] { bucket->plan.start(); }).empty()) return "it started again";
              // Its partitions under way end as the group's failure reaches them.
              while (!bucket->plan.is_complete()) std::this_thread::yield();
            }
            group.barrier();
            return {};
          }) == "");
  }
}

TEST_CASE("a plan may end as soon as it was awaited") {
  for (const char* transport : {"shm", "tcp"}) {
    INFO(transport);
    const Variables variables({{"TUTTI_TRANSPORTS", transport}});
    CHECK(with_ranks(4, [](CommGroup& group) -> Verdict {
            for (int run = 0; run < 10; ++run) {
              Bucket bucket(group, 5);
              bucket.fill(4, 1);
              bucket.plan.start();
              bucket.plan.ready(0, 5);
              bucket.plan.wait();
              if (!bucket.holds(4, 4)) return "wrong sum";
            }
            group.barrier();
            return {};
          }) == "");
  }
}

TEST_CASE("partitions that this rank does not mark are named at the deadline") {
  CHECK(with_ranks(
            2,
            [](CommGroup& group) -> Verdict {
              Bucket bucket(group, 4);
              bucket.plan.start();
              bucket.plan.ready(0);
              bucket.plan.ready(2);
              const std::string error = error_of([&] { bucket.plan.wait(3); });
              bucket.plan.ready(1);
              bucket.plan.ready(3);
              bucket.plan.wait();
              group.barrier();
              const std::string expected =
                  "wait: partition 3 was not communicated within 1 s: this rank has not marked as ready: 1, "
                  "3 of "
                  "4 partitions";
              return error == expected ? "" : "said: " + error;
            },
            std::chrono::seconds(1)) == "");
}

TEST_CASE("waiting for a plan can be interrupted") {
  CHECK(with_ranks(1, [](CommGroup& group) -> Verdict {
          Bucket bucket(group, 2);
          bucket.plan.start();
          int asked = 0;
          const auto is_interrupted = [](void* context) { return ++*static_cast<int*>(context) == 2; };
          if (bucket.plan.wait_unless(is_interrupted, &asked)) return "it was not interrupted";
          bucket.plan.ready(0, 2);
          return bucket.plan.wait_unless(is_interrupted, &asked) ? "" : "it was interrupted again";
        }) == "");
}

// Waits without driving, until all of `ranks` have counted in this run.
bool all_have_counted(const std::atomic<int>& counter, int run, int ranks) {
  for (int i = 0; i < 200000 && counter.load() < (run + 1) * ranks; ++i)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  return counter.load() >= (run + 1) * ranks;
}

// A callback of another operation marks partitions. It runs inside calls of the plan, where these make progress.
struct CallbackRuns {
  static constexpr int kRanks = 3;
  static constexpr std::size_t kPartitions = 4;
  std::atomic<int> submitted = 0, called = 0;

  Verdict run_one(const CommGroup& group, const Bucket& bucket, int run) {
    const CallPlan& plan = bucket.plan;
    // In odd runs the last rank is late with partition 0, so that the other ranks have something to ask for.
    const bool is_first = run % 2 == 1 && group.rank() != kRanks - 1;
    std::atomic<bool> was_complete = false;
    float other = 1;
    plan.start();
    if (is_first) plan.ready(0);
    const Work work = group.iallreduce(std::span(&other, 1));
    ++submitted;
    work.on_complete([&](const Error*) {
      plan.ready(1);
      was_complete = plan.is_complete();
      plan.ready(3);
      ++called;
    });
    if (!all_have_counted(submitted, run, kRanks)) return "a rank does not submit";
    if (is_first) {
      // Partition 0 drives, unless it waits for its predecessors.
      do {
        for (int i = 0; i < 50; ++i) static_cast<void>(plan.is_complete(0));
      } while (!work.test());
    } else if (run % 2 == 1) {
      work.wait();
      if (!all_have_counted(called, run, kRanks)) return "a callback does not return";
    }
    if (!is_first) plan.ready(0);
    plan.ready(2);
    // Without partitions 1 and 3 there may be nothing of the plan to drive.
    while (!plan.is_complete()) static_cast<void>(work.test());
    plan.wait();
    return was_complete ? "it was complete before its last partition was ready" : "";
  }
};

Verdict run_with_callbacks(CommGroup& group, CallbackRuns& runs) {
  constexpr int kRuns = 20;
  std::vector<std::uint64_t> counts(CallbackRuns::kPartitions, 500);
  Bucket bucket(group, counts);
  for (int run = 0; run < kRuns; ++run) {
    for (std::size_t partition = 0; partition < counts.size(); ++partition)
      bucket.fill(partition, value_of(group.rank(), run, partition));
    const Verdict wrong = runs.run_one(group, bucket, run);
    if (!wrong.empty()) return "run " + std::to_string(run) + ": " + wrong;
    for (std::size_t partition = 0; partition < counts.size(); ++partition) {
      if (!bucket.holds(partition, sum_of(group.size(), run, partition)))
        return "run " + std::to_string(run) + ", partition " + std::to_string(partition) + " is wrong";
    }
  }
  group.barrier();
  return {};
}

TEST_CASE("callbacks of other operations mark partitions, and ask for them") {
  for (const char* transport : {"shm", "tcp", "inproc"}) {
    for (const char* threads : {"0", "1"}) {
      INFO(transport << ", TUTTI_PROGRESS_THREADS=" << threads);
      const Variables variables({{"TUTTI_TRANSPORTS", transport}, {"TUTTI_PROGRESS_THREADS", threads}});
      CallbackRuns runs;
      CHECK(with_ranks(CallbackRuns::kRanks,
                       [&](CommGroup& group) { return run_with_callbacks(group, runs); }) == "");
    }
  }
}

TEST_CASE("a thread that waits is served while another one submits and runs callbacks") {
  const Variables variables({{"TUTTI_PROGRESS_THREADS", "0"}});
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          Bucket bucket(group, 3);
          for (int run = 0; run < 50; ++run) {
            for (std::size_t partition = 0; partition < 3; ++partition) bucket.fill(partition, 1);
            float other = 1;
            bucket.plan.start();
            std::thread producer([&] {
              const Work work = group.iallreduce(std::span(&other, 1));
              work.on_complete([&](const Error*) { bucket.plan.ready(0); });
              bucket.plan.ready(1, 2);
              work.wait();
            });
            const std::string error = error_of([&] { bucket.plan.wait(); });
            const bool is_right = bucket.holds(0, 2) && bucket.holds(1, 2) && bucket.holds(2, 2);
            producer.join();
            if (!error.empty()) return "run " + std::to_string(run) + ": " + error;
            if (!is_right) return "run " + std::to_string(run) + " is wrong";
          }
          group.barrier();
          return {};
        }) == "");
}
