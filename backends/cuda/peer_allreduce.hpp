// Allreduce by kernels that reach the memory of all ranks: one shot and two shots (peer_bodies.hpp).
// Ranks communicate by their areas alone. They may be threads of one process or processes of one machine, and
// may share a device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "backends/backend.hpp"
#include "backends/cuda/driver.hpp"
#include "backends/cuda/kernel_table.hpp"
#include "backends/cuda/peer_bodies.hpp"
#include "backends/cuda/peer_limits.hpp"
#include "backends/cuda/stream_event.hpp"
#include "runtime/base/ops.hpp"
#include "runtime/base/status.hpp"
#include "runtime/base/types.hpp"

namespace tutti::cuda {

// The areas of all ranks, by their addresses in this process. Every rank reaches every area.
class PeerAreas {
 public:
  // Collective: all ranks get areas, or all get an error that says whose is missing and why (unsupported, or
  // the group's failure). `word_capacity`: of one shot; `staging_bytes`: memory behind it.
  static Result<PeerAreas> create(GroupServices& services, int device, std::uint32_t word_capacity,
                                  std::size_t staging_bytes);
  PeerAreas(PeerAreas&& other) noexcept;
  PeerAreas& operator=(PeerAreas&&) = delete;
  PeerAreas(const PeerAreas&) = delete;
  PeerAreas& operator=(const PeerAreas&) = delete;
  ~PeerAreas();

  PeerArea* at(std::uint32_t rank) const { return areas_[rank]; }
  std::size_t staging_offset() const { return staging_offset_; }
  // Are all ranks threads of this process? They then reach each other's vectors directly.
  bool is_one_process() const { return is_one_process_; }
  // Do processes share a device? It then runs their kernels in time slices, unless MPS merges them.
  bool is_time_sliced() const { return is_time_sliced_; }
  // Are there threads of one process that share a device? Their streams share its queues.
  bool shares_queues() const { return shares_queues_; }
  // Blocks that each rank may launch, such that those of all ranks run at a time.
  std::uint32_t most_blocks() const { return most_blocks_; }
  // Keeps all memory for good: kernels that hang may still use it.
  void abandon() {
    own_ = 0;
    opened_.fill(0);
  }

 private:
  PeerAreas() = default;
  int device_ = 0;
  CUdeviceptr own_ = 0;
  std::array<PeerArea*, kMaxPeers> areas_{};
  std::array<CUdeviceptr, kMaxPeers> opened_{};  // to be closed
  std::size_t staging_offset_ = 0;
  bool is_one_process_ = false;
  bool is_time_sliced_ = false;
  bool shares_queues_ = false;
  std::uint32_t most_blocks_ = 1;
};

enum class Shots : std::uint8_t { one, two };

// The kernel of one signature, with the rules that it computes by.
struct PeerKernel {
  CUfunction function = nullptr;
  FoldRule rule{};
  ScaleRule average{};
  bool is_average = false;
  Shots shots = Shots::one;
  Dtype dtype = Dtype::f32;
};

// Threading: one thread at a time, as a backend. All ranks make the same calls in the same order. Where ranks
// share a device, none may free device memory while another's call waits for it: freeing waits for the whole
// device. Ranks that are threads need streams of their own: on one stream, the kernel of a rank would wait
// for that of another behind it.
class PeerAllreduce {
 public:
  // Collective, like PeerAreas::create(). Groups of 2 to kMaxPeers ranks. `staging_bytes`: a multiple of 16.
  static Result<std::unique_ptr<PeerAllreduce>> create(GroupServices& services, int device,
                                                       std::size_t staging_bytes = kTwoShotPieceBytes);
  ~PeerAllreduce();
  PeerAllreduce(const PeerAllreduce&) = delete;
  PeerAllreduce& operator=(const PeerAllreduce&) = delete;

  bool is_time_sliced() const { return areas_.is_time_sliced(); }
  // Errors: unsupported or invalid_argument, with the reason why no kernel reduces such vectors.
  Result<PeerKernel> find_kernel(std::size_t count, Dtype dtype, const ReduceOp& op, Shots shots) const;
  // dst <- the reduction of all ranks' `src` (in place if equal), put on `stream`, which belongs to the
  // device; returns at once. `count` and `op` are those that `kernel` was found for, whatever the op's scalar.
  // All ranks get the same bits. Processes go through staging buffers, threads read vectors directly.
  Status start(const PeerKernel& kernel, void* dst, const void* src, std::size_t count, const ReduceOp& op,
               CUstream stream);
  // Ends kernels that wait for a rank; their results are worthless. For good, from any thread.
  void abort();

 private:
  PeerAllreduce(GroupServices& services, int device, PeerAreas areas, const Driver& table,
                const DeviceKernels& kernels, std::size_t staging_bytes, std::uint32_t* abort_word);
  Status launch(CUfunction function, PeerArguments& arguments, std::uint64_t tasks, CUstream stream);

  GroupServices& services_;
  const int device_;
  const std::size_t staging_bytes_;
  PeerAreas areas_;
  const Driver& table_;
  const DeviceKernels& kernels_;
  std::uint32_t* const abort_word_;  // pinned
  EventPool events_;
  CallOrder order_{events_};  // of those that use the areas
  std::uint32_t epoch_ = 0;
};

}  // namespace tutti::cuda
