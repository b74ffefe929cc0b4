// Operations that nobody waits for: progress threads, completion callbacks, deadlines; and operations of several
// groups or streams at once, by several threads, in different orders. Through the public interface, with
// threads as ranks; knows no algorithm.
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

#include <sched.h>

#include "tests/support/async_traffic.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/thread_ranks.hpp"
#include "tutti/tutti.hpp"

using namespace tutti;
using namespace std::chrono_literals;
using Numbers = std::vector<std::int32_t>;

TEST_CASE("operations go on while nobody calls", "[async]") {
  const std::string transport = GENERATE("inproc", "shm");
  const std::string threads = GENERATE("1", "2");
  const Variables variables{{"TUTTI_TRANSPORTS", transport}, {"TUTTI_PROGRESS_THREADS", threads}};
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

// Where all share one CPU, a worker is in the program's way, and leaves to callers what they come by to
// drive. Rank 1 needs it when none comes any more.
TEST_CASE("a worker that has stood back comes forward when callers stay away", "[async]") {
  const Variables variables{{"TUTTI_PROGRESS_THREADS", "1"}};
  cpu_set_t before, one;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  std::atomic<bool> is_over{false};
  const std::string verdict = with_ranks(2, [&](CommGroup& group) -> Verdict {
    constexpr int kOperations = 300;
    std::vector<Numbers> vectors(kOperations, Numbers(20000, 1));
    if (group.rank() == 1) {
      for (Numbers& vector : vectors) group.allreduce(std::span(vector));
      is_over = true;
      return vectors.back() == Numbers(20000, 2) ? "" : "wrong sums";
    }
    std::vector<Work> works;
    for (Numbers& vector : vectors) {
      works.push_back(group.iallreduce(std::span(vector)));
      const auto computed = std::chrono::steady_clock::now() + 200us;
      while (std::chrono::steady_clock::now() < computed) {
      }
    }
    // Computes on, without a call, until rank 1 is through.
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (!is_over && std::chrono::steady_clock::now() < deadline) {
    }
    return is_over ? "" : "nobody moved the operations on";
  });
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
  CHECK(verdict == "");
}

// The memory that the operations of a slot need grows in different ways, while the slot is busy and while it is
// not. With messages, since only they need scratch.
TEST_CASE("an operation finds the memory that it needs, whatever came before it in its slot", "[async]") {
  const Variables variables{{"TUTTI_CONTROL_BLOCKS", "off"}, {"TUTTI_ADJUST_ALLREDUCE", "ring"}};
  std::atomic<bool> is_second_submitted{false};
  CHECK(with_ranks(3, [&](CommGroup& group) -> Verdict {
          if (group.rank() != 0 && !becomes_true(is_second_submitted)) return "rank 0 did not come";
          Numbers first(3, group.rank()), second(30, 1);
          const Work one = group.ibroadcast(first.data(), first.size(), Dtype::i32, 1);
          const Work two = group.iallreduce(std::span(second));  // more steps, while the first is under way
          is_second_submitted = true;
          one.wait();
          two.wait();
          // More scratch, while nothing is; and then in every slot.
          const std::vector<std::uint64_t> counts = {100, 0, 3000};
          const std::size_t mine = counts[static_cast<std::size_t>(group.rank())];
          const Numbers input(3100, group.rank() + 1);
          for (int round = 0; round < 8; ++round) {
            Numbers output(mine, -1);
            group.ireduce_scatterv(input.data(), output.data(), counts, Dtype::i32).wait();
            if (output != Numbers(mine, 6)) return "wrong sums in round " + std::to_string(round);
          }
          return "";
        }) == "");
}

TEST_CASE("without progress threads, callbacks come while something waits or tests", "[async]") {
  const Variables variables{{"TUTTI_PROGRESS_THREADS", "0"}};
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
          // Whoever called the last one may be about to return from it.
          std::atomic<bool> is_last_done{false};
          work.on_complete([&](const Error*) {
            order += "c";
            is_last_done = true;
          });
          if (!becomes_true(is_last_done)) return "the last one was not called";
          if (order != "abc") return "called in the order " + order;
          try {
            work.on_complete(nullptr);
            return "an empty callback was taken";
          } catch (const Error&) {
          }
          return refused;
        }) == "");
}

