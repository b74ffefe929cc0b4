// The public TensorQueue. Decides nothing.
#include "backends/registry.hpp"
#include "runtime/group/comm_group.hpp"
#include "runtime/group/work_access.hpp"
#include "runtime/training/tensor_scheduler.hpp"

namespace tutti {

class TensorQueue::Impl {
 public:
  Impl(const CommGroup& group, const TensorQueueOptions& options)
      : group_(group), scheduler_(group, options) {}
  TensorScheduler& scheduler() { return scheduler_; }
  Work work_of(const WorkRef& work) {
    return WorkAccess::make(CommGroup::Impl::of(group_, "TensorQueue").handle(), work, 0);
  }

 private:
  CommGroup group_;
  TensorScheduler scheduler_;
};

TensorQueue::TensorQueue(const CommGroup& group) {
  CommGroup::Impl& impl = CommGroup::Impl::of(group, "TensorQueue");
  const WorldSettings& settings = impl.world().settings();
  impl_ = std::make_shared<Impl>(group, TensorQueueOptions{settings.tensors, settings.stall_warning});
}

Work TensorQueue::submit(std::string_view name, const TensorCall& call) const {
  if (impl_ == nullptr)
    throw_error(invalid_argument("submit: this TensorQueue is closed (it is of no group)"));
  TensorCall located = call;
  if (call.memory == Memory::detect) {
    look_for_cuda();
    const auto is_device = [](const void* memory) { return memory != nullptr && device_of(memory) >= 0; };
    located.memory =
        is_cuda_in_use() && (is_device(call.input) || is_device(call.output)) ? Memory::device : Memory::host;
  }
  return impl_->work_of(impl_->scheduler().submit(name, located));
}

Work TensorQueue::join() const {
  if (impl_ == nullptr) throw_error(invalid_argument("join: this TensorQueue is closed (it is of no group)"));
  return impl_->work_of(impl_->scheduler().join());
}

void TensorQueue::close() { impl_.reset(); }

}  // namespace tutti
