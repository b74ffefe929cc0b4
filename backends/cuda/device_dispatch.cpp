// Engines are made, surveyed and remembered here.
#include "backends/cuda/device_dispatch.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "backends/cuda/memory.hpp"
#include "backends/cuda/peer_engines.hpp"
#include "backends/cuda/staged_engine.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/trace.hpp"

namespace tutti::cuda {
namespace {

DeviceSignature signature_of(const Call& call, const Question& question, std::string_view algorithm) {
  DeviceSignature signature;
  signature.collective = call.collective;
  signature.dtype = call.dtype;
  if (is_reducing(call.collective)) {
    signature.op = call.op.op;
    signature.user = call.op.user;
  }
  signature.is_send = call.is_send;
  signature.is_uneven = has_uneven_blocks(call);
  signature.has_counts_at_root = call.has_counts_at_root;
  signature.root = call.root;
  signature.tag = call.tag;
  signature.bytes = question.has_known_bytes ? question.bytes : 0;
  signature.algorithm = algorithm;
  return signature;
}

}  // namespace

// -- choosing -----------------------------------------------------------------------------------------------

// The engines that are there, asked whether they prepare one call.
class DeviceDispatch::Survey final : public EngineSurvey {
 public:
  Survey(DeviceDispatch& dispatch, const Call& call, const Question& question, const Selection& selection)
      : dispatch_(dispatch), call_(call), question_(question), selection_(selection) {}

  Status refusal_of(DeviceEngineKind kind) override {
    DeviceEngine* const engine = dispatch_.find(kind);
    if (engine == nullptr) {
      return kind == DeviceEngineKind::nccl
                 ? dispatch_.no_nccl_
                 : unsupported(fmt::format("{} is not available to this group", to_string(kind)));
    }
    algorithm_ = algorithm_of(kind);
    auto prepared = engine->prepare(call_, is_kernel(kind) ? to_string(kind) : algorithm_);
    if (!prepared) return prepared.status();
    prepared_ = *std::move(prepared);
    return {};
  }
  std::string_view reservation_of(DeviceEngineKind kind) override {
    const DeviceEngine* const engine = dispatch_.find(kind);
    return engine == nullptr ? std::string_view() : engine->reservation();
  }

  // Of the engine that was asked last, which has agreed.
  Decision take(DeviceEngineKind engine) { return {{}, engine, std::move(algorithm_), std::move(prepared_)}; }

 private:
  std::string algorithm_of(DeviceEngineKind kind) const {
    if (kind == DeviceEngineKind::nccl || is_kernel(kind)) return {};
    if (selection_.row != nullptr) return to_text(*selection_.row, selection_.params);
    if (kind != DeviceEngineKind::ipc_schedule) return {};
    return std::string(ipc_algorithm(question_.collective, question_.bytes));
  }

