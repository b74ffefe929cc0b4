// Named tensors over ranks that are threads: any order, errors, uneven parts, batches, ranks that join.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/support/catch.hpp"
#include "tests/support/thread_ranks.hpp"
#include "tutti/tensors.hpp"

using namespace tutti;

namespace {

std::string name_of(int tensor) { return "layer" + std::to_string(tensor); }

// An allreduce in place.
Work reduce(const TensorQueue& queue, const std::string& name, std::vector<float>& values,
            TensorCall call = {}) {
  const std::uint64_t shape[] = {values.size()};
  call.input = call.output = values.data();
  call.shape = shape;
  return queue.submit(name, call);
}

// Steps of tensors in an order of each rank's own.
Verdict train(CommGroup& group, int steps, int tensors) {
  const TensorQueue queue(group);
  std::mt19937 random(static_cast<unsigned>(group.rank()));
  std::vector<int> order(static_cast<std::size_t>(tensors));
  std::iota(order.begin(), order.end(), 0);
  for (int step = 0; step < steps; ++step) {
    std::shuffle(order.begin(), order.end(), random);
    std::vector<std::vector<float>> values;
    for (int i = 0; i < tensors; ++i)
      values.emplace_back(static_cast<std::size_t>(1 + i * i * 37),
                          static_cast<float>(group.rank() + i + step));
    std::vector<Work> works;
    for (const int i : order) works.push_back(reduce(queue, name_of(i), values[static_cast<std::size_t>(i)]));
    for (const Work& work : works) work.wait();
    for (int i = 0; i < tensors; ++i) {
      const int p = group.size();
      const auto expected = static_cast<float>(p * (p - 1) / 2 + p * (i + step));
      for (const float value : values[static_cast<std::size_t>(i)]) {
        if (value != expected) return "step " + std::to_string(step) + ", " + name_of(i) + " is wrong";
      }
    }
  }
  group.barrier();
  return {};
}

}  // namespace

TEST_CASE("tensors submitted in another order on each rank are summed by name") {
  for (const char* transport : {"shm", "tcp"}) {
    const Variables variables({{"TUTTI_TRANSPORTS", transport}});
    CHECK(with_ranks(3, [](CommGroup& group) { return train(group, 12, 9); }) == "");
  }
}

TEST_CASE("the order is found without a cache, with a small one, and without fusion") {
  for (const auto& [name, value] : {std::pair{"TUTTI_CACHE_CAPACITY", "0"},
                                    {"TUTTI_CACHE_CAPACITY", "4"},
                                    {"TUTTI_FUSION_BYTES", "0"},
                                    {"TUTTI_PRIORITY", "lifo"}}) {
    INFO(name << "=" << value);
    const Variables variables({{name, value}});
    CHECK(with_ranks(2, [](CommGroup& group) { return train(group, 6, 7); }) == "");
  }
}

TEST_CASE("many ranks of one node negotiate in two levels") {
  const Variables variables({{"TUTTI_TRANSPORTS", "inproc"}});
  CHECK(with_ranks(66, [](CommGroup& group) { return train(group, 3, 3); }) == "");  // blocks of 32, 32 and 2
}

TEST_CASE("one rank alone needs nobody") {
  CHECK(with_ranks(1, [](CommGroup& group) { return train(group, 3, 4); }) == "");
}

TEST_CASE("what ranks disagree about is thrown on all of them, and other tensors go on") {
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          const TensorQueue queue(group);
          std::vector<float> differing(group.rank() == 0 ? 3U : 4U, 1), equal(5, 1);
          const Work wrong = reduce(queue, "w", differing);
          const Work right = reduce(queue, "r", equal);
          right.wait();
          if (equal[0] != 2) return "the other tensor is wrong";
          const std::string error = error_of([&] { wrong.wait(); });
          if (error.find("tensor \"w\" with different shape [3] and [4]: rank 0 of 2 submitted") ==
              std::string::npos)
            return "said: " + error;
          // The name can be used again, with what is right now.
          std::vector<float> again(6, 1);
          reduce(queue, "w", again).wait();
          group.barrier();
          return again[0] == 2 ? "" : "wrong after an error";
        }) == "");
}

