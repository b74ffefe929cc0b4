// Measures negotiation of named tensors: a cycle with nothing to do, a step of known tensors, and the first step,
// whose requests go up the tree. A rank of a job; not part of any test. Knows the scheduler of named tensors.
// usage: tutti run -n RANKS negotiation [TENSORS [SECONDS]]
//
// Rank 0 prints one line: of a cycle the time, CPU time and context switches; of steps their time and cycles. A
// tensor is one element, so the steps hardly move data.
#include <sys/resource.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "runtime/training/tensor_scheduler.hpp"
#include "runtime/training/tensor_work.hpp"
#include "tutti/tutti.hpp"

namespace {

using namespace tutti;
using Clock = std::chrono::steady_clock;

double milliseconds(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

class Negotiation {
 public:
  Negotiation(const CommGroup& world, std::size_t tensor_count)
      : world_(world), scheduler_(world, options()), values_(tensor_count) {}

  // One step: all tensors, in the order of this rank's own. Returns its time and counts its cycles.
  double step(std::uint64_t* cycles) {
    world_.barrier();
    const auto begin = Clock::now();
    const std::uint64_t first = scheduler_.cycle_count();
    const std::uint64_t shape = 1;
    std::vector<WorkRef> works;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const std::size_t which = (i + static_cast<std::size_t>(world_.rank()) * 7) % values_.size();
      TensorCall call{.input = &values_[which], .output = &values_[which], .shape = {&shape, 1}};
      call.memory = Memory::host;
      works.push_back(scheduler_.submit("layer" + std::to_string(which) + "/weight", call));
    }
    for (const WorkRef& work : works) wait(work);
    *cycles = scheduler_.cycle_count() - first;
    return milliseconds(Clock::now() - begin);
  }

  struct Cycle {
    double wall_ms = 0;
    double cpu_ms =
        0;  // of all ranks together: the bound where ranks outnumber the CPUs, on a busy machine too
    double switches = 0;  // context switches, per rank
  };
  // Cycles that follow each other without a pause.
  Cycle cycle(double seconds) {
    world_.barrier();
    const auto begin = Clock::now();
    const std::uint64_t first = scheduler_.cycle_count();
    const std::array<double, 2> used_before = used();
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    const double passed = milliseconds(Clock::now() - begin);
    const auto cycles = static_cast<double>(scheduler_.cycle_count() - first);
    std::array<double, 2> per_cycle = used();
    for (std::size_t i = 0; i < per_cycle.size(); ++i)
      per_cycle[i] = (per_cycle[i] - used_before[i]) / cycles;
    world_.allreduce(std::span<double>(per_cycle), Op::sum);
    return {passed / cycles, per_cycle[0], per_cycle[1] / world_.size()};
  }

 private:
  static TensorQueueOptions options() {
    TensorQueueOptions options;
    options.settings.cycle = std::chrono::microseconds(0);
    return options;
  }
  // Of this process: ms of CPU time, context switches.
  static std::array<double, 2> used() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto ms = [](const timeval& time) {
      return 1e3 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_usec);
    };
    return {ms(usage.ru_utime) + ms(usage.ru_stime), static_cast<double>(usage.ru_nvcsw + usage.ru_nivcsw)};
  }
  static void wait(const WorkRef& work) {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_complete = false;
    work->when_complete([&](const Status& status) {
      if (!status) std::fprintf(stderr, "%s\n", status.to_string().c_str());
      const std::lock_guard lock(mutex);
      is_complete = true;
      changed.notify_one();
    });
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return is_complete; });
  }

  CommGroup world_;
  TensorScheduler scheduler_;
  std::vector<float> values_;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::size_t tensors = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 161;
    const double seconds = argc > 2 ? std::strtod(argv[2], nullptr) : 1;
    const CommGroup world = init();
    Negotiation negotiation(world, tensors);
    std::uint64_t cycles = 0;
    const double first = negotiation.step(&cycles);
    double later = 0;
    for (int i = 0; i < 3; ++i) later = negotiation.step(&cycles);
    const auto cycle = negotiation.cycle(seconds);
    if (world.rank() == 0) {
      std::printf(
          "%d ranks: a cycle %.3f ms, %.3f ms of CPU time, %.1f switches a rank; %zu tensors: first step "
          "%.1f ms, later %.1f ms in %llu cycles\n",
          world.size(), cycle.wall_ms, cycle.cpu_ms, cycle.switches, tensors, first, later,
          static_cast<unsigned long long>(cycles));
    }
    world.barrier();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
