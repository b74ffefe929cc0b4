// The operations of tutti.jax: one foreign function of XLA, which submits named tensors. XLA runs what is ready in no fixed order, and
// ranks differ in it, so names say which calls belong together. Knows the C interface; Python gives it the queues.
#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/jax/ffi_abi.hpp"
#include "bindings/jax/large_pages.hpp"
#include "tutti/tutti.h"

namespace ffi = tutti::jax::ffi;

namespace {

// XLA's number of a type in that of tutti; -1 where it has none.
int dtype_of(int xla) {
  constexpr int kNone = -1;
  static constexpr int kDtypes[] = {kNone,     TUTTI_BOOLEAN, TUTTI_I8,  TUTTI_I16, TUTTI_I32,
                                    TUTTI_I64, TUTTI_U8,      TUTTI_U16, TUTTI_U32, TUTTI_U64,
                                    TUTTI_F16, TUTTI_F32,     TUTTI_F64, kNone,     kNone,
                                    TUTTI_C64, TUTTI_BF16,    kNone,     TUTTI_C128};
  return xla >= 0 && xla < static_cast<int>(std::size(kDtypes)) ? kDtypes[xla] : kNone;
}

// Queues of Python, by the number that compiled computations have.
std::mutex queues_mutex;
std::vector<tutti_tensor_queue_t> queues;

tutti_tensor_queue_t queue_of(std::int64_t number) {
  const std::lock_guard<std::mutex> lock(queues_mutex);
  return queues.at(static_cast<std::size_t>(number));
}

// By name; jax.ffi gives what the Python function passes.
const void* attribute(const ffi::Attributes& attributes, std::string_view name) {
  for (std::int64_t i = 0; i < attributes.size; ++i) {
    const ffi::Text& given = *attributes.names[i];
    if (std::string_view(given.data, given.length) == name) return attributes.values[i];
  }
  return nullptr;
}
std::int64_t number(const ffi::Attributes& attributes, std::string_view name) {
  return *static_cast<const std::int64_t*>(
      static_cast<const ffi::Scalar*>(attribute(attributes, name))->value);
}

ffi::Error* failure(const ffi::Api& api, const char* message) {
  ffi::ErrorCreate create{sizeof create, nullptr, message, ffi::kAborted};
  return api.error_create(&create);
}

// The tensors of one operation that are under way, and XLA's future for all of them.
struct Waiting {
  Waiting(const ffi::Api& xla, ffi::Future* its_future, std::size_t count)
      : api(xla), future(its_future), left(count) {}

  const ffi::Api& api;
  ffi::Future* const future;
  std::atomic<std::size_t> left;
  std::mutex mutex;
  std::string message;  // of the first failure
};

void tell(const Waiting& waiting) {
  if (waiting.message.empty()) {
    ffi::FutureCall available{ffi::kPlainFutureBytes, nullptr, waiting.future, nullptr};
    waiting.api.future_set_available(&available);
  } else {
    ffi::FutureCall failed{sizeof failed, nullptr, waiting.future,
                           failure(waiting.api, waiting.message.c_str())};
    waiting.api.future_set_error(&failed);
  }
}

// Of one tensor; tells XLA of the last one. On the thread that completes it.
void complete(void* context, tutti_status_t status, const char* message, int) {
  auto* waiting = static_cast<Waiting*>(context);
  if (status != TUTTI_OK) {
    const std::lock_guard<std::mutex> lock(waiting->mutex);
    if (waiting->message.empty()) waiting->message = message;
  }
  if (--waiting->left > 0) return;
  tell(*waiting);
  delete waiting;
}

tutti_status_t submit(const ffi::Frame& frame, std::int64_t place, tutti_work_t* work) {
  const ffi::Buffer& input = *frame.arguments.buffers[place];
  const ffi::Buffer& output = *frame.results.buffers[place];
  const ffi::Attributes& attributes = frame.attributes;
  const std::vector<std::uint64_t> shape(input.dims, input.dims + input.rank);
  const auto* text = static_cast<const ffi::Text*>(attribute(attributes, "name"));
  const std::string batch(text->data, text->length);
  std::string name = batch;
  tutti_tensor_call_t call = TUTTI_TENSOR_CALL;
  if (const std::int64_t count = frame.arguments.size; count > 1) {
    name += "_" + std::to_string(place + 1) + "of" + std::to_string(count);
    call.batch = batch.c_str();
    call.batch_size = static_cast<std::uint32_t>(count);
  }
  call.collective = static_cast<tutti_collective_t>(number(attributes, "collective"));
  call.input = input.data;
  call.output = output.data;
  call.dtype = static_cast<tutti_dtype_t>(dtype_of(input.dtype));
  call.shape = shape.data();
  call.dimension_count = shape.size();
  call.op = static_cast<tutti_op_t>(number(attributes, "op"));
  call.root = static_cast<int>(number(attributes, "root"));
  const auto elements =
      std::accumulate(output.dims, output.dims + output.rank, std::size_t{1}, std::multiplies<>());
  tutti::jax::prefer_large_pages(output.data, elements * tutti_dtype_bytes(call.dtype));
  call.will_wait = 1;  // XLA has nothing else to do, or does it on other threads
  call.memory = TUTTI_MEMORY_HOST;
  return tutti_tensor_queue_submit(queue_of(number(attributes, "queue")), name.c_str(), &call, work);
}

// XLA asks for which version of its interface the function was written.
void describe(const ffi::Frame& frame) {
  ffi::Metadata& metadata = *frame.extension->metadata;
  metadata.version.major = frame.api->version.major;
  metadata.version.minor = frame.api->version.minor;
  metadata.traits = 0;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// Of a tutti.TensorQueue that Python keeps; returns its number.
std::int64_t tutti_jax_add_queue(tutti_tensor_queue_t queue) {
  const std::lock_guard<std::mutex> lock(queues_mutex);
  queues.push_back(queue);
  return static_cast<std::int64_t>(queues.size()) - 1;
}

// For computations that were compiled with the number before.
void tutti_jax_replace_queue(std::int64_t number, tutti_tensor_queue_t queue) {
  const std::lock_guard<std::mutex> lock(queues_mutex);
  queues.at(static_cast<std::size_t>(number)) = queue;
}

ffi::Error* tutti_jax_operation(ffi::Frame* frame) {
  if (frame->extension != nullptr && frame->extension->type == ffi::kMetadataExtension) {
    describe(*frame);
    return nullptr;
  }
  const ffi::Api& api = *frame->api;
  const std::int64_t count = frame->arguments.size;
  ffi::Buffer** const inputs = frame->arguments.buffers;
  if (std::any_of(inputs, inputs + count,
                  [](const ffi::Buffer* input) { return dtype_of(input->dtype) < 0; }))
    return failure(api, "tutti.jax: arrays of this dtype are not communicated");
  ffi::FutureCall create{ffi::kPlainFutureBytes, nullptr, nullptr, nullptr};
  if (ffi::Error* error = api.future_create(&create); error != nullptr) return error;
  frame->future = create.future;
  auto* waiting = new Waiting(api, create.future, static_cast<std::size_t>(count));
  for (std::int64_t place = 0; place < count; ++place) {
    tutti_work_t work = nullptr;
    if (const tutti_status_t status = submit(*frame, place, &work); status != TUTTI_OK) {
      complete(waiting, status, tutti_last_error(), -1);
      continue;
    }
    tutti_on_complete(work, &complete, waiting);
    tutti_work_free(&work);
  }
  return nullptr;
}

}  // extern "C"
#pragma GCC visibility pop
