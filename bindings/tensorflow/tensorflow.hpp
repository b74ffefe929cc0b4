// The part of TensorFlow's C interface that the operations use, as its headers tensorflow/c/{kernels,ops,tf_tensor,tf_status}.h declare
// it. Declared here so that the library is built without TensorFlow, and one binary serves all of its versions. Includes nothing of it.
#pragma once

#include <cstddef>
#include <cstdint>

// TensorFlow names these.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

struct TF_KernelBuilder;
struct TF_OpDefinitionBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_AsyncOpKernelDoneCallback;
struct TF_ShapeHandle;
struct TF_ShapeInferenceContext;
struct TF_Status;
struct TF_Tensor;

struct TF_StringView {
  const char* data;
  std::size_t len;
};

enum TF_Code : int {
  TF_OK = 0,
  TF_UNKNOWN = 2,
  TF_INVALID_ARGUMENT = 3,
  TF_RESOURCE_EXHAUSTED = 8,
  TF_FAILED_PRECONDITION = 9,
  TF_ABORTED = 10,
  TF_UNIMPLEMENTED = 12,
};

enum TF_DataType : int {
  TF_FLOAT = 1,
  TF_DOUBLE = 2,
  TF_INT32 = 3,
  TF_UINT8 = 4,
  TF_INT16 = 5,
  TF_INT8 = 6,
  TF_COMPLEX64 = 8,
  TF_INT64 = 9,
  TF_BOOL = 10,
  TF_BFLOAT16 = 14,
  TF_UINT16 = 17,
  TF_COMPLEX128 = 18,
  TF_HALF = 19,
  TF_UINT32 = 22,
  TF_UINT64 = 23,
};

TF_Status* TF_NewStatus();
void TF_DeleteStatus(TF_Status* status);
void TF_SetStatus(TF_Status* status, TF_Code code, const char* message);
TF_Code TF_GetCode(const TF_Status* status);
const char* TF_Message(const TF_Status* status);

TF_DataType TF_TensorType(const TF_Tensor* tensor);
int TF_NumDims(const TF_Tensor* tensor);
std::int64_t TF_Dim(const TF_Tensor* tensor, int index);
void* TF_TensorData(const TF_Tensor* tensor);
void TF_DeleteTensor(TF_Tensor* tensor);

TF_OpDefinitionBuilder* TF_NewOpDefinitionBuilder(const char* name);
void TF_OpDefinitionBuilderAddAttr(TF_OpDefinitionBuilder* builder, const char* attribute);
void TF_OpDefinitionBuilderAddInput(TF_OpDefinitionBuilder* builder, const char* input);
void TF_OpDefinitionBuilderAddOutput(TF_OpDefinitionBuilder* builder, const char* output);
void TF_OpDefinitionBuilderSetIsStateful(TF_OpDefinitionBuilder* builder, bool is_stateful);
void TF_OpDefinitionBuilderSetShapeInferenceFunction(TF_OpDefinitionBuilder* builder,
                                                     void (*infer)(TF_ShapeInferenceContext*, TF_Status*));
void TF_RegisterOpDefinition(TF_OpDefinitionBuilder* builder, TF_Status* status);

TF_ShapeHandle* TF_NewShapeHandle();
void TF_DeleteShapeHandle(TF_ShapeHandle* shape);
std::int64_t TF_ShapeInferenceContextNumInputs(TF_ShapeInferenceContext* context);
void TF_ShapeInferenceContextGetInput(TF_ShapeInferenceContext* context, int index, TF_ShapeHandle* shape,
                                      TF_Status* status);
void TF_ShapeInferenceContextSetOutput(TF_ShapeInferenceContext* context, int index, TF_ShapeHandle* shape,
                                       TF_Status* status);
int TF_ShapeInferenceContextRankKnown(TF_ShapeInferenceContext* context, TF_ShapeHandle* shape);
void TF_ShapeInferenceContextSubshape(TF_ShapeInferenceContext* context, TF_ShapeHandle* shape,
                                      std::int64_t begin, std::int64_t end, TF_ShapeHandle* result,
                                      TF_Status* status);
void TF_ShapeInferenceContextConcatenateShapes(TF_ShapeInferenceContext* context, TF_ShapeHandle* first,
                                               TF_ShapeHandle* second, TF_ShapeHandle* result,
                                               TF_Status* status);
void TF_ShapeInferenceContextWithRankAtLeast(TF_ShapeInferenceContext* context, TF_ShapeHandle* shape,
                                             std::int64_t rank, TF_ShapeHandle* result, TF_Status* status);
void TF_ShapeInferenceContextSetUnknownShape(TF_ShapeInferenceContext* context, TF_Status* status);
TF_ShapeHandle* TF_ShapeInferenceContextScalar(TF_ShapeInferenceContext* context);
TF_ShapeHandle* TF_ShapeInferenceContextVectorFromSize(TF_ShapeInferenceContext* context, std::size_t size);

TF_KernelBuilder* TF_NewKernelBuilder(const char* operation, const char* device,
                                      void* (*create)(TF_OpKernelConstruction*),
                                      void (*compute)(void*, TF_OpKernelContext*), void (*destroy)(void*));
TF_KernelBuilder* TF_NewAsyncKernelBuilder(
    const char* operation, const char* device, void* (*create)(TF_OpKernelConstruction*),
    void (*compute)(void*, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*), void (*destroy)(void*));
void TF_RegisterKernelBuilder(const char* name, TF_KernelBuilder* builder, TF_Status* status);

TF_StringView TF_OpKernelConstruction_GetName(TF_OpKernelConstruction* construction);
void TF_OpKernelConstruction_GetAttrSize(TF_OpKernelConstruction* construction, const char* name,
                                         std::int32_t* list_size, std::int32_t* total_size,
                                         TF_Status* status);
void TF_OpKernelConstruction_GetAttrString(TF_OpKernelConstruction* construction, const char* name,
                                           char* value, std::size_t max_length, TF_Status* status);
void TF_OpKernelConstruction_GetAttrInt32(TF_OpKernelConstruction* construction, const char* name,
                                          std::int32_t* value, TF_Status* status);
void TF_OpKernelConstruction_GetAttrFloat(TF_OpKernelConstruction* construction, const char* name,
                                          float* value, TF_Status* status);
void TF_OpKernelConstruction_GetAttrBool(TF_OpKernelConstruction* construction, const char* name,
                                         unsigned char* value, TF_Status* status);
void TF_OpKernelConstruction_Failure(TF_OpKernelConstruction* construction, TF_Status* status);

int TF_NumInputs(TF_OpKernelContext* context);
void TF_GetInput(TF_OpKernelContext* context, int index, TF_Tensor** tensor, TF_Status* status);
TF_Tensor* TF_AllocateOutput(TF_OpKernelContext* context, int index, TF_DataType dtype,
                             const std::int64_t* dimensions, int dimension_count, std::size_t bytes,
                             TF_Status* status);
TF_Tensor* TF_ForwardInputOrAllocateOutput(TF_OpKernelContext* context, const int* candidates,
                                           int candidate_count, int index, const std::int64_t* dimensions,
                                           int dimension_count, int* forwarded, TF_Status* status);
void TF_OpKernelContext_Failure(TF_OpKernelContext* context, TF_Status* status);

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
