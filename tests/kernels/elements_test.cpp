// Reductions of elements of several numbers, or of opaque ones: cuts only between elements, and the right
// pair wins. That kernels equal the reference is kernels_test.
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "runtime/kernels/kernels.hpp"
#include "runtime/kernels/reference.hpp"
#include "tests/support/catch.hpp"
#include "tutti/element.hpp"

namespace tutti {
namespace {

using Bytes = std::vector<std::byte>;

// Neither commutative nor associative: of each byte of an element 3 a + b + its place in the element.
void combine(void* context, void* dst, const void* a, const void* b, std::size_t count) noexcept {
  const std::size_t element_bytes = *static_cast<const std::size_t*>(context);
  for (std::size_t i = 0; i < count * element_bytes; ++i) {
    const auto left = static_cast<const std::uint8_t*>(a)[i];
    const auto right = static_cast<const std::uint8_t*>(b)[i];
    static_cast<std::uint8_t*>(dst)[i] = static_cast<std::uint8_t>(3 * left + right + i % element_bytes);
  }
}

}  // namespace

TEST_CASE("a user's op gets opaque elements whole, however long they are") {
  std::mt19937 random(5);
  for (std::size_t element_bytes : {1, 3, 24, 100, 4096, 5000, 65536}) {
    const ReduceOp op = ReduceOp::user_defined(
        UserOp{combine, &element_bytes, false, static_cast<std::uint32_t>(element_bytes)});
    REQUIRE(check_op(op, Dtype::opaque).is_ok());
    for (const std::size_t count : {0, 1, 7, 40}) {
      std::vector<Bytes> inputs;
      for (std::size_t sources = 1; sources <= 4; ++sources) {
        Bytes& input = inputs.emplace_back(count * element_bytes);
        for (auto& byte : input) byte = static_cast<std::byte>(random());
        std::vector<const void*> pointers;
        for (const Bytes& one : inputs) pointers.push_back(one.data());
        Bytes expected(count * element_bytes), apart(count * element_bytes);
        reduce_reference(op, Dtype::opaque, expected.data(), pointers, count);
        reduce(op, Dtype::opaque, apart.data(), pointers, count);
        INFO(element_bytes << " bytes, count " << count << ", sources " << sources);
        REQUIRE(apart == expected);
        Bytes last = inputs.back();  // identical to the last source
        pointers.back() = last.data();
        reduce(op, Dtype::opaque, last.data(), pointers, count);
        REQUIRE(last == expected);
      }
    }
  }
}

TEST_CASE("pairs: NaN wins, zeros have signs, and the least index breaks ties") {
  using Pair = ValueIndex<float, std::int32_t>;
  const auto winner = [](Op op, const Pair& a, const Pair& b) {
    Pair result{};
    const void* const sources[] = {&a, &b};
    reduce(op, Dtype::f32_i32, &result, sources, 1);
    return result.index;
  };
  for (const Op op : {Op::minloc, Op::maxloc}) {
    const bool is_min = op == Op::minloc;
    CHECK(winner(op, {1, 5}, {2, 4}) == (is_min ? 5 : 4));
    CHECK(winner(op, {2, 4}, {1, 5}) == (is_min ? 5 : 4));
    CHECK(winner(op, {1, 5}, {1, 4}) == 4);
    CHECK(winner(op, {1, 4}, {1, 5}) == 4);
    CHECK(winner(op, {0.0F, 4}, {-0.0F, 5}) == (is_min ? 5 : 4));
    CHECK(winner(op, {NAN, 5}, {INFINITY, 4}) == 5);
    CHECK(winner(op, {-INFINITY, 4}, {NAN, 5}) == 5);
    CHECK(winner(op, {NAN, 5}, {-NAN, 4}) == 4);
  }
}

TEST_CASE("complex numbers are multiplied as they are defined") {
  const float a[] = {1, 2, 0, 1}, b[] = {3, -4, 0, 1};
  float product[4];
  const void* const sources[] = {a, b};
  reduce(Op::prod, Dtype::c64, product, sources, 2);
  CHECK(product[0] == 11);
  CHECK(product[1] == 2);
  CHECK(product[2] == -1);
  CHECK(product[3] == 0);
}

}  // namespace tutti
