// Threads on idle CPUs of a rank that take parts of its long passes over data. Knows no operation and no memory.
//
// A pass is cut into parts. The caller and the helpers take one part after the other until none is left, so a
// helper that comes late finds fewer, and the caller never waits for one that has not come. The first long pass
// starts the threads. After a pass they poll for some microseconds, because an epoch has several passes, and
// then sleep.
//
// The CPUs are the program's. Where threads of the process lost their CPU to others while helpers were at work,
// the helpers stand back: passes go without them for a time, which doubles while that goes on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace tutti {

struct HelperOptions {
  std::uint32_t count = 0;
  bool stands_back = true;         // false: tests that want the helpers' part of the work
  std::function<void()> on_start;  // on the new thread: where it runs
};

class HelperThreads {
 public:
  // A pass that reads so much wakes helpers. Helpers that are awake take part in shorter ones.
  static constexpr std::size_t kLeastBytes = std::size_t{256} << 10U;
  static constexpr std::size_t kLeastAwakeBytes = std::size_t{64} << 10U;
  // Parts are powers of two: no element of a call that has a kernel lies in two of them.
  static constexpr std::size_t kLeastPartBytes = std::size_t{16} << 10U;
  static constexpr std::size_t kMostPartBytes = std::size_t{64} << 10U;

  explicit HelperThreads(HelperOptions options);
  ~HelperThreads();  // while no pass runs
  HelperThreads(const HelperThreads&) = delete;
  HelperThreads& operator=(const HelperThreads&) = delete;

  // Should a pass that reads so much be cut? Any thread; one reading of the clock.
  bool should_share(std::size_t read_bytes) const;
  // Calls part(first, length, is_caller) for all of [first, bytes), on this thread and on helpers at once; what they
  // wrote is visible on return. Once `wanting` (may be null) is not zero it ends after the parts under way. Returns
  // where it ended. Any thread: while the helpers are at another pass, this one goes without them.
  template <class Part>
  std::size_t run(std::size_t first, std::size_t bytes, const std::atomic<std::uint32_t>* wanting,
                  const Part& part) {
    const auto call = [](const void* context, std::size_t at, std::size_t length, bool is_caller) {
      (*static_cast<const Part*>(context))(at, length, is_caller);
    };
    return run({call, &part, bytes, 0}, first, wanting);
  }

  // How many parts helpers have taken so far. Any thread.
  std::uint64_t taken_parts() const { return taken_parts_.load(std::memory_order_relaxed); }

 private:
  struct Pass {
    void (*part)(const void* context, std::size_t at, std::size_t length, bool is_caller) = nullptr;
    const void* context = nullptr;
    std::size_t bytes = 0, part_bytes = 0;
  };
  using SteadyClock = std::chrono::steady_clock;
  static constexpr std::uint32_t kClosed = 1U << 31U;

  std::size_t run(Pass pass, std::size_t first, const std::atomic<std::uint32_t>* wanting);
  void open(const Pass& pass, std::size_t first);
  void close();
  void start();
  void wake(std::uint32_t at_most);
  void stand_back();
  // On a helper.
  void live(std::uint32_t seen);
  void join_pass();
  void judge(long* preemptions);

  HelperOptions options_;
  std::vector<std::thread> threads_;
  bool is_started_ = false;                    // guarded by is_taken_
  Pass pass_;                                  // of the open pass
  std::atomic<std::uint32_t> awake_limit_{0};  // threads that were started
  std::atomic<bool> is_stopping_{false};
  std::atomic<std::int64_t> back_until_ns_{0};  // of the steady clock: no pass is shared before
  std::atomic<std::int64_t> back_ns_{0};        // how long they stood back last
  std::atomic<std::uint64_t> taken_parts_{0};
  // Lines that threads write at once.
  alignas(64) std::atomic<bool> is_taken_{false};     // by a caller
  alignas(64) std::atomic<std::uint32_t> number_{0};  // of passes; sleepers wait for it to change
  alignas(64) std::atomic<std::uint32_t> sleepers_{0};
  alignas(64) std::atomic<std::uint32_t> inside_{kClosed};  // helpers in the pass, and whether it is closed
  alignas(64) std::atomic<std::size_t> next_{0};            // the first part that nobody has taken
};

// Calls body(first, length) for all of [0, bytes): at once, or in parts where helpers should share the pass.
template <class Body>
void run_in_parts(HelperThreads* helpers, std::size_t bytes, std::size_t read_bytes, const Body& body) {
  if (helpers == nullptr || !helpers->should_share(read_bytes)) return body(std::size_t{0}, bytes);
  helpers->run(0, bytes, nullptr, [&](std::size_t first, std::size_t length, bool) { body(first, length); });
}

}  // namespace tutti
