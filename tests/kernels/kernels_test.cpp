// Every reduction and scaling kernel, on every instruction set this CPU has, against the scalar reference.
#include <cfloat>
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
#include "tests/support/test_fraction.hpp"

namespace tutti {
namespace {

using Bytes = std::vector<std::byte>;
using test::is_selected;

const std::vector<std::size_t> kCounts = {0, 1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 1000, 4097};
constexpr std::size_t kMaxSources = 5;

std::vector<Dtype> all_dtypes() {
  std::vector<Dtype> result;
  for (int i = 0; i < kDtypeCount; ++i) result.push_back(static_cast<Dtype>(i));
  return result;
}
std::vector<Op> all_ops() {
  std::vector<Op> result;
  for (int i = 0; i < kOpCount; ++i) result.push_back(static_cast<Op>(i));
  return result;
}

// Neither commutative nor associative, and defined on the bytes of any dtype: 3 a + b.
void three_a_plus_b(void* context, void* dst, const void* a, const void* b, std::size_t count) noexcept {
  const std::size_t size_bytes = count * *static_cast<const std::size_t*>(context);
  for (std::size_t i = 0; i < size_bytes; ++i) {
    const auto left = static_cast<const std::uint8_t*>(a)[i];
    const auto right = static_cast<const std::uint8_t*>(b)[i];
    static_cast<std::uint8_t*>(dst)[i] = static_cast<std::uint8_t>(3 * left + right);
  }
}

// An exact allocation that starts `offset` bytes after an aligned address: a sanitizer sees every byte out of
// bounds.
class Buffer {
 public:
  Buffer(const Bytes& content, std::size_t offset) : offset_(offset), bytes_(offset + content.size()) {
    fill(content);
  }
  void fill(const Bytes& content) {
    if (!content.empty()) std::memcpy(data(), content.data(), content.size());
  }
  void* data() { return bytes_.data() + offset_; }
  Bytes content() const { return Bytes(bytes_.begin() + static_cast<std::ptrdiff_t>(offset_), bytes_.end()); }

