// Where the steps of a plan find their memory, and what becomes of them on a stream.
#include "backends/cuda/peer_schedule.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/kernels.hpp"
#include "backends/cuda/memory.hpp"
#include "runtime/kernels/kernels.hpp"

namespace tutti::cuda {
namespace {

constexpr std::uint32_t kMostLines = 128;  // flags of a plan and rank, as on the host
// Of slots and blocks. The host aligns likewise, so the same algorithm gives the same bits.
constexpr std::size_t kAlignment = 64;

std::size_t flags_bytes(std::uint32_t size) { return std::size_t{4} * size * (kMostLines + 1); }
std::uint32_t flag_index(std::uint32_t rank, std::uint32_t line) { return rank * (kMostLines + 1) + line; }
std::uint32_t end_flag_index(std::uint32_t rank) { return flag_index(rank, kMostLines); }

std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

Status meet(GroupServices& services) {
  const char mine = 0;
  std::vector<char> all(services.size());
  return services.allgather(&mine, all.data(), 1);
}

}  // namespace

struct PeerSchedules::Epoch {
  const Call& call;
  const LoweredPlan& plan;
  LoweredBuffers buffers;
  CUstream stream;
  std::uint64_t done = 0;  // elements of the vector, or of each block, in the epochs before
  std::uint64_t count = 0;
  std::size_t slot_bytes = 0;
};

Result<std::unique_ptr<PeerSchedules>> PeerSchedules::create(GroupServices& services, int device,
                                                             std::size_t staging_bytes) {
  const std::size_t area_bytes = staging_bytes / 2 / kAlignment * kAlignment;
  const std::size_t flags = round_up(flags_bytes(services.size()), kAlignment);
  Result<PeerAreas> areas = PeerAreas::create(services, device, 0, flags + 2 * area_bytes);
  if (!areas) return areas.status();
  if (areas->shares_queues()) {
    // Freeing waits for the whole device, so no rank goes on before all have freed.
    { const PeerAreas freed = *std::move(areas); }
    TUTTI_RETURN_IF_ERROR(meet(services));
    return unsupported("ranks are threads of one process that share a GPU");
  }
  const Result<ContextScope> context = ContextScope::enter(device);
  if (!context) return context.status();
  Result<Stream> stream = Stream::create(device);
  if (!stream) return stream.status();
  return std::unique_ptr<PeerSchedules>(
      new PeerSchedules(services, device, *std::move(areas), **driver(), *std::move(stream), area_bytes));
}

PeerSchedules::PeerSchedules(GroupServices& services, int device, PeerAreas areas, const Driver& table,
                             Stream abort_stream, std::size_t area_bytes)
    : services_(services),
      device_(device),
      areas_(std::move(areas)),
      table_(table),
      abort_stream_(std::move(abort_stream)),
      staging_bytes_(area_bytes),
      events_(device) {}

PeerSchedules::~PeerSchedules() {
  const Result<ContextScope> context = ContextScope::enter(device_);
  if (!context || epoch_ == 0) return;
  // Peers may read this rank's staging buffers until they signal the end of the last epoch.
  const auto all_have_ended = [&]() -> Status {
    const Result<Stream> stream = Stream::create(device_);
    if (!stream) return stream.status();
    if (order_.last()) TUTTI_RETURN_IF_ERROR(order_.last().hold(stream->get()));
    for (std::uint32_t r = 0; r < services_.size(); ++r) {
      if (r != services_.rank()) TUTTI_RETURN_IF_ERROR(wait_for(end_flag_index(r), epoch_, stream->get()));
    }
    Result<Event> event = events_.take();
    if (!event) return event.status();
    TUTTI_RETURN_IF_ERROR(event->record(stream->get()));
    Status ended = event->wait(Clock::now() +
                               (services_.failure() ? services_.timeout() : std::chrono::milliseconds(0)));
    if (ended.code() != StatusCode::timeout) return ended;
    abort();
    return event->wait(Clock::now() + std::chrono::seconds(1));
  };
  if (!all_have_ended()) areas_.abandon();
}

Status PeerSchedules::check_call(const Call& call) {
  if (call.collective == Collective::barrier || call.collective == Collective::send_recv)
    return unsupported("it has no schedule on the memory of GPUs");
  if (has_uneven_blocks(call))
    return unsupported("ranks have blocks of different lengths, which plans do not know");
  if (!is_reducing(call.collective)) return {};
  TUTTI_RETURN_IF_ERROR(check_op(call.op, call.dtype));
  if (call.op.op == Op::user) return unsupported("a user-defined op is a function of the host");
  if (!is_scalar(call.dtype))
    return unsupported(std::string("the host alone reduces ") + std::string(to_string(call.dtype)));
  if (is_prescaled(call)) return unsupported("inputs that are scaled first have no scratch on the GPU");
  return {};
}

Status PeerSchedules::check_plan(const LoweredPlan& plan) const {
  if (plan.line_count > kMostLines) return unsupported("a plan of too many lines");
  if (plan.staging_slots * kAlignment > staging_bytes_) return unsupported("a plan of too much scratch");
  // Cannot differ between ranks: a step folds at most one vector of each of kMaxPeers ranks.
  static_assert(kMaxReduceSources >= kMaxPeers);
  const bool is_too_wide = std::any_of(plan.steps.begin(), plan.steps.end(), [](const LoweredStep& step) {
    return step.source_count > kMaxReduceSources;
  });
  return is_too_wide ? unsupported("a plan that folds more vectors at a time than kernels do") : Status();
}

CUdeviceptr PeerSchedules::flags_of(std::uint32_t rank) const {
  return reinterpret_cast<std::uintptr_t>(areas_.at(rank)) + areas_.staging_offset();
}

std::byte* PeerSchedules::staging_of(std::uint32_t rank) const {
  const std::size_t flags = round_up(flags_bytes(services_.size()), kAlignment);
  return static_cast<std::byte*>(pointer_to(flags_of(rank))) + flags + (epoch_ & 1U) * staging_bytes_;
}

Status PeerSchedules::signal_all(std::uint32_t flag, CUstream stream) {
  for (std::uint32_t r = 0; r < services_.size(); ++r) {
    if (r == services_.rank()) continue;
    // Ordered behind all earlier writes of the stream, also for peers.
    TUTTI_RETURN_IF_CUDA_ERROR(table_, table_.cuStreamWriteValue32(stream, flags_of(r) + 4 * flag, epoch_, 0),
                               "cuStreamWriteValue32");
  }
  return {};
}

Status PeerSchedules::wait_for(std::uint32_t flag, std::uint32_t value, CUstream stream) {
  return to_status(table_,
                   table_.cuStreamWaitValue32(stream, flags_of(services_.rank()) + 4 * flag, value,
                                              CU_STREAM_WAIT_VALUE_GEQ),
                   "cuStreamWaitValue32");
}

Status PeerSchedules::begin_epoch(CUstream stream) {
  ++epoch_;
  if (has_heard_from_all_ || epoch_ < 3) return {};
  for (std::uint32_t r = 0; r < services_.size(); ++r) {
    if (r != services_.rank()) TUTTI_RETURN_IF_ERROR(wait_for(end_flag_index(r), epoch_ - 2, stream));
  }
  return {};
}

Status PeerSchedules::end_epoch(CUstream stream) {
  return signal_all(end_flag_index(services_.rank()), stream);
}

Status PeerSchedules::move(Epoch& epoch, const LoweredStep& step) {
  const std::size_t element_bytes = size_of(epoch.call.dtype);
  const Schedule& shape = epoch.plan.shape;
  struct Placed {
    std::byte* at;
    std::size_t bytes;
  };
  const auto place = [&](std::uint32_t index, std::uint32_t k) -> Placed {
    const LoweredSlice& from = epoch.plan.slices[index];
    const Range range = map_.range(from.slice.buffer, shape.atom(from.slice, k));
    const std::size_t bytes = range.count * element_bytes;
    if (from.slice.buffer == Buffer::scratch)
      return {staging_of(from.owner) + (from.slice.slot + k) * epoch.slot_bytes, bytes};
    std::byte* const base = from.slice.buffer == Buffer::input ? epoch.buffers.input : epoch.buffers.output;
    return {base + (range.first + epoch.done) * element_bytes, bytes};
  };
  const std::uint32_t atoms = epoch.plan.slices[step.dst].slice.count;
  for (std::uint32_t k = 0; k < atoms;) {
    Placed to = place(step.dst, k);
    if (step.source_count > 1) {
      std::array<const void*, kMaxReduceSources> from;
      for (std::uint32_t i = 0; i < step.source_count; ++i) from[i] = place(step.first_source + i, k).at;
      ++k;
      if (to.bytes == 0) continue;
      TUTTI_RETURN_IF_ERROR(reduce(to.at, std::span(from.data(), step.source_count), to.bytes / element_bytes,
                                   epoch.call.dtype, epoch.call.op, epoch.stream));
      continue;
    }
    // Atoms that are adjacent on both sides are copied together.
    const Placed from = place(step.first_source, k);
    for (++k; k < atoms; ++k) {
      const Placed next = place(step.dst, k);
      if (next.at != to.at + to.bytes || place(step.first_source, k).at != from.at + to.bytes) break;
      to.bytes += next.bytes;
    }
    if (to.bytes > 0 && to.at != from.at)
      TUTTI_RETURN_IF_ERROR(copy_async(to.at, from.at, to.bytes, epoch.stream));
  }
  return {};
}

Status PeerSchedules::run(Epoch& epoch) {
  TUTTI_RETURN_IF_ERROR(begin_epoch(epoch.stream));
  for (const LoweredStep& step : epoch.plan.steps) {
    if (step.kind == LoweredStep::Kind::signal) {
      TUTTI_RETURN_IF_ERROR(signal_all(flag_index(services_.rank(), step.line), epoch.stream));
    } else if (step.kind == LoweredStep::Kind::wait) {
      TUTTI_RETURN_IF_ERROR(wait_for(flag_index(step.peer, step.line), epoch_, epoch.stream));
    } else {
      TUTTI_RETURN_IF_ERROR(move(epoch, step));
    }
  }
  has_heard_from_all_ = epoch.plan.shape.hears_from_all;
  return end_epoch(epoch.stream);
}

Status PeerSchedules::start(const Call& call, const LoweredPlan& plan, CUstream stream) {
  if (call.count == 0) return {};
  const Result<ContextScope> context = ContextScope::enter(device_);
  if (!context) return context.status();
  TUTTI_RETURN_IF_ERROR(order_.begin(stream));
  const std::size_t element_bytes = size_of(call.dtype);
  const std::uint64_t length = epoch_length(plan, call.count, element_bytes, staging_bytes_);
  Epoch epoch{call, plan, lowered_buffers(call, plan.shape), stream};
  for (; epoch.done < call.count; epoch.done += epoch.count) {
    epoch.count = std::min(length, call.count - epoch.done);
    bind_epoch_map(map_, plan.shape, call.count, epoch.count, element_bytes);
    epoch.slot_bytes = slot_bytes_of(map_, element_bytes);
    TUTTI_RETURN_IF_ERROR(run(epoch));
  }
  const bool is_scaled = is_reducing(call.collective) && scales_after(call.op.op) &&
                         has_result(call.collective, services_.rank(), call.root);
  if (is_scaled) {
    TUTTI_RETURN_IF_ERROR(scale(epoch.buffers.output, epoch.buffers.output, call.count, call.dtype, call.op,
                                static_cast<int>(services_.size()), stream));
  }
  return order_.end(stream);
}

void PeerSchedules::abort() {
  const Result<ContextScope> context = ContextScope::enter(device_);
  if (!context) return;
  constexpr std::uint32_t kForGood = 0x7fffffff;  // satisfies every wait
  for (std::uint32_t flag = 0; flag < flag_index(services_.size(), 0); ++flag)
    table_.cuStreamWriteValue32(abort_stream_.get(), flags_of(services_.rank()) + 4 * flag, kForGood, 0);
}

}  // namespace tutti::cuda
