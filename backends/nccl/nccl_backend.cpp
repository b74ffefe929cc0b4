// Starting calls, and the agreement of all ranks before there is a communicator.
#include "backends/nccl/nccl_backend.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "backends/cuda/memory.hpp"
#include "backends/cuda/stream_watch.hpp"
#include "backends/nccl/issue.hpp"
#include "backends/nccl/mapping.hpp"
#include "runtime/base/log.hpp"

namespace tutti::nccl {
namespace {

constexpr std::chrono::milliseconds kCloseTime{5000};

Patience patience_of(GroupServices& services) {
  return {services.timeout(), [&services] { return services.failure(); }};
}

// Device memory for what calls need besides their buffers; one call after the other, on whichever streams.
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

// NCCL ends what is still registered with a communicator together with it.
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

class NcclBackendImpl final : public NcclBackend, private cuda::StreamWatch::Carrier {
 public:
  NcclBackendImpl(GroupServices& services, std::unique_ptr<Communicator> communicator)
      : services_(services),
        nccl_(communicator->library()),
        communicator_(std::move(communicator)),
        watch_(services, *this, communicator_->device(), "tutti-nccl") {}

  ~NcclBackendImpl() override {
    const auto context = cuda::ContextScope::enter(communicator_->device());
    watch_.close(kCloseTime);
    communicator_->close(kCloseTime);
  }

  const BackendCaps& caps() const override { return caps_; }

  Status supports(const Call& call) const override {
    return check_call(call, services_.rank(), services_.size(), nccl_.version);
  }

  Result<WorkRef> start(const Call& call, const Choice& choice) override {
    TUTTI_RETURN_IF_ERROR(supports(call));
    if (!choice.algorithm.empty()) {
      return unsupported(
          fmt::format("NCCL cannot be told to use {}: it chooses its algorithms itself, or by "
                      "NCCL_ALGO",
                      choice.algorithm));
    }
    TUTTI_RETURN_IF_ERROR(watch_.failure());
    const auto context = cuda::ContextScope::enter(communicator_->device());
    if (!context) return context.status();
    auto* const stream = static_cast<CUstream>(call.stream);
    TUTTI_RETURN_IF_ERROR(cuda::refuse_capture(stream, "a call by NCCL", "its end is told by events"));
    const int source =
        call.collective == Collective::send_recv && !call.is_send ? static_cast<int>(call.root) : -1;
    auto work = watch_.begin(describe(call), source, stream);
    if (!work) return work.status();
    const Status status = put(call, stream, *work);
    if (status) return *std::move(work);
    end_for_all(status, describe(call));
    return watch_.failure();
  }

  CachedCall* cached_call(const Call& /*call*/) override { return nullptr; }

  Result<std::string> explain(const Call& call) const override {
    TUTTI_RETURN_IF_ERROR(supports(call));
    return fmt::format("nccl: NCCL {}", version_text(nccl_.version));
  }

  Result<std::unique_ptr<Registration>> register_buffer(const void* memory, std::size_t bytes) override {
    TUTTI_RETURN_IF_ERROR(watch_.failure());
    if (nccl_.register_memory == nullptr) return std::unique_ptr<Registration>();
    const auto context = cuda::ContextScope::enter(communicator_->device());
    if (!context) return context.status();
    const Result<void*> handle = communicator_->register_memory(memory, bytes);
    if (!handle) return handle.status();
    return std::unique_ptr<Registration>(new NcclRegistration(communicator_, *handle));
  }

  Result<std::unique_ptr<NcclBackend>> split(GroupServices& services, int color, int key) override {
    auto made = split_off(color, key);
    if (!made) end_for_all(made.status(), "splitting a group by NCCL");
    const char arrived = 1;
    std::vector<char> all(services_.size());
    TUTTI_RETURN_IF_ERROR(services_.allgather(&arrived, all.data(), 1));
    TUTTI_RETURN_IF_ERROR(watch_.failure());
    if (*made == nullptr) return std::unique_ptr<NcclBackend>();
    (*made)->be_patient(patience_of(services));
    return std::unique_ptr<NcclBackend>(new NcclBackendImpl(services, *std::move(made)));
  }

 private:
  // The others have made the call, or will: they must not wait for this rank.
  void end_for_all(const Status& status, std::string_view call) {
    const Status failed = services_.failure();
    watch_.fail(failed ? status.with_context(call) : failed);
  }

  Result<std::unique_ptr<Communicator>> split_off(int color, int key) {
    TUTTI_RETURN_IF_ERROR(watch_.drain());
    const auto context = cuda::ContextScope::enter(communicator_->device());
    if (!context) return context.status();
    return communicator_->split(color, key);
  }

