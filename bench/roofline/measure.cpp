// The movements whose times are the ceilings, timed by the harness's own loop.
// Knows no collective.
#include "bench/roofline/measure.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "bench/harness/buffer.hpp"
#include "bench/harness/harness.hpp"
#include "bench/harness/memory_file.hpp"
#include "runtime/base/relax.hpp"
#include "runtime/kernels/kernels.hpp"

namespace tutti::bench {
namespace {

// Memory of one rank that the others of the node can map: lines, then data from the next page on.
class SharedMemory {
 public:
  static constexpr std::size_t kDataOffset = 4096;

  static SharedMemory create(std::size_t data_bytes) {
    return {make_memory_file("tutti-roofline", kDataOffset + data_bytes), kDataOffset + data_bytes};
  }
  static SharedMemory open(int pid, int fd, std::size_t data_bytes) {
    const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
    const int own_fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (own_fd < 0) fail("opening another rank's memory");
    return {own_fd, kDataOffset + data_bytes};
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() {
    ::munmap(at_, bytes_);
    ::close(fd_);
  }

  int fd() const { return fd_; }
  static constexpr int kLineCount = kDataOffset / 64;
  std::atomic<std::uint32_t>& line(int number = 0) const {
    return *reinterpret_cast<std::atomic<std::uint32_t>*>(static_cast<std::byte*>(at_) + number * 64);
  }
  std::byte* data() const { return static_cast<std::byte*>(at_) + kDataOffset; }

 private:
  [[noreturn]] static void fail(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
  }
  SharedMemory(int fd, std::size_t bytes) : fd_(fd), bytes_(bytes) {
    at_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at_ == MAP_FAILED) fail("mapping shared memory");
  }

  int fd_;
  std::size_t bytes_;
  void* at_ = nullptr;
};

// a += b with non-temporal stores. Both are multiples of 64 bytes, a is aligned to them.
void add_streaming(float* a, const float* b, std::size_t count) {
#if defined(__SSE2__)
  for (std::size_t i = 0; i < count; i += 4)
    _mm_stream_ps(a + i, _mm_add_ps(_mm_load_ps(a + i), _mm_loadu_ps(b + i)));
  _mm_sfence();  // the time of the stores is theirs
#else
  for (std::size_t i = 0; i < count; ++i) a[i] += b[i];
#endif
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return percentile(values, 0.5);
}

}  // namespace

class CeilingsMeter::Measuring {
 public:
  Measuring(std::size_t most_bytes, double seconds, SharedPage& ranks)
      : most_bytes_(most_bytes),
        seconds_(seconds),
        ranks_(ranks),
        own_(SharedMemory::create(most_bytes)),
        peer_(meet()),
        first_(open_of(0)),
        destination_(most_bytes) {
    // First touch: each rank's pages lie where its core is.
    rewrite(most_bytes_, 0);
    ranks_.barrier();  // until here the descriptors stay open
    probe_kernel_read();
  }

  int rank_count() const { return ranks_.rank_count(); }
  bool has(Ceiling kind) const {
    if (is_fresh(kind) && rank_count() == 1) return false;
    return kind != Ceiling::vm_read || kernel_read_error_ == 0;
  }
  std::string kernel_read_missing() const {
    if (rank_count() == 1) return "one rank";
    return kernel_read_error_ == 0 ? "" : std::generic_category().message(kernel_read_error_);
  }

  // The time of reading the clock twice, which every sample contains.
  double empty_us() {
    return measure(
               loop(2000), ranks_, [](std::uint64_t) {}, [] {})
        .p50_us;
  }

  // One way between the cores of ranks 0 and 1.
  double line_us() {
    constexpr std::uint32_t kTrips = 200;
    std::uint32_t turn = 0;
    std::atomic<std::uint32_t>& line = first_.line();
    const auto wait_for = [&](std::uint32_t value) {
      // Yields after some hundred microseconds only: ranks own their cores unless this is a test.
      for (int polls = 0; line.load(std::memory_order_acquire) != value; ++polls) {
        if (polls > 50000) ::sched_yield();
      }
    };
    const auto exchange = [&] {
      for (std::uint32_t i = 0; i < kTrips; ++i, turn += 2) {
        if (ranks_.rank() == 0) {
          line.store(turn + 1, std::memory_order_release);
          wait_for(turn + 2);
        } else if (ranks_.rank() == 1) {
          wait_for(turn + 1);
          line.store(turn + 2, std::memory_order_release);
        }
      }
    };
    return measure(
               loop(500), ranks_, [&](std::uint64_t) { ranks_.barrier(); }, exchange)
               .p50_us /
           (2 * kTrips);
  }

