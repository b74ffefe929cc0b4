// Plain submitted allreduces that share operations (TUTTI_FUSION_COUNT): any order of waiting, any mixture of calls.
#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/group/call_fusion.hpp"
#include "runtime/group/comm_group.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/thread_ranks.hpp"
#include "tutti/tensors.hpp"

using namespace tutti;

namespace {

CommGroup::Impl& impl_of(CommGroup& group) { return CommGroup::Impl::of(group, "test"); }

// Calls of several kinds, some too long to be packed, and the sums that they must have.
struct Mixture {
  std::vector<std::vector<float>> floats;
  std::vector<std::vector<int>> ints;
  std::vector<Work> works;

  void submit(const CommGroup& group, int count) {
    const int rank = group.rank();
    floats.resize(static_cast<std::size_t>(count));
    ints.resize(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      auto& f = floats[static_cast<std::size_t>(i)];
      auto& n = ints[static_cast<std::size_t>(i)];
      if (i % 7 == 3) {
        n.assign(static_cast<std::size_t>(i + 1), rank - i);
        works.push_back(group.iallreduce(std::span(n), Op::max));
      } else {
        f.assign(i == 20 ? 100000U : static_cast<std::size_t>(3 * i), static_cast<float>(rank + i));
        works.push_back(group.iallreduce(std::span(f), i % 5 == 4 ? Op::avg : Op::sum));
      }
    }
  }

  Verdict check(int p) const {
    for (int i = 0; i < static_cast<int>(floats.size()); ++i) {
      const auto& f = floats[static_cast<std::size_t>(i)];
      const auto& n = ints[static_cast<std::size_t>(i)];
      const float sum = static_cast<float>(p * (p - 1)) / 2 + static_cast<float>(p * i);
      const float expected = i % 5 == 4 ? sum / static_cast<float>(p) : sum;
      if (std::any_of(f.begin(), f.end(), [&](float value) { return value != expected; }) ||
          std::any_of(n.begin(), n.end(), [&](int value) { return value != p - 1 - i; }))
        return "call " + std::to_string(i) + " is wrong";
    }
    return {};
  }
};

// Each rank waits in an order, and at points, of its own.
void wait_somehow(const CommGroup& group, std::vector<Work>& works) {
  switch (group.rank() % 4) {
    case 0:
      for (const Work& work : works) work.wait();
      break;
    case 1:
      std::for_each(works.rbegin(), works.rend(), [](const Work& work) { work.wait(); });
      break;
    case 2:
      while (!std::all_of(works.begin(), works.end(), [](const Work& work) { return work.test(); })) {
      }
      break;
    default: {
      std::thread other([&] { works.back().wait(); });
      works.front().wait();
      other.join();
      wait_all(works);
    }
  }
}

}  // namespace

TEST_CASE("fused calls have the right sums, whatever the order of waiting") {
  for (const char* transport : {"shm", "tcp"}) {
    for (const char* count : {"2", "16"}) {
      INFO(transport << ", TUTTI_FUSION_COUNT=" << count);
      const Variables variables({{"TUTTI_TRANSPORTS", transport}, {"TUTTI_FUSION_COUNT", count}});
      CHECK(with_ranks(4, [](CommGroup& group) -> Verdict {
              for (int step = 0; step < 10; ++step) {
                Mixture mixture;
                mixture.submit(group, 40);
                // A call of another kind is no member, and does not wait for any.
                if (step % 2 == 0) group.barrier();
                wait_somehow(group, mixture.works);
                if (Verdict wrong = mixture.check(group.size()); !wrong.empty()) return wrong;
              }
              group.barrier();
              return {};
            }) == "");
    }
  }
}

TEST_CASE("a rank that waits for each call meets ranks that submit many") {
  const Variables variables({{"TUTTI_TRANSPORTS", "tcp"}, {"TUTTI_FUSION_COUNT", "64"}});
  CHECK(with_ranks(3, [](CommGroup& group) -> Verdict {
          std::vector<float> values(100, 1);
          std::vector<Work> works;
          for (float& value : values) {
            works.push_back(group.iallreduce(std::span(&value, 1)));
            if (group.rank() == 0) works.back().wait();
          }
          wait_all(works);
          group.barrier();
          return std::all_of(values.begin(), values.end(), [](float value) { return value == 3; }) ? ""
                                                                                                   : "wrong";
        }) == "");
}

TEST_CASE("a call is complete although a rank does not wait for it yet") {
  std::atomic<bool> is_complete = false;
  const Variables variables({{"TUTTI_FUSION_COUNT", "64"}});
  CHECK(with_ranks(2, [&](CommGroup& group) -> Verdict {
          float value = 1;
          const Work work = group.iallreduce(std::span(&value, 1));
          // Rank 1 is elsewhere, and calls nothing of tutti, until rank 0 has its sum.
          if (group.rank() == 0) {
            work.wait();
            is_complete = true;
          } else if (!becomes_true(is_complete)) {
            return "rank 0 waits for a call that rank 1 has submitted";
          }
          work.wait();
          return value == 2 ? "" : "wrong";
        }) == "");
}

