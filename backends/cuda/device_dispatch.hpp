// Calls of one group on the memory of GPUs: chooses an engine for each signature, once, and starts calls.
// Knows rules and prices; what an engine does with a call is the engine's.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "backends/backend.hpp"
#include "backends/cuda/device_engine.hpp"
#include "backends/cuda/engine_choice.hpp"
#include "runtime/base/ops.hpp"
#include "runtime/selection/selection.hpp"

namespace tutti::cuda {

// The properties of a call that a decision depends on. Ranks share them, or those that they do not share
// change nothing in the choice.
struct DeviceSignature {
  Collective collective = Collective::barrier;
  Dtype dtype = Dtype::u8;
  Op op = Op::sum;
  UserOp user;
  bool is_send = false, is_uneven = false, has_counts_at_root = false;
  std::uint32_t root = 0, tag = 0;
  std::uint64_t bytes = 0;  // of the full vector, where ranks share it
  std::string algorithm;
  bool operator==(const DeviceSignature&) const = default;
};

class DeviceDispatch final : public DeviceBackend {
 public:
  // `services` and what `options` refers to outlive it. `make_nccl` makes NCCL's engine.
  DeviceDispatch(GroupServices& services, const DeviceOptions& options, EngineFactory make_nccl);

  // DeviceBackend
  Result<WorkRef> start(const Call& call, std::string_view algorithm) override;
  Status split(DeviceBackend* child, int color) override;
  Result<std::uint64_t> register_buffer(const void* memory, std::size_t bytes) override;
  void deregister_buffer(std::uint64_t number) override { buffers_.erase(number); }
  Route last() const override;

 private:
  class Survey;
  struct Decision {
    DeviceSignature signature;
    DeviceEngineKind engine = DeviceEngineKind::staged;
    std::string algorithm;
    std::unique_ptr<PreparedCall> prepared;  // null: no decision yet
  };
  Decision& slot_of(const DeviceSignature& signature);
  // May be collective; equal on all ranks.
  Result<Decision> decide(const Call& call, const Question& question, const Selection& selection);
  void mark(const Call& call, const Decision& decision) const;
  // Makes the engines that need no agreement of ranks later, for the device of the group's first call.
  // Collective. Errors: the group's failure; invalid_argument for another device.
  Status open(const Call& call);
  // The engine that split() made, if it is for the device of every rank, else a new one. Collective.
  Result<std::unique_ptr<DeviceEngine>> nccl_for(int device);
  // Null where there is none. Makes engines on peer memory when they are first wanted; then collective.
  DeviceEngine* find(DeviceEngineKind kind);
  struct PeerEngine {
    std::unique_ptr<DeviceEngine> engine;
    bool has_been_tried = false;
  };
  DeviceEngine* make_once(PeerEngine& peers, EngineFactory make, std::string_view name);
  struct Buffer {
    const void* memory;
    std::size_t bytes;
    std::unique_ptr<Registration> registration;
  };
  Status register_with_nccl(Buffer& buffer) const;

  GroupServices& services_;
  const DeviceOptions options_;
  const EngineFactory make_nccl_;
  const DeviceModel model_ = device_model(GpuLink::nvlink);  // nothing asks for the link between GPUs yet
  int device_ = -1;                                          // of the group's first call
  int split_device_ = -1;  // before the first call: the device of the engine that split() made
  std::unique_ptr<DeviceEngine> staged_, nccl_;
  Status no_nccl_;  // why there is no engine of NCCL
  PeerEngine kernels_, schedules_;
  // Direct-mapped by signature: a decision that is gone is made again. Their engines outlive them.
  static constexpr std::size_t kDecisions = 64;
  std::array<Decision, kDecisions> decisions_;
  const Decision* last_ = nullptr;
  std::map<std::uint64_t, Buffer> buffers_;
  std::uint64_t last_buffer_ = 0;
};

}  // namespace tutti::cuda
