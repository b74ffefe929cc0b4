// Two ranks on one CPU, as threads of this process: whoever waits leaves it, also for a rank that never waits
// itself.
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <stdexcept>
#include <thread>
#include <vector>

#include <sched.h>

#include "tests/support/catch.hpp"
#include "tests/support/thread_ranks.hpp"
#include "tutti/tutti.hpp"

using namespace tutti;

namespace {

cpu_set_t set_of(std::initializer_list<int> cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  return set;
}

bool may_use_only(std::initializer_list<int> cpus) {
  const cpu_set_t set = set_of(cpus);
  return ::sched_setaffinity(0, sizeof set, &set) == 0;
}

std::vector<int> allowed_cpus() {
  cpu_set_t allowed;
  REQUIRE(::sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  }
  return cpus;
}

// Keeps a CPU busy, so that the scheduler sees no reason to move a rank there by itself.
class BusyCpu {
 public:
  explicit BusyCpu(int cpu)
      : thread_([this, cpu] {
          may_use_only({cpu});
          while (!must_stop_.load(std::memory_order_relaxed)) {
          }
        }) {}
  ~BusyCpu() {
    must_stop_.store(true);
    thread_.join();
  }
  BusyCpu(const BusyCpu&) = delete;
  BusyCpu& operator=(const BusyCpu&) = delete;

 private:
  std::atomic<bool> must_stop_{false};
  std::thread thread_;
};

void wait_for(const std::atomic<int>& number, int least) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (number.load() < least) {
    if (std::chrono::steady_clock::now() > until) throw std::runtime_error("the other rank does not come");
    ::sched_yield();
  }
}

// Calls to which rank 1 always comes last, so that it never waits.
class LateRank {
 public:
  using OneCall = std::function<void(CommGroup&)>;
  LateRank(int shared_cpu, int other_cpu) : shared_cpu_(shared_cpu), other_cpu_(other_cpu) {}

  Verdict part(CommGroup& group, const OneCall& call) {
    const bool is_late = group.rank() == 1;
    // Apart at first: what the ranks know of each other's CPUs from here is wrong afterwards.
    if (!may_use_only({is_late ? other_cpu_ : shared_cpu_})) return "cannot be bound";
    make_calls(group, call, kWarmUp);
    if (!may_use_only({shared_cpu_})) return "cannot be bound to the shared CPU";
    meet();
    if (!may_use_only({shared_cpu_, other_cpu_})) return "cannot be unbound";
    meet();
    const bool is_apart = make_calls(group, call, kCalls);
    const cpu_set_t wanted = set_of({shared_cpu_, other_cpu_});
    cpu_set_t allowed;
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return "does not know its CPUs";
    if (!CPU_EQUAL(&allowed, &wanted)) return "may not use the CPUs that it was given";
    return is_late || is_apart ? "" : "stayed on the CPU of the rank that it waited for";
  }

 private:
  static constexpr int kWarmUp = 64, kCalls = 40;

  // False if rank 0 ended each call on the CPU on which rank 1 had begun it.
  bool make_calls(CommGroup& group, const OneCall& call, int count) {
    bool is_apart = false;
    for (int i = 0; i < count; ++i) {
      const int number = ++calls_[static_cast<std::size_t>(group.rank())];
      if (group.rank() == 0) {
        entered_.store(number);
        call(group);
        is_apart = is_apart || ::sched_getcpu() != late_cpu_.load();
        left_.store(number);
      } else {
        wait_for(entered_, number);
        for (int turn = 0; turn < 4; ++turn) ::sched_yield();  // until rank 0 waits
        late_cpu_.store(::sched_getcpu());
        call(group);
        wait_for(left_, number);
      }
    }
    return is_apart;
  }
  void meet() {
    const int arrived = ++arrivals_;
    wait_for(arrivals_, (arrived + 1) / 2 * 2);
  }

  int shared_cpu_, other_cpu_;
  std::array<int, 2> calls_{};  // of each rank
  std::atomic<int> entered_{0}, left_{0}, arrivals_{0};
  std::atomic<int> late_cpu_{-1};
};

Verdict parts(const std::vector<int>& cpus, const LateRank::OneCall& call) {
  const BusyCpu busy(cpus[1]);
  LateRank ranks(cpus[0], cpus[1]);
  return with_ranks(2, [&](CommGroup& group) { return ranks.part(group, call); });
}

}  // namespace

TEST_CASE("a waiting rank leaves the CPU of a rank that never waits") {
  const std::vector<int> cpus = allowed_cpus();
  if (cpus.size() < 2) return;
  SECTION("allreduce") {
    CHECK(parts(cpus, [](CommGroup& group) {
            float value = 1;
            group.allreduce(&value, &value, 1, Dtype::f32, Op::sum);
          }) == "");
  }
  SECTION("broadcast, whose root only signals") {
    CHECK(parts(cpus, [](CommGroup& group) {
            float value = 1;
            group.broadcast(&value, 1, Dtype::f32, 1);
          }) == "");
  }
  SECTION("submitted") {
    CHECK(parts(cpus, [](CommGroup& group) {
            float value = 1;
            group.iallreduce(&value, &value, 1, Dtype::f32, Op::sum).wait();
          }) == "");
  }
}
