// The public TensorQueue. Decides nothing.
#include "backends/registry.hpp"
#include "runtime/base/fork_guard.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/thread.hpp"
#include "runtime/group/comm_group.hpp"
#include "runtime/group/work_access.hpp"
#include "runtime/training/tensor_scheduler.hpp"

namespace tutti {

class TensorQueue::Impl {
 public:
  Impl(const CommGroup& group, const TensorQueueOptions& options)
      : group_(group), scheduler_(group, options) {}
  // Throws in a child of fork(), which must not touch the scheduler.
  TensorScheduler& scheduler() {
    CommGroup::Impl::of(group_, "TensorQueue");
    return scheduler_;
  }
  int size() { return CommGroup::Impl::of(group_, "TensorQueue").size(); }
  bool is_of_this_process() const { return fork_generation_ == tutti::fork_generation(); }
  // A child of fork() has no thread of the queue. The queue's thread cannot wait for its own end, nor can one
  // that runs a callback.
  static void end(Impl* impl) {
    if (!impl->is_of_this_process()) return;
    if (!is_in_callback() && !impl->scheduler_.is_own_thread()) {
      delete impl;
      return;
    }
    impl->scheduler_.close();
    Result<std::thread> thread = start_thread("tutti-closing", [impl] { delete impl; });
    if (thread) return thread->detach();
    log_warn("a tensor queue is not closed: {}", thread.status().message());
  }
  Work work_of(const WorkRef& work) {
    return WorkAccess::make(CommGroup::Impl::of(group_, "TensorQueue").handle(), work, 0);
  }

 private:
  CommGroup group_;
  const unsigned fork_generation_ = tutti::fork_generation();
  TensorScheduler scheduler_;
};

TensorQueue::TensorQueue(const CommGroup& group) {
  CommGroup::Impl& impl = CommGroup::Impl::of(group, "TensorQueue");
  const WorldSettings& settings = impl.world().settings();
  TensorQueueOptions options;
  options.settings = settings.tensors;
  options.stall_warning = settings.stall_warning;
  const auto rank_count = static_cast<std::uint32_t>(group.size());
  use_tuning(settings.tuning.tuning, rank_count, options.settings);
  options.save_fusion = [path = settings.tuning.save_path, here = settings.tuning.here,
                         rank_count](const FusionTuning& setting) {
    if (path.empty()) return;
    if (const Status saved = save_fusion(path, here, rank_count, setting); !saved)
      log_warn("the result of TUTTI_AUTOTUNE is not kept: {}", saved.message());
  };
  // One process writes the file of the job.
  if (impl.world().info().rank != 0) options.settings.timeline.path.clear();
  impl_ = std::shared_ptr<Impl>(new Impl(group, options), &Impl::end);
}

// A callback that runs in the call may close this handle.
std::shared_ptr<TensorQueue::Impl> TensorQueue::opened(const char* call) const {
  if (impl_ == nullptr)
    throw_error(invalid_argument(std::string(call) + ": this TensorQueue is closed (it is of no group)"));
  return impl_;
}

int TensorQueue::size() const { return opened("size")->size(); }

Work TensorQueue::submit(std::string_view name, const TensorCall& call) const {
  const std::shared_ptr<Impl> impl = opened("submit");
  TensorCall located = call;
  if (call.memory == Memory::detect) {
    look_for_cuda();
    const auto is_device = [](const void* memory) { return memory != nullptr && device_of(memory) >= 0; };
    located.memory =
        is_cuda_in_use() && (is_device(call.input) || is_device(call.output)) ? Memory::device : Memory::host;
  }
  return impl->work_of(impl->scheduler().submit(name, located));
}

Work TensorQueue::join() const { return join(ZerosOnDevice()); }

Work TensorQueue::join(ZerosOnDevice zeros) const {
  const std::shared_ptr<Impl> impl = opened("join");
  return impl->work_of(impl->scheduler().join(std::move(zeros)));
}

void TensorQueue::start_timeline(std::string_view path, bool mark_cycles) const {
  opened("start_timeline")->scheduler().start_timeline(std::string(path), mark_cycles);
}

void TensorQueue::stop_timeline() const { opened("stop_timeline")->scheduler().stop_timeline(); }

void TensorQueue::close() {
  if (impl_ != nullptr && impl_->is_of_this_process()) impl_->scheduler().close();
  impl_.reset();
}

}  // namespace tutti