  // All ranks hear from each other, once in each timed call. A rank that polls at once takes lines before
  // they are written; one that waits too long loses time. So the best of a few waits before the first poll
  // counts.
  double exchange_us() {
    constexpr int kMostPauses = 4;
    double least_us = exchange_us(0);
    for (int pauses = 1; pauses <= kMostPauses; ++pauses) least_us = std::min(least_us, exchange_us(pauses));
    return least_us;
  }

  double us_of(Ceiling kind, std::size_t bytes, double empty_us) {
    // Short warm movements are repeated until a clock can tell them; fresh bytes are fresh only once.
    constexpr std::size_t kLongEnough = 64U << 10U;
    const std::size_t repeats = is_fresh(kind) ? 1 : std::max<std::size_t>(1, kLongEnough / bytes);
    const auto op = [&] {
      for (std::size_t i = 0; i < repeats; ++i) move(kind, bytes);
    };
    // The barrier: nobody rewrites what the neighbour still reads.
    const auto refresh = [&](std::uint64_t seed) {
      ranks_.barrier();
      rewrite(bytes, seed);
    };
    const double us = measure(loop(5000), ranks_, refresh, op).p50_us;
    return std::max(us - empty_us, 0.001) / static_cast<double>(repeats);
  }

 private:
  double exchange_us(int pauses) {
    constexpr int kFirst = 1;  // behind the line of the ping-pong
    const int count = std::min(ranks_.rank_count(), SharedMemory::kLineCount - kFirst);
    // Lines in turn, as anybody would who wants to be fast: the one to be written was read some calls ago.
    const int turns = std::min(8, (SharedMemory::kLineCount - kFirst) / count);
    std::uint32_t epoch = 0;
    const auto exchange = [&] {
      ++epoch;
      if (ranks_.rank() >= count) return;
      const int first = kFirst + static_cast<int>(epoch % static_cast<std::uint32_t>(turns)) * count;
      first_.line(first + ranks_.rank()).store(epoch, std::memory_order_release);
      for (int i = 0; i < pauses; ++i) relax();
      for (int r = 0; r < count; ++r) {
        for (int polls = 0; first_.line(first + r).load(std::memory_order_acquire) != epoch; ++polls) {
          if (polls > 50000) ::sched_yield();
        }
      }
    };
    const double us = measure(
                          loop(20000), ranks_, [](std::uint64_t) {}, exchange)
                          .p50_us;
    ranks_.barrier();
    for (int i = kFirst; i < SharedMemory::kLineCount; ++i)
      first_.line(i).store(0, std::memory_order_relaxed);
    ranks_.barrier();
    return us;
  }

  LoopPlan loop(int most) const {
    LoopPlan loop;
    loop.warmup_count = 4;
    loop.minimum_count = 3;
    loop.iteration_count = most;
    loop.budget_seconds = seconds_;
    return loop;
  }

  // Tells where this rank's memory is and opens the neighbour's.
  SharedMemory meet() {
    const std::array<double, 3> mine = {static_cast<double>(::getpid()), static_cast<double>(own_.fd()),
                                        static_cast<double>(reinterpret_cast<std::uintptr_t>(own_.data()))};
    places_.resize(mine.size() * static_cast<std::size_t>(ranks_.rank_count()));
    ranks_.gather(mine, places_);
    const int neighbour = (ranks_.rank() + 1) % ranks_.rank_count();
    peer_pid_ = static_cast<pid_t>(place(neighbour, 0));
    peer_address_ = static_cast<std::uintptr_t>(place(neighbour, 2));
    return open_of(neighbour);
  }
  SharedMemory open_of(int rank) const {
    return SharedMemory::open(static_cast<int>(place(rank, 0)), static_cast<int>(place(rank, 1)),
                              most_bytes_);
  }
  double place(int rank, std::size_t field) const {
    return places_[static_cast<std::size_t>(rank) * 3 + field];
  }

  // If it is refused to one rank, all leave it out.
  void probe_kernel_read() {
    errno = 0;
    const double mine = read_through_kernel(64) ? 0 : errno;
    kernel_read_error_ = static_cast<int>(maximum_over_ranks(ranks_, {&mine, 1})[0]);
  }

  bool read_through_kernel(std::size_t bytes) const {
    for (std::size_t done = 0; done < bytes;) {
      iovec to{destination_.data() + done, bytes - done};
      iovec from{reinterpret_cast<void*>(peer_address_ + done), bytes - done};
      const ssize_t count = ::process_vm_readv(peer_pid_, &to, 1, &from, 1, 0);
      if (count <= 0) return false;
      done += static_cast<std::size_t>(count);
    }
    return true;
  }

  // New values in this rank's memory: sums of them stay ordinary numbers.
  void rewrite(std::size_t bytes, std::uint64_t seed) const {
    auto* values = reinterpret_cast<float*>(own_.data());
    const float value = 1.0F + static_cast<float>(seed % 64) / 64;
    for (std::size_t i = 0; i < bytes / sizeof(float); ++i) values[i] = value;
  }

