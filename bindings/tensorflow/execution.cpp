// Submits the tensors of one execution and collects their completions. See execution.hpp.
#include "bindings/tensorflow/execution.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/tensorflow/tensors.hpp"
#include "tutti/tutti.h"

namespace tutti::tensorflow {
namespace {

using Clock = std::chrono::steady_clock;

// A thread that runs a graph may be needed for other operations, and waits no longer than this. A rank that waits is ahead of the others.
constexpr auto kPatience = std::chrono::milliseconds(1);

class Execution;

// One tensor of an execution.
struct Part {
  Execution* execution = nullptr;
  Tensor tensor;
  std::vector<unsigned char> prescaled;  // integers, which replace the input
  tutti_work_t work = nullptr;
};

class Execution {
 public:
  Execution(const Kernel& kernel, TF_OpKernelContext* context, std::shared_ptr<ProcessSet> set,
            std::function<void()> done)
      : kernel_(kernel), context_(context), set_(std::move(set)), done_(std::move(done)) {}

  // Submits all parts. The execution ends itself: here or on a thread of tutti.
  void start() {
    if (read_inputs()) submit_all();
    leave();  // the count that was there from the start
  }

  void* allocate(Part& part, const std::uint64_t* rows, std::size_t rank_count);
  void complete(Part& part, tutti_status_t status, const char* message);

 private:
  // Outputs as long as their inputs are there from the start; others once the rows of all ranks are known.
  bool allocates_late() const {
    return kernel_.kind == Kind::allgather || kernel_.kind == Kind::reducescatter ||
           kernel_.kind == Kind::alltoall;
  }
  bool has_tensors() const { return kernel_.kind != Kind::join && kernel_.kind != Kind::barrier; }
  // The last input of an alltoall is the splits.
  int tensor_count() const {
    if (!has_tensors()) return 1;
    return TF_NumInputs(context_) - (kernel_.kind == Kind::alltoall ? 1 : 0);
  }
  bool read_inputs();
  bool read(Tensor& tensor);
  bool read_splits();
  void submit_all();
  tutti_status_t submit_in_turn(const std::string& base);
  std::optional<tutti_status_t> wait_here(Part& part, Clock::time_point end);
  tutti_status_t submit(Part& part, const std::string& name, const std::string& batch);
  tutti_tensor_call_t call_of(Part& part, const std::string& batch);
  tutti_op_t op_of(const Tensor& tensor) const;
  void finish(Part& part);
  void finish_integers(const Tensor& tensor) const;
  bool succeeds(const Failure& failure);
  void leave();

  const Kernel& kernel_;
  TF_OpKernelContext* context_;
  std::shared_ptr<ProcessSet> set_;
  std::function<void()> done_;
  std::vector<Part> parts_;
  std::vector<std::uint64_t> splits_;
  std::vector<std::int32_t> received_;
  int last_rank_ = -1;
  bool is_urgent_ = false;
  std::atomic<std::size_t> left_ = 1;
  std::mutex mutex_;  // of the failure
  Failure failure_;
};

void complete_part(void* context, tutti_status_t status, const char* message, int /*peer*/) {
  auto& part = *static_cast<Part*>(context);
  part.execution->complete(part, status, message);
}

void* allocate_part(void* context, const std::uint64_t* rows, std::size_t row_count) {
  auto& part = *static_cast<Part*>(context);
  return part.execution->allocate(part, rows, row_count);
}

bool Execution::read_inputs() {
  parts_.resize(static_cast<std::size_t>(tensor_count()));
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    parts_[i].execution = this;
    parts_[i].tensor.index = static_cast<int>(i);
    if (has_tensors() && !read(parts_[i].tensor)) return false;
  }
  if (kernel_.kind == Kind::alltoall && !read_splits()) return false;
  if (!has_tensors() || allocates_late()) return true;
  // All inputs have been read: an output may take the memory of one.
  return std::all_of(parts_.begin(), parts_.end(),
                     [&](Part& part) { return succeeds(forward_or_allocate(context_, part.tensor)); });
}

bool Execution::read(Tensor& tensor) {
  if (!succeeds(read_tensor(context_, tensor))) return false;
  if (!allocates_late() || !tensor.dimensions.empty()) return true;
  return succeeds({TF_INVALID_ARGUMENT,
                   std::string(name_of(kernel_.kind)) +
                       ": a tensor without dimensions has no first one; use tf.reshape(tensor, [1])"});
}

bool Execution::read_splits() {
  std::vector<std::int32_t> splits;
  if (!succeeds(read_integers(context_, 1, splits))) return false;
  const bool is_negative = std::any_of(splits.begin(), splits.end(), [](int rows) { return rows < 0; });
  if (is_negative || (!splits.empty() && splits.size() != static_cast<std::size_t>(set_->size))) {
    return succeeds({TF_INVALID_ARGUMENT, "alltoall: splits: expected a row count for each of the " +
                                              std::to_string(set_->size) + " ranks, or none"});
  }
  splits_.assign(splits.begin(), splits.end());
  return true;
}

void Execution::submit_all() {
  const std::string base = kernel_.name_of(*set_);
  const std::size_t count = parts_.size();
  left_ += count;
  set_->under_way += static_cast<int>(count);
  is_urgent_ = kernel_.is_eager || set_->under_way == static_cast<int>(count);
  const tutti_status_t refusal = submit_in_turn(base);
  const auto end = Clock::now() + kPatience;
  for (Part& part : parts_) {
    if (part.work == nullptr) {
      complete(part, refusal, "");
    } else if (const auto status = is_urgent_ ? wait_here(part, end) : std::nullopt) {
      complete(part, *status, tutti_last_error());
    } else if (const auto refused = tutti_on_complete(part.work, complete_part, &part); refused != TUTTI_OK) {
      complete(part, refused, tutti_last_error());
    }
  }
}

// A tensor that is refused ends a group: the queue fails those that were submitted before, and expects no more of them.
tutti_status_t Execution::submit_in_turn(const std::string& base) {
  const std::size_t count = parts_.size();
  // Two iterations of a loop may run the same operation at once; their groups must not mix.
  std::unique_lock lock(ProcessSets::instance().submitting_group(), std::defer_lock);
  if (count > 1) lock.lock();
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name =
        count == 1 ? base : base + "_" + std::to_string(i + 1) + "of" + std::to_string(count);
    const tutti_status_t status = submit(parts_[i], name, base);
    if (status == TUTTI_OK) continue;
    succeeds({code_of(status), tutti_last_error()});
    return status;
  }
  return TUTTI_OK;
}

