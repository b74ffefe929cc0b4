// Submits the tensors of one execution and collects their completions. See execution.hpp.
#include "bindings/tensorflow/execution.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "bindings/tensorflow/elements.hpp"
#include "tutti/tutti.h"

namespace tutti::tensorflow {
namespace {

class Execution;

// One tensor of an execution, on its way.
struct Part {
  Execution* execution = nullptr;
  int index = 0;
  TF_DataType tf_dtype = TF_FLOAT;
  Elements elements;
  std::vector<std::int64_t> dimensions;  // of the input
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t output_count = 0;          // elements
  std::vector<unsigned char> prescaled;  // integers, which replace the input
  tutti_work_t work = nullptr;

  std::size_t row_count() const {  // elements of one row
    return std::accumulate(dimensions.begin() + 1, dimensions.end(), std::size_t{1}, std::multiplies<>());
  }
};

class Execution {
 public:
  Execution(const Kernel& kernel, TF_OpKernelContext* context, std::shared_ptr<ProcessSet> set,
            std::function<void()> done)
      : kernel_(kernel), context_(context), set_(std::move(set)), done_(std::move(done)) {}

  // Submits all parts. Then the caller leaves, and the execution ends itself: here or on a thread of tutti.
  void start() {
    if (read_inputs()) submit_all();
  }
  void leave();

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
  bool read_input(Part& part);
  bool read_splits();
  bool make_output(Part& part);
  void submit_all();
  tutti_status_t submit(Part& part, const std::string& name, const std::string& batch);
  tutti_tensor_call_t call_of(Part& part, const std::string& batch);
  tutti_op_t op_of(const Part& part) const;
  bool finish(Part& part);
  bool set_integer_output(int index, const std::vector<std::int64_t>& dimensions,
                          const std::vector<int>& values);
  void fail(TF_Code code, const std::string& message);