TEST_CASE("tensors travel in the dtype that their calls ask for, alike on all ranks") {
  const Variables variables({{"TUTTI_TRANSPORTS", "tcp"}, {"TUTTI_WIRE_DTYPE", "none:all"}});
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          const TensorQueue queue(group);
          // The second and third share an operation.
          std::vector<float> full(100, 1.001F), first(100, 1.001F), second(300, 1.001F),
              averaged(100000, 1.001F);
          TensorCall compressed;
          compressed.wire_dtype = Dtype::bf16;
          const Work works[] = {reduce(queue, "full", full), reduce(queue, "a", first, compressed),
                                reduce(queue, "b", second, compressed)};
          wait_all(works);
          if (full[0] != 2.002F || first[0] != 2.0F || second[299] != 2.0F)
            return "sums: " + std::to_string(full[0]) + " " + std::to_string(first[0]) + " " +
                   std::to_string(second[299]);
          compressed.op = Op::avg;
          reduce(queue, "averaged", averaged, compressed).wait();
          if (averaged[77] != 1.0F) return "average";
          compressed.wire_dtype = group.rank() == 0 ? Dtype::f16 : Dtype::f32;
          const std::string error = error_of([&] { reduce(queue, "w", first, compressed).wait(); });
          const bool is_named =
              error.find("different dtype on the wire f16 and f32") != std::string::npos &&
              error.find("allreduce of f32[100], avg, f16 on the wire") != std::string::npos;
          group.barrier();
          return is_named ? "" : "said: " + error;
        }) == "");
}

// Steps of a tensor whose parts nearly cancel each other: the sum is less than rounding loses of each part. The
// difference of the sums of all steps to the exact ones, as a part of these.
float lacking(CommGroup& group, std::uint64_t count, std::optional<bool> feedback) {
  const TensorQueue queue(group);
  constexpr int kSteps = 200;
  constexpr float kSmall = 0x1p-11F;
  float sum = 0;
  for (int step = 0; step < kSteps; ++step) {
    TensorCall call;
    call.wire_dtype = Dtype::bf16;
    call.error_feedback = feedback;
    call.prescale = 2;
    const bool is_last = group.rank() + 1 == group.size();
    const auto others = static_cast<float>(group.size() - 1);
    std::vector<float> values(count, is_last ? -others : 1 + kSmall), more(7, 1.001F);
    const Work works[] = {reduce(queue, "g", values, call), reduce(queue, "m", more, call)};
    wait_all(works);
    sum += values.back();
  }
  group.barrier();
  const float expected = 2 * kSteps * kSmall * static_cast<float>(group.size() - 1);
  return (expected - sum) / expected;
}

TEST_CASE("small sums of large values converge with error feedback, where they stall without") {
  struct Form {
    const char* priority;
    std::uint64_t count;
    int size;
  };
  // Fused, alone, and in pieces.
  for (const Form& form :
       {Form{"none", 20, 2}, {"none", 20, 3}, {"none", 100000, 3}, {"direct", 600000, 2}, {"lifo", 20, 2}}) {
    INFO(form.priority << ", " << form.count << " elements, " << form.size << " ranks");
    const Variables variables(
        {{"TUTTI_TRANSPORTS", "tcp"}, {"TUTTI_WIRE_DTYPE", "none:all"}, {"TUTTI_PRIORITY", form.priority}});
    const auto verdict = [&](std::optional<bool> feedback, float least, float most) {
      return with_ranks(form.size, [&](CommGroup& group) -> Verdict {
        const float part = lacking(group, form.count, feedback);
        return part >= least && part <= most ? "" : "lacks " + std::to_string(part);
      });
    };
    CHECK(verdict(true, -0.1F, 0.1F) == "");
    if (form.count == 20) CHECK(verdict({}, 0.9F, 1.1F) == "");
  }
  const Variables variables(
      {{"TUTTI_TRANSPORTS", "tcp"}, {"TUTTI_WIRE_DTYPE", "none:all"}, {"TUTTI_ERROR_FEEDBACK", "1"}});
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          const float with = lacking(group, 20, {}), without = lacking(group, 20, false);
          return std::abs(with) < 0.1F && without > 0.9F ? "" : "the variable";
        }) == "");
}

