// Ranks of a group map each other's device memory: by address inside a process, by CUDA IPC handles between
// processes.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/memory.hpp"
#include "backends/cuda/peer_allreduce.hpp"

namespace tutti::cuda {
namespace {

// The device of each rank, and the handle of its area; swapped by allgather.
struct Introduction {
  std::uint64_t process = 0;  // a number drawn by the process
  std::array<char, 40> boot{};
  CUuuid device_name{};
  std::int32_t device = 0;
  std::uint32_t resident_blocks = 0;
  std::uint64_t address = 0;
  CUipcMemHandle handle{};
  bool has_handle = false;
  bool has_area = false;
};

std::uint64_t process_number() {
  static std::uint64_t number = [] {
    std::random_device random;
    return std::uint64_t{random()} << 32U | random();
  }();
  return number;
}

// Swaps the outcome of all ranks; the first rank's failure fails all of them. `failure` is this rank's own.
Status agree(GroupServices& services, const Status& failure) {
  const char mine = failure ? 1 : 0;
  std::vector<char> all(services.size());
  TUTTI_RETURN_IF_ERROR(services.allgather(&mine, all.data(), 1));
  if (!failure) return failure;
  const auto bad = std::find(all.begin(), all.end(), 0);
  if (bad == all.end()) return {};
  const auto rank = static_cast<int>(bad - all.begin());
  return Status(
      StatusCode::unsupported,
      "rank " + std::to_string(rank) + " cannot show or reach the memory of devices; its log says why", rank);
}

// Zeroes on the device, and waits.
Status clear(const Driver& table, int device, CUdeviceptr area, std::size_t size_bytes,
             Clock::time_point deadline) {
  Result<Stream> stream = Stream::create(device);
  if (!stream) return stream.status();
  EventPool events(device);
  Result<Event> event = events.take();
  if (!event) return event.status();
  TUTTI_RETURN_IF_CUDA_ERROR(table, table.cuMemsetD8Async(area, 0, size_bytes, stream->get()),
                             "cuMemsetD8Async");
  TUTTI_RETURN_IF_ERROR(event->record(stream->get()));
  return event->wait(deadline);
}

Status introduce(const Driver& table, int device, std::size_t size_bytes, Clock::time_point deadline,
                 Introduction& self, CUdeviceptr& area) {
  self.process = process_number();
  std::ifstream("/proc/sys/kernel/random/boot_id").read(self.boot.data(), self.boot.size() - 1);
  self.device = device;
  const Result<const DeviceKernels*> kernels = current_kernels(table);
  if (!kernels) return kernels.status();
  self.resident_blocks = (*kernels)->resident_blocks;
  TUTTI_RETURN_IF_CUDA_ERROR(table, table.cuDeviceGetUuid(&self.device_name, device), "cuDeviceGetUuid");
  TUTTI_RETURN_IF_CUDA_ERROR(table, table.cuMemAlloc(&area, size_bytes),
                             "cuMemAlloc of " + std::to_string(size_bytes) + " bytes");
  TUTTI_RETURN_IF_ERROR(clear(table, device, area, size_bytes, deadline));
  self.address = area;
  self.has_handle = table.cuIpcGetMemHandle(&self.handle, area) == CUDA_SUCCESS;
  self.has_area = true;
  return {};
}

// The address of another rank's area in this process; `opened` if it has to be closed.
Result<CUdeviceptr> reach(const Driver& table, const Introduction& self, const Introduction& other,
                          CUdeviceptr& opened) {
  if (other.process == self.process) {
    TUTTI_RETURN_IF_ERROR(enable_peer_access(self.device, other.device));
    return static_cast<CUdeviceptr>(other.address);
  }
  if (other.boot != self.boot) return unsupported("it is on another machine");
  if (!other.has_handle) return unsupported("its device has no handles for other processes (CUDA IPC)");
  TUTTI_RETURN_IF_CUDA_ERROR(
      table, table.cuIpcOpenMemHandle(&opened, other.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
      "cuIpcOpenMemHandle");
  return opened;
}

// Blocks of each rank, such that those of all ranks of a device are resident at a time. Half of the device is
// left to other kernels.
std::uint32_t shared_blocks(const std::vector<Introduction>& all) {
  std::uint32_t least = kMostPeerBlocks;
  for (const Introduction& one : all) {
    std::uint32_t sharers = 1;
    for (const Introduction& other : all) {
      const bool is_same = std::memcmp(&one.device_name, &other.device_name, sizeof one.device_name) == 0;
      if (is_same && &one != &other) ++sharers;
    }
    least = std::min(least, one.resident_blocks / 2 / sharers);
  }
  return std::max(least, 1U);
}

}  // namespace

Result<PeerAreas> PeerAreas::create(GroupServices& services, int device, std::uint32_t word_capacity,
                                    std::size_t staging_bytes) {
  const std::uint32_t size = services.size();
  if (size < 2 || size > kMaxPeers) {
    return unsupported("kernels reach the memory of 2 to " + std::to_string(kMaxPeers) + " ranks, not of " +
                       std::to_string(size));
  }
  PeerAreas areas;
  areas.device_ = device;
  areas.staging_offset_ = sizeof(PeerArea) + std::size_t{2} * size * word_capacity * sizeof(std::uint64_t);
  const std::size_t size_bytes = areas.staging_offset_ + staging_bytes;
  const Clock::time_point deadline = Clock::now() + services.timeout();
  Introduction self;
  const auto begin = [&]() -> Status {
    const Result<const Driver*> table = driver();
    if (!table) return table.status();
    const Result<ContextScope> context = ContextScope::enter(device);
    if (!context) return context.status();
    return introduce(**table, device, size_bytes, deadline, self, areas.own_);
  };
  // Every rank takes part in both exchanges, also one that has failed: the others wait for it.
  const Status begun = begin();
  std::vector<Introduction> all(size);
  TUTTI_RETURN_IF_ERROR(services.allgather(&self, all.data(), sizeof self));
  TUTTI_RETURN_IF_ERROR(agree(services, begun));
  const auto reach_all = [&]() -> Status {
    const Driver& table = **driver();
    const Result<ContextScope> context = ContextScope::enter(device);
    if (!context) return context.status();
    for (std::uint32_t k = 0; k < size; ++k) {
      const Result<CUdeviceptr> area = reach(table, self, all[k], areas.opened_[k]);
      if (!area)
        return area.status().with_context("the memory of rank " + std::to_string(k) + " cannot be reached");
      areas.areas_[k] = reinterpret_cast<PeerArea*>(static_cast<std::uintptr_t>(*area));
    }
    return {};
  };
  TUTTI_RETURN_IF_ERROR(agree(services, reach_all()));
  areas.is_one_process_ = std::all_of(all.begin(), all.end(),
                                      [&](const Introduction& one) { return one.process == self.process; });
  for (const Introduction& one : all) {
    for (const Introduction& other : all) {
      if (&one == &other || std::memcmp(&other.device_name, &one.device_name, sizeof one.device_name) != 0)
        continue;
      (other.process == one.process ? areas.shares_queues_ : areas.is_time_sliced_) = true;
    }
  }
  areas.most_blocks_ = shared_blocks(all);
  return areas;
}

PeerAreas::PeerAreas(PeerAreas&& other) noexcept
    : device_(other.device_),
      own_(std::exchange(other.own_, 0)),
      areas_(other.areas_),
      opened_(std::exchange(other.opened_, {})),
      staging_offset_(other.staging_offset_),
      is_one_process_(other.is_one_process_),
      is_time_sliced_(other.is_time_sliced_),
      shares_queues_(other.shares_queues_),
      most_blocks_(other.most_blocks_) {}

PeerAreas::~PeerAreas() {
  const Result<const Driver*> table = driver();
  if (!table) return;
  const Result<ContextScope> context = ContextScope::enter(device_);
  if (!context) return;
  for (const CUdeviceptr address : opened_) {
    if (address != 0) (*table)->cuIpcCloseMemHandle(address);
  }
  if (own_ != 0) (*table)->cuMemFree(own_);
}

}  // namespace tutti::cuda
