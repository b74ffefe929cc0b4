// The kernels' element functions, run on the host, against the scalar reference: every code of the narrow
// formats, every op, and the values that such functions get wrong.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "backends/cuda/elements.hpp"
#include "runtime/kernels/reference.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace tutti;
using namespace tutti::cuda;

float float_of(std::uint32_t bits) { return bits_as<float>(bits); }

// All codes, and for every code the f32 values around it, halfway to the next and just beside that.
template <class Element>
void check_format(Dtype dtype) {
  INFO(to_string(dtype));
  const unsigned codes = size_of(dtype) == 1 ? 256 : 65536;
  for (unsigned code = 0; code < codes; ++code) {
    const auto stored = static_cast<typename Element::Stored>(code);
    const float expected = decode_narrow(dtype, static_cast<std::uint16_t>(code));
    const float actual = Element::widen(stored);
    if (std::isnan(expected) != std::isnan(actual) ||
        (!std::isnan(expected) && std::memcmp(&expected, &actual, sizeof actual) != 0)) {
      FAIL("code " << code << " widens to " << actual << ", not " << expected);
    }
    if (std::isnan(expected)) continue;
    const float next = decode_narrow(dtype, static_cast<std::uint16_t>(code + 1 < codes ? code + 1 : code));
    const float middle = expected + (next - expected) / 2;
    for (const float value :
         {expected, middle, std::nextafter(middle, INFINITY), std::nextafter(middle, -INFINITY)}) {
      if (Element::store(value) != encode_narrow(dtype, value)) {
        FAIL(value << " is stored as " << unsigned{Element::store(value)} << ", not "
                   << encode_narrow(dtype, value));
      }
    }
  }
}

// f32 values over all exponents, with few and with random mantissa bits.
template <class Element>
void check_rounding(Dtype dtype) {
  INFO(to_string(dtype));
  std::mt19937 random(5);
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (int i = 0; i < 400; ++i) {
      auto mantissa = static_cast<std::uint32_t>(random() & 0x7FFFFF);
      const auto sign = static_cast<std::uint32_t>(random() & 1U) << 31U;
      if (i % 4 == 0) mantissa &= ~0U << (random() % 24);  // ties
      const float value = float_of(sign | exponent << 23U | mantissa);
      if (Element::store(value) != encode_narrow(dtype, value)) {
        FAIL(value << " is stored as " << unsigned{Element::store(value)} << ", not "
                   << encode_narrow(dtype, value));
      }
    }
  }
}

// Two elements folded by the kernels' functions.
template <class Element>
typename Element::Stored fold_two(Fold fold, bool is_signed, typename Element::Stored a,
                                  typename Element::Stored b) {
  const FoldRule rule{fold, is_signed ? 1U : 0U};
  typename Element::Stored result = 0;
  with_fold<Element>(fold, [&]<Fold chosen>() {
    result = Element::store(Element::template combine<chosen>(Element::widen(a), Element::widen(b), rule));
  });
  return result;
}

// Every pair of codes of a byte, folded by the kernels' functions and by the reference.
template <class Element>
void check_pairs(Fold fold, Op op, Dtype dtype) {
  for (unsigned a = 0; a < 256; ++a) {
    for (unsigned b = 0; b < 256; ++b) {
      const auto left = static_cast<std::uint8_t>(a);
      const auto right = static_cast<std::uint8_t>(b);
      const void* sources[] = {&left, &right};
      std::uint8_t expected = 0;
      reduce_reference(op, dtype, &expected, sources, 1);
      if (fold_two<Element>(fold, is_signed_integer(dtype), left, right) != expected)
        FAIL(to_string(op) << " of " << to_string(dtype) << " " << a << " and " << b);
    }
  }
}

}  // namespace

TEST_CASE("narrow formats are widened and stored like the reference, code by code") {
  check_format<F16>(Dtype::f16);
  check_format<Bf16>(Dtype::bf16);
  check_format<F8e4m3>(Dtype::f8e4m3);
  check_format<F8e5m2>(Dtype::f8e5m2);
}

TEST_CASE("any f32 is rounded to the narrow formats like the reference") {
  check_rounding<F16>(Dtype::f16);
  check_rounding<Bf16>(Dtype::bf16);
  check_rounding<F8e4m3>(Dtype::f8e4m3);
  check_rounding<F8e5m2>(Dtype::f8e5m2);
}

TEST_CASE("f8 folds are right for every pair of codes") {
  const struct {
    Fold fold;
    Op op;
  } cases[] = {{Fold::sum, Op::sum}, {Fold::prod, Op::prod}, {Fold::min, Op::min}, {Fold::max, Op::max}};
  for (const auto& [fold, op] : cases) {
    check_pairs<F8e4m3>(fold, op, Dtype::f8e4m3);
    check_pairs<F8e5m2>(fold, op, Dtype::f8e5m2);
  }
}

TEST_CASE(
    "one byte as a number: every pair, signed and unsigned, by every op; truth values by those of bool") {
  const struct {
    Fold fold;
    Op op;
    Dtype dtype;
  } cases[] = {
      {Fold::sum, Op::sum, Dtype::i8},        {Fold::prod, Op::prod, Dtype::i8},
      {Fold::min, Op::min, Dtype::i8},        {Fold::max, Op::max, Dtype::i8},
      {Fold::min, Op::min, Dtype::u8},        {Fold::max, Op::max, Dtype::u8},
      {Fold::band, Op::band, Dtype::u8},      {Fold::bor, Op::bor, Dtype::u8},
      {Fold::bxor, Op::bxor, Dtype::u8},      {Fold::land, Op::land, Dtype::u8},
      {Fold::lor, Op::lor, Dtype::u8},        {Fold::lor, Op::sum, Dtype::boolean},
      {Fold::land, Op::prod, Dtype::boolean}, {Fold::lxor, Op::bxor, Dtype::boolean},
  };
  for (const auto& [fold, op, dtype] : cases) check_pairs<U8>(fold, op, dtype);
}

TEST_CASE("min and max of f32 and f64 pass the quiet NaN on and order the zeros") {
  const std::uint32_t quiet = 0x7FC00000;
  const auto bits = [](float value) { return bits_as<std::uint32_t>(value); };
  for (const Fold fold : {Fold::min, Fold::max}) {
    CHECK(fold_two<F32>(fold, false, bits(-NAN), bits(1.0F)) == quiet);
    CHECK(fold_two<F32>(fold, false, bits(-INFINITY), 0x7F800001) == quiet);
    CHECK(fold_two<F64>(fold, false, 0xFFF0000000000001, 0) == 0x7FF8000000000000);
    const std::uint32_t zero = fold == Fold::min ? bits(-0.0F) : bits(0.0F);
    CHECK(fold_two<F32>(fold, false, bits(-0.0F), bits(0.0F)) == zero);
    CHECK(fold_two<F32>(fold, false, bits(0.0F), bits(-0.0F)) == zero);
  }
  CHECK(fold_two<F32>(Fold::sum, false, 1, 2) == 3);  // subnormals are kept
}