TEST_CASE("a rank that has joined gives nothing, with error feedback neither") {
  const Variables variables(
      {{"TUTTI_TRANSPORTS", "tcp"}, {"TUTTI_WIRE_DTYPE", "bf16:all"}, {"TUTTI_ERROR_FEEDBACK", "1"}});
  CHECK(with_ranks(3, [](CommGroup& group) -> Verdict {
          const TensorQueue queue(group);
          for (int step = 0; step < (group.rank() == 2 ? 1 : 30); ++step) {
            std::vector<float> small(5, 1), large(100000, 1);
            const Work works[] = {reduce(queue, "s", small), reduce(queue, "l", large)};
            wait_all(works);
            const auto expected = static_cast<float>(step == 0 ? 3 : 2);
            if (small[4] != expected || large[99999] != expected) return "step " + std::to_string(step);
            if (step == 0) group.barrier();
          }
          queue.join().wait();
          return {};
        }) == "");
}

TEST_CASE("a shape may change from step to step") {
  CHECK(with_ranks(3, [](CommGroup& group) -> Verdict {
          const TensorQueue queue(group);
          for (std::size_t count = 1; count < 12; ++count) {
            std::vector<float> values(count, 1);
            reduce(queue, "t", values).wait();
            if (values.back() != 3) return "wrong sum of " + std::to_string(count);
          }
          group.barrier();
          return {};
        }) == "");
}

TEST_CASE("arguments that are wrong are refused at once") {
  CHECK(with_ranks(1, [](CommGroup& group) -> Verdict {
          const TensorQueue queue(group);
          std::vector<float> values(4);
          TensorCall call;
          call.op = Op::band;
          if (error_of([&] { reduce(queue, "t", values, call); }).find("band on f32") == std::string::npos)
            return "op";
          call = {};
          call.collective = Collective::gather;
          if (error_of([&] { reduce(queue, "t", values, call); }).find("not offered by name") ==
              std::string::npos)
            return "collective";
          call = {};
          call.op = Op::max;
          call.wire_dtype = Dtype::bf16;
          if (error_of([&] { reduce(queue, "t", values, call); }).find("only sums of f32") ==
              std::string::npos)
            return "wire_dtype";
          call.wire_dtype = {};
          call.error_feedback = true;
          if (error_of([&] { reduce(queue, "t", values, call); }).find("error_feedback: only sums") ==
              std::string::npos)
            return "error_feedback";
          if (error_of([&] { reduce(queue, "", values); }).find("name") == std::string::npos) return "name";
          return {};
        }) == "");
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          const TensorQueue queue(group);
          std::vector<float> values(4), others(4);
          if (group.rank() == 1) group.barrier();
          const Work work = reduce(queue, "t", values);
          if (group.rank() == 0) {
            // Rank 1 has not submitted it yet.
            const std::string error = error_of([&] { reduce(queue, "t", others); });
            group.barrier();
            if (error.find("under way") == std::string::npos) return "a name twice: " + error;
          }
          work.wait();
          group.barrier();
          return {};
        }) == "");
}

TEST_CASE("broadcast, allgather, alltoall, reduce_scatter and barrier by name") {
  CHECK(
      with_ranks(3, [](CommGroup& group) -> Verdict {
        const TensorQueue queue(group);
        const auto rank = static_cast<std::uint64_t>(group.rank());
        for (int round = 0; round < 3; ++round) {
          std::vector<int> value(2, group.rank() + 5);
          const std::uint64_t two[] = {2};
          queue
              .submit("b", {.collective = Collective::broadcast,
                            .input = value.data(),
                            .output = value.data(),
                            .dtype = Dtype::i32,
                            .shape = two,
                            .root = 1})
              .wait();
          if (value[1] != 6) return "broadcast";
          // Rank r gives r + round rows of two.
          const std::uint64_t shape[] = {rank + static_cast<std::uint64_t>(round), 2};
          std::vector<int> rows(shape[0] * 2, group.rank()), all;
          std::vector<std::uint64_t> counts;
          TensorCall gather{
              .collective = Collective::allgather, .input = rows.data(), .dtype = Dtype::i32, .shape = shape};
          gather.allocate = [&](std::span<const std::uint64_t> from) -> void* {
            counts.assign(from.begin(), from.end());
            all.resize(2 * std::accumulate(from.begin(), from.end(), std::uint64_t{0}));
            return all.data();
          };
          queue.submit("g", gather).wait();
          if (counts.size() != 3 || counts[2] != 2U + static_cast<unsigned>(round) || all.back() != 2)
            return "allgather";
          // Rank r sends d + 1 rows to rank d.
          const std::uint64_t splits[] = {1, 2, 3}, six[] = {6};
          std::vector<int> sent(6, group.rank()), received;
          TensorCall exchange{.collective = Collective::alltoall,
                              .input = sent.data(),
                              .dtype = Dtype::i32,
                              .shape = six,
                              .splits = splits};
          exchange.allocate = [&](std::span<const std::uint64_t> from) -> void* {
            received.resize(std::accumulate(from.begin(), from.end(), std::uint64_t{0}));
            return received.data();
          };
          queue.submit("x", exchange).wait();
          if (received.size() != 3 * (rank + 1) || received.front() != 0 || received.back() != 2)
            return "alltoall";
          const std::uint64_t seven[] = {7};
          std::vector<float> vector(7, 2), part(3);
          queue
              .submit("s", {.collective = Collective::reduce_scatter,
                            .input = vector.data(),
                            .output = part.data(),
                            .shape = seven,
                            .prescale = 0.5,
                            .postscale = 10})
              .wait();
          if (part[0] != 30 || part[1] != 30) return "reduce_scatter";
          queue.submit("wall", {.collective = Collective::barrier}).wait();
        }
        group.barrier();
        return {};
      }) == "");
}

