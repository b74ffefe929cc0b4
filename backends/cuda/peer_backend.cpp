// What peers carry out, and by which kernels.
#include "backends/cuda/peer_backend.hpp"

#include <string>
#include <utility>

#include "backends/cuda/memory.hpp"
#include "backends/cuda/peer_allreduce.hpp"
#include "backends/cuda/stream_watch.hpp"

namespace tutti::cuda {
namespace {

class PeerBackend final : public Backend, private StreamWatch::Carrier {
 public:
  PeerBackend(GroupServices& services, int device, std::unique_ptr<PeerAllreduce> peers)
      : services_(services),
        device_(device),
        peers_(std::move(peers)),
        watch_(services, *this, device, "tutti-peers") {
    if (peers_->takes_turns()) caps_.disliked = kWhyNotOnSharedGpu;
  }

  ~PeerBackend() override { watch_.close(services_.timeout()); }

  const BackendCaps& caps() const override { return caps_; }

  Status supports(const Call& call) const override {
    if (call.collective != Collective::allreduce) {
      return unsupported("kernels that reach the memory of all ranks carry allreduce out, not " +
                         std::string(to_string(call.collective)));
    }
    return peers_->supports(call.count, call.dtype, call.op, Shots::two);
  }

  Result<WorkRef> start(const Call& call, const Choice& choice) override {
    TUTTI_RETURN_IF_ERROR(supports(call));
    const Result<Shots> shots = shots_of(choice.algorithm);
    if (!shots) return shots.status();
    TUTTI_RETURN_IF_ERROR(services_.failure());
    TUTTI_RETURN_IF_ERROR(watch_.failure());
    const Result<ContextScope> context = ContextScope::enter(device_);
    if (!context) return context.status();
    auto* const stream = static_cast<CUstream>(call.stream);
    TUTTI_RETURN_IF_ERROR(refuse_capture(stream, "a call among peers", "each call has a number of its own"));
    Result<WorkRef> work =
        watch_.begin(describe_call(call) + " by kernels on GPU " + std::to_string(device_), -1, stream);
    if (!work) return work.status();
    Status status = peers_->start(call.output, call.in_place ? call.output : call.input, call.count,
                                  call.dtype, call.op, stream, *shots);
    if (status) status = watch_.add(*work, stream);
    if (status) return work;
    // The others have made the call, or will: they must not wait for this rank.
    watch_.fail(status);
    return watch_.failure();
  }

  PersistentCall* persistent(const Call& /*call*/) override { return nullptr; }

  Result<std::string> explain(const Call& call) const override {
    TUTTI_RETURN_IF_ERROR(supports(call));
    return std::string("one_shot or two_shot, as named: by kernels that reach the memory of all ranks");
  }

 private:
  // The first word of an algorithm's text counts: "two_shot(...)" of the host's catalogue, too.
  static Result<Shots> shots_of(std::string_view algorithm) {
    const std::string_view name =
        algorithm.substr(0, algorithm.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"));
    if (name == "one_shot") return Shots::one;
    if (name == "two_shot") return Shots::two;
    return unsupported("kernels that reach the memory of all ranks have one_shot and two_shot, not " +
                       (algorithm.empty() ? "a choice of their own" : std::string(algorithm)));
  }

  // StreamWatch::Carrier
  Status diagnose() override { return {}; }
  void abort(const Status& /*cause*/) override { peers_->abort(); }

  GroupServices& services_;
  const int device_;
  BackendCaps caps_{"peers", "", ""};
  const std::unique_ptr<PeerAllreduce> peers_;
  StreamWatch watch_;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_peer_backend(GroupServices& services, int device) {
  Result<std::unique_ptr<PeerAllreduce>> peers = PeerAllreduce::create(services, device);
  if (!peers) return peers.status();
  return std::unique_ptr<Backend>(std::make_unique<PeerBackend>(services, device, *std::move(peers)));
}

}  // namespace tutti::cuda
