// The training step: who computes, writes, submits and waits, and the turns of its variants. See step.hpp.
#include "tools/cli/bench/step.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bench/harness/buffer.hpp"
#include "bench/harness/compute.hpp"
#include "bench/harness/harness.hpp"
#include "bench/harness/inputs.hpp"
#include "runtime/base/thread.hpp"
#include "tools/cli/bench/tutti_library.hpp"
#include "tutti/tensors.hpp"

namespace tutti::tool {
namespace {

using bench::detail::now_us;

// Ways to reduce the gradients of a step.
enum class StepCalls : std::uint8_t {
  none,   // not at all: the arithmetic and the writing of gradients alone
  whole,  // one blocking allreduce of all bytes behind the backward pass
  plain,  // each tensor by iallreduce(), once it is ready
  named,  // each tensor submitted to a TensorQueue, once it is ready
};
inline constexpr std::string_view kStepCallsNames[] = {"none", "whole", "plain", "named"};

// Times in us. A step lasts from a common start of the backward pass to the end of the next forward pass, on the
// slowest rank.
struct StepRow {
  StepCalls calls = StepCalls::none;
  bench::Measurement step;
  double exposed_us = 0;  // what the communication adds: the step's p50 less that of `none`
  double first_us = 0;  // p50, from the end of the backward pass until the first layer's gradient is complete
  double cpu_us = 0;    // p50, CPU time of all threads of the rank
  std::uint64_t wrong_count = 0;
};

constexpr std::array kAllCalls = {StepCalls::none, StepCalls::whole, StepCalls::plain, StepCalls::named};
constexpr std::size_t kAlignment = 64;
constexpr int kFewestSteps = 3;  // of each turn

// CPU time of all threads of this process.
double cpu_us() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto in_us = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
  };
  return in_us(usage.ru_utime) + in_us(usage.ru_stime);
}

// A gradient of one rank. It is reduced in place, as frameworks do.
struct Gradient {
  std::string name;
  bench::Shape shape;
  std::byte* data = nullptr;
  double compute_us = 0;  // of its layer: a third of it in the forward pass, the rest before it is ready
};

// Runs one piece of work at a time in a thread of its own, as a framework's backward pass does.
class BackwardThread {
 public:
  BackwardThread() {
    Result<std::thread> thread = start_thread("tutti-backward", [this] { run(); });
    if (!thread) throw Error(thread.status().code(), -1, thread.status().message());
    thread_ = *std::move(thread);
  }
  ~BackwardThread() {
    set(nullptr, true);
    thread_.join();
  }
  BackwardThread(const BackwardThread&) = delete;
  BackwardThread& operator=(const BackwardThread&) = delete;

  // Returns when it is done; throws what it threw.
  void call(const std::function<void()>& work) {
    set(&work, false);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return work_ == nullptr; });
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
  }

 private:
  void set(const std::function<void()>* work, bool is_over) {
    const std::lock_guard lock(mutex_);
    work_ = work;
    is_over_ = is_over;
    changed_.notify_all();
  }
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return work_ != nullptr || is_over_; });
      if (is_over_) return;
      lock.unlock();
      try {
        (*work_)();
      } catch (...) {
        thrown_ = std::current_exception();
      }
      lock.lock();
      work_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* work_ = nullptr;
  bool is_over_ = false;
  std::exception_ptr thrown_;
  std::thread thread_;
};

template <bench::Rendezvous R>
class Steps {
 public:
  Steps(const BenchOptions& options, const CommGroup& group, const Workload& workload, R& ranks)
      : options_(options),
        group_(group),
        ranks_(ranks),
        inputs_(options.dtype, options.op, group.size()),
        compute_(bench::Compute::calibrated()) {
    lay_out(workload);
  }

  std::vector<StepRow> measure() {
    for (int round = 0; round < std::max(1, options_.round_count); ++round) {
      for (std::size_t turn = 0; turn < kAllCalls.size(); ++turn)
        take_turn(kAllCalls[(static_cast<std::size_t>(round) + turn) % kAllCalls.size()]);
    }
    std::vector<StepRow> rows;
    for (const StepCalls calls : kAllCalls) {
      Samples& samples = of_[static_cast<std::size_t>(calls)];
      StepRow& row = rows.emplace_back();
      row.calls = calls;
      row.first_us = bench::summarize(samples.first_us, 0, 0).p50_us;
      row.cpu_us = bench::summarize(samples.cpu_us, 0, 0).p50_us;
      const int step_count = static_cast<int>(samples.step_us.size());
      row.step = bench::summarize(std::move(samples.step_us), step_count, 0);
      row.wrong_count = bench::sum_over_ranks(ranks_, samples.wrong_count);
      row.exposed_us = row.step.p50_us - rows.front().step.p50_us;
    }
    return rows;
  }