TEST_CASE("a callback that is given while an earlier one is running comes after it", "[async]") {
  std::atomic<bool> is_given{false};
  CHECK(with_ranks(2, [&](CommGroup& group) -> Verdict {
          std::vector<std::int32_t> vector(10, 1);
          if (group.rank() == 1) {
            if (!becomes_true(is_given)) return "rank 0 gives no callback";
            group.allreduce(std::span(vector));
            return "";
          }
          std::atomic<bool> is_running{false}, may_return{false}, is_next_done{false};
          std::string order;
          const Work work = group.iallreduce(std::span(vector));
          work.on_complete([&](const Error*) {
            is_running = true;
            becomes_true(may_return);
            order += "a";
          });
          is_given = true;
          if (!becomes_true(is_running)) return "not called";
          work.on_complete([&](const Error*) {
            order += "b";
            is_next_done = true;
          });
          may_return = true;
          if (!becomes_true(is_next_done)) return "the second was not called";
          return order == "ab" ? "" : "called in the order " + order;
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

namespace {

// The view of ranks 0 and 2 while rank 1 makes no call. `looked`: how many of them have seen it before a
// deadline.
Verdict miss_rank_1(const CommGroup& group, std::atomic<int>& looked) {
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  std::vector<std::int32_t> vector(1000, 1), message(3);
  const Work work = group.iallreduce(std::span(vector));
  const Work receive = group.irecv(message.data(), message.size(), Dtype::i32, 1, 0);
  if (work.wait_for(20ms)) return "complete without rank 1";
  if (!has(work.missing(), "did not arrive: rank 1 (pid ") || !has(work.missing(), "it is alive"))
    return "missing: " + work.missing();
  if (!has(receive.missing(), "from rank 1")) return "the message waits for: " + receive.missing();
  if (group.failure()) return "failed too early";
  ++looked;
  for (int i = 0; i < 20000 && looked.load() < 2; ++i) std::this_thread::sleep_for(1ms);
  try {
    work.wait_within(60ms);
    return "no error";
  } catch (const Error& error) {
    const bool is_right = error.code() == StatusCode::timeout && error.peer() == 1 &&
                          has(error.what(), "within 0.06 s; did not arrive: rank 1");
    if (!is_right) return error.what();
  }
  try {
    receive.wait();
    return "the group went on";
  } catch (const Error&) {
  }
  if (!group.failure() || group.failure()->code() != StatusCode::timeout) return "not known to have failed";
  return work.missing();
}

}  // namespace

TEST_CASE("a wait tells who is missing, and its own deadline fails the group", "[async]") {
  std::atomic<int> looked{0}, ended{0};
  CHECK(with_ranks(3, [&](CommGroup& group) -> Verdict {
          if (group.rank() != 1) {
            const Verdict verdict = miss_rank_1(group, looked);
            ++ended;
            return verdict;
          }
          for (int i = 0; i < 20000 && ended.load() < 2; ++i) std::this_thread::sleep_for(1ms);
          return {};
        }) == "");
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
  const std::string threads = GENERATE("0", "1", "2");
  const Variables variables{{"TUTTI_TRANSPORTS", transport}, {"TUTTI_PROGRESS_THREADS", threads}};
  constexpr int kOperations = 6000;  // of each group; 24,000 for each of the six cases
  const Verdict verdict = with_ranks(
      4, [&](CommGroup& world) { return run_overlapping_groups(world, kOperations); }, 60s);
  CHECK(verdict == "");
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

// -- streams ------------------------------------------------------------------------------------------------

namespace {

// An allreduce of its own kind, submitted; `entered` is told before it is waited for.
Verdict add_up(const CommGroup& stream, int number, int round, std::atomic<int>* entered = nullptr) {
  const std::size_t count = round % 5 == 0 ? 60000 : 10;  // several epochs or messages, or one
  Numbers vector(count, 1000 * round + 10 * number + stream.rank());
  if (entered == nullptr) {
    stream.allreduce(std::span(vector));
  } else {
    const Work work = stream.iallreduce(std::span(vector));
    *entered = round + 1;
    work.wait();
  }
  const int p = stream.size();
  const Numbers wanted(count, p * (1000 * round + 10 * number) + p * (p - 1) / 2);
  return vector == wanted ? "" : "wrong sums on stream " + std::to_string(number);
}

}  // namespace

TEST_CASE("two threads of a rank use two streams of a group in opposite orders", "[streams]") {
  const Variables variables{{"TUTTI_TRANSPORTS", GENERATE(as<std::string>(), "inproc", "shm", "tcp")},
                            {"TUTTI_PROGRESS_THREADS", GENERATE(as<std::string>(), "0", "1")}};
  constexpr int kRounds = 20;
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          if (group.rank() == 1) {
            // Into stream 1 only when stream 2 has got through that round.
            for (int round = 0; round < kRounds; ++round) {
              for (const int number : {2, 1}) {
                if (Verdict said = add_up(group.stream(number), number, round); !said.empty()) return said;
              }
            }
            return {};
          }
          // Into stream 2 only when the other thread is in stream 1, and waits there.
          std::atomic<int> entered{0};
          std::atomic<bool> has_failed{false};
          return with_threads(
              {group.stream(1), group.stream(2)}, [&](const CommGroup& stream, std::size_t i) {
                Verdict said;
                for (int round = 0; round < kRounds && said.empty() && !has_failed; ++round) {
                  while (i == 1 && entered.load() <= round && !has_failed) std::this_thread::yield();
                  said = add_up(stream, static_cast<int>(i) + 1, round, i == 0 ? &entered : nullptr);
                }
                has_failed = has_failed || !said.empty();
                return said;
              });
        }) == "");
}

TEST_CASE("what nobody matches on one stream holds up no other, whoever asks for it when", "[streams]") {
  const Variables variables{{"TUTTI_TRANSPORTS", GENERATE(as<std::string>(), "inproc", "shm", "tcp")}};
  CHECK(with_ranks(3, [](CommGroup& group) -> Verdict {
          // More than have resources at once. Rank 2 asks for this stream when all else is over.
          std::vector<Numbers> sums(10, Numbers(5000, 1));
          Numbers message(10, group.rank());
          std::vector<Work> unmatched;
          const auto submit = [&](const CommGroup& stream) {
            for (Numbers& sum : sums) unmatched.push_back(stream.iallreduce(std::span(sum)));
            if (stream.rank() != 2) {
              unmatched.push_back(stream.irecv(std::span(message), 2));
            } else {
              for (const int peer : {1, 0}) unmatched.push_back(stream.isend(std::span(message), peer));
            }
          };
          if (group.rank() != 2) submit(group.stream(9));
          // Numbers in an order of each rank's own, by threads that find the same stream.
          std::vector<CommGroup> streams(4, group);
          const Verdict said = with_threads(streams, [&](const CommGroup& any, std::size_t i) -> Verdict {
            const int number = (static_cast<int>(i) + group.rank()) % 4;
            for (int round = 0; round < 10; ++round) {
              Verdict wrong = add_up(any.stream(1).stream(number), number, round);
              if (!wrong.empty()) return wrong;
            }
            return {};
          });
          if (!said.empty()) return said;
          for (const Work& work : unmatched) {
            if (work.test()) return "complete without rank 2";
          }
          group.barrier();
          if (group.rank() == 2) submit(group.stream(9));
          group = group.stream(9);  // the group lives on in its stream
          wait_all(unmatched);
          for (const Numbers& sum : sums) {
            if (sum != Numbers(5000, 3)) return "wrong sums";
          }
          group.barrier();
          return message == Numbers(10, 2) ? "" : "another message";
        }) == "");
}

TEST_CASE("the streams of a group fail together, and say on which it was", "[streams]") {
  CHECK(with_ranks(2, [&](CommGroup& group) -> Verdict {
          const auto error_of = [](const auto& body) -> std::string {
            try {
              body();
            } catch (const Error& error) {
              return error.code() == StatusCode::mismatch ? error.what() : "another code";
            }
            return "no error";
          };
          const CommGroup part = group.split(0);
          Numbers vector(1000, 1), other(8, 1);
          {
            const Work waiting = part.irecv(std::span(other), 1 - part.rank());
            const CommGroup broken = part.stream(5);
            const std::string found = error_of([&] {
              for (int i = 0; i < 2; ++i)
                broken.allreduce(std::span(vector).first(part.rank() == 0 || i == 0 ? 10U : 11U));
            });
            for (const char* word : {"stream 5", "operation 2", "different calls"})
              if (found.find(word) == std::string::npos) return found;
            for (const std::string& same :
                 {error_of([&] { waiting.wait(); }), error_of([&] { part.barrier(); }),
                  error_of([&] { part.stream(0).barrier(); }), error_of([&] { part.stream(6).barrier(); })}) {
              if (same != found) return "not the same cause: " + same + " / " + found;
            }
          }
          // Nobody else is touched.
          group.barrier();
          try {
            static_cast<void>(group.stream(-1));
            return "a stream of a negative number";
          } catch (const Error& error) {
            return error.code() == StatusCode::invalid_argument ? "" : error.what();
          }
        }) == "");
}
