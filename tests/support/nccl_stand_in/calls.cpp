// The stand-in's operations: checked, gathered into groups, and put on streams as functions of the host.
#include <cuda.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/kernels/reference.hpp"
#include "tests/support/nccl_stand_in/state.hpp"

using namespace nccl_stand_in;

namespace {

struct Task {
  std::shared_ptr<ncclComm> communicator;
  CUstream stream = nullptr;
  std::vector<Request> requests;
};

// Groups of this thread: how deep, and what was asked for in them.
thread_local int group_depth = 0;
thread_local std::vector<Task> grouped;

void carry_out_task(void* data) {
  const std::unique_ptr<Task> task(static_cast<Task*>(data));
  ncclComm& communicator = *task->communicator;
  if (!communicator.clique->run(communicator.rank, task->requests, communicator.aborted) &&
      !communicator.aborted) {
    communicator.is_confused = true;
  }
  --communicator.outstanding;
}

ncclResult_t launch(Task task) {
  ncclComm& communicator = *task.communicator;
  // The first call connects the ranks, behind the caller's back.
  const bool is_first = !std::exchange(communicator.has_launched, true);
  if (is_first) communicator.polls = 0;
  ++communicator.outstanding;
  auto* const on_stream = new Task(std::move(task));
  if (cuLaunchHostFunc(on_stream->stream, carry_out_task, on_stream) != CUDA_SUCCESS) {
    delete on_stream;
    return ncclUnhandledCudaError;
  }
  return is_first ? ncclInProgress : ncclSuccess;
}

ncclResult_t ask(ncclComm_t handle, cudaStream_t stream, const Request& request) {
  const auto communicator = find(handle);
  if (communicator == nullptr || !is_ready(*communicator)) return ncclInvalidArgument;
  // Whoever has not waited for the call before.
  if (communicator->polls <= kPolls) return ncclInvalidArgument;
  if (communicator->is_finalized) return ncclInvalidUsage;
  const bool is_rooted = request.kind != Kind::allreduce && request.kind != Kind::allgather &&
                         request.kind != Kind::reduce_scatter && request.kind != Kind::alltoall;
  if (is_rooted && (request.root < 0 || request.root >= communicator->clique->size()))
    return ncclInvalidArgument;
  const bool is_float8 =
      request.type == static_cast<ncclDataType_t>(10) || request.type == static_cast<ncclDataType_t>(11);
  if (is_float8 && version() < 22400) return ncclInvalidArgument;
  CUdevice device = -1;
  if (cuCtxGetDevice(&device) != CUDA_SUCCESS || device != communicator->device) return ncclInvalidUsage;
  if (group_depth == 0) return launch({communicator, stream, {request}});
  for (Task& task : grouped) {
    if (task.communicator != communicator || task.stream != stream) continue;
    task.requests.push_back(request);
    return ncclSuccess;
  }
  grouped.push_back({communicator, stream, {request}});
  return ncclSuccess;
}

Reduction reduction_of(ncclComm_t handle, ncclRedOp_t op) {
  const auto communicator = find(handle);
  Reduction reduction;
  reduction.op = op;
  if (communicator == nullptr) return reduction;
  const auto found = communicator->reductions.find(static_cast<int>(op));
  return found == communicator->reductions.end() ? reduction : found->second;
}

}  // namespace

NCCL_STAND_IN_API ncclResult_t ncclGroupStart() {
  NCCL_STAND_IN_ENTER(ncclGroupStart, 0)
  ++group_depth;
  return ncclSuccess;
}

NCCL_STAND_IN_API ncclResult_t ncclGroupEnd() {
  NCCL_STAND_IN_ENTER(ncclGroupEnd, 0)
  if (group_depth == 0) return ncclInvalidUsage;
  if (--group_depth > 0) return ncclSuccess;
  ncclResult_t result = ncclSuccess;
  for (Task& task : std::exchange(grouped, {})) {
    const ncclResult_t one = launch(std::move(task));
    if (result == ncclSuccess || one != ncclInProgress) result = one == ncclSuccess ? result : one;
  }
  return result;
}

NCCL_STAND_IN_API ncclResult_t ncclAllReduce(const void* input, void* output, std::size_t count,
                                             ncclDataType_t type, ncclRedOp_t op, ncclComm_t handle,
                                             cudaStream_t stream) {
  NCCL_STAND_IN_ENTER(ncclAllReduce, 0)
  return ask(handle, stream, {Kind::allreduce, input, output, count, type, reduction_of(handle, op), 0});
}

NCCL_STAND_IN_API ncclResult_t ncclReduce(const void* input, void* output, std::size_t count,
                                          ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t handle,
                                          cudaStream_t stream) {
  NCCL_STAND_IN_ENTER(ncclReduce, 0)
  return ask(handle, stream, {Kind::reduce, input, output, count, type, reduction_of(handle, op), root});
}

NCCL_STAND_IN_API ncclResult_t ncclReduceScatter(const void* input, void* output, std::size_t count,
                                                 ncclDataType_t type, ncclRedOp_t op, ncclComm_t handle,
                                                 cudaStream_t stream) {
  NCCL_STAND_IN_ENTER(ncclReduceScatter, 0)
  return ask(handle, stream, {Kind::reduce_scatter, input, output, count, type, reduction_of(handle, op), 0});
}

