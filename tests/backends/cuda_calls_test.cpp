// Calls on device memory, staged through the host, through the public interface: every collective, ordered on
// its stream, against the same call on host memory. Ranks are threads, each with a stream of its own of one
// device; the driver is the stand-in.
#include <cstdlib>

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/cuda_stand_in/control.hpp"
#include "tests/support/device_calls.hpp"

namespace {

using namespace tutti;
using Catch::Matchers::Contains;
using namespace std::chrono_literals;

// The stand-in, unless the suite of tests on GPUs has named a GPU's driver; set before anything else asks.
const bool is_named = ::setenv("TUTTI_CUDA_LIBRARY", STAND_IN_FILE, 0) == 0;

}  // namespace

TEST_CASE("calls on device memory give what calls on host memory give, in stream order") {
  REQUIRE(is_named);
  const int size = GENERATE(2, 3);
  const Verdict verdict_of_all = with_ranks(size, [size](CommGroup& group) -> Verdict {
    Verdict verdict;
    for (const std::size_t count : {0U, 1U, 5U, 4097U}) {
      const int root = static_cast<int>(count % static_cast<std::size_t>(size));
      if (verdict.empty()) verdict = compare_calls(group, count, Dtype::i32, Op::sum, root);
      if (verdict.empty()) verdict = compare_calls(group, count, Dtype::f32, Op::avg, root);
    }
    if (verdict.empty()) verdict = compare_calls(group, 300000, Dtype::f64, Op::max, 0);
    return verdict;
  });
  CHECK(verdict_of_all == "");
}

namespace {

// Shared by the tests below: a rank's stream, and numbers in device memory.
struct Numbers {
  explicit Numbers(std::size_t length) : count(length), memory(0, 4 * length) {}
  void fill(const cuda::Stream& stream, std::int32_t value) {
    Bytes content(4 * count);
    for (std::size_t i = 0; i < count; ++i) std::memcpy(&content[4 * i], &value, 4);
    filling = fill_later(stream, memory.data(), content);
  }
  bool hold(const cuda::Stream& stream, std::int32_t value) const {
    const Bytes found = read_behind(stream, memory.data(), 4 * count);
    for (std::size_t i = 0; i < count; ++i) {
      if (std::memcmp(&found[4 * i], &value, 4) != 0) return false;
    }
    return true;
  }
  std::size_t count;
  test::DeviceMemory memory;
  cuda::PinnedBuffer filling;
};

CallOptions on(const cuda::Stream& stream) {
  CallOptions options;
  options.cuda_stream = stream.get();
  return options;
}

Verdict with_stream(const std::function<Verdict(const cuda::Stream& stream)>& body) {
  const auto context = cuda::ContextScope::enter(0);
  const auto stream = cuda::Stream::create(0);
  return stream ? body(*stream) : stream.status().message();
}

}  // namespace

TEST_CASE("submitted calls of two groups on two streams, in opposite orders, each with its callback") {
  const Verdict verdict = with_ranks(2, [](CommGroup& world) -> Verdict {
    const CommGroup other = world.split(0, world.rank());
    return with_stream([&](const cuda::Stream& one) {
      return with_stream([&](const cuda::Stream& two) -> Verdict {
        Numbers a(1000), b(70000);
        // A group's first call meets all its ranks.
        for (const CommGroup& group : {world, other})
          group.allreduce(a.memory.data(), a.memory.data(), 1, Dtype::i32, Op::sum, on(one));
        std::atomic<int> called{0};
        const auto count_call = [&](const Error* error) { called += error == nullptr ? 1 : 100; };
        for (int round = 0; round < 20; ++round) {
          called = 0;
          a.fill(one, round + world.rank());
          b.fill(two, 2 * round + world.rank());
          Work works[2];
          for (int turn = 0; turn < 2; ++turn) {
            const bool is_a = (turn + world.rank()) % 2 == 0;
            const Numbers& mine = is_a ? a : b;
            works[turn] = (is_a ? world : other)
                              .iallreduce(mine.memory.data(), mine.memory.data(), mine.count, Dtype::i32,
                                          Op::sum, on(is_a ? one : two));
            works[turn].on_complete(count_call);
          }
          wait_all(works);
          if (!a.hold(one, 2 * round + 1) || !b.hold(two, 4 * round + 1)) return "wrong sums";
          for (int i = 0; i < 20000 && called != 2; ++i) std::this_thread::sleep_for(100us);
          if (called != 2) return "callbacks: " + std::to_string(called.load());
        }
        return "";
      });
    });
  });
  CHECK(verdict == "");
}

TEST_CASE("messages between device memory, with tags and from any source") {
  const Verdict verdict = with_ranks(3, [](CommGroup& group) -> Verdict {
    return with_stream([&](const cuda::Stream& stream) -> Verdict {
      const int next = (group.rank() + 1) % 3, before = (group.rank() + 2) % 3;
      Numbers mine(5000), theirs(5000), any(1);
      mine.fill(stream, 100 + group.rank());
      const Work sent = group.isend(mine.memory.data(), mine.count, Dtype::i32, next, 7, on(stream));
      const Work received =
          group.irecv(theirs.memory.data(), theirs.count, Dtype::i32, before, 7, on(stream));
      sent.wait();
      received.wait();
      if (received.source() != before || !theirs.hold(stream, 100 + before)) return "a ring of messages";
      if (group.rank() != 0) {
        any.fill(stream, group.rank());
        group.send(any.memory.data(), 1, Dtype::i32, 0, 0, on(stream));
        return any.hold(stream, group.rank()) ? "" : "a sent buffer has changed";
      }
      for (int i = 0; i < 2; ++i) {
        const int source = group.recv(any.memory.data(), 1, Dtype::i32, kAnySource, 0, on(stream));
        if (!any.hold(stream, source)) return "a message from any source";
      }
      return "";
    });
  });
  CHECK(verdict == "");
}

