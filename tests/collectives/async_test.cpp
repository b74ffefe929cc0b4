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

#include "tests/support/async_traffic.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/thread_ranks.hpp"
#include "tutti/tutti.hpp"

using namespace tutti;
using namespace std::chrono_literals;

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