  DeviceDispatch& dispatch_;
  const Call& call_;
  const Question& question_;
  const Selection& selection_;
  std::string algorithm_;
  std::unique_ptr<PreparedCall> prepared_;
};

Result<DeviceDispatch::Decision> DeviceDispatch::decide(const Call& call, const Question& question,
                                                        const Selection& selection) {
  Survey survey(*this, call, question, selection);
  const EngineOffers offers = engine_offers(question, {options_.nodes, options_.ranks_per_node}, model_);
  const auto engine = choose_engine(selection, question, offers, survey);
  if (!engine) return engine.status();
  return survey.take(*engine);
}

DeviceDispatch::Decision& DeviceDispatch::slot_of(const DeviceSignature& signature) {
  const std::uint64_t mixed = signature.bytes ^ static_cast<std::uint64_t>(signature.collective) << 56U ^
                              static_cast<std::uint64_t>(signature.dtype) << 48U ^
                              static_cast<std::uint64_t>(signature.op) << 40U ^
                              std::uint64_t{signature.is_send} << 39U ^ std::uint64_t{signature.root} << 20U ^
                              signature.algorithm.size() << 32U;
  return decisions_[(mixed * 0x9E3779B97F4A7C15U) >> 58U];
}

Result<WorkRef> DeviceDispatch::start(const Call& call, std::string_view algorithm) {
  static_assert(kDecisions == 64, "six bits of the hash");
  Question question = question_of(call, services_.size());
  question.is_device = true;
  DeviceSignature signature = signature_of(call, question, algorithm);
  Decision& decision = slot_of(signature);
  const bool is_known = decision.prepared != nullptr && decision.signature == signature;
  Result<Selection> selection = Selection();
  if (!is_known) selection = options_.selector.choose(question, algorithm);
  if (!selection) return selection.status();
  TUTTI_RETURN_IF_ERROR(services_.failure());
  TUTTI_RETURN_IF_ERROR(open(call));
  if (!is_known) {
    Result<Decision> made = decide(call, question, *selection);
    if (!made) return made.status();
    made->signature = std::move(signature);
    decision = *std::move(made);
  }
  last_ = &decision;
  mark(call, decision);
  return decision.prepared->start(call);
}

DeviceBackend::Route DeviceDispatch::last() const {
  return last_ == nullptr ? Route() : Route{to_string(last_->engine), last_->algorithm};
}

void DeviceDispatch::mark(const Call& call, const Decision& decision) const {
  if (options_.trace == nullptr) return;
  options_.trace->mark("on a GPU", fmt::format("{} on GPU {} by {}{}{}", describe_call(call), call.device,
                                               to_string(decision.engine),
                                               decision.algorithm.empty() ? "" : " ", decision.algorithm));
}

// -- engines ------------------------------------------------------------------------------------------------

DeviceDispatch::DeviceDispatch(GroupServices& services, const DeviceOptions& options, EngineFactory make_nccl)
    : services_(services), options_(options), make_nccl_(make_nccl) {}

Status DeviceDispatch::open(const Call& call) {
  if (device_ >= 0) {
    if (call.device == device_) return {};
    return invalid_argument(
        fmt::format("this group's calls are on GPU {}, and this one's buffers on GPU {}; a group works with "
                    "one GPU on each rank",
                    device_, call.device));
  }
  auto staged = make_staged_engine(services_, call.device);
  if (!staged) return staged.status();
  auto nccl = nccl_for(call.device);
  TUTTI_RETURN_IF_ERROR(services_.failure());
  staged_ = *std::move(staged);
  no_nccl_ = nccl.status();
  if (nccl) nccl_ = *std::move(nccl);
  device_ = call.device;
  for (auto& [number, buffer] : buffers_) {
    if (const Status status = register_with_nccl(buffer); !status)
      log_warn("{} bytes at {} are not registered: {}", buffer.bytes, buffer.memory, status.message());
  }
  if (services_.rank() == 0) {
    log_info("calls on GPUs over {} ranks: {}", services_.size(),
             nccl_ != nullptr ? "by NCCL, kernels or staging, whichever is predicted to take least"
                              : "by kernels or staging; " + no_nccl_.message());
  }
  return {};
}

Result<std::unique_ptr<DeviceEngine>> DeviceDispatch::nccl_for(int device) {
  TUTTI_RETURN_IF_ERROR(options_.nccl_refusal);
  if (nccl_ == nullptr) return make_nccl_(services_, device);
  const char mine = split_device_ == device ? 1 : 0;
  std::vector<char> all(services_.size());
  TUTTI_RETURN_IF_ERROR(services_.allgather(&mine, all.data(), 1));
  if (std::find(all.begin(), all.end(), 0) == all.end()) return std::move(nccl_);
  nccl_.reset();
  return make_nccl_(services_, device);
}

Status DeviceDispatch::split(DeviceBackend* child, int color) {
  if (nccl_ == nullptr) return {};
  auto* const part = static_cast<DeviceDispatch*>(child);
  GroupServices& services = part == nullptr ? services_ : part->services_;
  auto made = nccl_->split(services, color, static_cast<int>(services.rank()));
  if (!made) return made.status();
  if (part == nullptr) return {};
  part->nccl_ = *std::move(made);
  part->split_device_ = device_ < 0 ? split_device_ : device_;
  return {};
}

DeviceEngine* DeviceDispatch::make_once(PeerEngine& peers, EngineFactory make, std::string_view name) {
  if (!std::exchange(peers.has_been_tried, true) && services_.size() > 1 && options_.nodes == 1) {
    auto made = make(services_, device_);
    if (!made && services_.rank() == 0)
      log_info("GPUs' memory is not reached by the {} of other ranks: {}", name, made.status().message());
    if (made) peers.engine = *std::move(made);
  }
  return peers.engine.get();
}

DeviceEngine* DeviceDispatch::find(DeviceEngineKind kind) {
  if (kind == DeviceEngineKind::staged) return staged_.get();
  if (kind == DeviceEngineKind::nccl) return nccl_.get();
  if (kind == DeviceEngineKind::ipc_schedule) return make_once(schedules_, make_schedule_engine, "schedules");
  return make_once(kernels_, make_kernel_engine, "kernels");
}

// -- registered buffers -------------------------------------------------------------------------------------

Status DeviceDispatch::register_with_nccl(Buffer& buffer) const {
  const MemoryLocation location = location_of(buffer.memory);
  const int device = location.is_device ? location.device : -1;
  if (device != device_) {
    return invalid_argument(fmt::format(
        "register_buffer: memory: on GPU {}, and this group's calls are on GPU {}", device, device_));
  }
  if (nccl_ == nullptr) return {};
  auto registration = nccl_->register_buffer(buffer.memory, buffer.bytes);
  if (!registration) return registration.status();
  buffer.registration = *std::move(registration);
  return {};
}

Result<std::uint64_t> DeviceDispatch::register_buffer(const void* memory, std::size_t bytes) {
  Buffer buffer{memory, bytes, nullptr};
  if (device_ >= 0) TUTTI_RETURN_IF_ERROR(register_with_nccl(buffer));
  buffers_.emplace(++last_buffer_, std::move(buffer));
  return last_buffer_;
}

}  // namespace tutti::cuda
