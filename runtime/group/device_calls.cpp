// Choosing who carries a call on a GPU's memory, and the group as its backends see it.
#include "runtime/group/device_calls.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "backends/registry.hpp"
#include "runtime/base/log.hpp"
#include "runtime/scheduler/lowered_plan.hpp"
#include "runtime/selection/selection.hpp"

namespace tutti {

Status locate(std::string_view name, Call& call, std::uint32_t rank, std::uint32_t size, Memory memory) {
  struct Seen {
    std::string_view what;
    const void* memory;
    Extent extent;
    int device = -1;
  };
  Seen seen[] = {{"input", call.input, input_extent(call, rank, size)},
                 {"output", call.output, output_extent(call, rank, size)}};
  const Seen* first = nullptr;
  for (Seen& buffer : seen) {
    if (!buffer.extent.is_used || buffer.memory == nullptr) continue;
    buffer.device = device_of(buffer.memory);
    if (first == nullptr) first = &buffer;
    if (first->device == buffer.device) continue;
    const auto place = [](int device) {
      return device < 0 ? std::string("in host memory") : fmt::format("on GPU {}", device);
    };
    return invalid_argument(fmt::format("{}: {} is {}, {} is {}; all buffers of a call must be in one place",
                                        name, first->what, place(first->device), buffer.what,
                                        place(buffer.device)));
  }
  int device = first == nullptr ? -1 : first->device;
  if (memory == Memory::device && first == nullptr) device = current_device();
  if (memory == Memory::device && device < 0) {
    if (const auto found = probe_backend("cuda"); !found)
      return found.status().with_context(fmt::format("{}: memory: the call is said to be on a GPU", name));
    return invalid_argument(
        fmt::format("{}: memory: the call is said to be on a GPU, but {}", name,
                    first == nullptr ? "this thread uses none" : "its buffers are in host memory"));
  }
  call.is_device = device >= 0 && call.collective != Collective::barrier;
  call.device = call.is_device ? device : -1;
  return {};
}

Question DeviceCalls::question_of(const Call& call) const {
  Question q;
  q.collective = call.collective;
  q.size = size();
  q.bytes = full_vector_bytes(call, size());
  q.is_commutative = !is_reducing(call.collective) || call.op.is_commutative();
  q.has_equal_counts = !has_uneven_blocks(call);
  q.has_known_bytes =
      !call.has_counts_at_root && (call.collective != Collective::alltoall || call.counts.empty());
  q.is_device = true;
  return q;
}

Status DeviceCalls::prepare(const Call& call) {
  if (device_ >= 0) {
    if (call.device == device_) return {};
    return invalid_argument(
        fmt::format("this group's calls are on GPU {}, and this one's buffers on GPU {}; a group works with "
                    "one GPU on each rank",
                    device_, call.device));
  }
  host_ = &group_.internal_stream(CommGroup::Impl::Purpose::device_staging).backend();
  auto staged = make_staged_backend(*this, call.device);
  if (!staged) return staged.status();
  auto nccl = nccl_for(call.device);
  if (group_.group().has_failed()) return group_.group().failure();
  staged_ = *std::move(staged);
  no_nccl_ = nccl.status();
  if (nccl) nccl_ = *std::move(nccl);
  device_ = call.device;
  for (auto& [number, buffer] : buffers_) {
    if (const Status status = register_with_nccl(buffer); !status)
      log_warn("{} bytes at {} are not registered: {}", buffer.bytes, buffer.memory, status.message());
  }
  std::map<int, std::uint32_t> ranks_on;  // by node
  for (const int member : group_.world_ranks())
    ++ranks_on[group_.world().domains().nodes[static_cast<std::size_t>(member)]];
  places_.nodes = static_cast<std::uint32_t>(ranks_on.size());
  for (const auto& [node, count] : ranks_on) places_.per_node = std::max(places_.per_node, count);
  if (rank() == 0) {
    log_info("calls on GPUs over {} ranks: {}", size(),
             nccl_ != nullptr ? "by NCCL, kernels or staging, whichever is predicted to take least"
                              : "by kernels or staging; " + no_nccl_.message());
  }
  return {};
}

Result<std::unique_ptr<Backend>> DeviceCalls::nccl_for(int device) {
  if (nccl_ == nullptr) return make_nccl_backend(*this, device);
  const char mine = split_device_ == device ? 1 : 0;
  std::vector<char> all(size());
  TUTTI_RETURN_IF_ERROR(allgather(&mine, all.data(), 1));
  if (std::find(all.begin(), all.end(), 0) == all.end()) return std::move(nccl_);
  nccl_.reset();
  return make_nccl_backend(*this, device);
}

Status DeviceCalls::split(DeviceCalls* child, int colour) {
  if (nccl_ == nullptr) return {};
  GroupServices& services = child == nullptr ? static_cast<GroupServices&>(*this) : *child;
  auto made = split_nccl_backend(*nccl_, services, colour, static_cast<int>(services.rank()));
  if (!made) return made.status();
  if (child == nullptr) return {};
  child->nccl_ = *std::move(made);
  child->split_device_ = device_ < 0 ? split_device_ : device_;
  return {};
}

Status DeviceCalls::register_with_nccl(Buffer& buffer) const {
  if (const int device = device_of(buffer.memory); device != device_) {
    return invalid_argument(fmt::format(
        "register_buffer: memory: on GPU {}, and this group's calls are on GPU {}", device, device_));
  }
  if (nccl_ == nullptr) return {};
  auto registration = nccl_->register_buffer(buffer.memory, buffer.bytes);
  if (!registration) return registration.status();
  buffer.by_nccl = *std::move(registration);
  return {};
}

Result<std::uint64_t> DeviceCalls::register_buffer(const void* memory, std::size_t bytes) {
  look_for_cuda();
  if (memory == nullptr || bytes == 0 || device_of(memory) < 0) {
    return invalid_argument(
        fmt::format("register_buffer: memory: expected memory of a GPU, got {} bytes at {}{}", bytes, memory,
                    memory == nullptr || bytes == 0 ? "" : ", which is the host's"));
  }
  Buffer buffer{memory, bytes, nullptr};
  if (device_ >= 0) TUTTI_RETURN_IF_ERROR(register_with_nccl(buffer));
  buffers_.emplace(++last_buffer_, std::move(buffer));
  return last_buffer_;
}

Backend* DeviceCalls::try_peers(Peers& peers, Result<std::unique_ptr<Backend>> (&make)(GroupServices&, int),
                                std::string_view what) {
  if (!std::exchange(peers.has_been_tried, true) && size() > 1 && places_.nodes == 1) {
    auto made = make(*this, device_);
    if (!made && rank() == 0)
      log_info("GPUs' memory is not reached by the {} of other ranks: {}", what, made.status().message());
    if (made) peers.backend = *std::move(made);
  }
  return peers.backend.get();
}

Backend* DeviceCalls::find(DeviceCarrier carrier) {
  if (carrier == DeviceCarrier::staged) return staged_.get();
  if (carrier == DeviceCarrier::nccl) return nccl_.get();
  if (carrier == DeviceCarrier::mapped) return try_peers(mapped_, make_mapped_backend, "schedules");
  return try_peers(kernels_, make_peer_backend, "kernels");
}

Backend* DeviceCalls::find_mapped(const Call& call, std::string_view algorithm, Status* refusal) {
  Backend* const backend = find(DeviceCarrier::mapped);
  if (backend == nullptr) return nullptr;
  *refusal = backend->supports(call);
  if (!*refusal) return nullptr;
  const auto plans = lowered_plans(call, algorithm);
  if (!plans) *refusal = plans.status();
  return plans && *plans != nullptr && (*plans)->staged != nullptr ? backend : nullptr;
}

DeviceCalls::Carried DeviceCalls::cheapest_for(const Question& question, const Call& call, Status* refusal) {
  for (const DeviceOffer& offer : device_offers(question, places_, model_)) {
    if (!offer.refusal.empty()) continue;
    std::string algorithm;
    if (is_kernel(offer.carrier)) algorithm = to_string(offer.carrier);
    if (offer.carrier == DeviceCarrier::mapped) algorithm = mapped_algorithm(call.collective, question.bytes);
    Backend* const backend = find(offer.carrier);
    if (backend == nullptr || !backend->caps().disliked.empty()) continue;
    if (offer.carrier == DeviceCarrier::mapped) {
      if (find_mapped(call, algorithm, refusal) == nullptr) continue;
    } else {
      *refusal = backend->supports(call);
      if (!*refusal) continue;
    }
    return {backend, std::move(algorithm)};
  }
  return {};
}

DeviceCalls::Carried DeviceCalls::carrier_of(const Selection& selection, const Question& question,
                                             const Call& call, Status* refusal) {
  auto named = carrier_named_by(selection.carrier, selection.row);
  // A receive from any source may meet each send, and one with a tag each of its tag: by default one carrier
  // has all.
  if (!named && call.collective == Collective::send_recv) named = DeviceCarrier::staged;
  if (!named) return cheapest_for(question, call, refusal);
  // What backends call our own algorithms.
  std::string own = selection.row != nullptr ? to_text(*selection.row, selection.params) : std::string();
  if (*named == DeviceCarrier::mapped) {
    if (Backend* const mapped = find_mapped(call, own, refusal); mapped != nullptr)
      return {mapped, std::move(own)};
    *refusal = staged_->supports(call);
    return {*refusal ? staged_.get() : nullptr, std::move(own)};
  }
  Backend* const backend = find(*named);
  *refusal = backend != nullptr ? backend->supports(call) : no_nccl_;
  if (backend != nullptr && *refusal) return {backend, std::move(own)};
  if (named == DeviceCarrier::nccl)
    *refusal = refusal->with_context(fmt::format("nccl by {}", describe_source(selection)));
  if (!is_kernel(*named)) return {};
  // The algorithms that kernels have, too, are steps of the host's without them.
  *refusal = staged_->supports(call);
  return {*refusal ? staged_.get() : nullptr, std::move(own)};
}

Result<WorkRef> DeviceCalls::start(const Call& call, std::string_view algorithm) {
  const Question question = question_of(call);
  const auto selection = group_.selector().choose(question, algorithm);
  if (!selection) return selection.status();
  if (group_.group().has_failed()) return group_.group().failure();
  TUTTI_RETURN_IF_ERROR(prepare(call));
  Status refusal;
  Carried carried = carrier_of(*selection, question, call, &refusal);
  if (carried.backend == nullptr) return refusal;
  last_ = std::move(carried);
  if (Trace* const trace = group_.world().engine().trace()) {
    trace->mark("on a GPU",
                fmt::format("{} on GPU {} by {}{}{}", describe_call(call), call.device,
                            last_.backend->caps().name, last_.algorithm.empty() ? "" : " ", last_.algorithm));
  }
  return last_.backend->start(call, {last_.algorithm, Completion::asynchronous});
}

Status DeviceCalls::allgather(const void* mine, void* all, std::size_t bytes) {
  Call swap;
  swap.collective = Collective::allgather;
  swap.dtype = Dtype::u8;
  swap.input = mine;
  swap.output = all;
  swap.count = bytes;
  try {
    group_.internal_stream(CommGroup::Impl::Purpose::device_exchange).run(swap, {});
  } catch (const Error& error) {
    return Status(error.code(), error.what(), error.peer());
  }
  return {};
}

}  // namespace tutti
