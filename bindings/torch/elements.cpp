// Dtypes and reductions. Knows no group.
#include "bindings/torch/elements.hpp"

#include <torch/version.h>

#include <optional>

namespace tutti::torch_binding {
namespace {

#if TORCH_VERSION_MAJOR >= 2
using PremulSupplement = c10d::PreMulSumSupplement;
#else
using PremulSupplement = c10d::NCCLPreMulSumSupplement;
#endif

// More than 15 decisions because each dtype of torch is one.
std::optional<Elements> numbers_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return Elements{Dtype::f32, 1};
    case at::kDouble:
      return Elements{Dtype::f64, 1};
    case at::kHalf:
      return Elements{Dtype::f16, 1};
    case at::kBFloat16:
      return Elements{Dtype::bf16, 1};
    case at::kChar:
      return Elements{Dtype::i8, 1};
    case at::kByte:
      return Elements{Dtype::u8, 1};
    case at::kShort:
      return Elements{Dtype::i16, 1};
    case at::kInt:
      return Elements{Dtype::i32, 1};
    case at::kLong:
      return Elements{Dtype::i64, 1};
    case at::kBool:
      return Elements{Dtype::boolean, 1};
    case at::kComplexHalf:
      return Elements{Dtype::f16, 2};
    case at::kComplexFloat:
      return Elements{Dtype::f32, 2};
    case at::kComplexDouble:
      return Elements{Dtype::f64, 2};
#if TORCH_VERSION_MAJOR >= 2
    case at::kUInt16:
      return Elements{Dtype::u16, 1};
    case at::kUInt32:
      return Elements{Dtype::u32, 1};
    case at::kUInt64:
      return Elements{Dtype::u64, 1};
    case at::kFloat8_e4m3fn:
      return Elements{Dtype::f8e4m3, 1};
    case at::kFloat8_e5m2:
      return Elements{Dtype::f8e5m2, 1};
#endif
    default:
      return std::nullopt;
  }
}

void check_dense(const char* operation, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.layout() == at::kStrided, "tutti: ", operation,
              ": unsupported layout: it takes dense tensors, got ", tensor.layout());
  TORCH_CHECK(tensor.device().is_cpu() || tensor.device().is_cuda(), "tutti: ", operation,
              ": unsupported device type: it takes tensors of the CPU and of CUDA's GPUs, got one of ",
              tensor.device(), "; give that type of device another backend: init_process_group(\"cpu:tutti,",
              tensor.device().type(), ":...\")");
}

std::optional<Op> plain_op(c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return Op::sum;
    case c10d::ReduceOp::AVG:
      return Op::avg;
    case c10d::ReduceOp::PRODUCT:
      return Op::prod;
    case c10d::ReduceOp::MIN:
      return Op::min;
    case c10d::ReduceOp::MAX:
      return Op::max;
    case c10d::ReduceOp::BAND:
      return Op::band;
    case c10d::ReduceOp::BOR:
      return Op::bor;
    case c10d::ReduceOp::BXOR:
      return Op::bxor;
    default:
      return std::nullopt;
  }
}

bool acts_on_parts(c10d::ReduceOp::RedOpType op) {
  return op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG || op == c10d::ReduceOp::PREMUL_SUM;
}

}  // namespace

Elements elements_to_move(const char* operation, const at::Tensor& tensor) {
  check_dense(operation, tensor);
  return numbers_of(tensor.scalar_type())
      .value_or(Elements{Dtype::u8, static_cast<std::uint64_t>(tensor.element_size())});
}

Elements elements_to_reduce(const char* operation, const at::Tensor& tensor, const c10d::ReduceOp& op) {
  check_dense(operation, tensor);
  const std::optional<Elements> numbers = numbers_of(tensor.scalar_type());
  TORCH_CHECK_TYPE(numbers.has_value(), "tutti: ", operation,
                   ": Invalid scalar type: there is no arithmetic on ", tensor.scalar_type());
  const bool is_bitwise =
      op.op_ == c10d::ReduceOp::BAND || op.op_ == c10d::ReduceOp::BOR || op.op_ == c10d::ReduceOp::BXOR;
  TORCH_CHECK_TYPE(!is_bitwise || c10::isIntegralType(tensor.scalar_type(), true), "tutti: ", operation,
                   ": Cannot use bitwise ReduceOp (BAND, BOR, BXOR) with non-integral dtype ",
                   tensor.scalar_type());
  TORCH_CHECK_TYPE(numbers->per_scalar == 1 || acts_on_parts(op.op_), "tutti: ", operation,
                   ": complex numbers can be summed and averaged only");
  return *numbers;
}

Reduction reduction_of(const char* operation, const c10d::ReduceOp& op, const Elements& elements) {
  if (const std::optional<Op> plain = plain_op(op.op_)) return *plain;
  TORCH_CHECK(op.op_ == c10d::ReduceOp::PREMUL_SUM, "tutti: ", operation, ": Unhandled ReduceOp ",
              static_cast<int>(op.op_));
  const auto* supplement = dynamic_cast<const PremulSupplement*>(op.supplement_.get());
  TORCH_CHECK(supplement != nullptr, "tutti: ", operation, ": PREMUL_SUM without a factor");
#if TORCH_VERSION_MAJOR >= 2
  const at::Tensor factor = supplement->tensor_factor;
#else
  TORCH_CHECK(supplement->tensor_factors.size() <= 1, "tutti: ", operation,
              ": PREMUL_SUM takes one factor, got ", supplement->tensor_factors.size());
  const at::Tensor factor =
      supplement->tensor_factors.empty() ? at::Tensor() : supplement->tensor_factors.front();
#endif
  const double value = factor.defined() ? factor.item<double>() : supplement->double_factor;
  const bool is_integer = elements.dtype <= Dtype::u64;
  if (is_integer) return Reduction::premul_sum_integer(static_cast<std::int64_t>(value));
  return Reduction::premul_sum(value);
}

}  // namespace tutti::torch_binding