// The outcome, if there is one before long. The thread that waits takes the steps of the negotiation itself; else they begin when the
// queue's thread wakes up, which takes longer.
std::optional<tutti_status_t> Execution::wait_here(Part& part, Clock::time_point end) {
  constexpr std::chrono::milliseconds kEager{100};
  int is_complete = 0;
  do {
    const auto at_most = kernel_.is_eager     ? kEager
                         : Clock::now() < end ? kPatience
                                              : std::chrono::milliseconds(0);
    const tutti_status_t status = tutti_wait_for(&part.work, at_most.count(), &is_complete);
    if (is_complete != 0 || part.work == nullptr) return status;
    if (status != TUTTI_OK) return std::nullopt;  // waiting is refused in a callback
  } while (kernel_.is_eager);
  return std::nullopt;
}

tutti_status_t Execution::submit(Part& part, const std::string& name, const std::string& batch) {
  if (kernel_.kind == Kind::join) return tutti_tensor_queue_join(set_->queue, &last_rank_, &part.work);
  const std::vector<std::uint64_t> shape(part.tensor.dimensions.begin(), part.tensor.dimensions.end());
  tutti_tensor_call_t call = call_of(part, batch);
  call.shape = shape.data();
  call.dimension_count = shape.size();
  return tutti_tensor_queue_submit(set_->queue, name.c_str(), &call, &part.work);
}

tutti_tensor_call_t Execution::call_of(Part& part, const std::string& batch) {
  static constexpr tutti_collective_t kCollectives[] = {
      TUTTI_ALLREDUCE, TUTTI_ALLGATHER, TUTTI_BROADCAST, TUTTI_REDUCE_SCATTER,
      TUTTI_ALLTOALL,  TUTTI_BARRIER,   TUTTI_BARRIER};
  tutti_tensor_call_t call = TUTTI_TENSOR_CALL;
  call.collective = kCollectives[static_cast<std::size_t>(kernel_.kind)];
  call.input = part.tensor.input;
  call.output = part.tensor.output;
  call.dtype = part.tensor.elements.dtype;
  call.op = op_of(part.tensor);
  call.root = kernel_.root;
  if (!part.tensor.elements.is_integer) {
    call.prescale = kernel_.prescale;
    call.postscale = kernel_.postscale;
  } else if (kernel_.prescale != 1) {
    const std::size_t count = part.tensor.input_count();
    part.prescaled.resize(count * part.tensor.elements.bytes);
    scale_integers(part.tensor.elements.dtype, part.tensor.input, part.prescaled.data(), count,
                   kernel_.prescale);
    call.input = part.prescaled.data();
  }
  if (!splits_.empty()) call.splits = splits_.data();
  if (allocates_late()) {
    call.allocate = allocate_part;
    call.allocate_context = &part;
  }
  if (parts_.size() > 1) {
    call.batch = batch.c_str();
    call.batch_size = static_cast<std::uint32_t>(parts_.size());
  }
  // Whatever is alone under way is negotiated at once; what comes meanwhile shares the next negotiation.
  call.will_wait = is_urgent_ ? 1 : 0;
  call.memory = TUTTI_MEMORY_HOST;
  return call;
}