TEST_CASE("averages and factors") {
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          const TensorQueue queue(group);
          for (const std::size_t count : {3U, 200000U}) {  // packed, and alone
            std::vector<float> a(count, static_cast<float>(group.rank() * 4)), b(count, 1);
            const Work first = reduce(queue, "a", a, {.op = Op::avg});
            const Work second = reduce(queue, "b", b, {.prescale = 0.25, .postscale = 8});
            first.wait();
            second.wait();
            if (a.back() != 2) return "avg is " + std::to_string(a.back());
            if (b.back() != 4) return "scaled sum is " + std::to_string(b.back());
          }
          group.barrier();
          return {};
        }) == "");
}

TEST_CASE("a batch waits for all of its tensors") {
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          const TensorQueue queue(group);
          for (int round = 0; round < 4; ++round) {
            std::vector<float> a(3, 1), b(4, 1), c(5, 1);
            const TensorCall member{.batch = "step", .batch_size = 2};
            const Work first = reduce(queue, "a", a, member);
            reduce(queue, "c", c).wait();
            if (first.test()) return "a part of a batch is complete";
            group.barrier();
            const Work second = reduce(queue, "b", b, member);
            first.wait();
            second.wait();
            if (a[0] != 2 || b[0] != 2) return "wrong sum";
          }
          group.barrier();
          return {};
        }) == "");
}

TEST_CASE("ranks with fewer tensors join, and the others' sums go on") {
  for (const bool is_known : {false, true}) {
    CHECK(with_ranks(3, [&](CommGroup& group) -> Verdict {
            const TensorQueue queue(group);
            std::vector<float> values(4, 1);
            if (is_known) reduce(queue, "t0", values).wait();
            group.barrier();
            for (int step = 0; step < group.rank() * 2; ++step) {
              values.assign(4, 1);
              reduce(queue, is_known ? "t0" : "t" + std::to_string(step), values).wait();
              const float expected = step < 2 ? 2 : 1;  // ranks 1 and 2, then rank 2
              if (values[3] != expected)
                return "step " + std::to_string(step) + ": " + std::to_string(values[3]);
            }
            const Work joined = queue.join();
            joined.wait();
            int last = joined.source(), greatest = -1;
            if (last < 0) return "nobody was last";
            group.allreduce(&last, &greatest, 1, Dtype::i32, Op::max);
            if (greatest != last) return "ranks name different ranks as the last one";
            // All are back.
            values.assign(4, 1);
            reduce(queue, "after", values).wait();
            group.barrier();
            return values[0] == 3 ? "" : "wrong sum after joining";
          }) == "");
  }
}

