// What peers carry out: by which kernels, and by which plans.
#include "backends/cuda/peer_backend.hpp"

#include <string>
#include <utility>

#include "backends/cuda/peer_allreduce.hpp"
#include "backends/cuda/peer_schedule.hpp"
#include "backends/cuda/stream_backend.hpp"

namespace tutti::cuda {
namespace {

BackendCaps caps_of(std::string_view name, bool takes_turns) {
  BackendCaps caps{name, "", ""};
  if (takes_turns) caps.disliked = kWhyNotOnSharedGpu;
  return caps;
}

// Allreduce by kernels.
class KernelBackend final : public StreamBackend {
 public:
  KernelBackend(GroupServices& services, int device, std::unique_ptr<PeerAllreduce> peers)
      : StreamBackend(services, device, caps_of("peers", peers->takes_turns()), "kernels", "tutti-peers"),
        peers_(std::move(peers)) {}
  ~KernelBackend() override { close(); }

  Status supports(const Call& call) const override {
    if (call.collective != Collective::allreduce) {
      return unsupported("kernels that reach the memory of all ranks carry allreduce out, not " +
                         std::string(to_string(call.collective)));
    }
    return peers_->supports(call.count, call.dtype, call.op, Shots::two);
  }

  Result<std::string> explain(const Call& call) const override {
    TUTTI_RETURN_IF_ERROR(supports(call));
    return std::string("one_shot or two_shot, as named: by kernels that reach the memory of all ranks");
  }

 private:
  // The first word of an algorithm's text counts: "two_shot(...)" of the host's catalogue, too.
  Status prepare(const Call& /*call*/, const Choice& choice) override {
    const std::string_view name =
        choice.algorithm.substr(0, choice.algorithm.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"));
    if (name != "one_shot" && name != "two_shot") {
      return unsupported(
          "kernels that reach the memory of all ranks have one_shot and two_shot, not " +
          (choice.algorithm.empty() ? "a choice of their own" : std::string(choice.algorithm)));
    }
    shots_ = name == "one_shot" ? Shots::one : Shots::two;
    return {};
  }
  Status put(const Call& call, CUstream stream) override {
    return peers_->start(call.output, call.in_place ? call.output : call.input, call.count, call.dtype,
                         call.op, stream, shots_);
  }
  void abort(const Status& /*cause*/) override { peers_->abort(); }

  const std::unique_ptr<PeerAllreduce> peers_;
  Shots shots_ = Shots::one;
};

// Every collective by our own schedules.
class ScheduleBackend final : public StreamBackend {
 public:
  ScheduleBackend(GroupServices& services, int device, std::unique_ptr<PeerSchedules> peers)
      : StreamBackend(services, device, caps_of("mapped", peers->takes_turns()), "schedules", "tutti-mapped"),
        peers_(std::move(peers)) {}
  ~ScheduleBackend() override { close(); }

  Status supports(const Call& call) const override { return PeerSchedules::supports(call); }

  Result<std::string> explain(const Call& call) const override {
    TUTTI_RETURN_IF_ERROR(supports(call));
    return std::string("mapped: schedules over memory of GPUs that all ranks reach");
  }

 private:
  Status prepare(const Call& call, const Choice& choice) override {
    auto plans = services_.lowered_plans(call, choice.algorithm);
    if (!plans) return plans.status();
    if (*plans == nullptr || (*plans)->staged == nullptr) {
      return unsupported(std::string(choice.algorithm) + " of " + std::string(to_string(call.collective)) +
                         " has no form for memory that all ranks reach");
    }
    plan_ = (*plans)->staged;
    return peers_->supports(*plan_);
  }
  Status put(const Call& call, CUstream stream) override { return peers_->start(call, *plan_, stream); }
  void abort(const Status& /*cause*/) override { peers_->abort(); }

  const std::unique_ptr<PeerSchedules> peers_;
  std::shared_ptr<const LoweredPlan> plan_;  // of the call that is being made
};

}  // namespace

Result<std::unique_ptr<Backend>> make_peer_backend(GroupServices& services, int device) {
  Result<std::unique_ptr<PeerAllreduce>> peers = PeerAllreduce::create(services, device);
  if (!peers) return peers.status();
  return std::unique_ptr<Backend>(std::make_unique<KernelBackend>(services, device, *std::move(peers)));
}

Result<std::unique_ptr<Backend>> make_mapped_backend(GroupServices& services, int device) {
  Result<std::unique_ptr<PeerSchedules>> peers = PeerSchedules::create(services, device);
  if (!peers) return peers.status();
  return std::unique_ptr<Backend>(std::make_unique<ScheduleBackend>(services, device, *std::move(peers)));
}

}  // namespace tutti::cuda