 private:
  struct Samples {
    std::vector<double> step_us, first_us, cpu_us;
    std::uint64_t wrong_count = 0;
  };
  struct Times {
    double step_us = 0, first_us = 0, cpu_us = 0;
  };

  // All gradients lie in one piece of memory, so that one call can reduce them.
  void lay_out(const Workload& workload) {
    std::vector<std::size_t> offsets{0};
    for (const std::uint64_t count : workload.element_counts) {
      const std::size_t bytes = count * size_of(options_.dtype);
      offsets.push_back(offsets.back() + (bytes + kAlignment - 1) / kAlignment * kAlignment);
    }
    whole_bytes_ = offsets.back();
    memory_ = allocate(whole_bytes_);
    const std::vector<double>& flops = workload.forward_flops;
    double total_flops = std::accumulate(flops.begin(), flops.end(), 0.0);
    const bool has_flops = total_flops > 0;
    if (!has_flops)
      total_flops = static_cast<double>(
          std::accumulate(workload.element_counts.begin(), workload.element_counts.end(), std::uint64_t{0}));
    for (std::size_t i = 0; i < workload.element_counts.size(); ++i) {
      const std::uint64_t count = workload.element_counts[i];
      gradients_.push_back(
          {fmt::format("{}.{}", workload.element_counts.size() - 1 - i, workload.tensors[i]),
           {Collective::allreduce, options_.dtype, group_.size(), 0, count},
           static_cast<std::byte*>(memory_.get()) + offsets[i],
           options_.compute_us * (has_flops ? flops[i] : static_cast<double>(count)) / total_flops});
    }
    works_.resize(gradients_.size());
  }

  std::shared_ptr<void> allocate(std::size_t bytes) const {
    if (options_.allocation == Allocation::tutti_heap)
      return {alloc(group_, bytes), [this](void* memory) { free(group_, memory); }};
    const auto buffer = std::make_shared<bench::Buffer>(bytes, options_.pages);
    return {buffer, buffer->data()};
  }

  // Steps of one kind: verified ones before and behind those that are timed.
  void take_turn(StepCalls calls) {
    Samples& samples = of_[static_cast<std::size_t>(calls)];
    std::optional<TensorQueue> queue;
    if (calls == StepCalls::named) queue.emplace(group_);
    step(calls, queue);  // names are new to the queue, and connections to the group
    samples.wrong_count += count_wrong(calls);
    const double step_us = step(calls, queue).step_us;
    const double budget_us = options_.loop.budget_seconds * 1e6 / std::max(1, options_.round_count);
    const int step_count =
        bench::detail::fitting_count(budget_us, bench::maximum_over_ranks(ranks_, std::span(&step_us, 1))[0],
                                     kFewestSteps, options_.loop.iteration_count);
    std::vector<double> mine;
    for (int i = 0; i < step_count; ++i) {
      const Times times = step(calls, queue);
      mine.push_back(times.step_us);
      mine.push_back(times.first_us);
      mine.push_back(times.cpu_us);
    }
    samples.wrong_count += count_wrong(calls);
    const std::vector<double> slowest = bench::maximum_over_ranks(ranks_, std::span<const double>(mine));
    for (std::size_t i = 0; i < slowest.size(); i += 3) {
      samples.step_us.push_back(slowest[i]);
      samples.first_us.push_back(slowest[i + 1]);
      samples.cpu_us.push_back(slowest[i + 2]);
    }
    ranks_.barrier();  // before a queue is closed: others may still wait for its last tensor
  }

  Times step(StepCalls calls, const std::optional<TensorQueue>& queue) {
    ++seed_;
    ranks_.barrier();
    const double start = now_us(), cpu_start = cpu_us();
    double backward_end = 0;
    backward_.call([&] {
      for (std::size_t i = 0; i < gradients_.size(); ++i) {
        const Gradient& gradient = gradients_[i];
        compute_.run(gradient.compute_us * 2 / 3);
        bench::fill_input(inputs_, gradient.shape, group_.rank(), seed_, gradient.data);
        submit(i, calls, queue);
      }
      backward_end = now_us();
    });
    if (calls == StepCalls::whole)
      group_.allreduce(memory_.get(), memory_.get(), whole_bytes_ / size_of(options_.dtype), options_.dtype,
                       options_.op);
    double first_us = 0;
    for (std::size_t i = gradients_.size(); i-- > 0;) {
      if (works_[i]) std::exchange(works_[i], std::nullopt)->wait();
      if (i + 1 == gradients_.size()) first_us = now_us() - backward_end;
      compute_.run(gradients_[i].compute_us / 3);
    }
    return {now_us() - start, first_us, cpu_us() - cpu_start};
  }