TEST_CASE("a tensor that a rank lacks for longer than the stall timeout fails, also if ranks remember it") {
  const Variables variables({{"TUTTI_STALL_TIMEOUT", "30ms"}, {"TUTTI_STALL_WARNING", "0"}});
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          const TensorQueue queue(group);
          std::vector<float> values(3, 1);
          const auto attempt = [&] { return error_of([&] { reduce(queue, "w", values).wait(); }); };
          for (int turn = 0; turn < 2; ++turn) {
            const std::string error = group.rank() == 0 ? attempt() : "";
            const char* const lacking = "TUTTI_STALL_TIMEOUT: submitted by rank 0 of 2, not by rank 1 of 2";
            if (group.rank() == 0 && error.find(lacking) == std::string::npos)
              return "turn " + std::to_string(turn) + ": " + error;
            group.barrier();
            // Of both, as soon as neither is late: the cache knows it in the next turn.
            while (!attempt().empty()) {
            }
          }
          group.barrier();
          return {};
        }) == "");
}

TEST_CASE("a queue that ends on one rank ends on all") {
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          TensorQueue queue(group);
          std::vector<float> values(4, 1), lonely(4, 1);
          reduce(queue, "t", values).wait();
          if (group.rank() == 0) {
            queue.close();
            return {};
          }
          const std::string error = error_of([&] { reduce(queue, "only here", lonely).wait(); });
          return error.find("closed the tensor queue") == std::string::npos ? "said: " + error : "";
        }) == "");
}

TEST_CASE("an allocate() that fails is its rank's alone, and others get their result") {
  CHECK(
      with_ranks(2, [](CommGroup& group) -> Verdict {
        const TensorQueue queue(group);
        const std::uint64_t shape[] = {2};
        const std::vector<int> mine{group.rank(), 7};
        for (const bool throws : {true, false}) {
          std::vector<int> all(4);
          TensorCall call{
              .collective = Collective::allgather, .input = mine.data(), .dtype = Dtype::i32, .shape = shape};
          call.allocate = [&](std::span<const std::uint64_t> /*rows*/) -> void* {
            if (group.rank() == 0) return all.data();
            if (throws) throw std::length_error("too long for me");
            return nullptr;
          };
          const std::string error = error_of([&] { queue.submit("g", call).wait(); });
          if (group.rank() == 0 && (!error.empty() || all[2] != 1)) return "rank 0: " + error;
          const std::string expected =
              throws ? "tensor \"g\": allocate: too long for me" : "gave no memory for 16 bytes";
          if (group.rank() == 1 && error.find(expected) == std::string::npos) return "said: " + error;
        }
        group.barrier();
        return {};
      }) == "");
}

TEST_CASE("the last handle of a queue may end in a callback of that queue") {
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          std::vector<int> mine{1}, all(2);
          const std::uint64_t shape[] = {1};
          auto queue = std::make_shared<TensorQueue>(group);
          TensorCall call{
              .collective = Collective::allgather, .input = mine.data(), .dtype = Dtype::i32, .shape = shape};
          call.allocate = [held = queue, &all](std::span<const std::uint64_t>) { return all.data(); };
          Work work = queue->submit("g", call);
          work.on_complete([held = queue](const Error*) {});
          call = {};
          queue.reset();
          work.wait();
          if (all[1] != 1) return "wrong";
          // A callback that the queue's own thread calls holds the last handle.
          queue = std::make_shared<TensorQueue>(group);
          if (group.rank() == 1) return {};
          work = queue->submit("only here", {.collective = Collective::barrier});
          work.on_complete([held = queue](const Error*) {});
          queue.reset();
          return error_of([&] { work.wait(); }).empty() ? "no error" : "";
        }) == "");
}

TEST_CASE("several threads submit, and groups have queues of their own") {
  CHECK(with_ranks(4, [](CommGroup& group) -> Verdict {
          const std::vector<int> pair = group.rank() < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3};
          const CommGroup half = group.create(pair);
          const TensorQueue all(group), ours(half);
          std::atomic<int> wrong{0};
          const auto work = [&](const TensorQueue& queue, const std::string& prefix, float expected) {
            for (int step = 0; step < 20; ++step) {
              std::vector<float> values(10, 1);
              reduce(queue, prefix + std::to_string(step % 3), values).wait();
              if (values[9] != expected) wrong.fetch_add(1);
            }
          };
          std::thread other([&] { work(all, "a", 4); });
          std::thread third([&] { work(all, "b", 4); });
          work(ours, "c", 2);
          other.join();
          third.join();
          group.barrier();
          return wrong.load() == 0 ? "" : "wrong sums";
        }) == "");
}
