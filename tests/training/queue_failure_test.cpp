// Named tensors whose negotiation fails or ends, in one level and in blocks of ranks. Uses the scheduler by itself,
// since blocks of two ranks are no setting of a program.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "runtime/training/tensor_scheduler.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/thread_ranks.hpp"

using namespace tutti;

namespace {

constexpr int kRanks = 5;

TensorQueueOptions in_blocks_of(std::uint32_t ranks) {
  TensorQueueOptions options;
  options.block_ranks = ranks;
  return options;
}

// Submits and waits, in this thread.
Status reduce(TensorScheduler& scheduler, const std::string& name, float& value) {
  const std::uint64_t shape[] = {1};
  TensorCall call;
  call.input = call.output = &value;
  call.shape = shape;
  call.memory = Memory::host;
  try {
    return scheduler.submit(name, call)->wait(Clock::now() + std::chrono::seconds(20));
  } catch (const Error& error) {
    return Status(error.code(), error.what(), error.peer());
  }
}

bool says(const Status& status, const std::string& words) {
  return !status && status.message().find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("a rank that closes its queue while others submit ends it on all ranks") {
  for (const std::uint32_t block_ranks : {32U, 2U}) {
    INFO("blocks of " << block_ranks);
    CHECK(with_ranks(kRanks, [&](CommGroup& group) -> Verdict {
            TensorScheduler scheduler(group, in_blocks_of(block_ranks));
            for (int step = 0; step < 3; ++step) {
              float value = 1;
              if (const Status status = reduce(scheduler, "t", value); !status) return status.message();
              if (value != kRanks) return "wrong";
            }
            if (group.rank() == 3) {
              scheduler.close();
              return {};
            }
            float lonely = 1;
            // One that is known to the cache, and one that is new.
            for (const char* name : {"t", "only here"}) {
              const Status status = reduce(scheduler, name, lonely);
              if (!says(status, "closed the tensor queue")) return "said: " + status.message();
            }
            return {};
          }) == "");
  }
}

TEST_CASE("a rank that never negotiates fails the tensors of all others") {
  for (const std::uint32_t block_ranks : {32U, 2U}) {
    INFO("blocks of " << block_ranks);
    std::atomic<int> waiting = kRanks - 1;
    std::atomic<bool> has_ended = false;
    CHECK(with_ranks(
              kRanks,
              [&](CommGroup& group) -> Verdict {
                // The last one is a block of its own, so the agreement fails on the first ranks of blocks alone.
                if (group.rank() == kRanks - 1) return becomes_true(has_ended) ? "" : "others wait for ever";
                Status first, second;
                {
                  TensorScheduler scheduler(group, in_blocks_of(block_ranks));
                  float value = 1;
                  first = reduce(scheduler, "t", value);
                  second = reduce(scheduler, "t", value);
                }
                if (--waiting == 0) has_ended = true;
                if (!says(first, "tensor \"t\": ") || !says(first, "did not arrive"))
                  return "said: " + first.message();
                return second ? "the queue takes another tensor" : "";
              },
              std::chrono::seconds(4)) == "");
  }
}
