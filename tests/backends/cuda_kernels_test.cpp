// Reductions and scaling of device memory through the launch path, against the scalar reference: every dtype
// and op, odd counts, pointers that are aligned to nothing. The stand-in runs the kernels' own bodies on the
// host.
#include <stdlib.h>

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backends/cuda/kernels.hpp"
#include "backends/cuda/memory.hpp"
#include "backends/cuda/stream_event.hpp"
#include "runtime/kernels/reference.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/cuda_stand_in/control.hpp"
#include "tests/support/test_fraction.hpp"

namespace {

using namespace tutti;
using namespace tutti::cuda;
using Catch::Matchers::Contains;
using namespace std::chrono_literals;
using Bytes = std::vector<std::byte>;

// The stand-in, unless the suite of tests on GPUs has named a GPU's driver.
const bool is_named = ::setenv("TUTTI_CUDA_LIBRARY", STAND_IN_FILE, 0) == 0;

// A device's context, a stream, and memory in exact allocations that go at the end.
class Bench {
 public:
  Bench() : context_(ContextScope::enter(0)), stream_(Stream::create(0)), events_(0) {
    REQUIRE(is_named);
    REQUIRE(context_.is_ok());
    REQUIRE(stream_.is_ok());
  }
  ~Bench() { clear(); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // The content starts `offset` bytes into an allocation that ends with it: a sanitizer sees what lies
  // outside.
  std::byte* memory(const Bytes& content, std::size_t offset) {
    CUdeviceptr address = 0;
    REQUIRE((*driver())->cuMemAlloc(&address, offset + content.size() + (content.empty() && offset == 0)) ==
            CUDA_SUCCESS);
    allocations_.push_back(address);
    auto* data = static_cast<std::byte*>(pointer_to(address)) + offset;
    if (!content.empty())
      REQUIRE((*driver())->cuMemcpy(address_of(data), address_of(content.data()), content.size()) ==
              CUDA_SUCCESS);
    return data;
  }
  CUstream stream() const { return stream_->get(); }
  void finish() {
    auto event = events_.take();
    REQUIRE(event->record(stream()).is_ok());
    REQUIRE(event->wait(Clock::now() + 60s).is_ok());
  }
  void clear() {
    for (const CUdeviceptr address : allocations_) (*driver())->cuMemFree(address);
    allocations_.clear();
  }

 private:
  Result<ContextScope> context_;
  Result<Stream> stream_;
  EventPool events_;
  std::vector<CUdeviceptr> allocations_;
};

Bytes content(const std::byte* data, std::size_t size_bytes) {
  Bytes found(size_bytes);
  if (size_bytes > 0)
    REQUIRE((*driver())->cuMemcpy(address_of(found.data()), address_of(data), size_bytes) == CUDA_SUCCESS);
  return found;
}

// Random bits, in which every fourth element is one that kernels get wrong.
Bytes make_input(Dtype dtype, std::size_t count, std::mt19937& random) {
  static const float kSpecial[] = {0.0F,   -0.0F,   1.0F,     INFINITY, -INFINITY, NAN,    1e-45F,
                                   1e-39F, FLT_MAX, -FLT_MAX, FLT_MIN,  448.0F,    464.0F, 65504.0F};
  Bytes result(count * size_of(dtype));
  for (auto& byte : result) byte = static_cast<std::byte>(random());
  for (std::size_t i = 0; i < count; i += 1 + random() % 7) {
    std::byte* element = result.data() + i * size_of(dtype);
    const float special = kSpecial[random() % std::size(kSpecial)];
    const double wide = special;
    if (dtype == Dtype::f32) {
      std::memcpy(element, &special, sizeof special);
    } else if (dtype == Dtype::f64) {
      std::memcpy(element, &wide, sizeof wide);
    } else if (is_narrow_float(dtype)) {
      const std::uint16_t code = encode_narrow(dtype, special);
      std::memcpy(element, &code, size_of(dtype));
    } else {
      std::memset(element, random() % 2 == 0 ? 0 : 0xFF, size_of(dtype));
    }
  }
  return result;
}

template <class T>
bool same_floats(const Bytes& actual, const Bytes& expected) {
  for (std::size_t i = 0; i < actual.size(); i += sizeof(T)) {
    T a;
    T b;
    std::memcpy(&a, &actual[i], sizeof(T));
    std::memcpy(&b, &expected[i], sizeof(T));
    if (std::memcmp(&a, &b, sizeof(T)) != 0 && !(std::isnan(a) && std::isnan(b))) return false;
  }
  return true;
}
// Bits have to be equal; a NaN of f32 or f64 may have any payload.
bool same(Dtype dtype, const Bytes& actual, const Bytes& expected) {
  if (actual == expected) return true;
  if (dtype == Dtype::f32) return same_floats<float>(actual, expected);
  return dtype == Dtype::f64 && same_floats<double>(actual, expected);
}

ReduceOp make_op(Op op, Dtype dtype) {
  if (op != Op::premul_sum) return op;
  return class_of(dtype) == DtypeClass::integer ? ReduceOp::premul_sum_integer(-7)
                                                : ReduceOp::premul_sum(0.3);
}

// Where the vectors start, in bytes: all at chunks; all beside them alike; each elsewhere.
enum class Layout { aligned, equal, mixed, bytes };
std::size_t offset_of(Layout layout, std::size_t k, std::size_t element_bytes) {
  switch (layout) {
    case Layout::aligned:
      return 0;
    case Layout::equal:
      return element_bytes;
    case Layout::mixed:
      return (k * 3 + 1) * element_bytes;
    case Layout::bytes:
      return k * 5 + 3;
  }
  return 0;
}

}  // namespace

TEST_CASE("device reductions equal the reference for every dtype, op, count and alignment") {
  Bench bench;
  std::mt19937 random(11);
  std::uint64_t number = 0;
  for (int d = 0; d < kDtypeCount; ++d) {
    const auto dtype = static_cast<Dtype>(d);
    for (int o = 0; o < kOpCount; ++o) {
      const auto op = static_cast<Op>(o);
      if (op == Op::user || !is_scalar(dtype) || !is_legal(op, dtype)) continue;
      for (const std::size_t count : {0, 1, 17, 300}) {
        for (const std::size_t sources : {1, 2, 3, 8}) {
          if (!test::is_selected(number++)) continue;
          std::vector<Bytes> inputs;
          std::vector<const void*> hosts;
          for (std::size_t k = 0; k < sources; ++k) inputs.push_back(make_input(dtype, count, random));
          for (const Bytes& input : inputs) hosts.push_back(input.data());
          Bytes expected(count * size_of(dtype));
          reduce_reference(make_op(op, dtype), dtype, expected.data(), hosts, count);
          // All layouts, beside the sources and in the place of the last of them, and then one wait.
          struct Run {
            Layout layout;
            std::vector<const void*> devices;
            std::byte* apart;
            std::byte* inside;
          };
          std::vector<Run> runs;
          for (const Layout layout : {Layout::aligned, Layout::equal, Layout::mixed, Layout::bytes}) {
            for (const bool is_inside : {false, true}) {
              Run run{layout, {}, nullptr, nullptr};
              for (std::size_t k = 0; k < sources; ++k) {
                run.inside = bench.memory(inputs[k], offset_of(layout, k, size_of(dtype)));
                run.devices.push_back(run.inside);
              }
              if (!is_inside) {
                run.inside = nullptr;
                run.apart = bench.memory(Bytes(expected.size()), offset_of(layout, sources, size_of(dtype)));
              }
              std::byte* dst = is_inside ? run.inside : run.apart;
              REQUIRE(reduce(dst, run.devices, count, dtype, make_op(op, dtype), bench.stream()).is_ok());
              runs.push_back(run);
            }
          }
          bench.finish();
          INFO(to_string(op) << " of " << to_string(dtype) << ", " << sources << " of " << count);
          for (const Run& run : runs) {
            INFO("layout " << static_cast<int>(run.layout) << (run.inside == nullptr ? "" : " in place"));
            const std::byte* dst = run.inside == nullptr ? run.apart : run.inside;
            REQUIRE(same(dtype, content(dst, expected.size()), expected));
            for (std::size_t k = 0; k < sources; ++k) {  // sources are only read
              if (run.devices[k] == dst) continue;
              REQUIRE(content(static_cast<const std::byte*>(run.devices[k]), expected.size()) == inputs[k]);
            }
          }
          bench.clear();
        }
      }
    }
  }
}

TEST_CASE("a vector longer than the grid is gone through in strides, by most sources at once") {
  Bench bench;
  std::mt19937 random(12);
  const std::size_t count = 20001;
  for (const Dtype dtype : {Dtype::bf16, Dtype::i64}) {
    std::vector<Bytes> inputs;
    std::vector<const void*> hosts;
    std::vector<const void*> devices;
    for (std::size_t k = 0; k < kMaxReduceSources; ++k) inputs.push_back(make_input(dtype, count, random));
    for (const Bytes& input : inputs) {
      hosts.push_back(input.data());
      devices.push_back(bench.memory(input, 0));
    }
    Bytes expected(count * size_of(dtype));
    reduce_reference(Op::sum, dtype, expected.data(), hosts, count);
    std::byte* dst = bench.memory(Bytes(expected.size()), 0);
    REQUIRE(reduce(dst, devices, count, dtype, Op::sum, bench.stream()).is_ok());
    bench.finish();
    CHECK(content(dst, expected.size()) == expected);
    devices.push_back(dst);
    const Status status = reduce(dst, devices, count, dtype, Op::sum, bench.stream());
    CHECK(status.code() == StatusCode::invalid_argument);
    CHECK_THAT(status.message(), Contains("1 to 32 sources, not 33"));
    bench.clear();
  }
}

// On a GPU these are instructions of its own.
TEST_CASE("narrow formats are right on the device: all pairs of f8 codes, all f16 and bf16 codes with some") {
  Bench bench;
  for (const Dtype dtype : {Dtype::f8e4m3, Dtype::f8e5m2, Dtype::f16, Dtype::bf16}) {
    const std::size_t element_bytes = size_of(dtype);
    const std::size_t codes = element_bytes == 1 ? 256 : 65536;
    std::vector<std::uint16_t> partners;
    for (unsigned code = 0; code < 256 && element_bytes == 1; ++code) {
      partners.push_back(static_cast<std::uint16_t>(code));
    }
    for (const float value : {-0.0F, 1.5F, -65504.0F, 6e-8F, INFINITY, NAN, 0.333F}) {
      if (element_bytes == 2) partners.push_back(encode_narrow(dtype, value));
    }
    Bytes a(codes * partners.size() * element_bytes);
    Bytes b(a.size());
    for (std::size_t i = 0; i < a.size() / element_bytes; ++i) {
      const auto code = static_cast<std::uint16_t>(i % codes);
      std::memcpy(&a[i * element_bytes], &code, element_bytes);
      std::memcpy(&b[i * element_bytes], &partners[i / codes], element_bytes);
    }
    const std::vector<const void*> hosts = {a.data(), b.data()};
    const std::vector<const void*> devices = {bench.memory(a, 0), bench.memory(b, 0)};
    std::byte* dst = bench.memory(Bytes(a.size()), 0);
    for (const Op op : {Op::sum, Op::prod, Op::min, Op::max}) {
      if (!test::is_selected(static_cast<std::uint64_t>(op))) continue;
      Bytes expected(a.size());
      reduce_reference(op, dtype, expected.data(), hosts, a.size() / element_bytes);
      REQUIRE(reduce(dst, devices, a.size() / element_bytes, dtype, op, bench.stream()).is_ok());
      bench.finish();
      INFO(to_string(op) << " of " << to_string(dtype));
      REQUIRE(content(dst, expected.size()) == expected);
    }
    bench.clear();
  }
}

TEST_CASE("device scaling equals the reference, in place and not") {
  Bench bench;
  std::mt19937 random(13);
  std::uint64_t number = 0;
  for (int d = 0; d < kDtypeCount; ++d) {
    const auto dtype = static_cast<Dtype>(d);
    for (const Op op : {Op::avg, Op::premul_sum}) {
      if (!is_scalar(dtype) || !is_legal(op, dtype)) continue;
      for (const int group_size : {1, 3, 65537}) {
        for (const std::size_t count : {0, 1, 17, 200}) {
          if (!test::is_selected(number++)) continue;
          const Bytes input = make_input(dtype, count, random);
          Bytes expected(input.size());
          scale_reference(make_op(op, dtype), group_size, dtype, expected.data(), input.data(), count);
          for (const Layout layout : {Layout::aligned, Layout::mixed, Layout::bytes}) {
            INFO(to_string(op) << " of " << to_string(dtype) << " " << count << " by " << group_size);
            std::byte* src = bench.memory(input, offset_of(layout, 0, size_of(dtype)));
            std::byte* dst = bench.memory(Bytes(input.size()), offset_of(layout, 1, size_of(dtype)));
            REQUIRE(scale(dst, src, count, dtype, make_op(op, dtype), group_size, bench.stream()).is_ok());
            REQUIRE(scale(src, src, count, dtype, make_op(op, dtype), group_size, bench.stream()).is_ok());
            bench.finish();
            REQUIRE(same(dtype, content(dst, input.size()), expected));
            REQUIRE(same(dtype, content(src, input.size()), expected));
            bench.clear();
          }
        }
      }
    }
  }
}

TEST_CASE("what no kernel does is refused with the reason") {
  Bench bench;
  std::byte* data = bench.memory(Bytes(64), 0);
  const std::vector<const void*> two = {data, data};
  CHECK_THAT(reduce(data, two, 4, Dtype::f32, Op::band, bench.stream()).message(),
             Contains("band is not defined"));
  const auto function = [](void*, void*, const void*, const void*, std::size_t) noexcept {};
  const ReduceOp user = ReduceOp::user_defined({function, nullptr, true, 0});
  CHECK(reduce(data, two, 4, Dtype::f32, user, bench.stream()).code() == StatusCode::unsupported);
  CHECK_THAT(reduce(data, two, 1, Dtype::c64, Op::sum, bench.stream()).message(), Contains("host alone"));
  CHECK_THAT(scale(data, data, 1, Dtype::c64, Op::avg, 2, bench.stream()).message(), Contains("host alone"));
  CHECK_THAT(reduce(data, {}, 4, Dtype::f32, Op::sum, bench.stream()).message(), Contains("not 0"));
  CHECK_THAT(scale(data, data, 4, Dtype::f32, Op::sum, 2, bench.stream()).message(), Contains("not sum"));
  CHECK_THAT(scale(data, data, 4, Dtype::f32, Op::avg, 0, bench.stream()).message(), Contains("not 0"));
}

TEST_CASE("a GPU that the kernels are not made for, and a device that broke, are reported", "[stand-in]") {
  const auto context = ContextScope::enter(1);  // no kernels loaded yet
  cuda_stand_in_fail("cuModuleLoadData", CUDA_ERROR_NO_BINARY_FOR_GPU, 1);
  const Status status = load_kernels();
  CHECK(status.code() == StatusCode::unsupported);
  CHECK_THAT(status.message(), Contains("compute capability 8.0"));
  REQUIRE(load_kernels().is_ok());  // nothing of the failure stays
  CUdeviceptr address = 0;
  REQUIRE((*driver())->cuMemAlloc(&address, 64) == CUDA_SUCCESS);
  void* data = pointer_to(address);
  cuda_stand_in_break(1, CUDA_ERROR_ILLEGAL_ADDRESS);
  const std::vector<const void*> two = {data, data};
  CHECK_THAT(reduce(data, two, 4, Dtype::f32, Op::sum, nullptr).message(),
             Contains("CUDA_ERROR_ILLEGAL_ADDRESS"));
  cuda_stand_in_break(1, CUDA_SUCCESS);
  CHECK(reduce(data, two, 4, Dtype::f32, Op::sum, nullptr).is_ok());
  REQUIRE((*driver())->cuMemFree(address) == CUDA_SUCCESS);
}