NCCL_STAND_IN_API ncclResult_t ncclBroadcast(const void* input, void* output, std::size_t count,
                                             ncclDataType_t type, int root, ncclComm_t handle,
                                             cudaStream_t stream) {
  NCCL_STAND_IN_ENTER(ncclBroadcast, 0)
  return ask(handle, stream, {Kind::broadcast, input, output, count, type, {}, root});
}

NCCL_STAND_IN_API ncclResult_t ncclAllGather(const void* input, void* output, std::size_t count,
                                             ncclDataType_t type, ncclComm_t handle, cudaStream_t stream) {
  NCCL_STAND_IN_ENTER(ncclAllGather, 0)
  return ask(handle, stream, {Kind::allgather, input, output, count, type, {}, 0});
}

NCCL_STAND_IN_API ncclResult_t ncclAlltoAll(const void* input, void* output, std::size_t count,
                                            ncclDataType_t type, ncclComm_t handle, cudaStream_t stream) {
  NCCL_STAND_IN_ENTER(ncclAlltoAll, 22800)
  return ask(handle, stream, {Kind::alltoall, input, output, count, type, {}, 0});
}

NCCL_STAND_IN_API ncclResult_t ncclGather(const void* input, void* output, std::size_t count,
                                          ncclDataType_t type, int root, ncclComm_t handle,
                                          cudaStream_t stream) {
  NCCL_STAND_IN_ENTER(ncclGather, 22800)
  return ask(handle, stream, {Kind::gather, input, output, count, type, {}, root});
}

NCCL_STAND_IN_API ncclResult_t ncclScatter(const void* input, void* output, std::size_t count,
                                           ncclDataType_t type, int root, ncclComm_t handle,
                                           cudaStream_t stream) {
  NCCL_STAND_IN_ENTER(ncclScatter, 22800)
  return ask(handle, stream, {Kind::scatter, input, output, count, type, {}, root});
}

NCCL_STAND_IN_API ncclResult_t ncclSend(const void* input, std::size_t count, ncclDataType_t type, int peer,
                                        ncclComm_t handle, cudaStream_t stream) {
  NCCL_STAND_IN_ENTER(ncclSend, 0)
  return ask(handle, stream, {Kind::send, input, nullptr, count, type, {}, peer});
}

NCCL_STAND_IN_API ncclResult_t ncclRecv(void* output, std::size_t count, ncclDataType_t type, int peer,
                                        ncclComm_t handle, cudaStream_t stream) {
  NCCL_STAND_IN_ENTER(ncclRecv, 0)
  return ask(handle, stream, {Kind::receive, nullptr, output, count, type, {}, peer});
}

NCCL_STAND_IN_API ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                                        ncclScalarResidence_t residence, ncclComm_t handle) {
  NCCL_STAND_IN_ENTER(ncclRedOpCreatePreMulSum, 21100)
  const auto communicator = find(handle);
  if (communicator == nullptr || residence != ncclScalarHostImmediate) return ncclInvalidArgument;
  Reduction made;
  made.is_scaled = true;
  const auto read = [scalar](auto value) {
    std::memcpy(&value, scalar, sizeof value);
    return value;
  };
  switch (static_cast<int>(type)) {
    case ncclInt8:
      made.integer_scalar = read(std::int8_t{});
      break;
    case ncclUint8:
      made.integer_scalar = read(std::uint8_t{});
      break;
    case ncclInt32:
      made.integer_scalar = read(std::int32_t{});
      break;
    case ncclUint32:
      made.integer_scalar = read(std::uint32_t{});
      break;
    case ncclInt64:
    case ncclUint64:
      made.integer_scalar = read(std::int64_t{});
      break;
    case ncclFloat32:
      made.scalar = static_cast<double>(read(float{}));
      break;
    case ncclFloat64:
      made.scalar = read(double{});
      break;
    case ncclFloat16:
      made.scalar = static_cast<double>(tutti::decode_narrow(tutti::Dtype::f16, read(std::uint16_t{})));
      break;
    case ncclBfloat16:
      made.scalar = static_cast<double>(tutti::decode_narrow(tutti::Dtype::bf16, read(std::uint16_t{})));
      break;
    case 10:
      made.scalar = static_cast<double>(tutti::decode_narrow(tutti::Dtype::f8e4m3, read(std::uint8_t{})));
      break;
    case 11:
      made.scalar = static_cast<double>(tutti::decode_narrow(tutti::Dtype::f8e5m2, read(std::uint8_t{})));
      break;
    default:
      return ncclInvalidArgument;
  }
  int id = ncclNumOps;
  while (communicator->reductions.count(id) > 0) ++id;
  communicator->reductions[id] = made;
  *op = static_cast<ncclRedOp_t>(id);
  return ncclSuccess;
}

NCCL_STAND_IN_API ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t handle) {
  NCCL_STAND_IN_ENTER(ncclRedOpDestroy, 21100)
  const auto communicator = find(handle);
  if (communicator == nullptr) return ncclInvalidArgument;
  return communicator->reductions.erase(static_cast<int>(op)) == 1 ? ncclSuccess : ncclInvalidArgument;
}
