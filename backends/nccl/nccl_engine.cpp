// Starting calls, and the agreement of all ranks before there is a communicator.
#include "backends/nccl/nccl_engine.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "backends/cuda/memory.hpp"
#include "backends/cuda/stream_engine.hpp"
#include "backends/nccl/communicator.hpp"
#include "backends/nccl/issue.hpp"
#include "backends/nccl/mapping.hpp"
#include "runtime/base/log.hpp"

namespace tutti::nccl {
namespace {

constexpr std::chrono::milliseconds kCloseTime{5000};

WaitLimit wait_limit_of(GroupServices& services) {
  return {services.timeout(), [&services] { return services.failure(); }};
}

// Device memory for scratch_bytes(). Calls use it one after the other, on whichever streams.
class Scratch {
 public:
  ~Scratch() {
    if (address_ == 0) return;
    const auto context = cuda::ContextScope::enter(device_);
    if (const auto table = cuda::driver(); table) static_cast<void>((*table)->cuMemFree(address_));
  }

  // `stream` waits until the last user is through.
  Result<void*> take(int device, std::size_t size_bytes, CUstream stream) {
    const auto table = cuda::driver();
    if (!table) return table.status();
    if (size_bytes > size_bytes_) {
      device_ = device;
      if (address_ != 0) static_cast<void>((*table)->cuMemFree(address_));  // waits for its users
      size_bytes_ = address_ = 0;
      TUTTI_RETURN_IF_CUDA_ERROR(**table, (*table)->cuMemAlloc(&address_, size_bytes), "cuMemAlloc");
      size_bytes_ = size_bytes;
      // A barrier sends a byte round whose value is nobody's business, but it should have one.
      TUTTI_RETURN_IF_CUDA_ERROR(**table, (*table)->cuMemsetD8Async(address_, 0, size_bytes, stream),
                                 "cuMemsetD8Async");
    } else if (used_) {
      TUTTI_RETURN_IF_ERROR(used_.hold(stream));
    }
    return cuda::pointer_to(address_);
  }
  Status give_back(cuda::EventPool& events, CUstream stream) {
    if (!used_) {
      auto event = events.take();
      if (!event) return event.status();
      used_ = *std::move(event);
    }
    return used_.record(stream);
  }

 private:
  int device_ = -1;
  CUdeviceptr address_ = 0;
  std::size_t size_bytes_ = 0;
  cuda::Event used_;
};

// NCCL deregisters remaining memory when it ends a communicator.
class NcclRegistration final : public Registration {
 public:
  NcclRegistration(const std::shared_ptr<Communicator>& communicator, void* handle)
      : communicator_(communicator), handle_(handle) {}
  ~NcclRegistration() override {
    const auto communicator = communicator_.lock();
    if (communicator == nullptr) return;
    const auto context = cuda::ContextScope::enter(communicator->device());
    communicator->deregister_memory(handle_);
  }

 private:
  const std::weak_ptr<Communicator> communicator_;
  void* const handle_;
};

class NcclEngine final : public cuda::StreamEngine {
 public:
  NcclEngine(GroupServices& services, std::unique_ptr<Communicator> communicator)
      : StreamEngine(services, communicator->device(),
                     {"NCCL", "a call by NCCL", "its end is told by events", "tutti-nccl"}),
        nccl_(communicator->library()),
        communicator_(std::move(communicator)) {}

  ~NcclEngine() override {
    const auto context = cuda::ContextScope::enter(device_);
    close(kCloseTime);
    communicator_->close(kCloseTime);
  }

  Result<std::unique_ptr<cuda::PreparedCall>> prepare(const Call& call, std::string_view algorithm) override {
    TUTTI_RETURN_IF_ERROR(check_call(call, services_.rank(), services_.size(), nccl_.version));
    if (!algorithm.empty()) {
      return unsupported(
          fmt::format("NCCL cannot be told to use {}: it chooses its algorithms itself, or by "
                      "NCCL_ALGO",
                      algorithm));
    }
    return std::unique_ptr<cuda::PreparedCall>(std::make_unique<cuda::PreparedFor<NcclEngine, NcclReduction>>(
        *this, reduction_of(call, nccl_.version)));
  }

  Result<WorkRef> start(const Call& call, const NcclReduction& reduction) {
    const bool is_receive = call.collective == Collective::send_recv && !call.is_send;
    return submit(call, is_receive ? static_cast<int>(call.root) : -1,
                  [&](CUstream stream) { return put(call, reduction, stream); });
  }

  Result<std::unique_ptr<Registration>> register_buffer(const void* memory, std::size_t bytes) override {
    TUTTI_RETURN_IF_ERROR(watch_.failure());
    if (nccl_.register_memory == nullptr) return std::unique_ptr<Registration>();
    const auto context = cuda::ContextScope::enter(device_);
    if (!context) return context.status();
    const Result<void*> handle = communicator_->register_memory(memory, bytes);
    if (!handle) return handle.status();
    return std::unique_ptr<Registration>(new NcclRegistration(communicator_, *handle));
  }

  Result<std::unique_ptr<cuda::DeviceEngine>> split(GroupServices& services, int color, int key) override {
    auto made = split_off(color, key);
    if (!made) fail_for_all(made.status(), "splitting a group by NCCL");
    const char arrived = 1;
    std::vector<char> all(services_.size());
    TUTTI_RETURN_IF_ERROR(services_.allgather(&arrived, all.data(), 1));
    TUTTI_RETURN_IF_ERROR(watch_.failure());
    if (*made == nullptr) return std::unique_ptr<cuda::DeviceEngine>();
    (*made)->set_wait_limit(wait_limit_of(services));
    return std::unique_ptr<cuda::DeviceEngine>(new NcclEngine(services, *std::move(made)));
  }

