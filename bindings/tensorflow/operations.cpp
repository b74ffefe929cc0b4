// Defines the operations and registers their kernels when tf.load_op_library() loads the library. See operations.hpp.
#include "bindings/tensorflow/operations.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/tensorflow/execution.hpp"
#include "bindings/tensorflow/job_numbers.hpp"
#include "bindings/tensorflow/status.hpp"

namespace tutti::tensorflow {
namespace {

constexpr const char* kOperationNames[kKindCount] = {"TuttiAllreduce",     "TuttiAllgather", "TuttiBroadcast",
                                                     "TuttiReducescatter", "TuttiAlltoall",  "TuttiJoin",
                                                     "TuttiBarrier"};
constexpr const char* kJobNumber = "TuttiJobNumber";

// Plain text: the library's constructors run before those of objects.
constexpr const char* kReducible =
    "{int8, uint8, int16, uint16, int32, uint32, int64, uint64, half, bfloat16, float, double}";
constexpr const char* kCopyable =
    "{int8, uint8, int16, uint16, int32, uint32, int64, uint64, half, bfloat16, float, double, bool, "
    "complex64, complex128}";

// -- shapes -------------------------------------------------------------------------------------------------

using Inference = TF_ShapeInferenceContext;

class Shape {
 public:
  explicit Shape(TF_ShapeHandle* handle = TF_NewShapeHandle()) : handle_(handle) {}
  ~Shape() { TF_DeleteShapeHandle(handle_); }
  Shape(const Shape&) = delete;
  Shape& operator=(const Shape&) = delete;
  operator TF_ShapeHandle*() const { return handle_; }