TEST_CASE("calls that are submitted while a batch is under way share the next operations") {
  const Variables variables(
      {{"TUTTI_TRANSPORTS", "tcp"}, {"TUTTI_FUSION_COUNT", "16"}, {"TUTTI_FUSION_BYTES", "1m"}});
  CHECK(with_ranks(3, [](CommGroup& group) -> Verdict {
          constexpr std::uint32_t kCalls = 64, kMostTries = 200;
          std::uint32_t before = 0;
          // All ranks count the same operations, so all of them end with the same try.
          for (std::uint32_t tries = 0; tries < kMostTries; ++tries) {
            std::vector<float> values(kCalls, 1);
            std::vector<Work> works;
            for (float& value : values) works.push_back(group.iallreduce(std::span(&value, 1)));
            wait_all(works);
            if (std::any_of(values.begin(), values.end(), [](float value) { return value != 3; }))
              return "wrong";
            CommGroup::Impl& data = impl_of(group).internal_stream(CommGroup::Impl::Purpose::fused_calls);
            const std::uint32_t operations =
                data.group().last_sequence() - std::exchange(before, data.group().last_sequence());
            if (operations < kCalls / 16) return "a batch is too long";
            if (operations < kCalls / 2) return {};
          }
          return "nothing was fused";
        }) == "");
}

TEST_CASE("streams share operations of their own, and named tensors go on") {
  const Variables variables({{"TUTTI_FUSION_COUNT", "8"}});
  CHECK(with_ranks(3, [](CommGroup& group) -> Verdict {
          const TensorQueue tensors(group);
          for (int round = 0; round < 3; ++round) {
            const CommGroup stream = group.stream(1);
            Mixture mine, other;
            // Ranks submit to the two in orders of their own.
            for (const bool is_stream : {group.rank() == 1, group.rank() != 1})
              (is_stream ? mine : other).submit(is_stream ? stream : group, 20);
            float value = 1;
            const std::uint64_t shape[] = {1};
            const Work named = tensors.submit("t", {.input = &value, .output = &value, .shape = shape});
            wait_somehow(group, mine.works);
            wait_somehow(group, other.works);
            named.wait();
            if (Verdict wrong = mine.check(3); !wrong.empty()) return "of the stream, " + wrong;
            if (Verdict wrong = other.check(3); !wrong.empty()) return wrong;
            if (value != 3) return "the tensor is wrong";
            mine.works.clear();
            group.barrier();
            group.close_stream(1);
          }
          return {};
        }) == "");
}

TEST_CASE("every thread that waits for fused calls calls its function meanwhile") {
  const Variables variables({{"TUTTI_FUSION_COUNT", "8"}});
  std::atomic<bool> are_called[2] = {false, false};
  CHECK(with_ranks(2, [&](CommGroup& group) -> Verdict {
          float values[2] = {1, 2};
          // One of rank 0's threads drives the operation, the other one sleeps.
          if (group.rank() == 1 && !(becomes_true(are_called[0]) && becomes_true(are_called[1])))
            return "a function is not called";
          const auto submit = [&](int i) {
            CallOptions options;
            options.while_waiting = [](void* is_called) noexcept {
              *static_cast<std::atomic<bool>*>(is_called) = true;
            };
            options.while_waiting_context = &are_called[i];
            return group.iallreduce(std::span(values + i, 1), Op::sum, options);
          };
          const Work works[] = {submit(0), submit(1)};
          std::string errors[2];
          std::thread other([&] { errors[1] = error_of([&] { works[1].wait(); }); });
          errors[0] = error_of([&] { works[0].wait(); });
          other.join();
          if (!errors[0].empty() || !errors[1].empty()) return errors[0] + errors[1];
          return values[0] == 2 && values[1] == 4 ? "" : "wrong";
        }) == "");
}

TEST_CASE("a failure of the group ends fused calls") {
  const Variables variables({{"TUTTI_FUSION_COUNT", "8"}});
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          std::vector<float> values(2, 1);
          if (group.rank() == 1) {
            group.abort("enough of it");
            return {};
          }
          // Submitted before the failure is known here, or after.
          for (int i = 0; i < 2; ++i) {
            const std::string error = error_of([&] {
              const Work works[] = {group.iallreduce(std::span(values.data(), 1)),
                                    group.iallreduce(std::span(values.data() + 1, 1))};
              works[1 - i].wait();
            });
            if (error.find("enough of it") == std::string::npos) return "said: " + error;
          }
          return {};
        }) == "");
}

