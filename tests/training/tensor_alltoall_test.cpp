// Alltoalls by name whose row counts change from call to call. Ranks are threads, and use the public interface.
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/thread_ranks.hpp"
#include "tutti/tensors.hpp"

using namespace tutti;

namespace {

constexpr int kSteps = 30;
constexpr std::uint64_t kColumns = 3;

// Also none. Every fourth step repeats the counts of the one before.
std::uint64_t rows_between(int from, int to, int tensor, int step) {
  return static_cast<std::uint64_t>((7 * from + 5 * to + 3 * tensor + step - step % 4 / 3) % 4);
}

std::int32_t value_of(int from, int to, int tensor, int step) {
  return 1000 * step + 100 * tensor + 10 * from + to;
}

// One alltoall of a step, with the expected result.
class Exchange {
 public:
  Exchange(const CommGroup& group, int tensor, int step) : name_("x" + std::to_string(tensor)) {
    for (int other = 0; other < group.size(); ++other) {
      splits_.push_back(rows_between(group.rank(), other, tensor, step));
      sent_.insert(sent_.end(), splits_.back() * kColumns, value_of(group.rank(), other, tensor, step));
      expected_rows_.push_back(rows_between(other, group.rank(), tensor, step));
      expected_.insert(expected_.end(), expected_rows_.back() * kColumns,
                       value_of(other, group.rank(), tensor, step));
    }
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  Work submit(const TensorQueue& queue, bool allocates) {
    const std::uint64_t shape[] = {std::accumulate(splits_.begin(), splits_.end(), std::uint64_t{0}),
                                   kColumns};
    TensorCall call{.collective = Collective::alltoall,
                    .input = sent_.data(),
                    .dtype = Dtype::i32,
                    .shape = shape,
                    .splits = splits_};
    if (allocates) {
      call.allocate = [this](std::span<const std::uint64_t> rows) {
        rows_.assign(rows.begin(), rows.end());
        received_.resize(kColumns * std::accumulate(rows.begin(), rows.end(), std::uint64_t{0}));
        return received_.data();
      };
    } else {
      rows_ = expected_rows_;
      received_.resize(expected_.size());
      call.output = received_.data();
    }
    return queue.submit(name_, call);
  }
  bool is_right() const { return rows_ == expected_rows_ && received_ == expected_; }

 private:
  std::string name_;
  std::vector<std::uint64_t> splits_, rows_, expected_rows_;
  std::vector<std::int32_t> sent_, received_, expected_;
};

// Two alltoalls a step, in another order on odd ranks, beside an allreduce.
Verdict exchange(CommGroup& group) {
  const TensorQueue queue(group);
  for (int step = 0; step < kSteps; ++step) {
    Exchange first(group, 0, step), second(group, 1, step);
    const bool is_odd = group.rank() % 2 == 1;
    std::int32_t sum = 1;
    const std::uint64_t one[] = {1};
    const Work works[] = {
        (is_odd ? second : first).submit(queue, is_odd),
        queue.submit("sum", {.input = &sum, .output = &sum, .dtype = Dtype::i32, .shape = one}),
        (is_odd ? first : second).submit(queue, !is_odd)};
    wait_all(works);
    if (!first.is_right() || !second.is_right() || sum != group.size())
      return "step " + std::to_string(step) + " is wrong";
  }
  group.barrier();
  return {};
}

}  // namespace

TEST_CASE("row counts of an alltoall may differ in every step") {
  for (const char* transport : {"shm", "tcp"}) {
    for (const char* priority : {"none", "direct"}) {
      for (const int size : {1, 2, 3, 4}) {
        INFO(transport << ", priority " << priority << ", " << size << " ranks");
        const Variables variables({{"TUTTI_TRANSPORTS", transport}, {"TUTTI_PRIORITY", priority}});
        CHECK(with_ranks(size, &exchange) == "");
      }
    }
  }
}

TEST_CASE(
    "rows of an alltoall that differ in length are an error on all ranks, also once ranks remember the "
    "name") {
  CHECK(with_ranks(3, [](CommGroup& group) -> Verdict {
          const TensorQueue queue(group);
          std::vector<float> sent(12, 1), received(12);
          const auto attempt = [&](std::uint64_t columns) {
            const std::uint64_t shape[] = {3, columns};
            queue
                .submit("x", {.collective = Collective::alltoall,
                              .input = sent.data(),
                              .output = received.data(),
                              .shape = shape})
                .wait();
          };
          for (int turn = 0; turn < 2; ++turn) {
            attempt(4);
            const std::string error = error_of([&] { attempt(group.rank() == 1 ? 2 : 4); });
            if (error.find("different shape [*,4] and [*,2]: rank 1 of 3 submitted alltoall of f32[*,2]; "
                           "ranks 0, 2 of 3 submitted alltoall of f32[*,4]") == std::string::npos)
              return "said: " + error;
          }
          attempt(4);
          group.barrier();
          return {};
        }) == "");
}

TEST_CASE("an alltoall under way fails on all ranks where one ends") {
  CHECK(with_ranks(3, [](CommGroup& group) -> Verdict {
          TensorQueue queue(group);
          Exchange known(group, 0, 0), lonely(group, 0, 1);
          known.submit(queue, true).wait();
          if (group.rank() == 2) {
            queue.close();
            return {};
          }
          const std::string error = error_of([&] { lonely.submit(queue, true).wait(); });
          return error.find("closed the tensor queue") == std::string::npos ? "said: " + error : "";
        }) == "");
}
