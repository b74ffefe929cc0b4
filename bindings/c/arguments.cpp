// Converts enumerations and options of the C interface to C++. Knows no group. Compiling it checks that the
// numbers are equal.
#include <cstddef>
#include <iterator>
#include <limits>

#include "bindings/c/handles.hpp"
#include "runtime/base/ops.hpp"

namespace tutti::c {
namespace {

// One enumeration in both interfaces, in the order of its numbers, which start at 0.
template <class C, class Cpp>
struct Pair {
  C c;
  Cpp cpp;
};
template <class C, class Cpp, std::size_t count>
constexpr bool are_equal(const Pair<C, Cpp> (&pairs)[count]) {
  for (std::size_t i = 0; i < count; ++i) {
    if (static_cast<std::size_t>(pairs[i].c) != i || static_cast<std::size_t>(pairs[i].cpp) != i)
      return false;
  }
  return true;
}

constexpr Pair<int, Dtype> kDtypes[] = {
    {TUTTI_I8, Dtype::i8},           {TUTTI_U8, Dtype::u8},           {TUTTI_I16, Dtype::i16},
    {TUTTI_U16, Dtype::u16},         {TUTTI_I32, Dtype::i32},         {TUTTI_U32, Dtype::u32},
    {TUTTI_I64, Dtype::i64},         {TUTTI_U64, Dtype::u64},         {TUTTI_F16, Dtype::f16},
    {TUTTI_BF16, Dtype::bf16},       {TUTTI_F32, Dtype::f32},         {TUTTI_F64, Dtype::f64},
    {TUTTI_F8E4M3, Dtype::f8e4m3},   {TUTTI_F8E5M2, Dtype::f8e5m2},   {TUTTI_BOOLEAN, Dtype::boolean},
    {TUTTI_C64, Dtype::c64},         {TUTTI_C128, Dtype::c128},       {TUTTI_F32_I32, Dtype::f32_i32},
    {TUTTI_F64_I32, Dtype::f64_i32}, {TUTTI_I32_I32, Dtype::i32_i32}, {TUTTI_I64_I32, Dtype::i64_i32},
    {TUTTI_F64_I64, Dtype::f64_i64}, {TUTTI_I64_I64, Dtype::i64_i64}, {TUTTI_OPAQUE, Dtype::opaque}};
constexpr Pair<int, Op> kOps[] = {{TUTTI_SUM, Op::sum},
                                  {TUTTI_PROD, Op::prod},
                                  {TUTTI_MIN, Op::min},
                                  {TUTTI_MAX, Op::max},
                                  {TUTTI_AVG, Op::avg},
                                  {TUTTI_BAND, Op::band},
                                  {TUTTI_BOR, Op::bor},
                                  {TUTTI_BXOR, Op::bxor},
                                  {TUTTI_LAND, Op::land},
                                  {TUTTI_LOR, Op::lor},
                                  {TUTTI_PREMUL_SUM, Op::premul_sum},
                                  {TUTTI_USER, Op::user},
                                  {TUTTI_LXOR, Op::lxor},
                                  {TUTTI_MINLOC, Op::minloc},
                                  {TUTTI_MAXLOC, Op::maxloc}};
constexpr Pair<int, Collective> kCollectives[] = {{TUTTI_ALLREDUCE, Collective::allreduce},
                                                  {TUTTI_BROADCAST, Collective::broadcast},
                                                  {TUTTI_REDUCE, Collective::reduce},
                                                  {TUTTI_ALLGATHER, Collective::allgather},
                                                  {TUTTI_REDUCE_SCATTER, Collective::reduce_scatter},
                                                  {TUTTI_ALLTOALL, Collective::alltoall},
                                                  {TUTTI_GATHER, Collective::gather},
                                                  {TUTTI_SCATTER, Collective::scatter},
                                                  {TUTTI_BARRIER, Collective::barrier},
                                                  {TUTTI_SCAN, Collective::scan},
                                                  {TUTTI_EXSCAN, Collective::exscan},
                                                  {TUTTI_SEND_RECV, Collective::send_recv}};
constexpr Pair<int, StatusCode> kStatuses[] = {{TUTTI_OK, StatusCode::ok},
                                               {TUTTI_INVALID_ARGUMENT, StatusCode::invalid_argument},
                                               {TUTTI_UNSUPPORTED, StatusCode::unsupported},
                                               {TUTTI_MISMATCH, StatusCode::mismatch},
                                               {TUTTI_TIMEOUT, StatusCode::timeout},
                                               {TUTTI_PEER_FAILED, StatusCode::peer_failed},
                                               {TUTTI_REFUSED, StatusCode::refused},
                                               {TUTTI_RESOURCE_EXHAUSTED, StatusCode::resource_exhausted},
                                               {TUTTI_ABORTED, StatusCode::aborted},
                                               {TUTTI_INTERNAL, StatusCode::internal}};
static_assert(are_equal(kDtypes) && are_equal(kOps) && are_equal(kCollectives) && are_equal(kStatuses),
              "part of the ABI");
static_assert(std::size(kDtypes) == kDtypeCount && std::size(kOps) == kOpCount &&
                  std::size(kCollectives) == kCollectiveCount,
              "none is missing");

static_assert(static_cast<int>(TUTTI_MEMORY_DETECT) == static_cast<int>(Memory::detect) &&
              static_cast<int>(TUTTI_MEMORY_HOST) == static_cast<int>(Memory::host) &&
              static_cast<int>(TUTTI_MEMORY_DEVICE) == static_cast<int>(Memory::device));
static_assert(sizeof(tutti_dtype_t) == 4 && sizeof(tutti_status_t) == 4, "part of the ABI");
// The first version of the options; members are added behind it.
constexpr std::size_t kFirstCallOptionsBytes = 72;
static_assert(offsetof(tutti_call_options_t, element_bytes) < kFirstCallOptionsBytes,
              "where the first version has padding; its programs know no opaque dtype that would read it");

}  // namespace

std::chrono::milliseconds duration_of(std::int64_t milliseconds) {
  constexpr std::int64_t kCentury = std::int64_t{100} * 365 * 24 * 3600 * 1000;
  return std::chrono::milliseconds(std::clamp<std::int64_t>(milliseconds, 0, kCentury));
}

void CallArguments::refuse_number(const char* what, int number) const {
  refuse(std::string(call_) + ": " + what + ": " + std::to_string(number) + " is no " + what);
}

void CallArguments::read(const tutti_call_options_t& options) {
  options_ = known_options(call_, &options, kFirstCallOptionsBytes);
}

Reduction CallArguments::special_reduction(tutti_op_t op, tutti_dtype_t number) const {
  if (op != TUTTI_PREMUL_SUM && op != TUTTI_USER) refuse_number("op", op);
  if (options_.struct_bytes == 0) {
    refuse(std::string(call_) + ": options: a null pointer; this op needs " +
           (op == TUTTI_USER ? "a function" : "a factor"));
  }
  if (op == TUTTI_USER) {
    // The types differ in noexcept, which C lacks; by contract no exception leaves the function.
    const auto function = reinterpret_cast<UserFunction>(options_.function);
    return Reduction::user(function, options_.function_context, options_.is_ordered == 0,
                           number == TUTTI_OPAQUE ? options_.element_bytes : 0);
  }
  if (class_of(dtype(number)) == DtypeClass::integer)
    return Reduction::premul_sum_integer(options_.integer_factor);
  return Reduction::premul_sum(options_.factor);
}

}  // namespace tutti::c
