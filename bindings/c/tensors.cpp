// Named tensors of the C interface. Knows the public C++ interface only; tutti.h has the contracts.
#include <cstddef>

#include "bindings/c/handles.hpp"
#include "tutti/c_handles.hpp"

using namespace tutti::c;

namespace {

// The size of the first version; members are added behind it.
constexpr std::size_t kFirstTensorCallBytes = offsetof(tutti_tensor_call_t, wire_dtype);

const TuttiTensorQueue& queue_of(const char* call, tutti_tensor_queue_t queue) {
  check_given(call, "queue", queue);
  return *queue;
}

tutti::TensorCall tensor_call_of(const tutti_tensor_call_t& given, const tutti::TensorQueue& queue) {
  constexpr const char* kCall = "tensor_queue_submit";
  const auto known = known_options(kCall, &given, kFirstTensorCallBytes);
  const CallArguments arguments(kCall, nullptr);
  tutti::TensorCall call;
  call.collective = arguments.collective(known.collective);
  call.input = known.input;
  call.output = known.output;
  call.dtype = arguments.dtype(known.dtype);
  if (known.dimension_count > 0) check_given(kCall, "shape", known.shape);
  call.shape = {known.shape, known.dimension_count};
  // The queue refuses these two, and says why.
  const bool is_refused = known.op == TUTTI_USER || known.op == TUTTI_PREMUL_SUM;
  call.op = is_refused ? tutti::Reduction(static_cast<tutti::Op>(known.op))
                       : arguments.reduction(known.op, known.dtype);
  call.root = known.root;
  call.prescale = known.prescale;
  call.postscale = known.postscale;
  if (known.splits != nullptr) call.splits = {known.splits, static_cast<std::size_t>(queue.size())};
  if (known.allocate != nullptr) {
    call.allocate = [function = known.allocate,
                     context = known.allocate_context](std::span<const std::uint64_t> rows) {
      return function(context, rows.data(), rows.size());
    };
  }
  call.priority = known.priority;
  if (known.batch != nullptr) call.batch = known.batch;
  call.batch_size = known.batch_size;
  call.will_wait = known.will_wait != 0;
  call.memory = arguments.memory(known.memory);
  call.cuda_stream = known.cuda_stream;
  if (known.wire_dtype != 0)
    call.wire_dtype = arguments.dtype(static_cast<tutti_dtype_t>(known.wire_dtype), "wire_dtype");
  if (known.error_feedback != 0) call.error_feedback = known.error_feedback > 0;
  return call;
}

}  // namespace

tutti_tensor_queue_t tutti::make_c_handle(const TensorQueue& queue) {
  static_cast<void>(queue.size());  // throws for a closed one
  return new TuttiTensorQueue{queue};
}

tutti_status_t tutti_tensor_queue_create(tutti_group_t group, tutti_tensor_queue_t* queue) {
  return guarded([&] {
    check_place("tensor_queue_create", "queue", queue);
    *queue = new TuttiTensorQueue{tutti::TensorQueue(group_of(group))};
  });
}

tutti_status_t tutti_tensor_queue_submit(tutti_tensor_queue_t queue, const char* name,
                                         const tutti_tensor_call_t* call, tutti_work_t* work) {
  constexpr const char* kCall = "tensor_queue_submit";
  return guarded([&] {
    const TuttiTensorQueue& to = queue_of(kCall, queue);
    check_given(kCall, "name", name);
    check_given(kCall, "call", call);
    check_place(kCall, "work", work);
    // First the handle: an operation that was submitted must not be lost.
    auto handle = std::make_unique<TuttiWork>();
    handle->work = to.tensors.submit(name, tensor_call_of(*call, to.tensors));
    *work = handle.release();
  });
}

tutti_status_t tutti_tensor_queue_join(tutti_tensor_queue_t queue, int* last_rank, tutti_work_t* work) {
  constexpr const char* kCall = "tensor_queue_join";
  return guarded([&] {
    const TuttiTensorQueue& of = queue_of(kCall, queue);
    check_place(kCall, "work", work);
    auto handle = std::make_unique<TuttiWork>();
    handle->work = of.tensors.join();
    handle->source = last_rank;
    *work = handle.release();
  });
}

tutti_status_t tutti_tensor_queue_start_timeline(tutti_tensor_queue_t queue, const char* path,
                                                 int mark_cycles) {
  constexpr const char* kCall = "tensor_queue_start_timeline";
  return guarded([&] {
    const TuttiTensorQueue& of = queue_of(kCall, queue);
    check_given(kCall, "path", path);
    of.tensors.start_timeline(path, mark_cycles != 0);
  });
}

tutti_status_t tutti_tensor_queue_stop_timeline(tutti_tensor_queue_t queue) {
  return guarded([&] { queue_of("tensor_queue_stop_timeline", queue).tensors.stop_timeline(); });
}

void tutti_tensor_queue_close(tutti_tensor_queue_t* queue) {
  if (queue == nullptr) return;
  const std::unique_ptr<TuttiTensorQueue> ended(std::exchange(*queue, nullptr));
  if (ended != nullptr) ended->tensors.close();
}
