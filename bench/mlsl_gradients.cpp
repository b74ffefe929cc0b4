// Measures gradients through MLSL's parameter sets beside plain submitted allreduces of the same tensors. A rank of a
// job; not part of any test. Knows libmlsl's environment, whose group both use.
// usage: tutti run -n RANKS mlsl_gradients TABLE MODEL [COMPUTE_MS [ROUNDS]]    # TABLE: bench/workloads/gradients.csv
//
// An operation for each tensor. A round starts all gradients, the last layer's first, each after its part of the
// computation, and waits for them from the first layer on; once with each of both kinds. Medians of the slowest rank,
// in turns: from the end of the computation until all are complete (without computation: from the first start on), and
// from the first layer's start until its own is. With MLSL_MSG_PRIORITY=1 MLSL's first layers overtake the others.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <numeric>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/mlsl/environment.hpp"
#include "bindings/mlsl/include/mlsl.hpp"
#include "tutti/tutti.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

struct Times {
  double all = 0, first_layer = 0;
};

// Elements of the model's tensors in forward order: the 4th field of rows whose 1st one is the model.
std::vector<std::size_t> read_counts(const char* path, const std::string& model) {
  std::ifstream table(path);
  std::vector<std::size_t> counts;
  for (std::string line; std::getline(table, line);) {
    std::istringstream fields(line);
    std::string name, field;
    std::getline(fields, name, ',');
    for (int skipped = 0; skipped < 3; ++skipped) std::getline(fields, field, ',');
    if (name == model) counts.push_back(std::strtoul(field.c_str(), nullptr, 10));
  }
  if (counts.empty()) throw std::runtime_error(std::string(path) + ": no rows of " + model);
  return counts;
}

class Gradients {
 public:
  Gradients(const std::vector<std::size_t>& counts, double compute_ms)
      : counts_(counts),
        ranks_(static_cast<std::size_t>(global_.size())),
        compute_(compute_ms / static_cast<double>(counts.size())) {
    std::vector<int> members(ranks_);
    std::iota(members.begin(), members.end(), 0);
    group_ = global_.create(members);
    session_->SetGlobalMinibatchSize(ranks_);
    MLSL::Distribution* const distribution = env_.CreateDistribution(ranks_, 1);
    for (const std::size_t count : counts) {
      MLSL::OperationRegInfo* const info = session_->CreateOperationRegInfo(MLSL::OT_CC);
      info->AddParameterSet(count, 1, MLSL::DT_FLOAT);
      sets_.push_back(session_->GetOperation(session_->AddOperation(info, distribution))->GetParameterSet(0));
      buffers_.push_back(static_cast<float*>(env_.Alloc(count * sizeof(float), 64)));
    }
    session_->Commit();
  }

  Times parameter_sets() {
    return measure([this](std::size_t layer) { sets_[layer]->StartGradientComm(buffers_[layer]); },
                   [this](std::size_t layer) { sets_[layer]->WaitGradientComm(); });
  }

  Times submitted() {
    works_.resize(counts_.size());
    return measure(
        [this](std::size_t layer) {
          works_[layer] =
              group_.iallreduce(buffers_[layer], buffers_[layer], counts_[layer], tutti::Dtype::f32);
        },
        [this](std::size_t layer) { works_[layer].wait(); });
  }

 private:
  void compute() const {
    for (const auto begin = Clock::now(); Clock::now() - begin < compute_;) {
    }
  }

  Times measure(const std::function<void(std::size_t)>& start, const std::function<void(std::size_t)>& wait) {
    for (std::size_t layer = 0; layer < counts_.size(); ++layer)
      std::fill_n(buffers_[layer], counts_[layer], 1.0F);
    global_.barrier();
    Times times;
    const auto begin = Clock::now();
    for (std::size_t layer = counts_.size(); layer-- > 1;) {
      compute();
      start(layer);
    }
    compute();
    const auto last_begin = Clock::now();
    start(0);
    wait(0);
    times.first_layer = Milliseconds(Clock::now() - last_begin).count();
    for (std::size_t layer = 1; layer < counts_.size(); ++layer) wait(layer);
    times.all = Milliseconds(Clock::now() - (compute_.count() > 0 ? last_begin : begin)).count();
    for (std::size_t layer = 0; layer < counts_.size(); ++layer)
      if (buffers_[layer][counts_[layer] - 1] != static_cast<float>(ranks_))
        throw std::runtime_error("a wrong sum");
    global_.allreduce(std::span<double>(&times.all, 2), tutti::Op::max);
    return times;
  }

  MLSL::Environment& env_ = MLSL::Environment::GetEnv();
  tutti::CommGroup global_ = tutti::mlsl::environment().global(), group_;
  std::vector<std::size_t> counts_;
  std::size_t ranks_;
  Milliseconds compute_;  // for each tensor
  MLSL::Session* session_ = env_.CreateSession();
  std::vector<MLSL::ParameterSet*> sets_;
  std::vector<float*> buffers_;
  std::vector<tutti::Work> works_;
};

double median(std::vector<Times>& rounds, double Times::*figure) {
  const auto middle = rounds.begin() + static_cast<std::ptrdiff_t>(rounds.size() / 2);
  std::nth_element(rounds.begin(), middle, rounds.end(),
                   [&](const Times& a, const Times& b) { return a.*figure < b.*figure; });
  return (*middle).*figure;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s TABLE MODEL [COMPUTE_MS [ROUNDS]]\n", argv[0]);
    return 2;
  }
  try {
    MLSL::Environment& env = MLSL::Environment::GetEnv();
    env.Init(&argc, &argv);
    const double compute_ms = argc > 3 ? std::strtod(argv[3], nullptr) : 0;
    const long count = argc > 4 ? std::strtol(argv[4], nullptr, 10) : 40;
    Gradients gradients(read_counts(argv[1], argv[2]), compute_ms);
    std::vector<Times> sets, plain;
    for (long round = 0; round < 3 + count; ++round) {
      // The one that goes second finds other caches, so they change places.
      if (round % 2 == 0) sets.push_back(gradients.parameter_sets());
      plain.push_back(gradients.submitted());
      if (round % 2 != 0) sets.push_back(gradients.parameter_sets());
      if (round == 2) {
        sets.clear();
        plain.clear();
      }
    }
    if (env.GetProcessIdx() == 0) {
      const double all = median(sets, &Times::all), plain_all = median(plain, &Times::all);
      const double first = median(sets, &Times::first_layer),
                   plain_first = median(plain, &Times::first_layer);
      std::printf(
          "%s, %zu ranks, %.0f ms of computation: all gradients %.2f ms, submitted calls %.2f ms, ratio "
          "%.3f; the first layer's "
          "%.2f ms, submitted calls %.2f ms\n",
          argv[2], env.GetProcessCount(), compute_ms, all, plain_all, all / plain_all, first, plain_first);
    }
    env.Finalize();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