  void submit(std::size_t i, StepCalls calls, const std::optional<TensorQueue>& queue) {
    const Gradient& gradient = gradients_[i];
    if (calls == StepCalls::plain) {
      works_[i] =
          group_.iallreduce(gradient.data, gradient.data, gradient.shape.count, options_.dtype, options_.op);
    } else if (calls == StepCalls::named) {
      const std::uint64_t shape[] = {gradient.shape.count};
      works_[i] = queue->submit(gradient.name, {.input = gradient.data,
                                                .output = gradient.data,
                                                .dtype = options_.dtype,
                                                .shape = shape,
                                                .op = options_.op,
                                                .priority = static_cast<int>(i)});
    }
  }

  std::uint64_t count_wrong(StepCalls calls) const {
    std::uint64_t wrong = 0;
    if (calls == StepCalls::none) return wrong;
    for (const Gradient& gradient : gradients_)
      wrong += bench::wrong_elements(inputs_, gradient.shape, group_.rank(), seed_, gradient.data);
    return wrong;
  }

  const BenchOptions& options_;
  const CommGroup& group_;
  R& ranks_;
  bench::Inputs inputs_;
  bench::Compute compute_;
  std::shared_ptr<void> memory_;
  std::size_t whole_bytes_ = 0;
  std::vector<Gradient> gradients_;  // in backward order
  std::vector<std::optional<Work>> works_;
  std::array<Samples, kAllCalls.size()> of_;
  std::uint64_t seed_ = 0;
  BackwardThread backward_;
};

void report(const BenchOptions& options, const Workload& workload, int ranks, int nodes,
            std::span<const StepRow> rows, JsonLines& json) {
  const std::uint64_t elements =
      std::accumulate(workload.element_counts.begin(), workload.element_counts.end(), std::uint64_t{0});
  const std::uint64_t bytes = elements * size_of(options.dtype);
  fmt::print("# a step: {} tensors, {}, {:g} ms of arithmetic (a third of it forward)\n",
             workload.element_counts.size(), bytes_text(bytes), options.compute_us / 1e3);
  fmt::print("{:>10} {:>10} {:>10} {:>12} {:>10} {:>10} {:>10} {:>7}\n", "calls", "p50 ms", "p95 ms",
             "exposed ms", "of whole", "first ms", "cpu ms", "wrong");
  const double whole_us = rows[static_cast<std::size_t>(StepCalls::whole)].exposed_us;
  for (const StepRow& row : rows) {
    const std::string_view name = kStepCallsNames[static_cast<std::size_t>(row.calls)];
    const bool communicates = row.calls != StepCalls::none;
    const auto or_dash = [](bool is_known, std::string text) { return is_known ? text : "-"; };
    fmt::print(
        "{:>10} {:>10.3f} {:>10.3f} {:>12} {:>10} {:>10} {:>10.3f} {:>7}\n", name, row.step.p50_us / 1e3,
        row.step.p95_us / 1e3, or_dash(communicates, fmt::format("{:.3f}", row.exposed_us / 1e3)),
        or_dash(communicates && whole_us > 0, fmt::format("{:.2f}", row.exposed_us / whole_us)),
        or_dash(communicates, fmt::format("{:.3f}", row.first_us / 1e3)), row.cpu_us / 1e3, row.wrong_count);
    json.write(fmt::format(
        "{{\"workload\": {}, \"row\": \"step\", \"calls\": \"{}\", \"tensors\": {}, \"bytes\": {}, "
        "\"dtype\": \"{}\", \"op\": \"{}\", \"ranks\": {}, \"nodes\": {}, \"compute_us\": {:.6g}, "
        "\"iterations\": {}, \"p50_us\": {:.6g}, \"p95_us\": {:.6g}, \"min_us\": {:.6g}, \"mean_us\": "
        "{:.6g}, \"exposed_us\": {:.6g}, \"first_us\": {:.6g}, \"cpu_us\": {:.6g}, \"wrong\": {}}}",
        bench::json_quoted(workload.name), name, workload.element_counts.size(), bytes,
        to_string(options.dtype), to_string(options.op), ranks, nodes, options.compute_us,
        row.step.iteration_count, row.step.p50_us, row.step.p95_us, row.step.min_us, row.step.mean_us,
        communicates ? row.exposed_us : 0, communicates ? row.first_us : 0, row.cpu_us, row.wrong_count));
  }
  std::fflush(stdout);
}

}  // namespace

std::uint64_t run_steps(const BenchOptions& options, const CommGroup& group, const Workload& workload,
                        bench::SharedPage* page, int node_count, JsonLines& json) {
  GroupRendezvous all(group);
  const std::vector<StepRow> rows = page != nullptr
                                        ? Steps<bench::SharedPage>(options, group, workload, *page).measure()
                                        : Steps<GroupRendezvous>(options, group, workload, all).measure();
  if (group.rank() == 0) report(options, workload, group.size(), node_count, rows, json);
  std::uint64_t wrong_count = 0;
  for (const StepRow& row : rows) wrong_count += row.wrong_count;
  return wrong_count;
}

}  // namespace tutti::tool
