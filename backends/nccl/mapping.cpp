// The table of NCCL's dtypes, operations and collectives.
#include "backends/nccl/mapping.hpp"

#include <cstring>

#include <fmt/format.h>

#include "runtime/kernels/reference.hpp"

namespace tutti::nccl {
namespace {

// The library may know more than the header that this was compiled with.
constexpr auto kFloat8e4m3 = static_cast<ncclDataType_t>(10);
constexpr auto kFloat8e5m2 = static_cast<ncclDataType_t>(11);

template <class T>
Scalar as_scalar(T value) {
  Scalar scalar{};
  std::memcpy(scalar.bytes, &value, sizeof value);
  return scalar;
}

}  // namespace

Result<ncclDataType_t> reduced_type(Dtype dtype, int version) {
  switch (dtype) {
    case Dtype::i8:
      return ncclInt8;
    case Dtype::u8:
      return ncclUint8;
    case Dtype::i32:
      return ncclInt32;
    case Dtype::u32:
      return ncclUint32;
    case Dtype::i64:
      return ncclInt64;
    case Dtype::u64:
      return ncclUint64;
    case Dtype::f16:
      return ncclFloat16;
    case Dtype::bf16:
      return ncclBfloat16;
    case Dtype::f32:
      return ncclFloat32;
    case Dtype::f64:
      return ncclFloat64;
    case Dtype::f8e4m3:
    case Dtype::f8e5m2:
      if (version < kHasFloat8) {
        return unsupported(fmt::format("NCCL {} does not reduce {}; 2.24 and newer do", version_text(version),
                                       to_string(dtype)));
      }
      return dtype == Dtype::f8e4m3 ? kFloat8e4m3 : kFloat8e5m2;
    default:
      break;
  }
  return unsupported(fmt::format("NCCL does not reduce {}", to_string(dtype)));
}

Result<ncclRedOp_t> reduce_op(Op op) {
  switch (op) {
    case Op::sum:
    case Op::premul_sum:
      return ncclSum;
    case Op::prod:
      return ncclProd;
    case Op::min:
      return ncclMin;
    case Op::max:
      return ncclMax;
    case Op::avg:
      return ncclAvg;
    default:
      return unsupported(fmt::format("NCCL has no operation {}", to_string(op)));
  }
}

Scalar scalar_of(const ReduceOp& op, Dtype dtype) {
  switch (dtype) {
    case Dtype::f64:
      return as_scalar(op.scalar);
    case Dtype::f32:
      return as_scalar(static_cast<float>(op.scalar));
    case Dtype::f16:
    case Dtype::bf16:
    case Dtype::f8e4m3:
    case Dtype::f8e5m2:
      return as_scalar(encode_narrow(dtype, static_cast<float>(op.scalar)));
    default:
      // The low bytes are the value modulo 2^n; this project is for little-endian machines, as CUDA is.
      return as_scalar(op.integer_scalar);
  }
}

Status check_call(const Call& call, std::uint32_t rank, std::uint32_t size, int version) {
  if (call.collective == Collective::scan || call.collective == Collective::exscan)
    return unsupported(fmt::format("NCCL has no {}", to_string(call.collective)));
  if (call.collective == Collective::send_recv) {
    if (!call.is_send && call.root == kFromAnyRank) return unsupported("NCCL cannot receive from any rank");
    if (call.tag != 0) {
      return unsupported(
          fmt::format("NCCL has no tags: it matches messages by their order alone (tag {})", call.tag));
    }
    if (call.root == rank) return unsupported("NCCL sends to another rank only, unless in a group of calls");
  }
  if ((is_rooted(call.collective) || call.collective == Collective::send_recv) && call.root >= size)
    return invalid_argument(fmt::format("rank {} of a group of {}", call.root, size));
  if (!is_reducing(call.collective)) return {};
  TUTTI_RETURN_IF_ERROR(check_op(call.op, call.dtype));
  if (const auto op = reduce_op(call.op.op); !op) return op.status();
  return reduced_type(call.dtype, version).status();
}

NcclReduction reduction_of(const Call& call, int version) {
  if (!is_reducing(call.collective)) return {};
  return {*reduced_type(call.dtype, version), *reduce_op(call.op.op)};
}

}  // namespace tutti::nccl
