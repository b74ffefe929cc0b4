// Batches of named tensors of which a rank refuses one: they fail as a whole, on all ranks. Ranks are threads, and use
// the public interface.
#include <cstdint>
#include <list>
#include <random>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/thread_ranks.hpp"
#include "tutti/tensors.hpp"

using namespace tutti;

namespace {

constexpr std::size_t kTensors = 3;

// One submission of a batch of allreduces, of scalars.
class Batch {
 public:
  // `bad`: this one has an operation that its dtype does not have.
  explicit Batch(const TensorQueue& queue, std::size_t bad = kTensors) {
    for (std::size_t i = 0; i < kTensors && refusal_.empty(); ++i) {
      TensorCall call{.input = &values_[i], .output = &values_[i], .batch = "g", .batch_size = kTensors};
      if (i == bad) call.op = Op::band;
      refusal_ = error_of([&] { works_.push_back(queue.submit("g" + std::to_string(i), call)); });
    }
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  const std::string& refusal() const { return refusal_; }
  // Its error; none where all of it is complete.
  std::string wait() {
    std::string error = refusal_;
    std::size_t failed = 0;
    for (const Work& work : works_) {
      const std::string one = error_of([&] { work.wait(); });
      if (one.empty()) continue;
      ++failed;
      if (error.empty()) error = one;
    }
    if (failed > 0 && failed < works_.size()) return "fails in part: " + error;
    if (!refusal_.empty() && failed < works_.size()) return "is complete in part";
    return error;
  }
  // Is it complete, and a sum over so many ranks?
  std::string verdict(int ranks) {
    if (const std::string error = wait(); !error.empty()) return "threw " + error;
    return values_ == std::vector<float>(kTensors, static_cast<float>(ranks)) ? "" : "wrong sum";
  }

 private:
  std::vector<float> values_ = std::vector<float>(kTensors, 1);
  std::vector<Work> works_;
  std::string refusal_;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a batch of which one rank refuses a tensor fails on all ranks, and goes right afterwards") {
  for (const char* capacity : {"1024", "0"}) {
    const Variables variables({{"TUTTI_CACHE_CAPACITY", capacity}});
    for (const std::size_t bad : {0U, 1U, 2U}) {
      INFO("tensor " << bad << ", cache of " << capacity);
      CHECK(with_ranks(3, [&](CommGroup& group) -> Verdict {
              const TensorQueue queue(group);
              for (int turn = 0; turn < 2; ++turn) {
                Batch refused(queue, group.rank() == 1 ? bad : kTensors);
                float other = 1;
                queue.submit("other", {.input = &other, .output = &other}).wait();
                const std::string error = refused.wait();
                const std::string reason = "tensor \"g" + std::to_string(bad) + "\": band on f32";
                if (group.rank() == 1 && refused.refusal() != error) return "rank 1 said: " + error;
                if (group.rank() != 1 && !has(error, "batch \"g\" was refused by rank 1 of 3: " + reason))
                  return "said: " + error;
                if (other != 3) return "another tensor is wrong";
                Batch again(queue);
                if (std::string verdict = again.verdict(3); !verdict.empty()) return verdict;
              }
              group.barrier();
              return {};
            }) == "");
    }
  }
}

TEST_CASE("of a batch that is submitted again too early the later submission fails on all ranks") {
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          const TensorQueue queue(group);
          std::list<Batch> batches;
          for (int turn = 0; turn < 3; ++turn) {
            batches.clear();
            if (group.rank() == 0) {
              for (int i = 0; i < 3; ++i) batches.emplace_back(queue);
            }
            group.barrier();
            for (int i = 0; i < 3 && group.rank() == 1; ++i) batches.emplace_back(queue).wait();
            auto batch = batches.begin();
            if (std::string verdict = batch->verdict(2); !verdict.empty()) return "the first " + verdict;
            while (++batch != batches.end()) {
              const std::string error = batch->wait();
              const std::string expected = group.rank() == 0
                                               ? "tensor \"g0\" is under way"
                                               : "batch \"g\" was refused by rank 0 of 2: tensor";
              if (!has(error, expected)) return "said: " + error;
            }
            if (std::string verdict = Batch(queue).verdict(2); !verdict.empty()) return "the last " + verdict;
          }
          group.barrier();
          return {};
        }) == "");
}

TEST_CASE("a batch whose tensors differ between ranks fails as a whole") {
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          const TensorQueue queue(group);
          std::vector<double> values(2, 1);
          const auto submit = [&](const char* name, double& value, bool differs) {
            TensorCall call{.input = &value, .output = &value, .dtype = Dtype::f32};
            if (differs) call.dtype = Dtype::f64;
            call.batch = "pair";
            call.batch_size = 2;
            return queue.submit(name, call);
          };
          for (int turn = 0; turn < 2; ++turn) {
            const Work works[] = {submit("a", values[0], false), submit("b", values[1], group.rank() == 1)};
            for (const Work& work : works) {
              const std::string error = error_of([&] { work.wait(); });
              if (!has(error, "tensor \"b\" with different dtype f32 and f64")) return "said: " + error;
            }
            const Work right[] = {submit("a", values[0], false), submit("b", values[1], false)};
            wait_all(right);
          }
          group.barrier();
          return {};
        }) == "");
}

TEST_CASE("a batch that is refused fails where other ranks have joined") {
  CHECK(with_ranks(3, [](CommGroup& group) -> Verdict {
          const TensorQueue queue(group);
          if (Batch(queue).verdict(3) != "") return "before";
          if (group.rank() < 2) {
            Batch refused(queue, group.rank() == 0 ? 1 : kTensors);
            if (!has(refused.wait(), "band on f32")) return "no error";
            if (Batch(queue).verdict(2) != "") return "after";
          }
          queue.join().wait();
          return Batch(queue).verdict(3);
        }) == "");
}

TEST_CASE("each submission of a batch has the same outcome on all ranks, whenever ranks submit and refuse") {
  for (const char* transport : {"shm", "tcp"}) {
    for (const int size : {1, 2, 3}) {
      INFO(transport << ", " << size << " ranks");
      const Variables variables({{"TUTTI_TRANSPORTS", transport}, {"TUTTI_FUSION_CYCLE", "0"}});
      CHECK(with_ranks(size, [](CommGroup& group) -> Verdict {
              constexpr int kSubmissions = 40;
              const TensorQueue queue(group);
              std::mt19937 random(static_cast<unsigned>(group.rank()));
              std::list<Batch> batches;
              for (int i = 0; i < kSubmissions; ++i) {
                batches.emplace_back(queue, random() % 8 == 0 ? random() % kTensors : kTensors);
                if (random() % 3 != 0) batches.back().wait();
              }
              std::vector<std::int32_t> failed, anywhere(kSubmissions);
              for (Batch& batch : batches) {
                const std::string error = batch.wait();
                if (has(error, "in part")) return error;
                failed.push_back(error.empty() ? 0 : 1);
                if (error.empty() && batch.verdict(group.size()) != "") return "wrong sum";
              }
              group.allreduce(failed.data(), anywhere.data(), failed.size(), Dtype::i32, Op::max);
              if (failed != anywhere) return "a batch fails on some ranks alone";
              return Batch(queue).verdict(group.size());
            }) == "");
    }
  }
}