 private:
  TF_ShapeHandle* handle_;
};

void infer_equal(Inference* context, TF_Status* status) {
  const auto count = static_cast<int>(TF_ShapeInferenceContextNumInputs(context));
  for (int i = 0; i < count && TF_GetCode(status) == TF_OK; ++i) {
    const Shape shape;
    TF_ShapeInferenceContextGetInput(context, i, shape, status);
    if (TF_GetCode(status) == TF_OK) TF_ShapeInferenceContextSetOutput(context, i, shape, status);
  }
}

// The rows of an output are those of all ranks, which only the call learns.
void infer_rows(Inference* context, int index, TF_Status* status) {
  const Shape input;
  const Shape rows(TF_ShapeInferenceContextVectorFromSize(context, static_cast<std::size_t>(-1)));
  const Shape others;
  const Shape output;
  TF_ShapeInferenceContextGetInput(context, index, input, status);
  if (TF_GetCode(status) != TF_OK) return;
  TF_ShapeInferenceContextWithRankAtLeast(context, input, 1, output, status);
  if (TF_GetCode(status) != TF_OK) return;
  if (TF_ShapeInferenceContextRankKnown(context, input) == 0) {
    return TF_ShapeInferenceContextSetOutput(context, index, input, status);
  }
  TF_ShapeInferenceContextSubshape(context, input, 1, INT64_MAX, others, status);
  if (TF_GetCode(status) != TF_OK) return;
  TF_ShapeInferenceContextConcatenateShapes(context, rows, others, output, status);
  if (TF_GetCode(status) == TF_OK) TF_ShapeInferenceContextSetOutput(context, index, output, status);
}

void infer_all_rows(Inference* context, TF_Status* status) {
  const auto count = static_cast<int>(TF_ShapeInferenceContextNumInputs(context));
  for (int i = 0; i < count && TF_GetCode(status) == TF_OK; ++i) infer_rows(context, i, status);
}

void infer_alltoall(Inference* context, TF_Status* status) {
  infer_rows(context, 0, status);
  const Shape received(TF_ShapeInferenceContextVectorFromSize(context, static_cast<std::size_t>(-1)));
  if (TF_GetCode(status) == TF_OK) TF_ShapeInferenceContextSetOutput(context, 1, received, status);
}

void infer_scalar(Inference* context, TF_Status* status) {
  const Shape scalar(TF_ShapeInferenceContextScalar(context));
  TF_ShapeInferenceContextSetOutput(context, 0, scalar, status);
}

void infer_nothing(Inference* /*context*/, TF_Status* /*status*/) {}

// -- definitions --------------------------------------------------------------------------------------------

struct Definition {
  const char* name;
  std::vector<std::string> attributes;
  std::vector<const char*> inputs;
  std::vector<const char*> outputs;
  void (*infer)(Inference*, TF_Status*);
};

// Stateful: TensorFlow must neither evaluate one ahead of time, nor merge two.
void define(const Definition& definition) {
  Status status;
  TF_OpDefinitionBuilder* builder = TF_NewOpDefinitionBuilder(definition.name);
  for (const std::string& attribute : definition.attributes) {
    TF_OpDefinitionBuilderAddAttr(builder, attribute.c_str());
  }
  for (const char* input : definition.inputs) TF_OpDefinitionBuilderAddInput(builder, input);
  for (const char* output : definition.outputs) TF_OpDefinitionBuilderAddOutput(builder, output);
  TF_OpDefinitionBuilderAddAttr(builder, "process_set: int = 0");
  TF_OpDefinitionBuilderSetIsStateful(builder, true);
  TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, definition.infer);
  TF_RegisterOpDefinition(builder, status);
}

void define_collective(Kind kind, Definition definition) {
  definition.name = operation_name(kind);
  definition.attributes.insert(definition.attributes.end(),
                               {"tensor_name: string = ''", "ignore_name_scope: bool = false"});
  define(definition);
}

// Tensors in, tensors out: one, or a group that is communicated together.
void define_of_list(Kind kind, const std::string& dtypes, std::vector<std::string> attributes,
                    void (*infer)(Inference*, TF_Status*)) {
  attributes.push_back("T: list(" + dtypes + ")");
  define_collective(kind, {nullptr, attributes, {"tensors: T"}, {"outputs: T"}, infer});
}

void define_all() {
  const std::vector<std::string> reduction{"reduce_op: int", "prescale: float = 1", "postscale: float = 1"};
  define_of_list(Kind::allreduce, kReducible, reduction, infer_equal);
  define_of_list(Kind::reducescatter, kReducible, reduction, infer_all_rows);
  define_of_list(Kind::allgather, kCopyable, {}, infer_all_rows);
  define_of_list(Kind::broadcast, kCopyable, {"root: int"}, infer_equal);
  define_collective(Kind::alltoall, {nullptr,
                                     {std::string("T: ") + kCopyable},
                                     {"tensor: T", "splits: int32"},
                                     {"output: T", "received_splits: int32"},
                                     infer_alltoall});
  define_collective(Kind::join, {nullptr, {}, {}, {"last_rank: int32"}, infer_scalar});
  define_collective(Kind::barrier, {nullptr, {}, {}, {}, infer_nothing});
  define({kJobNumber, {"what: int"}, {}, {"number: int32"}, infer_scalar});
}

// -- kernels ------------------------------------------------------------------------------------------------

template <Kind kKind>
void* create(TF_OpKernelConstruction* construction) {
  return make_kernel(construction, kKind);
}

void compute(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  execute(*static_cast<const Kernel*>(kernel), context, done);
}

void destroy(void* kernel) { delete static_cast<Kernel*>(kernel); }

template <Kind kKind>
void register_kernel() {
  Status status;
  TF_RegisterKernelBuilder(
      operation_name(kKind),
      TF_NewAsyncKernelBuilder(operation_name(kKind), "CPU", create<kKind>, compute, destroy), status);
}

// XLA looks for kernels of its own before it compiles a function. Unimplemented: where it chose the function itself, it leaves it as it is.
void* refuse_xla(TF_OpKernelConstruction* construction) {
  TF_OpKernelConstruction_Failure(
      construction, Status(TF_UNIMPLEMENTED,
                           "XLA cannot compile operations of Horovod: take jit_compile=True from the "
                           "function that calls them (with Keras: "
                           "compile(jit_compile=False)), and give it to functions that compute alone"));
  return nullptr;
}

void compute_nothing(void* /*kernel*/, TF_OpKernelContext* /*context*/) {}
void destroy_nothing(void* /*kernel*/) {}

void register_refusals() {
  for (const char* operation : kOperationNames) {
    for (const char* device : {"XLA_CPU_JIT", "XLA_GPU_JIT"}) {
      Status status;
      TF_RegisterKernelBuilder(
          operation, TF_NewKernelBuilder(operation, device, refuse_xla, compute_nothing, destroy_nothing),
          status);
    }
  }
}

// Numbers that a graph asks for when it runs, since it may have been made in another job.
struct JobNumber {
  int what = 0;
  int process_set = 0;
};

void* create_number(TF_OpKernelConstruction* construction) {
  Status status;
  auto number = std::make_unique<JobNumber>();
  TF_OpKernelConstruction_GetAttrInt32(construction, "what", &number->what, status);
  if (status.is_ok()) {
    TF_OpKernelConstruction_GetAttrInt32(construction, "process_set", &number->process_set, status);
  }
  if (status.is_ok()) return number.release();
  TF_OpKernelConstruction_Failure(construction, status);
  return nullptr;
}

void compute_number(void* kernel, TF_OpKernelContext* context) {
  const auto& number = *static_cast<const JobNumber*>(kernel);
  const Failure failure = put_job_number(context, static_cast<Number>(number.what), number.process_set);
  if (failure.is_set()) TF_OpKernelContext_Failure(context, Status(failure.code, failure.message));
}

void destroy_number(void* kernel) { delete static_cast<JobNumber*>(kernel); }

__attribute__((constructor)) void register_all() {
  define_all();
  register_kernel<Kind::allreduce>();
  register_kernel<Kind::allgather>();
  register_kernel<Kind::broadcast>();
  register_kernel<Kind::reducescatter>();
  register_kernel<Kind::alltoall>();
  register_kernel<Kind::join>();
  register_kernel<Kind::barrier>();
  register_refusals();
  Status status;
  TF_RegisterKernelBuilder(
      kJobNumber, TF_NewKernelBuilder(kJobNumber, "CPU", create_number, compute_number, destroy_number),
      status);
}

}  // namespace

const char* operation_name(Kind kind) { return kOperationNames[static_cast<std::size_t>(kind)]; }

}  // namespace tutti::tensorflow