  const Kernel& kernel_;
  TF_OpKernelContext* context_;
  std::shared_ptr<ProcessSet> set_;
  std::function<void()> done_;
  std::vector<Part> parts_;
  std::vector<std::uint64_t> splits_;
  std::vector<int> received_;
  int last_rank_ = -1;
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
    parts_[i].index = static_cast<int>(i);
    if (has_tensors() && !(read_input(parts_[i]))) return false;
  }
  if (kernel_.kind == Kind::alltoall && !read_splits()) return false;
  return !has_tensors() || allocates_late() ||
         std::all_of(parts_.begin(), parts_.end(), [&](Part& part) { return make_output(part); });
}

// The context keeps the memory of inputs until the operation is done, so no tensor is kept here: TensorFlow then
// gives the input's memory for the output where nobody else uses it.
bool Execution::read_input(Part& part) {
  Status status;
  TF_Tensor* tensor = nullptr;
  TF_GetInput(context_, part.index, &tensor, status);
  if (!status.is_ok()) {
    fail(TF_INVALID_ARGUMENT, status.message());
    return false;
  }
  part.tf_dtype = TF_TensorType(tensor);
  part.input = TF_TensorData(tensor);
  for (int i = 0; i < TF_NumDims(tensor); ++i) part.dimensions.push_back(TF_Dim(tensor, i));
  TF_DeleteTensor(tensor);
  const auto elements = elements_of(part.tf_dtype);
  if (!elements) {
    fail(TF_INVALID_ARGUMENT, std::string(name_of(kernel_.kind)) + ": tensors of dtype number " +
                                  std::to_string(part.tf_dtype) + " cannot be communicated");
    return false;
  }
  part.elements = *elements;
  if (allocates_late() && part.dimensions.empty()) {
    fail(TF_INVALID_ARGUMENT,
         std::string(name_of(kernel_.kind)) +
             ": a tensor without dimensions has no first one; use tf.reshape(tensor, [1])");
    return false;
  }
  return true;
}

bool Execution::read_splits() {
  Status status;
  TF_Tensor* tensor = nullptr;
  TF_GetInput(context_, 1, &tensor, status);
  if (!status.is_ok()) {
    fail(TF_INVALID_ARGUMENT, status.message());
    return false;
  }
  const std::int64_t count = TF_NumDims(tensor) == 1 ? TF_Dim(tensor, 0) : -1;
  const auto* numbers = static_cast<const std::int32_t*>(TF_TensorData(tensor));
  if (count > 0) splits_.assign(numbers, numbers + count);
  const bool is_negative =
      count > 0 && std::any_of(numbers, numbers + count, [](int rows) { return rows < 0; });
  TF_DeleteTensor(tensor);
  if (is_negative || (count != 0 && count != set_->size)) {
    fail(TF_INVALID_ARGUMENT, "alltoall: splits: expected a row count for each of the " +
                                  std::to_string(set_->size) + " ranks, or none");
    return false;
  }
  return true;
}

bool Execution::make_output(Part& part) {
  Status status;
  int forwarded = -1;
  TF_Tensor* tensor =
      TF_ForwardInputOrAllocateOutput(context_, &part.index, 1, part.index, part.dimensions.data(),
                                      static_cast<int>(part.dimensions.size()), &forwarded, status);
  if (!status.is_ok()) {
    fail(TF_RESOURCE_EXHAUSTED, status.message());
    return false;
  }
  part.output = TF_TensorData(tensor);
  part.output_count =
      std::accumulate(part.dimensions.begin(), part.dimensions.end(), std::size_t{1}, std::multiplies<>());
  TF_DeleteTensor(tensor);
  return true;
}

void Execution::submit_all() {
  const std::string base = kernel_.name_of(*set_);
  const std::size_t count = parts_.size();
  left_ += count;
  set_->under_way += static_cast<int>(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name =
        count == 1 ? base : base + "_" + std::to_string(i + 1) + "of" + std::to_string(count);
    const tutti_status_t status = submit(parts_[i], name, base);
    if (status == TUTTI_OK) continue;
    complete(parts_[i], status, tutti_last_error());
  }
}

tutti_status_t Execution::submit(Part& part, const std::string& name, const std::string& batch) {
  tutti_status_t status = TUTTI_OK;
  if (kernel_.kind == Kind::join) {
    status = tutti_tensor_queue_join(set_->queue, &last_rank_, &part.work);
  } else {
    const std::vector<std::uint64_t> shape(part.dimensions.begin(), part.dimensions.end());
    tutti_tensor_call_t call = call_of(part, batch);
    call.shape = shape.data();
    call.dimension_count = shape.size();
    status = tutti_tensor_queue_submit(set_->queue, name.c_str(), &call, &part.work);
  }
  return status == TUTTI_OK ? tutti_on_complete(part.work, complete_part, &part) : status;
}

tutti_tensor_call_t Execution::call_of(Part& part, const std::string& batch) {
  static constexpr tutti_collective_t kCollectives[] = {
      TUTTI_ALLREDUCE, TUTTI_ALLGATHER, TUTTI_BROADCAST, TUTTI_REDUCE_SCATTER,
      TUTTI_ALLTOALL,  TUTTI_BARRIER,   TUTTI_BARRIER};
  tutti_tensor_call_t call = TUTTI_TENSOR_CALL;
  call.collective = kCollectives[static_cast<std::size_t>(kernel_.kind)];
  call.input = part.input;
  call.output = part.output;
  call.dtype = part.elements.dtype;
  call.op = op_of(part);
  call.root = kernel_.root;
  if (!part.elements.is_integer) {
    call.prescale = kernel_.prescale;
    call.postscale = kernel_.postscale;
  } else if (kernel_.prescale != 1) {
    const std::size_t count =
        std::accumulate(part.dimensions.begin(), part.dimensions.end(), std::size_t{1}, std::multiplies<>());
    part.prescaled.resize(count * part.elements.bytes);
    scale_integers(part.elements.dtype, part.input, part.prescaled.data(), count, kernel_.prescale);
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
  call.will_wait = kernel_.is_eager || set_->under_way == static_cast<int>(parts_.size()) ? 1 : 0;
  call.memory = TUTTI_MEMORY_HOST;
  return call;
}

tutti_op_t Execution::op_of(const Part& part) const {
  static constexpr tutti_op_t kOps[] = {TUTTI_AVG, TUTTI_SUM, TUTTI_SUM, TUTTI_MIN, TUTTI_MAX, TUTTI_PROD};
  if (kernel_.reduce_op == kAverage && part.elements.is_integer) return TUTTI_SUM;
  return kOps[kernel_.reduce_op];
}

void* Execution::allocate(Part& part, const std::uint64_t* rows, std::size_t rank_count) {
  std::vector<std::int64_t> dimensions = part.dimensions;
  dimensions[0] = static_cast<std::int64_t>(std::accumulate(rows, rows + rank_count, std::uint64_t{0}));
  part.output_count = static_cast<std::size_t>(dimensions[0]) * part.row_count();
  if (kernel_.kind == Kind::alltoall) received_.assign(rows, rows + rank_count);
  Status status;
  TF_Tensor* tensor =
      TF_AllocateOutput(context_, part.index, part.tf_dtype, dimensions.data(),
                        static_cast<int>(dimensions.size()), part.output_count * part.elements.bytes, status);
  if (!status.is_ok()) {
    fail(TF_RESOURCE_EXHAUSTED, status.message());
    return nullptr;
  }
  part.output = TF_TensorData(tensor);
  TF_DeleteTensor(tensor);
  return part.output;
}

void Execution::complete(Part& part, tutti_status_t status, const char* message) {
  if (status != TUTTI_OK) {
    fail(code_of(status), message);
  } else {
    finish(part);
  }
  tutti_work_free(&part.work);
  --set_->under_way;
  leave();
}

// Makes a complete tensor's result of the collective's.
bool Execution::finish(Part& part) {
  if (kernel_.kind == Kind::join) {
    int is_complete = 0;
    tutti_test(&part.work, &is_complete);             // sets the last rank
    for (auto& unnamed : set_->unnamed) unnamed = 0;  // ranks reach join() after unequal numbers of calls
    return set_integer_output(0, {}, {last_rank_});
  }
  if (kernel_.kind == Kind::alltoall) {
    return set_integer_output(1, {static_cast<std::int64_t>(received_.size())}, received_);
  }
  const bool reduces = kernel_.kind == Kind::allreduce || kernel_.kind == Kind::reducescatter;
  if (!reduces || !part.elements.is_integer) return true;
  if (kernel_.reduce_op == kAverage) {
    divide_integers(part.elements.dtype, part.output, part.output_count, set_->size);
  }
  if (kernel_.postscale != 1) {
    scale_integers(part.elements.dtype, part.output, part.output, part.output_count, kernel_.postscale);
  }
  return true;
}

bool Execution::set_integer_output(int index, const std::vector<std::int64_t>& dimensions,
                                   const std::vector<int>& values) {
  Status status;
  TF_Tensor* tensor =
      TF_AllocateOutput(context_, index, TF_INT32, dimensions.data(), static_cast<int>(dimensions.size()),
                        values.size() * sizeof(int), status);
  if (!status.is_ok()) {
    fail(TF_RESOURCE_EXHAUSTED, status.message());
    return false;
  }
  std::copy(values.begin(), values.end(), static_cast<std::int32_t*>(TF_TensorData(tensor)));
  TF_DeleteTensor(tensor);
  return true;
}

// The first one counts.
void Execution::fail(TF_Code code, const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (!failure_.is_set()) failure_ = {code, message};
}

void Execution::leave() {
  if (--left_ > 0) return;
  if (failure_.is_set()) TF_OpKernelContext_Failure(context_, Status(failure_.code, failure_.message));
  const std::function<void()> done = std::move(done_);
  delete this;  // before TensorFlow may destroy the kernel
  done();
}

Failure why_unusable(const Kernel& kernel, const std::shared_ptr<ProcessSet>& set) {
  if (set == nullptr && !ProcessSets::instance().job().is_running) {
    return {TF_FAILED_PRECONDITION, "Horovod has not been initialized; use hvd.init()."};
  }
  if (set == nullptr) {
    return {TF_INVALID_ARGUMENT, "process set " + std::to_string(kernel.process_set) +
                                     " is not registered; use hvd.add_process_set()"};
  }
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
  Execution* execution = nullptr;
  const Failure failure =
      ProcessSets::instance().with(kernel.process_set, [&](const std::shared_ptr<ProcessSet>& set) {
        Failure why = why_unusable(kernel, set);
        if (why.is_set()) return why;
        execution = new Execution(kernel, context, set, run_done);
        execution->start();
        return why;
      });
  // Behind the lock, since other operations may run on this thread in `done`.
  if (execution != nullptr) return execution->leave();
  TF_OpKernelContext_Failure(context, Status(failure.code, failure.message));
  run_done();
}

}  // namespace tutti::tensorflow
