// The kernel or the plan of each signature.
#include "backends/cuda/peer_engines.hpp"

#include <string>
#include <utility>

#include "backends/cuda/peer_allreduce.hpp"
#include "backends/cuda/peer_schedule.hpp"
#include "backends/cuda/stream_engine.hpp"

namespace tutti::cuda {
namespace {

constexpr const char* kWhyNoCapturing = "each call has a number of its own";

class KernelEngine final : public StreamEngine {
 public:
  KernelEngine(GroupServices& services, int device, std::unique_ptr<PeerAllreduce> peers)
      : StreamEngine(services, device, {"kernels", "a call among peers", kWhyNoCapturing, "tutti-peers"}),
        peers_(std::move(peers)) {}
  ~KernelEngine() override { close(services_.timeout()); }

  std::string_view reservation() const override {
    return peers_->is_time_sliced() ? kWhyNotOnSharedGpu : std::string_view();
  }

  Result<std::unique_ptr<PreparedCall>> prepare(const Call& call, std::string_view algorithm) override {
    if (call.collective != Collective::allreduce) {
      return unsupported("kernels that reach the memory of all ranks carry allreduce out, not " +
                         std::string(to_string(call.collective)));
    }
    if (algorithm != "one_shot" && algorithm != "two_shot") {
      return unsupported("kernels that reach the memory of all ranks have one_shot and two_shot, not " +
                         (algorithm.empty() ? "a choice of their own" : std::string(algorithm)));
    }
    const Shots shots = algorithm == "one_shot" ? Shots::one : Shots::two;
    const Result<PeerKernel> kernel = peers_->find_kernel(call.count, call.dtype, call.op, shots);
    if (!kernel) return kernel.status();
    return std::unique_ptr<PreparedCall>(
        std::make_unique<PreparedFor<KernelEngine, PeerKernel>>(*this, *kernel));
  }

  Result<WorkRef> start(const Call& call, const PeerKernel& kernel) {
    return submit(call, -1, [&](CUstream stream) {
      return peers_->start(kernel, call.output, call.in_place ? call.output : call.input, call.count, call.op,
                           stream);
    });
  }

 private:
  void abort(const Status& /*cause*/) override { peers_->abort(); }

  const std::unique_ptr<PeerAllreduce> peers_;
};

class ScheduleEngine final : public StreamEngine {
 public:
  using Plan = std::shared_ptr<const LoweredPlan>;

  ScheduleEngine(GroupServices& services, int device, std::unique_ptr<PeerSchedules> peers)
      : StreamEngine(services, device, {"schedules", "a call among peers", kWhyNoCapturing, "tutti-ipc"}),
        peers_(std::move(peers)) {}
  ~ScheduleEngine() override { close(services_.timeout()); }

  std::string_view reservation() const override {
    return peers_->is_time_sliced() ? kWhyNotOnSharedGpu : std::string_view();
  }

  Result<std::unique_ptr<PreparedCall>> prepare(const Call& call, std::string_view algorithm) override {
    TUTTI_RETURN_IF_ERROR(PeerSchedules::check_call(call));
    const auto plans = services_.lowered_plans(call, algorithm);
    if (!plans) return plans.status();
    if (*plans == nullptr || (*plans)->staged == nullptr) {
      return unsupported(std::string(algorithm) + " of " + std::string(to_string(call.collective)) +
                         " has no form for memory that all ranks reach");
    }
    const Plan& plan = (*plans)->staged;
    TUTTI_RETURN_IF_ERROR(peers_->check_plan(*plan));
    return std::unique_ptr<PreparedCall>(std::make_unique<PreparedFor<ScheduleEngine, Plan>>(*this, plan));
  }

  Result<WorkRef> start(const Call& call, const Plan& plan) {
    return submit(call, -1, [&](CUstream stream) { return peers_->start(call, *plan, stream); });
  }

 private:
  void abort(const Status& /*cause*/) override { peers_->abort(); }

  const std::unique_ptr<PeerSchedules> peers_;
};

}  // namespace

Result<std::unique_ptr<DeviceEngine>> make_kernel_engine(GroupServices& services, int device) {
  Result<std::unique_ptr<PeerAllreduce>> peers = PeerAllreduce::create(services, device);
  if (!peers) return peers.status();
  return std::unique_ptr<DeviceEngine>(std::make_unique<KernelEngine>(services, device, *std::move(peers)));
}

Result<std::unique_ptr<DeviceEngine>> make_schedule_engine(GroupServices& services, int device) {
  Result<std::unique_ptr<PeerSchedules>> peers = PeerSchedules::create(services, device);
  if (!peers) return peers.status();
  return std::unique_ptr<DeviceEngine>(std::make_unique<ScheduleEngine>(services, device, *std::move(peers)));
}

}  // namespace tutti::cuda