 private:
  std::size_t offset_;
  Bytes bytes_;
};

template <class T>
T at(const Bytes& bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

// Random bits, in which every fourth element is one that kernels get wrong: zeros, infinities, NaN, limits.
Bytes make_input(Dtype dtype, std::size_t count, std::mt19937& random) {
  static const std::vector<float> kSpecial = {0.0F,      -0.0F,   1.0F,   -1.0F,  INFINITY,
                                              -INFINITY, NAN,     1e-45F, 1e-39F, FLT_MAX,
                                              -FLT_MAX,  FLT_MIN, 448.0F, 464.0F, 65504.0F};
  Bytes result(count * size_of(dtype));
  for (auto& byte : result) byte = static_cast<std::byte>(random());
  for (std::size_t i = 0; i < count; ++i) {
    if (random() % 4 != 0) continue;
    std::byte* element = result.data() + i * size_of(dtype);
    const float special = kSpecial[random() % kSpecial.size()];
    if (dtype == Dtype::f32) {
      std::memcpy(element, &special, sizeof special);
    } else if (dtype == Dtype::f64) {
      const double wide = special;
      std::memcpy(element, &wide, sizeof wide);
    } else if (is_narrow_float(dtype)) {
      const std::uint16_t code = encode_narrow(dtype, special);
      std::memcpy(element, &code, size_of(dtype));  // little endian
    } else if (class_of(dtype) == DtypeClass::complex) {
      // one part
      const std::size_t part_bytes = size_of(dtype) / 2, part = random() % 2;
      const double wide = special;
      std::memcpy(element + part * part_bytes,
                  part_bytes == 4 ? static_cast<const void*>(&special) : static_cast<const void*>(&wide),
                  part_bytes);
    } else if (class_of(dtype) == DtypeClass::pair) {
      // few values, so that indices decide
      const auto few = static_cast<std::int64_t>(random() % 3) - 1;
      const double wide = special;
      const bool is_half = dtype == Dtype::f32_i32 || dtype == Dtype::i32_i32;
      if (dtype == Dtype::f32_i32) {
        std::memcpy(element, &special, sizeof special);
      } else if (dtype == Dtype::f64_i32 || dtype == Dtype::f64_i64) {
        std::memcpy(element, &wide, sizeof wide);
      } else {
        std::memcpy(element, &few, is_half ? 4 : 8);
      }
    } else {
      // all zeros, all ones, or the sign bit alone
      const auto kind = random() % 3;
      std::memset(element, kind == 1 ? 0xFF : 0, size_of(dtype));
      if (kind == 2) element[size_of(dtype) - 1] = std::byte{0x80};
    }
  }
  return result;
}

// Bits have to be equal; f32 and f64 may differ in the payload of a NaN, which sum and prod leave open.
bool same(Dtype dtype, const Bytes& actual, const Bytes& expected) {
  if (actual == expected) return true;
  if (class_of(dtype) == DtypeClass::complex) dtype = part_of(dtype);
  if (dtype != Dtype::f32 && dtype != Dtype::f64) return false;
  for (std::size_t i = 0; i < actual.size() / size_of(dtype); ++i) {
    if (std::memcmp(&actual[i * size_of(dtype)], &expected[i * size_of(dtype)], size_of(dtype)) == 0)
      continue;
    const bool both_nan = dtype == Dtype::f32
                              ? std::isnan(at<float>(actual, i)) && std::isnan(at<float>(expected, i))
                              : std::isnan(at<double>(actual, i)) && std::isnan(at<double>(expected, i));
    if (!both_nan) return false;
  }
  return true;
}

// Every rank's kernels come from one target while this lives.
class ForcedTarget {
 public:
  explicit ForcedTarget(std::string_view name) { REQUIRE(set_kernel_target_for_test(name)); }
  ~ForcedTarget() { set_kernel_target_for_test(""); }
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;
};

ReduceOp make_op(Op op, Dtype dtype, const UserOp& user) {
  if (op == Op::user) return ReduceOp::user_defined(user);
  if (op != Op::premul_sum) return op;
  return class_of(dtype) == DtypeClass::integer ? ReduceOp::premul_sum_integer(-7)
                                                : ReduceOp::premul_sum(0.3);
}

// Runs one reduction with dst apart and with dst identical to each source; true if all agree with `expected`.
bool reduces_like(const ReduceOp& op, Dtype dtype, const std::vector<Bytes>& inputs, std::size_t count,
                  bool is_misaligned, const Bytes& expected) {
  std::vector<Buffer> buffers;
  std::vector<const void*> sources;
  for (std::size_t k = 0; k < inputs.size(); ++k)
    buffers.emplace_back(inputs[k], is_misaligned ? 2 * k + 1 : 0);
  for (auto& buffer : buffers) sources.push_back(buffer.data());
  Buffer apart(Bytes(expected.size(), std::byte{0xA5}), is_misaligned ? 3 : 0);
  reduce(op, dtype, apart.data(), sources, count);
  bool is_same = same(dtype, apart.content(), expected);
  for (std::size_t k = 0; k < buffers.size(); ++k) {
    is_same = is_same && buffers[k].content() == inputs[k];  // sources are only read
    reduce(op, dtype, buffers[k].data(), sources, count);
    is_same = is_same && same(dtype, buffers[k].content(), expected);
    buffers[k].fill(inputs[k]);
  }
  return is_same;
}

// Memory that begins `distance` bytes behind the begin of a line, with lines before and behind it that nobody
// may write.
class LineBuffer {
 public:
  LineBuffer(std::size_t bytes, std::size_t distance)
      : bytes_(bytes), memory_(bytes + 4 * kLine, kUntouched) {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory_.data());
    first_ = 2 * kLine - begin % kLine + distance % kLine;
  }
  std::byte* data() { return memory_.data() + first_; }
  Bytes content() const {
    const auto first = memory_.begin() + static_cast<std::ptrdiff_t>(first_);
    return Bytes(first, first + static_cast<std::ptrdiff_t>(bytes_));
  }
  bool is_intact_around() const {
    for (std::size_t i = 0; i < memory_.size(); ++i)
      if ((i < first_ || i >= first_ + bytes_) && memory_[i] != kUntouched) return false;
    return true;
  }

 private:
  static constexpr std::size_t kLine = 64;
  static constexpr std::byte kUntouched{0xA5};
  std::size_t bytes_, first_ = 0;
  Bytes memory_;
};

// The same to three places, of which the second is the last source, with non-temporal stores to all but
// the first cached_count, which lie otherwise in their lines.
bool streams_like(Op op, Dtype dtype, const std::vector<Bytes>& inputs, std::size_t count,
                  std::size_t distance, std::size_t cached_count, const Bytes& expected) {
  const StreamKernelFn stream = select_kernels(op, dtype).stream;
  if (stream == nullptr) return true;
  std::vector<const void*> sources;
  for (const Bytes& input : inputs) sources.push_back(input.data());
  const std::size_t anywhere = cached_count == 0 ? distance : distance + size_of(dtype);
  LineBuffer first(expected.size(), anywhere), in_place(expected.size(), anywhere),
      third(expected.size(), distance);
  if (!expected.empty()) std::memcpy(in_place.data(), inputs.back().data(), expected.size());
  sources.back() = in_place.data();
  void* const places[] = {first.data(), in_place.data(), third.data()};
  stream(places, 3, cached_count, sources.data(), sources.size(), count);
  return same(dtype, first.content(), expected) && first.content() == in_place.content() &&
         first.content() == third.content() && first.is_intact_around() && in_place.is_intact_around() &&
         third.is_intact_around();
}

// The same to two places and none through the caches: what two ranks make for both has a loop of its own.
bool streams_to_both_like(Op op, Dtype dtype, const std::vector<Bytes>& inputs, std::size_t count,
                          std::size_t distance, const Bytes& expected) {
  const StreamKernelFn stream = select_kernels(op, dtype).stream;
  if (stream == nullptr) return true;
  const void* const sources[] = {inputs[0].data(), inputs[1].data()};
  LineBuffer one(expected.size(), distance), other(expected.size(), distance);
  void* const places[] = {one.data(), other.data()};
  stream(places, 2, 0, sources, 2, count);
  return same(dtype, one.content(), expected) && one.content() == other.content() && one.is_intact_around() &&
         other.is_intact_around();
}

TEST_CASE("every kernel on every target equals the scalar reference") {
  std::mt19937 random(20240601);
  std::uint64_t number = 0;
  for (const Dtype dtype : all_dtypes()) {
    if (dtype == Dtype::opaque) continue;  // has a test of its own
    std::size_t element_bytes = size_of(dtype);
    const UserOp user{three_a_plus_b, &element_bytes, false, 0};
    for (const Op op : all_ops()) {
      if (!is_legal(op, dtype)) continue;
      const ReduceOp reduce_op = make_op(op, dtype, user);
      REQUIRE(check_op(reduce_op, dtype).is_ok());
      for (const std::size_t count : kCounts) {
        std::vector<Bytes> inputs;
        for (std::size_t sources = 1; sources <= kMaxSources; ++sources) {
          inputs.push_back(make_input(dtype, count, random));
          if (sources != 2 && !is_selected(number++)) continue;
          std::vector<const void*> pointers;
          for (const auto& input : inputs) pointers.push_back(input.data());
          Bytes expected(count * element_bytes);
          reduce_reference(reduce_op, dtype, expected.data(), pointers, count);
          for (const std::string_view target : supported_kernel_targets()) {
            const ForcedTarget forced(target);
            for (const bool is_misaligned : {false, true}) {
              INFO(target << " " << to_string(op) << " " << to_string(dtype) << " count " << count
                          << " sources " << sources << " misaligned " << is_misaligned);
              REQUIRE(reduces_like(reduce_op, dtype, inputs, count, is_misaligned, expected));
              if (op == Op::user || scales_before(op) || scales_after(op)) continue;
              const std::size_t distance = is_misaligned ? 5 * element_bytes : 0;
              for (const std::size_t cached_count : {0, 2, 3}) {
                INFO("to " << cached_count << " of three places through the caches");
                REQUIRE(streams_like(op, dtype, inputs, count, distance, cached_count, expected));
              }
              if (sources == 2) REQUIRE(streams_to_both_like(op, dtype, inputs, count, distance, expected));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("scaling equals the scalar reference, in place and not") {
  std::mt19937 random(7);
  for (const Dtype dtype : all_dtypes()) {
    for (const Op op : {Op::avg, Op::premul_sum}) {
      if (!is_legal(op, dtype)) continue;
      const ReduceOp reduce_op = make_op(op, dtype, {});
      for (const int group_size : {1, 2, 3, 200, 65537}) {
        for (const std::size_t count : kCounts) {
          const Bytes input = make_input(dtype, count, random);
          Bytes expected(input.size());
          scale_reference(reduce_op, group_size, dtype, expected.data(), input.data(), count);
          for (const std::string_view target : supported_kernel_targets()) {
            const ForcedTarget forced(target);
            for (const std::size_t offset : {0, 1}) {
              INFO(target << " " << to_string(op) << " " << to_string(dtype) << " count " << count
                          << " ranks " << group_size << " offset " << offset);
              Buffer src(input, offset);
              Buffer dst(Bytes(input.size()), offset);
              scale(reduce_op, group_size, dtype, dst.data(), src.data(), count);
              REQUIRE(same(dtype, dst.content(), expected));
              scale(reduce_op, group_size, dtype, src.data(), src.data(), count);
              REQUIRE(same(dtype, src.content(), expected));
            }
          }
        }
      }
    }
  }
}

// All pairs of f8 codes; all f16 and bf16 codes against a few partners.
TEST_CASE("narrow formats are exhaustively right") {
  for (const Dtype dtype : {Dtype::f8e4m3, Dtype::f8e5m2, Dtype::f16, Dtype::bf16}) {
    std::vector<std::uint16_t> partners;
    const bool is_byte = size_of(dtype) == 1;
    for (unsigned code = 0; code < 256; ++code) {
      if (is_byte) partners.push_back(static_cast<std::uint16_t>(code));
    }
    if (!is_byte) {
      for (const float value : {0.0F, -0.0F, 1.0F, 1.5F, -65504.0F, 6e-8F, -3e-5F, INFINITY, NAN, 0.333F}) {
        partners.push_back(encode_narrow(dtype, value));
      }
    }
    const std::size_t codes = is_byte ? 256 : 65536;
    Bytes a(codes * partners.size() * size_of(dtype));
    Bytes b(a.size());
    for (std::size_t i = 0; i < a.size() / size_of(dtype); ++i) {
      const auto code = static_cast<std::uint16_t>(i % codes);
      std::memcpy(&a[i * size_of(dtype)], &code, size_of(dtype));
      std::memcpy(&b[i * size_of(dtype)], &partners[i / codes], size_of(dtype));
    }
    const std::vector<const void*> sources = {a.data(), b.data()};
    for (const Op op : {Op::sum, Op::prod, Op::min, Op::max}) {
      Bytes expected(a.size());
      reduce_reference(op, dtype, expected.data(), sources, a.size() / size_of(dtype));
      for (const std::string_view target : supported_kernel_targets()) {
        const ForcedTarget forced(target);
        INFO(target << " " << to_string(op) << " " << to_string(dtype));
        Bytes actual(a.size());
        reduce(op, dtype, actual.data(), sources, a.size() / size_of(dtype));
        REQUIRE(actual == expected);
      }
    }
  }
}

// The reference itself, against values from the definitions of the formats.
TEST_CASE("narrow codes stand for the values of their formats") {
  CHECK(decode_narrow(Dtype::f16, 0x3C00) == 1.0F);
  CHECK(decode_narrow(Dtype::f16, 0x7BFF) == 65504.0F);
  CHECK(decode_narrow(Dtype::f16, 0x0001) == std::ldexp(1.0F, -24));
  CHECK(decode_narrow(Dtype::bf16, 0xC000) == -2.0F);
  CHECK(decode_narrow(Dtype::f8e4m3, 0x7E) == 448.0F);
  CHECK(decode_narrow(Dtype::f8e4m3, 0x01) == std::ldexp(1.0F, -9));
  CHECK(std::isnan(decode_narrow(Dtype::f8e4m3, 0x7F)));
  CHECK(std::isnan(decode_narrow(Dtype::f8e4m3, 0xFF)));
  CHECK(decode_narrow(Dtype::f8e5m2, 0x7B) == 57344.0F);
  CHECK(std::isinf(decode_narrow(Dtype::f8e5m2, 0x7C)));
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f8e4m3, Dtype::f8e5m2}) {
    const unsigned codes = size_of(dtype) == 1 ? 256 : 65536;
    for (unsigned code = 0; code < codes; ++code) {
      const float value = decode_narrow(dtype, static_cast<std::uint16_t>(code));
      if (!std::isnan(value) && encode_narrow(dtype, value) != code)
        FAIL("code " << code << " does not survive");
    }
  }
  // ties to even, overflow, saturation, subnormals, NaN
  CHECK(encode_narrow(Dtype::f16, 1.0F + std::ldexp(1.0F, -11)) == 0x3C00);
  CHECK(encode_narrow(Dtype::f16, 1.0F + 3 * std::ldexp(1.0F, -11)) == 0x3C02);
  CHECK(encode_narrow(Dtype::f16, 65519.0F) == 0x7BFF);
  CHECK(encode_narrow(Dtype::f16, 65520.0F) == 0x7C00);
  CHECK(encode_narrow(Dtype::f16, std::ldexp(1.0F, -25)) == 0x0000);
  CHECK(encode_narrow(Dtype::bf16, FLT_MAX) == 0x7F80);
  CHECK(encode_narrow(Dtype::bf16, -NAN) == 0x7FC0);
  CHECK(encode_narrow(Dtype::f8e4m3, 1e9F) == 0x7E);
  CHECK(encode_narrow(Dtype::f8e4m3, -INFINITY) == 0xFE);
  CHECK(encode_narrow(Dtype::f8e4m3, NAN) == 0x7F);
  CHECK(encode_narrow(Dtype::f8e5m2, 61440.0F) == 0x7C);
  CHECK(encode_narrow(Dtype::f8e5m2, -0.0F) == 0x80);
}

TEST_CASE("the sum of three narrow sources rounds once") {
  // 256 + 1 + 1 in bf16 (8 significant bits): rounding each step stays at 256, rounding once gives 258.
  const std::uint16_t big = encode_narrow(Dtype::bf16, 256.0F);
  const std::uint16_t one = encode_narrow(Dtype::bf16, 1.0F);
  std::uint16_t result = 0;
  const std::vector<const void*> sources = {&big, &one, &one};
  reduce(Op::sum, Dtype::bf16, &result, sources, 1);
  CHECK(decode_narrow(Dtype::bf16, result) == 258.0F);
}

TEST_CASE("min and max pass NaN on and order the zeros, whatever the order of sources") {
  const float values[] = {-0.0F, 0.0F, NAN, -1.0F};
  const float others[] = {0.0F, -0.0F, -1.0F, NAN};
  for (const std::string_view target : supported_kernel_targets()) {
    const ForcedTarget forced(target);
    float low[4];
    float high[4];
    const std::vector<const void*> sources = {values, others};
    reduce(Op::min, Dtype::f32, low, sources, 4);
    reduce(Op::max, Dtype::f32, high, sources, 4);
    for (int i = 0; i < 2; ++i) {
      CHECK(std::signbit(low[i]));
      CHECK_FALSE(std::signbit(high[i]));
    }
    for (int i = 2; i < 4; ++i) {
      std::uint32_t bits[2];
      std::memcpy(&bits[0], &low[i], 4);
      std::memcpy(&bits[1], &high[i], 4);
      CHECK(bits[0] == 0x7FC00000u);
      CHECK(bits[1] == 0x7FC00000u);
    }
  }
}

TEST_CASE("wide vectors have non-temporal stores for all that is at least half a vector long") {
  for (const std::string_view target : supported_kernel_targets()) {
    const ForcedTarget forced(target);
    for (const Dtype dtype : all_dtypes()) {
      CAPTURE(target, to_string(dtype));
      const bool is_eighth = dtype == Dtype::f8e4m3 || dtype == Dtype::f8e5m2;
      const bool streams = target != "SCALAR" && !is_eighth;
      const bool has_sum = is_legal(Op::sum, dtype);
      if (has_sum && (target == "AVX3" || target == "AVX2" || target == "SCALAR"))
        CHECK((select_kernels(Op::sum, dtype).stream != nullptr) == streams);
      CHECK(select_kernels(Op::user, dtype).stream == nullptr);
    }
  }
}

TEST_CASE("the legality table") {
  for (const Dtype dtype : all_dtypes()) {
    const bool is_discrete = class_of(dtype) == DtypeClass::integer || dtype == Dtype::boolean;
    const bool is_pair = class_of(dtype) == DtypeClass::pair;
    const bool is_number = is_scalar(dtype) || class_of(dtype) == DtypeClass::complex;
    CHECK(is_legal(Op::user, dtype));
    for (const Op op : {Op::sum, Op::prod}) CHECK(is_legal(op, dtype) == is_number);
    for (const Op op : {Op::min, Op::max}) CHECK(is_legal(op, dtype) == is_scalar(dtype));
    for (const Op op : {Op::band, Op::bor, Op::bxor, Op::land, Op::lor, Op::lxor})
      CHECK(is_legal(op, dtype) == is_discrete);
    for (const Op op : {Op::avg, Op::premul_sum})
      CHECK(is_legal(op, dtype) == (is_number && dtype != Dtype::boolean));
    for (const Op op : {Op::minloc, Op::maxloc}) CHECK(is_legal(op, dtype) == is_pair);
    for (const Op op : all_ops()) {
      // a legal pair has a kernel, an illegal one a sentence that names both
      if (is_legal(op, dtype)) {
        CHECK(select_kernel(op, dtype) != nullptr);
      } else {
        const std::string message = check_op(op, dtype).message();
        CHECK(message.find(to_string(op)) != std::string::npos);
        CHECK(message.find(to_string(dtype)) != std::string::npos);
      }
    }
  }
}

TEST_CASE("incomplete ops are refused") {
  CHECK(check_op(Op::user, Dtype::f32).code() == StatusCode::invalid_argument);
  CHECK_FALSE(check_op(ReduceOp::premul_sum(0.5), Dtype::i32).is_ok());
  CHECK_FALSE(check_op(ReduceOp::premul_sum_integer(2), Dtype::f32).is_ok());
  CHECK(check_op(ReduceOp::premul_sum(0.5), Dtype::bf16).is_ok());
  const UserOp ordered{three_a_plus_b, nullptr, false, 0};
  CHECK_FALSE(ReduceOp::user_defined(ordered).is_commutative());
  CHECK(ReduceOp::user_defined({three_a_plus_b, nullptr, true, 0}).is_commutative());
  CHECK(check_op(ReduceOp::user_defined(ordered), Dtype::c128).is_ok());
  for (const std::uint32_t bytes : {0U, 65537U}) {
    const auto refused =
        check_op(ReduceOp::user_defined({three_a_plus_b, nullptr, true, bytes}), Dtype::opaque);
    CHECK(refused.code() == StatusCode::invalid_argument);
    CHECK(refused.message().find("1 to 65536 bytes, not " + std::to_string(bytes)) != std::string::npos);
  }
}

TEST_CASE("copies move every byte and nothing else") {
  std::mt19937 random(3);
  for (const std::string_view target : supported_kernel_targets()) {
    CAPTURE(target);
    const ForcedTarget forced(target);
    for (const std::size_t size_bytes :
         {0, 1, 3, 4, 15, 31, 32, 33, 63, 64, 65, 95, 127, 128, 129, 1000, 4095, 4096, 4097, 100000}) {
      for (const std::size_t offset : {0, 1, 17, 63}) {
        Bytes input(size_bytes);
        for (auto& byte : input) byte = static_cast<std::byte>(random());
        Buffer src(input, offset / 2);
        Buffer dst(Bytes(size_bytes, std::byte{0xEE}), offset);
        copy_bytes_streaming(dst.data(), src.data(), size_bytes);
        REQUIRE(dst.content() == input);
        Buffer plain(Bytes(size_bytes, std::byte{0xEE}), offset);
        copy_bytes(plain.data(), src.data(), size_bytes);
        REQUIRE(plain.content() == input);
        copy_bytes(plain.data(), plain.data(), size_bytes);
        copy_bytes_streaming(plain.data(), plain.data(), size_bytes);
        REQUIRE(plain.content() == input);
      }
    }
  }
}

}  // namespace
}  // namespace tutti
