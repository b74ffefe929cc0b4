// Conversions between f32 and narrower floats, on every instruction set this CPU has, against the scalar reference.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "runtime/kernels/kernels.hpp"
#include "runtime/kernels/reference.hpp"
#include "tests/support/catch.hpp"

namespace tutti {
namespace {

constexpr Dtype kNarrow[] = {Dtype::f16, Dtype::bf16, Dtype::f8e4m3, Dtype::f8e5m2};

std::vector<std::byte> codes_of(Dtype dtype, const std::vector<std::uint16_t>& codes) {
  std::vector<std::byte> bytes(codes.size() * size_of(dtype));
  for (std::size_t i = 0; i < codes.size(); ++i)  // little endian
    std::memcpy(bytes.data() + i * size_of(dtype), &codes[i], size_of(dtype));
  return bytes;
}

std::vector<std::uint16_t> all_codes(Dtype dtype) {
  std::vector<std::uint16_t> codes(std::size_t{1} << (8 * size_of(dtype)));
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint16_t>(i);
  return codes;
}

// Each representable value, its neighbours, the middle to the next one, and random bits.
std::vector<float> hard_values(Dtype dtype) {
  std::vector<float> values = {std::numeric_limits<float>::denorm_min(),
                               std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN(),
                               0.0F,
                               -0.0F};
  for (const std::uint16_t code : all_codes(dtype)) {
    const float value = decode_narrow(dtype, code),
                next = decode_narrow(dtype, static_cast<std::uint16_t>(code + 1));
    const float middle = value + (next - value) / 2;
    for (const float near : {value, middle})
      values.insert(values.end(), {near, std::nextafter(near, -INFINITY), std::nextafter(near, INFINITY)});
  }
  std::mt19937 random(7);
  for (int i = 0; i < 4096; ++i) values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  return values;
}

}  // namespace

TEST_CASE("narrowing rounds as the reference does, widening is exact") {
  for (const std::string_view target : supported_kernel_targets()) {
    REQUIRE(set_kernel_target_for_test(target));
    for (const Dtype dtype : kNarrow) {
      CAPTURE(target, to_string(dtype));
      const Conversions convert = select_conversions(dtype);
      const std::vector<float> values = hard_values(dtype);
      std::vector<std::byte> narrowed(values.size() * size_of(dtype));
      convert.narrow(narrowed.data(), values.data(), values.size());
      std::vector<std::uint16_t> expected;
      for (const float value : values) expected.push_back(encode_narrow(dtype, value));
      CHECK(narrowed == codes_of(dtype, expected));

      const std::vector<std::uint16_t> codes = all_codes(dtype);
      std::vector<float> widened(codes.size());
      convert.widen(widened.data(), codes_of(dtype, codes).data(), codes.size());
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < codes.size(); ++i) {
        const float value = decode_narrow(dtype, codes[i]);
        const bool is_same = std::isnan(value) ? std::isnan(widened[i])
                                               : std::bit_cast<std::uint32_t>(value) ==
                                                     std::bit_cast<std::uint32_t>(widened[i]);
        wrong += is_same ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  }
  set_kernel_target_for_test({});
}

TEST_CASE("conversions of any length and address touch nothing else") {
  for (const std::string_view target : supported_kernel_targets()) {
    REQUIRE(set_kernel_target_for_test(target));
    for (const Dtype dtype : kNarrow) {
      const Conversions convert = select_conversions(dtype);
      for (const std::size_t count : {0, 1, 3, 7, 8, 15, 16, 17, 33, 100}) {
        for (const std::size_t offset : {0, 1, 3}) {
          CAPTURE(target, to_string(dtype), count, offset);
          const std::vector<float> values(count, 1.5F);
          // Ends with the last byte that may be touched: a sanitizer sees the next.
          std::vector<std::byte> from(offset + count * sizeof(float)), code(offset + count * size_of(dtype)),
              back(offset + count * sizeof(float));
          if (count > 0) std::memcpy(from.data() + offset, values.data(), count * sizeof(float));
          convert.narrow(code.data() + offset, from.data() + offset, count);
          convert.widen(back.data() + offset, code.data() + offset, count);
          CHECK(back == from);
        }
      }
    }
  }
  set_kernel_target_for_test({});
}

}  // namespace tutti
