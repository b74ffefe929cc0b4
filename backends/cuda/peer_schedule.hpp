// Our own schedules on the memory of devices: the staged form of a lowered plan, step by step on a stream.
// Ranks read each other's staging buffers by CUDA IPC. Streams write flags into the memory of the ranks that
// wait for them. The host waits for nothing.
//
// A long vector goes in epochs, as on the host's control blocks (scheduler/lowered_run.hpp). Epochs use two
// staging buffers alternately; a rank writes one again when every rank has ended the epoch before last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "backends/backend.hpp"
#include "backends/cuda/driver.hpp"
#include "backends/cuda/peer_allreduce.hpp"
#include "backends/cuda/peer_limits.hpp"
#include "backends/cuda/stream_event.hpp"
#include "runtime/schedule/chunk_map.hpp"
#include "runtime/scheduler/lowered_plan.hpp"

namespace tutti::cuda {

// Threading: one thread at a time, as a backend. All ranks make the same calls in the same order. Ranks that
// are threads of one process have a device each: streams of one process share the queues of a device, and a
// stream that waits for a flag may block the stream that would write it.
class PeerSchedules {
 public:
  // Collective, like PeerAreas::create(). Groups of 2 to kMaxPeers ranks. `staging_bytes`: of both staging
  // buffers of a rank.
  static Result<std::unique_ptr<PeerSchedules>> create(GroupServices& services, int device,
                                                       std::size_t staging_bytes = std::size_t{2} *
                                                                                   kSchedulePieceBytes);
  ~PeerSchedules();
  PeerSchedules(const PeerSchedules&) = delete;
  PeerSchedules& operator=(const PeerSchedules&) = delete;

  bool is_time_sliced() const { return areas_.is_time_sliced(); }
  // ok, or why no plan carries out the call on GPUs.
  static Status check_call(const Call& call);
  // ok, or why this plan cannot run here. Equal on all ranks.
  Status check_plan(const LoweredPlan& plan) const;
  // Puts a checked call on `stream`, which belongs to the device; nothing is waited for. `plan`: staged,
  // the same schedule on all ranks.
  Status start(const Call& call, const LoweredPlan& plan, CUstream stream);
  // Releases streams that wait for a rank; their results are worthless. For good, from any thread.
  void abort();

 private:
  PeerSchedules(GroupServices& services, int device, PeerAreas areas, const Driver& table,
                Stream abort_stream, std::size_t area_bytes);
  struct Epoch;  // a part of a call, with the addresses of its buffers
  Status run(Epoch& epoch);
  Status begin_epoch(CUstream stream);
  Status end_epoch(CUstream stream);
  Status move(Epoch& epoch, const LoweredStep& step);
  Status signal_all(std::uint32_t flag, CUstream stream);
  Status wait_for(std::uint32_t flag, std::uint32_t value, CUstream stream);
  // The flags that a rank waits for: for each rank one a line, and one for the end of its epoch.
  CUdeviceptr flags_of(std::uint32_t rank) const;
  std::byte* staging_of(std::uint32_t rank) const;

  GroupServices& services_;
  const int device_;
  PeerAreas areas_;
  const Driver& table_;
  Stream abort_stream_;  // never waits
  const std::size_t staging_bytes_;
  ChunkMap map_;
  EventPool events_;
  CallOrder order_{events_};  // of calls that use the staging buffers
  std::uint32_t epoch_ = 0;
  bool has_heard_from_all_ = true;  // in the last epoch
};

}  // namespace tutti::cuda