TEST_CASE("rules and arguments name who carries calls on device memory", "[stand-in]") {
  const Variables variables{{"TUTTI_ADJUST_ALLREDUCE", "nccl:64k-;staged:-1k;ring"}};
  const Verdict verdict = with_ranks(2, [](CommGroup& group) -> Verdict {
    return with_stream([&](const cuda::Stream& stream) -> Verdict {
      Numbers numbers(100000);
      void* const memory = numbers.memory.data();
      const auto allreduce = [&](std::size_t count, const char* algorithm) {
        CallOptions options = on(stream);
        options.algorithm = algorithm;
        return error_of([&] { group.allreduce(memory, memory, count, Dtype::i32, Op::sum, options); });
      };
      numbers.fill(stream, 1);
      for (const std::size_t count : {10U, 1000U}) {
        if (const std::string error = allreduce(count, ""); !error.empty()) return error;
      }
      if (const std::string error = allreduce(10, "recursive_doubling"); !error.empty()) return error;
      if (const std::string error = allreduce(100000, "staged"); !error.empty()) return error;
      // The named engine is used or refused with the reason, on all ranks alike.
      if (const std::string error = allreduce(100000, "");
          error.find("TUTTI_ADJUST_ALLREDUCE item 1") > error.size())
        return "no NCCL: " + error;
      // The same rules mean other items where the memory is the host's.
      std::vector<std::int32_t> host(100000, 1);
      group.allreduce(std::span(host));
      CallOptions nccl;
      nccl.algorithm = "nccl";
      const std::string error =
          error_of([&] { group.allreduce(host.data(), host.data(), 1, Dtype::i32, Op::sum, nccl); });
      return error.find("memory of the host") < error.size() ? "" : "host memory by NCCL: " + error;
    });
  });
  CHECK(verdict == "");
}

TEST_CASE("buffers in two places, and places that are not as said, are refused by name", "[stand-in]") {
  const Verdict verdict = with_ranks(1, [](CommGroup& group) -> Verdict {
    return with_stream([&](const cuda::Stream& stream) -> Verdict {
      const Numbers numbers(4);
      std::int32_t host[4] = {};
      const std::string mixed =
          error_of([&] { group.allreduce(numbers.memory.data(), host, 4, Dtype::i32, Op::sum, on(stream)); });
      CallOptions device = on(stream);
      device.memory = Memory::device;
      const std::string wrong =
          error_of([&] { group.allreduce(host, host, 4, Dtype::i32, Op::sum, device); });
      const test::DeviceMemory elsewhere(1, 16);
      group.allreduce(numbers.memory.data(), numbers.memory.data(), 4, Dtype::i32, Op::sum, on(stream));
      const std::string two =
          error_of([&] { group.allreduce(elsewhere.data(), elsewhere.data(), 4, Dtype::i32); });
      if (mixed !=
          "allreduce: input is on GPU 0, output is in host memory; all buffers of a call must be in one "
          "place")
        return mixed;
      if (wrong.find("allreduce: memory: the call is said to be on a GPU") > wrong.size()) return wrong;
      if (two.find("GPU 1") > two.size()) return two;
      return "";
    });
  });
  CHECK(verdict == "");
}

TEST_CASE("a rank that does not come fails the call on its stream, and the stream goes on") {
  std::atomic<bool> has_failed{false};
  const Verdict verdict = with_ranks(
      2,
      [&](CommGroup& group) -> Verdict {
        return with_stream([&](const cuda::Stream& stream) -> Verdict {
          Numbers numbers(1000);
          numbers.fill(stream, 1);
          group.allreduce(numbers.memory.data(), numbers.memory.data(), numbers.count, Dtype::i32, Op::sum,
                          on(stream));
          if (!numbers.hold(stream, 2)) return "wrong sum";
          if (group.rank() == 1) {
            return becomes_true(has_failed) ? "" : "the other rank's call does not fail";
          }
          const Work work = group.iallreduce(numbers.memory.data(), numbers.memory.data(), numbers.count,
                                             Dtype::i32, Op::sum, on(stream));
          const std::string error = error_of([&] { work.wait(); });
          const std::string later = error_of([&] {
            group.allreduce(numbers.memory.data(), numbers.memory.data(), 1, Dtype::i32, Op::sum, on(stream));
          });
          static_cast<void>(numbers.hold(stream, 0));  // returns
          has_failed = true;
          if (error.find("allreduce") > error.size() || later.empty())
            return "first: " + error + "; then: " + later;
          return "";
        });
      },
      1500ms);
  CHECK(verdict == "");
}

TEST_CASE("a GPU without memory or pinned memory to spare says so, and the group goes on", "[stand-in]") {
  const Verdict verdict = with_ranks(1, [](CommGroup& group) -> Verdict {
    return with_stream([&](const cuda::Stream& stream) -> Verdict {
      Numbers numbers(5000000);  // more than any case above has pinned
      numbers.fill(stream, 3);
      cuda_stand_in_fail("cuMemHostAlloc", CUDA_ERROR_OUT_OF_MEMORY, 1);
      const auto call = [&] {
        group.allreduce(numbers.memory.data(), numbers.memory.data(), numbers.count, Dtype::i32, Op::sum,
                        on(stream));
      };
      const std::string error = error_of(call);
      if (error.find("cuMemHostAlloc") > error.size()) return "no failure: " + error;
      call();
      return numbers.hold(stream, 3) ? "" : "wrong sum";
    });
  });
  CHECK(verdict == "");
}