tutti_op_t Execution::op_of(const Tensor& tensor) const {
  // As Horovod numbers them. Python refuses Adasum, the third.
  static constexpr tutti_op_t kOps[] = {TUTTI_AVG, TUTTI_SUM, TUTTI_SUM, TUTTI_MIN, TUTTI_MAX, TUTTI_PROD};
  if (kernel_.reduce_op == kAverage && tensor.elements.is_integer) return TUTTI_SUM;
  return kOps[kernel_.reduce_op];
}

void* Execution::allocate(Part& part, const std::uint64_t* rows, std::size_t rank_count) {
  if (kernel_.kind == Kind::alltoall) received_.assign(rows, rows + rank_count);
  const std::uint64_t row_count = std::accumulate(rows, rows + rank_count, std::uint64_t{0});
  return succeeds(allocate_rows(context_, part.tensor, row_count)) ? part.tensor.output : nullptr;
}

void Execution::complete(Part& part, tutti_status_t status, const char* message) {
  if (status != TUTTI_OK) {
    succeeds({code_of(status), message});
  } else {
    finish(part);
  }
  tutti_work_free(&part.work);
  --set_->under_way;
  leave();
}

// Makes a complete tensor's result of the collective's.
void Execution::finish(Part& part) {
  if (kernel_.kind == Kind::join) {
    int is_complete = 0;
    tutti_test(&part.work, &is_complete);             // sets the last rank
    for (auto& unnamed : set_->unnamed) unnamed = 0;  // ranks reach join() after unequal numbers of calls
    succeeds(put_integers(context_, 0, {}, {last_rank_}));
  } else if (kernel_.kind == Kind::alltoall) {
    succeeds(put_integers(context_, 1, {static_cast<std::int64_t>(received_.size())}, received_));
  } else if (kernel_.kind == Kind::allreduce || kernel_.kind == Kind::reducescatter) {
    if (part.tensor.elements.is_integer) finish_integers(part.tensor);
  }
}

void Execution::finish_integers(const Tensor& tensor) const {
  const tutti_dtype_t dtype = tensor.elements.dtype;
  if (kernel_.reduce_op == kAverage) divide_integers(dtype, tensor.output, tensor.output_count, set_->size);
  if (kernel_.postscale != 1) {
    scale_integers(dtype, tensor.output, tensor.output, tensor.output_count, kernel_.postscale);
  }
}

// Of several failures the first one counts.
bool Execution::succeeds(const Failure& failure) {
  if (!failure.is_set()) return true;
  const std::lock_guard lock(mutex_);
  if (!failure_.is_set()) failure_ = failure;
  return false;
}

void Execution::leave() {
  if (--left_ > 0) return;
  if (failure_.is_set()) TF_OpKernelContext_Failure(context_, Status(failure_.code, failure_.message));
  const std::function<void()> done = std::move(done_);
  delete this;  // before TensorFlow may destroy the kernel
  done();
}

Failure why_unusable(const Kernel& kernel, const std::shared_ptr<ProcessSet>& set) {
  if (set == nullptr && !ProcessSets::instance().job().is_running) return not_initialized();
  if (set == nullptr) return unknown_process_set(kernel.process_set);
  if (set->rank < 0) {
    return {TF_INVALID_ARGUMENT,
            "this rank is not a member of process set " + std::to_string(kernel.process_set)};
  }
  return {};
}

}  // namespace

void execute(const Kernel& kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  // The handle points to TensorFlow's std::function, on the stack of the caller: TF_RunAsyncOpKernelDoneCallback() may be called
  // within this call alone. A copy of the function lives on.
  const std::function<void()> run_done = *reinterpret_cast<std::function<void()>*>(done);
  std::shared_ptr<ProcessSet> set = ProcessSets::instance().find(kernel.process_set);
  const Failure failure = why_unusable(kernel, set);
  if (failure.is_set()) {
    TF_OpKernelContext_Failure(context, Status(failure.code, failure.message));
    return run_done();
  }
  (new Execution(kernel, context, std::move(set), run_done))->start();
}

}  // namespace tutti::tensorflow