TEST_CASE("a callback may ask for streams while the stream of its call is closed") {
  const Variables variables({{"TUTTI_FUSION_COUNT", "8"}, {"TUTTI_PROGRESS_THREADS", "1"}});
  std::atomic<bool> is_wanted = false, is_in_callback = false, has_called = false;
  CHECK(with_ranks(2, [&](CommGroup& group) -> Verdict {
          CommGroup stream = group.stream(1);
          float value = 1, late = 1, refused = 1;
          if (group.rank() == 1) {
            // The call of rank 0 must not be complete before it has its callback.
            if (!becomes_true(is_wanted)) return "rank 0 does not submit";
            stream.iallreduce(std::span(&value, 1)).wait();
            group.stream(2).iallreduce(std::span(&late, 1)).wait();
            group.close_stream(1);
            group.barrier();
            return value == 2 && late == 2 ? "" : "wrong sums";
          }
          Work next;
          std::string error;
          stream.iallreduce(std::span(&value, 1)).on_complete([&](const Error*) {
            is_in_callback = true;
            // The stream is no longer one of the group's once the other thread is closing it.
            while (impl_of(group).find_handle(&impl_of(stream)) != nullptr) std::this_thread::yield();
            next = group.stream(2).iallreduce(std::span(&late, 1));
            error = error_of([&] { static_cast<void>(stream.iallreduce(std::span(&refused, 1))); });
            has_called = true;
          });
          is_wanted = true;
          if (!becomes_true(is_in_callback)) return "the call is not complete";
          group.close_stream(1);
          if (!becomes_true(has_called)) return "the callback does not return";
          next.wait();
          group.barrier();
          if (value != 2 || late != 2) return "wrong sums";
          // It is refused, or fails with the stream.
          return error.empty() || error.find("has ended") != std::string::npos ||
                         error.find("was closed") != std::string::npos
                     ? ""
                     : "said: " + error;
        }) == "");
}

TEST_CASE("a batch under way outlives the end of fusion, and calls that wait do not") {
  // Nobody makes progress but who calls tutti.
  const Variables variables({{"TUTTI_PROGRESS_THREADS", "0"}});
  std::atomic<bool> has_submitted = false, has_closed = false;
  CHECK(with_ranks(2, [&](CommGroup& group) -> Verdict {
          using Purpose = CommGroup::Impl::Purpose;
          CommGroup::Impl& data = impl_of(group).internal_stream(Purpose::fused_calls);
          const auto fusion =
              std::make_shared<CallFusion>(impl_of(group).internal_stream(Purpose::fusion_lengths), data,
                                           CallFusion::Limits{8, 1U << 20U});
          float first = 1, second = 1, third = 1;
          const auto call_on = [](float& value) {
            Call call;
            call.dtype = Dtype::f32;
            call.op = Op::sum;
            call.in_place = true;
            call.input = call.output = &value;
            call.count = 1;
            return call;
          };
          const auto finish = [](const WorkRef& work) {
            return work->wait(Clock::now() + std::chrono::seconds(20));
          };
          // The first one makes connections.
          if (!finish(*fusion->submit(call_on(first)))) return "the first call fails";
          group.barrier();
          if (group.rank() == 0 && !becomes_true(has_submitted)) return "rank 1 does not submit";
          const WorkRef work = *fusion->submit(call_on(second));
          if (group.rank() == 1) {
            has_submitted = true;
            // Its part of the batch is missing until then.
            if (!becomes_true(has_closed)) return "rank 0 does not close";
          } else {
            const auto deadline = Clock::now() + std::chrono::seconds(20);
            while (data.group().last_sequence() < 2 && Clock::now() < deadline) work->test();
            if (data.group().last_sequence() < 2) return "the batch does not begin";
            const WorkRef pending = *fusion->submit(call_on(third));
            fusion->close();
            const bool is_early = work->is_complete();
            has_closed = true;
            if (is_early) return "the call is complete while its operation uses its memory";
            if (!pending->is_complete() || pending->status().code() != StatusCode::aborted)
              return "the call that waits is not aborted";
          }
          if (const Status status = finish(work); !status) return "it fails: " + status.message();
          fusion->close();
          group.barrier();
          return first == 2 && second == 2 && third == 1 ? "" : "wrong";
        }) == "");
}

TEST_CASE("calls of plans are not fused") {
  const Variables variables({{"TUTTI_FUSION_COUNT", "8"}});
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          const std::vector<int> ranks{0, 1};
          CommGroup of_plan = group.create(ranks, "tutti plan"), other = group.create(ranks, "other");
          float value = 1;
          of_plan.iallreduce(std::span(&value, 1)).wait();
          other.iallreduce(std::span(&value, 1)).wait();
          group.barrier();
          if (value != 4) return "wrong";
          if (impl_of(of_plan).group().last_sequence() != 1)
            return "the plan's call is not its own operation";
          return impl_of(other).group().last_sequence() == 0 ? "" : "nothing is fused";
        }) == "");
}
