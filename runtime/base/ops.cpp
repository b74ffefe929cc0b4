// The legality table of ops and dtypes, and the table of user-defined ops.
// Knows no kernel: a legal pair without a kernel is a bug that the kernel test finds.
#include "runtime/base/ops.hpp"

#include <array>

namespace tutti {
namespace {

using Row = std::array<std::string_view, 3>;  // one cell per DtypeClass; empty means legal

constexpr std::string_view kLegal;
constexpr std::string_view kNoBits =
    "bitwise ops are defined on integers and bool, not on floating-point values";
constexpr std::string_view kNoTruth =
    "logical ops are defined on integers and bool, not on floating-point values; compare with zero first";
constexpr std::string_view kNoAverage =
    "the average of truth values is not a truth value; reduce u8 or a floating type instead";
constexpr std::string_view kNoScaling =
    "a truth value cannot be multiplied by a scalar; reduce u8 or a floating type instead";

constexpr std::array<Row, kOpCount> kLegality = {{
    // integer, floating, boolean
    {kLegal, kLegal, kLegal},      // sum
    {kLegal, kLegal, kLegal},      // prod
    {kLegal, kLegal, kLegal},      // min
    {kLegal, kLegal, kLegal},      // max
    {kLegal, kLegal, kNoAverage},  // avg
    {kLegal, kNoBits, kLegal},     // band
    {kLegal, kNoBits, kLegal},     // bor
    {kLegal, kNoBits, kLegal},     // bxor
    {kLegal, kNoTruth, kLegal},    // land
    {kLegal, kNoTruth, kLegal},    // lor
    {kLegal, kLegal, kNoScaling},  // premul_sum
    {kLegal, kLegal, kLegal},      // user
}};

}  // namespace

std::string_view why_illegal(Op op, Dtype dtype) {
  return kLegality[static_cast<std::size_t>(op)][static_cast<std::size_t>(class_of(dtype))];
}

Result<const UserOp*> UserOpTable::add(UserReduceFn function, void* context, bool is_commutative) {
  if (function == nullptr) return invalid_argument("a user-defined op needs a function");
  ops_.push_back(UserOp{function, context, is_commutative, static_cast<std::uint32_t>(ops_.size())});
  return static_cast<const UserOp*>(&ops_.back());
}

const UserOp* UserOpTable::find(std::uint32_t id) const { return id < ops_.size() ? &ops_[id] : nullptr; }

ReduceOp ReduceOp::premul_sum(double scalar) {
  ReduceOp result(Op::premul_sum);
  result.scalar = scalar;
  return result;
}

ReduceOp ReduceOp::premul_sum_integer(std::int64_t scalar) {
  ReduceOp result(Op::premul_sum);
  result.is_integer_scalar = true;
  result.integer_scalar = scalar;
  return result;
}

ReduceOp ReduceOp::user_defined(const UserOp* op) {
  ReduceOp result(Op::user);
  result.user = op;
  return result;
}

Status check_op(const ReduceOp& op, Dtype dtype) {
  const std::string_view reason = why_illegal(op.op, dtype);
  if (!reason.empty()) {
    return invalid_argument("op " + std::string(to_string(op.op)) + " is not defined on dtype " +
                            std::string(to_string(dtype)) + ": " + std::string(reason));
  }
  if (op.op == Op::user && op.user == nullptr) {
    return invalid_argument("op user needs a registered user-defined op");
  }
  // A scalar of the wrong kind would be converted silently: 0.5 on i32 would multiply by 0.
  if (op.op == Op::premul_sum && op.is_integer_scalar != (class_of(dtype) == DtypeClass::integer)) {
    return invalid_argument("premul_sum on dtype " + std::string(to_string(dtype)) + " needs " +
                            (op.is_integer_scalar ? "a floating-point" : "an integer") + " scalar");
  }
  return {};
}

}  // namespace tutti