 private:
  Result<std::unique_ptr<Communicator>> split_off(int color, int key) {
    TUTTI_RETURN_IF_ERROR(watch_.drain());
    const auto context = cuda::ContextScope::enter(device_);
    if (!context) return context.status();
    return communicator_->split(color, key);
  }

  // StreamWatch::Owner
  Status diagnose() override { return communicator_->async_error(); }
  void abort(const Status& cause) override {
    log_error("NCCL, rank {} on GPU {}: {}", communicator_->rank(), device_, cause.message());
    communicator_->abort(cause);
  }

  Status put(const Call& call, const NcclReduction& reduction, CUstream stream) {
    const std::size_t bytes = scratch_bytes(call, services_.rank(), services_.size());
    if (bytes == 0) return issue(*communicator_, call, reduction, nullptr);
    const auto memory = scratch_.take(device_, bytes, stream);
    if (!memory) return memory.status();
    TUTTI_RETURN_IF_ERROR(issue(*communicator_, call, reduction, *memory));
    return scratch_.give_back(watch_.events(), stream);
  }

  const Library& nccl_;
  const std::shared_ptr<Communicator> communicator_;
  Scratch scratch_;
};

// -- agreeing ---------------------------------------------------------------------------------------------

// The GPU of a rank, or why the rank cannot take part; swapped before there is a communicator.
struct RankReport {
  int version = 0;
  bool is_able = false;
  std::array<char, 16> gpu{};
  std::array<char, 20> bus{};
  ncclUniqueId id{};  // rank 0's counts
  std::array<char, 320> reason{};
};

template <std::size_t size>
void copy_text(std::array<char, size>& to, std::string_view text) {
  text = text.substr(0, size - 1);
  std::copy(text.begin(), text.end(), to.begin());
}

Status fill(RankReport& report, std::uint32_t rank, int device) {
  const auto nccl = library();
  if (!nccl) return nccl.status();
  const auto table = cuda::driver();
  if (!table) return table.status();
  report.version = (*nccl)->version;
  CUdevice handle = 0;
  CUuuid uuid{};
  TUTTI_RETURN_IF_CUDA_ERROR(**table, (*table)->cuDeviceGet(&handle, device), "cuDeviceGet");
  TUTTI_RETURN_IF_CUDA_ERROR(**table, (*table)->cuDeviceGetUuid(&uuid, handle), "cuDeviceGetUuid");
  static_assert(sizeof uuid.bytes == sizeof report.gpu);
  std::memcpy(report.gpu.data(), uuid.bytes, sizeof uuid.bytes);
  TUTTI_RETURN_IF_CUDA_ERROR(
      **table, (*table)->cuDeviceGetPCIBusId(report.bus.data(), static_cast<int>(report.bus.size()), handle),
      "cuDeviceGetPCIBusId");
  if (rank != 0) return {};
  return to_status(**nccl, (*nccl)->ncclGetUniqueId(&report.id), "ncclGetUniqueId", nullptr);
}

// The same on all ranks, as the reports are.
Status judge(const std::vector<RankReport>& reports) {
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const RankReport& report = reports[rank];
    if (!report.is_able)
      return unsupported(fmt::format("rank {}: {}", rank, report.reason.data()), static_cast<int>(rank));
    if (report.version != reports[0].version) {
      return unsupported(fmt::format("rank 0 has NCCL {}, rank {} has {}; they must be the same",
                                     version_text(reports[0].version), rank, version_text(report.version)),
                         static_cast<int>(rank));
    }
    for (std::size_t other = 0; other < rank; ++other) {
      if (reports[other].gpu != report.gpu) continue;
      return unsupported(
          fmt::format("ranks {} and {} are on one GPU ({}), and NCCL wants a GPU for each rank", other, rank,
                      report.bus.data()),
          static_cast<int>(rank));
    }
  }
  return {};
}

// The result of making a communicator, for the other ranks.
struct Outcome {
  StatusCode code = StatusCode::ok;
  std::array<char, 500> message{};
};

}  // namespace

Result<std::unique_ptr<cuda::DeviceEngine>> make_nccl_engine(GroupServices& services, int device) {
  const auto context = cuda::ContextScope::enter(device);
  RankReport mine;
  const Status filled = context ? fill(mine, services.rank(), device) : context.status();
  mine.is_able = filled.is_ok();
  copy_text(mine.reason, filled.message());
  std::vector<RankReport> reports(services.size());
  TUTTI_RETURN_IF_ERROR(services.allgather(&mine, reports.data(), sizeof mine));
  TUTTI_RETURN_IF_ERROR(judge(reports));

  // Half the time for NCCL, so that those whom it has failed still wait when the last gives up.
  WaitLimit limit = wait_limit_of(services);
  limit.timeout /= 2;
  const Member member{static_cast<int>(services.rank()), static_cast<int>(services.size()), device};
  auto made = Communicator::create(**library(), reports[0].id, member, limit);
  Outcome outcome;
  outcome.code = made.status().code();
  copy_text(outcome.message, made.status().message());
  std::vector<Outcome> outcomes(services.size());
  TUTTI_RETURN_IF_ERROR(services.allgather(&outcome, outcomes.data(), sizeof outcome));
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank].code == StatusCode::ok) continue;
    // Not a failure of the group: its calls can go another way.
    return unsupported(fmt::format("rank {}: {}", rank, outcomes[rank].message.data()),
                       static_cast<int>(rank));
  }
  (*made)->set_wait_limit(wait_limit_of(services));
  return std::unique_ptr<cuda::DeviceEngine>(new NcclEngine(services, *std::move(made)));
}

}  // namespace tutti::nccl
