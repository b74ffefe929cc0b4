// The operations of tutti.jax: one foreign function of XLA, which submits a named tensor. XLA runs what is ready in no fixed order, and
// ranks differ in it, so names say which calls belong together. Knows the C interface; Python gives it the queues.
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/jax/ffi_abi.hpp"
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

struct Waiting {
  const ffi::Api* api;
  ffi::Future* future;
};

// Tells XLA how the operation ended. On the thread that completes it.
void complete(void* context, tutti_status_t status, const char* message, int) {
  const auto* waiting = static_cast<Waiting*>(context);
  const ffi::Api& api = *waiting->api;
  if (status == TUTTI_OK) {
    ffi::FutureCall available{ffi::kPlainFutureBytes, nullptr, waiting->future, nullptr};
    api.future_set_available(&available);
  } else {
    ffi::FutureCall failed{sizeof failed, nullptr, waiting->future, failure(api, message)};
    api.future_set_error(&failed);
  }
  delete waiting;
}

tutti_status_t submit(const ffi::Frame& frame, tutti_work_t* work) {
  const ffi::Buffer& input = *frame.arguments.buffers[0];
  const ffi::Attributes& attributes = frame.attributes;
  const std::vector<std::uint64_t> shape(input.dims, input.dims + input.rank);
  tutti_tensor_call_t call = TUTTI_TENSOR_CALL;
  call.collective = static_cast<tutti_collective_t>(number(attributes, "collective"));
  call.input = input.data;
  call.output = frame.results.buffers[0]->data;
  call.dtype = static_cast<tutti_dtype_t>(dtype_of(input.dtype));
  call.shape = shape.data();
  call.dimension_count = shape.size();
  call.op = static_cast<tutti_op_t>(number(attributes, "op"));
  call.root = static_cast<int>(number(attributes, "root"));
  call.will_wait = 1;  // XLA has nothing else to do, or does it on other threads
  call.memory = TUTTI_MEMORY_HOST;
  const auto* name = static_cast<const ffi::Text*>(attribute(attributes, "name"));
  return tutti_tensor_queue_submit(queue_of(number(attributes, "queue")),
                                   std::string(name->data, name->length).c_str(), &call, work);
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

ffi::Error* tutti_jax_operation(ffi::Frame* frame) {
  if (frame->extension != nullptr && frame->extension->type == ffi::kMetadataExtension) {
    describe(*frame);
    return nullptr;
  }
  const ffi::Api& api = *frame->api;
  if (dtype_of(frame->arguments.buffers[0]->dtype) < 0)
    return failure(api, "tutti.jax: arrays of this dtype are not communicated");
  tutti_work_t work = nullptr;
  if (submit(*frame, &work) != TUTTI_OK) return failure(api, tutti_last_error());
  ffi::FutureCall create{ffi::kPlainFutureBytes, nullptr, nullptr, nullptr};
  if (ffi::Error* error = api.future_create(&create); error != nullptr) {
    tutti_wait(&work);
    return error;
  }
  frame->future = create.future;
  tutti_on_complete(work, &complete, new Waiting{&api, create.future});
  tutti_work_free(&work);
  return nullptr;
}

}  // extern "C"
#pragma GCC visibility pop
