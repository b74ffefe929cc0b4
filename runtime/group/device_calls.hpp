// Calls of one group on the memory of GPUs: which backend carries each, and what those backends need of the
// group. Knows no vendor's library. Used by the thread that submits to the group.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "backends/backend.hpp"
#include "runtime/group/comm_group.hpp"
#include "runtime/selection/carriers.hpp"

namespace tutti {

class DeviceCalls final : public GroupServices {
 public:
  // `group` outlives it. Nothing communicates before the first call.
  explicit DeviceCalls(CommGroup::Impl& group) : group_(group) {}

  // Starts a checked call: it is on its stream when this returns, and its Work is complete once the device
  // has got there. Errors: of the choice; of the backend; the group's failure.
  Result<WorkRef> start(const Call& call, std::string_view algorithm);

  // Makes NCCL's communicator of a group that is split from this one, `child`'s (null: this rank is in none),
  // of this group's, if it has one. Collective. Errors: the group's failure.
  Status split(DeviceCalls* child, int colour);

  // Memory of a GPU that many calls will use, made known to the backends that gain by it; to those that the
  // group's first call makes, by that call. Until deregister_buffer() of the number that it returns. Local.
  Result<std::uint64_t> register_buffer(const void* memory, std::size_t bytes);
  void deregister_buffer(std::uint64_t number) { buffers_.erase(number); }

  // Who carries a call, and by which algorithm of his ("two_shot"; empty: as he likes); no backend: nobody
  // can.
  struct Carried {
    Backend* backend = nullptr;
    std::string algorithm;
  };
  // Of the last call.
  const Carried& last() const { return last_; }

  // GroupServices
  std::uint32_t rank() const override { return static_cast<std::uint32_t>(group_.rank()); }
  std::uint32_t size() const override { return static_cast<std::uint32_t>(group_.size()); }
  std::chrono::milliseconds timeout() const override { return group_.group().timeout(); }
  Status allgather(const void* mine, void* all, std::size_t bytes) override;
  Backend& host() override { return *host_; }
  Result<std::shared_ptr<const LoweredPlans>> lowered_plans(const Call& call,
                                                            std::string_view algorithm) override {
    return group_.backend().lowered_plans(call, algorithm);
  }
  void fail(const Status& cause) override { static_cast<void>(group_.fail_everywhere(cause)); }
  Status failure() const override {
    return group_.group().has_failed() ? group_.group().failure() : Status();
  }

 private:
  Question question_of(const Call& call) const;
  // The backends, of the device of the group's first call. Collective. Errors: the group's failure.
  Status prepare(const Call& call);
  // NCCL for the device: what split() made, if it is for the device of every rank, else new. Collective.
  Result<std::unique_ptr<Backend>> nccl_for(int device);
  // The same on all ranks: whom the selection names or, where it leaves the choice, the cheapest of those who
  // can. With the reason if nobody can. May be collective.
  Carried carrier_of(const Selection& selection, const Question& question, const Call& call, Status* refusal);
  Carried cheapest_for(const Question& question, const Call& call, Status* refusal);
  // Null where there is none. May be collective.
  Backend* find(DeviceCarrier carrier);
  // Makes a backend of ranks that reach each other's memory, when it is first wanted. Collective.
  struct Peers {
    std::unique_ptr<Backend> backend;
    bool has_been_tried = false;
  };
  Backend* try_peers(Peers& peers, Result<std::unique_ptr<Backend>> (&make)(GroupServices&, int),
                     std::string_view what);
  // May schedules over memory that all ranks reach carry the call by that algorithm? May be collective.
  Backend* find_mapped(const Call& call, std::string_view algorithm, Status* refusal);

  CommGroup::Impl& group_;
  Backend* host_ = nullptr;
  int device_ = -1;
  int split_device_ = -1;  // before the first call: what split() has made `nccl_` for
  DeviceModel model_ = device_model(GpuLink::nvlink);  // nobody asks yet what connects the GPUs
  DevicePlaces places_;
  std::unique_ptr<Backend> staged_, nccl_;
  Peers kernels_, mapped_;
  struct Buffer {
    const void* memory;
    std::size_t bytes;
    std::unique_ptr<Registration> by_nccl;
  };
  // Nothing to do where NCCL carries none of the calls.
  Status register_with_nccl(Buffer& buffer) const;
  std::map<std::uint64_t, Buffer> buffers_;  // registered ones
  std::uint64_t last_buffer_ = 0;
  Carried last_;
  Status no_nccl_;  // why, where there is none
};

// Says in the call whether the buffers that this rank has are on a GPU, and on which. Errors:
// invalid_argument, if they are not all in one place, or not where `memory` says. For calls in whose process
// CUDA is in use.
Status locate(std::string_view name, Call& call, std::uint32_t rank, std::uint32_t size, Memory memory);

}  // namespace tutti
