// A private shared-memory page through which the ranks of one benchmark run meet: barrier, gather, and a
// mailbox in which idle ranks sleep. Knows no library under test, so that what is measured never depends on
// what synchronises the measurement.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fcntl.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "bench/harness/memory_file.hpp"

namespace tutti::bench {

// spin:  busy-wait, then yield; for libraries that poll. Where ranks outnumber CPUs they yield at once.
// block: sleep in the kernel; for libraries whose own I/O threads need the cores while the ranks wait.
enum class BarrierWait : std::uint8_t { spin, block };

// The ranks of one host, one object per rank. Rank 0 creates the page (create). The others open it by (pid,
// fd) of rank 0, which the library under test carries once at the start; or the page is created before
// fork(), and with_rank() gives each process its rank. It has no name in any file system, so nothing is left
// behind however a run ends. Satisfies `Rendezvous`.
class SharedPage {
 public:
  static constexpr std::size_t kCommandBytes = 8192;

  // Throws std::system_error.
  static SharedPage create(int rank_count) {
    return SharedPage(make_memory_file("tutti-bench", page_bytes(rank_count)), 0, rank_count);
  }
  static SharedPage open(int pid, int fd, int rank, int rank_count) {
    const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
    const int own_fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (own_fd < 0) fail("opening the shared page");
    return SharedPage(own_fd, rank, rank_count);
  }
  // The same page seen by another rank: after fork().
  SharedPage with_rank(int rank) const { return SharedPage(::dup(fd_), rank, rank_count_); }

  SharedPage(SharedPage&& other) noexcept
      : fd_(other.fd_),
        rank_(other.rank_),
        rank_count_(other.rank_count_),
        wait_(other.wait_),
        spin_count_(other.spin_count_),
        epoch_(other.epoch_),
        command_(other.command_),
        header_(other.header_) {
    other.fd_ = -1;
    other.header_ = nullptr;
  }
  SharedPage& operator=(SharedPage&&) = delete;
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;
  ~SharedPage() {
    if (header_ != nullptr) ::munmap(header_, page_bytes(rank_count_));
    if (fd_ >= 0) ::close(fd_);
  }

  int fd() const { return fd_; }
  int rank() const { return rank_; }
  int rank_count() const { return rank_count_; }
  void set_wait(BarrierWait wait) { wait_ = wait; }  // equal on all ranks

  void barrier() {
    if (wait_ == BarrierWait::spin) {
      spinning_barrier();
    } else {
      blocking_barrier();
    }
  }

  // See `Rendezvous`. Any number of values; they pass through the page in pieces.
  void gather(std::span<const double> mine, std::span<double> all) {
    for (std::size_t done = 0; done < mine.size(); done += kSlotCount) {
      const std::size_t piece = std::min(kSlotCount, mine.size() - done);
      std::copy_n(mine.data() + done, piece, slots(rank_));
      barrier();
      for (int rank = 0; rank < rank_count_; ++rank) {
        std::copy_n(slots(rank), piece, all.data() + static_cast<std::size_t>(rank) * mine.size() + done);
      }
      barrier();  // nobody overwrites what somebody still reads
    }
  }

  // Rank 0: hands a command to all other ranks. Only when all of them have returned from the previous one (a
  // barrier away).
  void post_command(std::string_view command) {
    const std::size_t length = std::min(command.size(), kCommandBytes - 1);
    std::memcpy(header_->command, command.data(), length);
    header_->command[length] = '\0';
    header_->command_number.fetch_add(1, std::memory_order_release);
    futex(&header_->command_number, FUTEX_WAKE, INT_MAX);
  }
  // Other ranks: sleeps until there is a command; uses no processor meanwhile.
  std::string wait_command() {
    while (header_->command_number.load(std::memory_order_acquire) == command_) {
      futex(&header_->command_number, FUTEX_WAIT, static_cast<int>(command_));
    }
    ++command_;
    return header_->command;
  }

 private:
  static constexpr std::size_t kLine = 64;
  static constexpr std::size_t kSlotCount = 1024;  // values of a rank in one piece of gather()
  static constexpr int kSpinCount = 2000;          // some tens of microseconds before the first yield

  using Word = std::atomic<std::uint32_t>;
  static_assert(Word::is_always_lock_free && sizeof(Word) == sizeof(std::uint32_t));

  struct Header {
    alignas(kLine) Word arrived_count;
    alignas(kLine) Word epoch;
    alignas(kLine) Word command_number;
    char command[kCommandBytes];
  };
  struct alignas(kLine) Flag {
    Word epoch;
  };

  static std::size_t page_bytes(int rank_count) {
    return sizeof(Header) +
           static_cast<std::size_t>(rank_count) * (sizeof(Flag) + kSlotCount * sizeof(double));
  }
  [[noreturn]] static void fail(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
  }

  // A new memfd is all zeros, which is the initial value of every word: nobody needs to construct them.
  SharedPage(int fd, int rank, int rank_count) : fd_(fd), rank_(rank), rank_count_(rank_count) {
    void* at = ::mmap(nullptr, page_bytes(rank_count), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) fail("mapping the shared page");
    header_ = static_cast<Header*>(at);
    // Else those whose turn it is would keep the others from coming, and leave long before them.
    if (rank_count_ > ::sysconf(_SC_NPROCESSORS_ONLN)) spin_count_ = 0;
  }

  Flag* flags() const { return reinterpret_cast<Flag*>(header_ + 1); }
  double* slots(int rank) const {
    return reinterpret_cast<double*>(flags() + rank_count_) + static_cast<std::size_t>(rank) * kSlotCount;
  }
  static void futex(Word* word, int operation, int value) {
    ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), operation, value, nullptr, nullptr, 0);
  }

  // Every rank writes its epoch to a flag line of its own and reads the others'. Two ranks then leave about
  // one cache-line exchange after the later one arrived, whereas a shared counter lets the last one start
  // early.
  void spinning_barrier() {
    ++epoch_;
    flags()[rank_].epoch.store(epoch_, std::memory_order_release);
    for (int peer = 0; peer < rank_count_; ++peer) {
      int spins = 0;
      // A peer may be one epoch ahead already, hence the signed distance.
      while (static_cast<std::int32_t>(flags()[peer].epoch.load(std::memory_order_acquire) - epoch_) < 0) {
        if (++spins < spin_count_) {
#if defined(__x86_64__)
          __builtin_ia32_pause();
#endif
        } else {
          ::sched_yield();
        }
      }
    }
  }

  void blocking_barrier() {
    const std::uint32_t before = header_->epoch.load(std::memory_order_acquire);
    if (header_->arrived_count.fetch_add(1, std::memory_order_acq_rel) + 1 ==
        static_cast<std::uint32_t>(rank_count_)) {
      header_->arrived_count.store(0, std::memory_order_relaxed);
      header_->epoch.store(before + 1, std::memory_order_release);
      futex(&header_->epoch, FUTEX_WAKE, INT_MAX);
      return;
    }
    while (header_->epoch.load(std::memory_order_acquire) == before) {
      futex(&header_->epoch, FUTEX_WAIT, static_cast<int>(before));
    }
  }

  int fd_;
  int rank_;
  int rank_count_;
  BarrierWait wait_ = BarrierWait::spin;
  int spin_count_ = kSpinCount;
  std::uint32_t epoch_ = 0;    // barriers that this rank has entered in spin mode
  std::uint32_t command_ = 0;  // commands that this rank has seen
  Header* header_ = nullptr;
};

}  // namespace tutti::bench