  std::string describe(const Call& call) const {
    return fmt::format("{} by NCCL on GPU {}", describe_call(call), communicator_->device());
  }

  // StreamWatch::Carrier
  Status diagnose() override { return communicator_->async_error(); }
  void abort(const Status& cause) override {
    log_error("NCCL, rank {} on GPU {}: {}", communicator_->rank(), communicator_->device(), cause.message());
    communicator_->abort(cause);
  }

  Status put(const Call& call, CUstream stream, const WorkRef& work) {
    void* memory = nullptr;
    const std::size_t bytes = scratch_bytes(call, services_.rank(), services_.size());
    if (bytes > 0) {
      auto taken = scratch_.take(communicator_->device(), bytes, stream);
      if (!taken) return taken.status();
      memory = *taken;
    }
    TUTTI_RETURN_IF_ERROR(issue(*communicator_, call, memory));
    if (bytes > 0) TUTTI_RETURN_IF_ERROR(scratch_.give_back(watch_.events(), stream));
    return watch_.add(work, stream);
  }

  GroupServices& services_;
  const Library& nccl_;
  const BackendCaps caps_{"nccl", "", ""};
  const std::shared_ptr<Communicator> communicator_;
  cuda::StreamWatch watch_;
  Scratch scratch_;
};

// -- agreeing ---------------------------------------------------------------------------------------------

// What a rank tells the others before there is a communicator: its GPU, or why it cannot take part.
struct Card {
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

Status fill(Card& card, std::uint32_t rank, int device) {
  const auto nccl = library();
  if (!nccl) return nccl.status();
  const auto table = cuda::driver();
  if (!table) return table.status();
  card.version = (*nccl)->version;
  CUdevice handle = 0;
  CUuuid uuid{};
  TUTTI_RETURN_IF_CUDA_ERROR(**table, (*table)->cuDeviceGet(&handle, device), "cuDeviceGet");
  TUTTI_RETURN_IF_CUDA_ERROR(**table, (*table)->cuDeviceGetUuid(&uuid, handle), "cuDeviceGetUuid");
  static_assert(sizeof uuid.bytes == sizeof card.gpu);
  std::memcpy(card.gpu.data(), uuid.bytes, sizeof uuid.bytes);
  TUTTI_RETURN_IF_CUDA_ERROR(
      **table, (*table)->cuDeviceGetPCIBusId(card.bus.data(), static_cast<int>(card.bus.size()), handle),
      "cuDeviceGetPCIBusId");
  if (rank != 0) return {};
  return to_status(**nccl, (*nccl)->ncclGetUniqueId(&card.id), "ncclGetUniqueId", nullptr);
}

// The same on all ranks, as the cards are.
Status judge(const std::vector<Card>& cards) {
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const Card& card = cards[rank];
    if (!card.is_able)
      return unsupported(fmt::format("rank {}: {}", rank, card.reason.data()), static_cast<int>(rank));
    if (card.version != cards[0].version) {
      return unsupported(fmt::format("rank 0 has NCCL {}, rank {} has {}; they must be the same",
                                     version_text(cards[0].version), rank, version_text(card.version)),
                         static_cast<int>(rank));
    }
    for (std::size_t other = 0; other < rank; ++other) {
      if (cards[other].gpu != card.gpu) continue;
      return unsupported(
          fmt::format("ranks {} and {} are on one GPU ({}), and NCCL wants a GPU for each rank", other, rank,
                      card.bus.data()),
          static_cast<int>(rank));
    }
  }
  return {};
}

// How it went, for the others.
struct Outcome {
  StatusCode code = StatusCode::ok;
  std::array<char, 500> message{};
};

}  // namespace

Result<std::unique_ptr<NcclBackend>> make_nccl_backend(GroupServices& services, int device) {
  const auto context = cuda::ContextScope::enter(device);
  Card mine;
  const Status filled = context ? fill(mine, services.rank(), device) : context.status();
  mine.is_able = filled.is_ok();
  copy_text(mine.reason, filled.message());
  std::vector<Card> cards(services.size());
  TUTTI_RETURN_IF_ERROR(services.allgather(&mine, cards.data(), sizeof mine));
  TUTTI_RETURN_IF_ERROR(judge(cards));

  // Half the time for NCCL, so that those whom it has failed still wait when the last gives up.
  Patience patience = patience_of(services);
  patience.timeout /= 2;
  const Place place{static_cast<int>(services.rank()), static_cast<int>(services.size()), device};
  auto made = Communicator::create(**library(), cards[0].id, place, patience);
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
  (*made)->be_patient(patience_of(services));
  return std::unique_ptr<NcclBackend>(new NcclBackendImpl(services, *std::move(made)));
}

}  // namespace tutti::nccl