  void move(Ceiling kind, std::size_t bytes) const {
    auto* to = destination_.data();
    const std::byte* from = is_fresh(kind) ? peer_.data() : own_.data();
    switch (kind) {
      case Ceiling::copy_fresh:
      case Ceiling::copy:
        return copy_bytes(to, from, bytes);
      case Ceiling::copy_nt:
        return copy_bytes_streaming(to, from, bytes);
      case Ceiling::add_fresh:
      case Ceiling::add: {
        const std::array<const void*, 2> sources = {to, from};
        return sum_(nullptr, to, sources.data(), sources.size(), bytes / sizeof(float));
      }
      case Ceiling::add_nt:
        return add_streaming(reinterpret_cast<float*>(to), reinterpret_cast<const float*>(from),
                             bytes / sizeof(float));
      case Ceiling::vm_read:
        if (!read_through_kernel(bytes))
          throw std::system_error(errno, std::generic_category(), "process_vm_readv");
        return;
    }
  }

  std::size_t most_bytes_;
  double seconds_;  // for each measurement, about
  SharedPage& ranks_;
  std::vector<double> places_;  // of every rank: process, descriptor, address
  pid_t peer_pid_ = 0;
  std::uintptr_t peer_address_ = 0;
  int kernel_read_error_ = 0;
  SharedMemory own_, peer_, first_;
  Buffer destination_;
  KernelFn sum_ = select_kernel(Op::sum, Dtype::f32);
};

CeilingsMeter::CeilingsMeter(std::size_t most_bytes, double seconds, SharedPage& ranks)
    : measuring_(std::make_unique<Measuring>(most_bytes, seconds, ranks)) {}
CeilingsMeter::~CeilingsMeter() = default;

std::size_t CeilingsMeter::step_count(std::size_t size_count) const {
  std::size_t kinds = 0;
  for (std::size_t kind = 0; kind < kCeilingNames.size(); ++kind)
    kinds += measuring_->has(static_cast<Ceiling>(kind)) ? 1 : 0;
  return 1 + kinds * size_count;
}

Ceilings CeilingsMeter::take(std::span<const std::uint64_t> sizes, const Progress& progress) {
  const auto say = [&](std::string_view what) {
    if (progress) progress(what);
  };
  Measuring& measuring = *measuring_;
  Ceilings taken;
  taken.ranks = measuring.rank_count();
  taken.vm_read_missing = measuring.kernel_read_missing();
  say("line");
  if (taken.ranks > 1) {
    taken.line_us = measuring.line_us();
    taken.exchange_us = measuring.exchange_us();
  }
  const double empty_us = measuring.empty_us();
  for (std::size_t kind = 0; kind < kCeilingNames.size(); ++kind) {
    const auto ceiling = static_cast<Ceiling>(kind);
    if (!measuring.has(ceiling)) continue;
    for (const std::uint64_t bytes : sizes) {
      say(kCeilingNames[kind]);
      taken.of(ceiling).add(bytes, measuring.us_of(ceiling, bytes, empty_us));
    }
  }
  return taken;
}

Ceilings measure_ceilings(const CeilingsPlan& plan, SharedPage& ranks,
                          const std::function<void(std::size_t, std::size_t, const std::string&)>& progress) {
  CeilingsMeter meter(plan.last_bytes, plan.budget_seconds / plan.round_count, ranks);
  std::vector<std::uint64_t> sizes;
  for (std::size_t bytes = plan.first_bytes; bytes <= plan.last_bytes; bytes *= plan.factor)
    sizes.push_back(bytes);
  const auto round_count = static_cast<std::size_t>(plan.round_count);
  const std::size_t total = meter.step_count(sizes.size()) * round_count;
  std::size_t done = 0;
  // Rounds over everything: what disturbs the machine for a second spoils one round, not one curve.
  std::vector<Ceilings> rounds;
  for (std::size_t round = 0; round < round_count; ++round) {
    rounds.push_back(
        meter.take(sizes, [&](std::string_view what) { progress(done++, total, std::string(what)); }));
  }

  const auto middle = [&](const auto& us_of) {
    std::vector<double> us(rounds.size());
    std::transform(rounds.begin(), rounds.end(), us.begin(), us_of);
    return median(std::move(us));
  };
  Ceilings result;
  result.ranks = rounds.front().ranks;
  result.vm_read_missing = rounds.front().vm_read_missing;
  result.line_us = middle([](const Ceilings& round) { return round.line_us; });
  result.exchange_us = middle([](const Ceilings& round) { return round.exchange_us; });
  for (std::size_t kind = 0; kind < kCeilingNames.size(); ++kind) {
    for (std::size_t point = 0; point < rounds.front().curves[kind].point_count(); ++point)
      result.curves[kind].add(sizes[point],
                              middle([&](const Ceilings& round) { return round.curves[kind].us_of(point); }));
  }
  return result;
}

}  // namespace tutti::bench
