// The legality table of ops and dtypes, and ops with parameters.
// Knows no kernel: a legal pair without a kernel is a bug that the kernel test finds.
#include "runtime/base/ops.hpp"

#include <array>

namespace tutti {
namespace {

using Row = std::array<std::string_view, 6>;  // one cell per DtypeClass; empty means legal

constexpr std::string_view kLegal;
constexpr std::string_view kNoBits =
    "bitwise ops are defined on integers and bool, not on floating-point values";
constexpr std::string_view kNoTruth =
    "logical ops are defined on integers and bool, not on floating-point values; compare with zero first";
constexpr std::string_view kNoAverage =
    "the average of truth values is not a truth value; reduce u8 or a floating type instead";
constexpr std::string_view kNoScaling =
    "a truth value cannot be multiplied by a scalar; reduce u8 or a floating type instead";

constexpr std::string_view kNoOrder = "complex numbers have no order";
constexpr std::string_view kNoComplexBits =
    "bitwise and logical ops are defined on integers and bool, not on complex numbers";
constexpr std::string_view kPairsOnly = "only minloc and maxloc reduce pairs of a value and an index";
constexpr std::string_view kOpaque = "only a user-defined op knows what opaque elements hold";
constexpr std::string_view kNoPair =
    "minloc and maxloc reduce pairs of a value and an index, such as f64_i32";

constexpr std::array<Row, kOpCount> kLegality = {{
    // integer, floating, boolean, complex, pair, opaque
    {kLegal, kLegal, kLegal, kLegal, kPairsOnly, kOpaque},            // sum
    {kLegal, kLegal, kLegal, kLegal, kPairsOnly, kOpaque},            // prod
    {kLegal, kLegal, kLegal, kNoOrder, kPairsOnly, kOpaque},          // min
    {kLegal, kLegal, kLegal, kNoOrder, kPairsOnly, kOpaque},          // max
    {kLegal, kLegal, kNoAverage, kLegal, kPairsOnly, kOpaque},        // avg
    {kLegal, kNoBits, kLegal, kNoComplexBits, kPairsOnly, kOpaque},   // band
    {kLegal, kNoBits, kLegal, kNoComplexBits, kPairsOnly, kOpaque},   // bor
    {kLegal, kNoBits, kLegal, kNoComplexBits, kPairsOnly, kOpaque},   // bxor
    {kLegal, kNoTruth, kLegal, kNoComplexBits, kPairsOnly, kOpaque},  // land
    {kLegal, kNoTruth, kLegal, kNoComplexBits, kPairsOnly, kOpaque},  // lor
    {kLegal, kLegal, kNoScaling, kLegal, kPairsOnly, kOpaque},        // premul_sum
    {kLegal, kLegal, kLegal, kLegal, kLegal, kLegal},                 // user
    {kLegal, kNoTruth, kLegal, kNoComplexBits, kPairsOnly, kOpaque},  // lxor
    {kNoPair, kNoPair, kNoPair, kNoPair, kLegal, kNoPair},            // minloc
    {kNoPair, kNoPair, kNoPair, kNoPair, kLegal, kNoPair},            // maxloc
}};

}  // namespace

std::string_view why_illegal(Op op, Dtype dtype) {
  return kLegality[static_cast<std::size_t>(op)][static_cast<std::size_t>(class_of(dtype))];
}

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

ReduceOp ReduceOp::user_defined(const UserOp& op) {
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
  if (op.op == Op::user && op.user.function == nullptr)
    return invalid_argument("a user-defined op needs a function");
  if (dtype == Dtype::opaque && (op.user.element_bytes == 0 || op.user.element_bytes > kMostOpaqueBytes)) {
    return invalid_argument("elements of dtype opaque have 1 to " + std::to_string(kMostOpaqueBytes) +
                            " bytes, not " + std::to_string(op.user.element_bytes));
  }
  // A scalar of the wrong kind would be converted silently: 0.5 on i32 would multiply by 0.
  if (op.op == Op::premul_sum && op.is_integer_scalar != (class_of(dtype) == DtypeClass::integer)) {
    return invalid_argument("premul_sum on dtype " + std::string(to_string(dtype)) + " needs " +
                            (op.is_integer_scalar ? "a floating-point" : "an integer") + " scalar");
  }
  return {};
}

}  // namespace tutti
