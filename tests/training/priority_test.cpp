// Queues with a priority over ranks that are threads: tensors in pieces, overtaking, and the end of a queue.
#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/thread_ranks.hpp"
#include "tutti/tensors.hpp"

using namespace tutti;

namespace {

constexpr std::size_t kLarge = (std::size_t{5} << 20U) / 4 + 3;  // elements of 4 bytes: three pieces

Work reduce(const TensorQueue& queue, const std::string& name, std::vector<float>& values,
            TensorCall call = {}) {
  const std::uint64_t shape[] = {values.size()};
  call.input = call.input == nullptr ? values.data() : call.input;
  call.output = values.data();
  call.shape = shape;
  return queue.submit(name, call);
}

bool holds(const std::vector<float>& values, float expected) {
  return std::all_of(values.begin(), values.end(), [&](float value) { return value == expected; });
}

// Large and small tensors, in another order on each rank; the last ones are the most urgent.
Verdict train(CommGroup& group) {
  const TensorQueue queue(group);
  const int p = group.size(), rank = group.rank();
  for (int step = 0; step < 3; ++step) {
    std::vector<std::vector<float>> values;
    std::vector<Work> works;
    for (int i = 0; i < 6; ++i)
      values.emplace_back(i % 2 == 0 ? kLarge : static_cast<std::size_t>(100 + i),
                          static_cast<float>(rank + i));
    for (int k = 0; k < 6; ++k) {
      const int i = (k + rank) % 6;
      TensorCall call;
      call.priority = i;
      call.prescale = 2;
      call.postscale = 3;
      works.push_back(reduce(queue, "t" + std::to_string(i), values[static_cast<std::size_t>(i)], call));
    }
    for (const Work& work : works) work.wait();
    for (int i = 0; i < 6; ++i) {
      const auto expected = static_cast<float>(6 * (p * (p - 1) / 2 + p * i));
      if (!holds(values[static_cast<std::size_t>(i)], expected))
        return "step " + std::to_string(step) + ", tensor " + std::to_string(i) + " is wrong";
    }
  }
  group.barrier();
  return {};
}

}  // namespace

TEST_CASE("sums are right in pieces, and the input stays as it is") {
  for (const char* mode : {"direct", "lifo"}) {
    for (const char* transport : {"shm", "tcp", "inproc"}) {
      for (const int size : {1, 2, 3, 5}) {
        if (size == 5 && std::string(transport) != "shm") continue;
        INFO(mode << ", " << transport << ", " << size << " ranks");
        const Variables variables({{"TUTTI_PRIORITY", mode}, {"TUTTI_TRANSPORTS", transport}});
        CHECK(with_ranks(size, [](CommGroup& group) { return train(group); }) == "");
      }
    }
  }
  const Variables variables({{"TUTTI_PRIORITY", "direct"}});
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          const TensorQueue queue(group);
          const std::vector<float> input(kLarge, 1);
          std::vector<float> output(kLarge);
          TensorCall call;
          call.input = input.data();
          reduce(queue, "apart", output, call).wait();
          group.barrier();
          return holds(input, 1) && holds(output, 2) ? "" : "wrong";
        }) == "");
}

TEST_CASE("a rank that has joined gives zeros to each piece") {
  const Variables variables({{"TUTTI_PRIORITY", "direct"}});
  CHECK(with_ranks(3, [](CommGroup& group) -> Verdict {
          const TensorQueue queue(group);
          std::vector<float> values(kLarge, 1);
          if (group.rank() < 2) reduce(queue, "t", values).wait();
          queue.join().wait();
          return group.rank() == 2 || holds(values, 2) ? "" : "wrong sum";
        }) == "");
}

TEST_CASE("an urgent tensor is complete before tensors that were under way when it came") {
  const Variables variables({{"TUTTI_PRIORITY", "direct"}, {"TUTTI_TRANSPORTS", "shm"}});
  // On a busy machine a rank may come with its urgent tensor when the others are complete: it tries again.
  std::atomic<bool> has_overtaken{false};
  for (int attempt = 0; attempt < 20 && !has_overtaken; ++attempt) {
    CHECK(with_ranks(2, [&](CommGroup& group) -> Verdict {
            const TensorQueue queue(group);
            std::vector<std::vector<float>> later(12, std::vector<float>(std::size_t{1} << 20U, 1));
            std::vector<float> urgent(50000, 1);  // too long to go beside the others anyway
            std::vector<Work> works;
            for (std::size_t i = 0; i < later.size(); ++i)
              works.push_back(reduce(queue, "later" + std::to_string(i), later[i]));
            works.front().wait();
            TensorCall call;
            call.priority = 1;
            const Work work = reduce(queue, "urgent", urgent, call);
            const auto was_last = std::make_shared<std::atomic<bool>>(true);
            works.back().on_complete([work, was_last](const Error*) { *was_last = !work.test(); });
            works.push_back(work);
            wait_all(works);
            if (!*was_last) has_overtaken = true;
            group.barrier();
            return holds(urgent, 2) && holds(later.back(), 2) ? "" : "wrong sums";
          }) == "");
  }
  CHECK(has_overtaken);
}

TEST_CASE("a queue that ends with tensors in its backlog ends them, too") {
  const Variables variables({{"TUTTI_PRIORITY", "lifo"}});
  CHECK(with_ranks(3, [](CommGroup& group) -> Verdict {
          std::vector<std::vector<float>> values(8, std::vector<float>(std::size_t{1} << 21U, 1));
          std::vector<Work> works;
          {
            TensorQueue queue(group);
            for (std::size_t i = 0; i < values.size(); ++i)
              works.push_back(reduce(queue, std::to_string(i), values[i]));
            works.back().test();
            if (group.rank() == 1) queue.close();
            for (const Work& work : works) {
              const std::string error = error_of([&] { work.wait(); });
              if (!error.empty() && error.find("closed the tensor queue") == std::string::npos &&
                  error.find("abort") == std::string::npos && error.find("left") == std::string::npos &&
                  error.find("the group was destroyed") == std::string::npos)  // pieces under way on rank 1
                return "said: " + error;
            }
          }
          group.barrier();
          return {};
        }) == "");
}
