// Checks every reduction kernel against the scalar reference and measures both: one row per dtype and op.
// Knows no group and no transport; the exhaustive comparison is tests/kernels/kernels_test.cpp.
//
//   bench_kernels [--check] [--seconds S] [--size BYTES] [--sources N] [--dtype NAME] [--op NAME] [--target
//   NAME]
//
// GB/s count what is read and written: (sources + 1) * bytes per call. --check only compares. Exit status 1
// if a kernel and the reference differ.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/config.hpp"
#include "runtime/kernels/kernels.hpp"
#include "runtime/kernels/reference.hpp"

namespace tutti {
namespace {

struct Options {
  bool only_check = false;
  double seconds = 0.02;  // per measurement
  std::size_t size_bytes = 256 << 10;
  std::size_t source_count = 2;
  std::string dtype;
  std::string op;
  std::string target;
};

// A user-defined op on the bytes of any dtype.
void three_a_plus_b(void* context, void* dst, const void* a, const void* b, std::size_t count) noexcept {
  const std::size_t size_bytes = count * *static_cast<const std::size_t*>(context);
  const auto* left = static_cast<const std::uint8_t*>(a);
  const auto* right = static_cast<const std::uint8_t*>(b);
  auto* to = static_cast<std::uint8_t*>(dst);
  for (std::size_t i = 0; i < size_bytes; ++i) to[i] = static_cast<std::uint8_t>(3 * left[i] + right[i]);
}

// Small integers in every format: sums and products stay ordinary numbers, as gradients are, and reading them
// is not slowed by subnormals.
std::vector<std::byte> make_input(Dtype dtype, std::size_t count, std::mt19937& random) {
  std::vector<std::byte> bytes(count * size_of(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* element = bytes.data() + i * size_of(dtype);
    const float value = static_cast<float>(static_cast<int>(random() % 4)) + 1.0F;
    if (dtype == Dtype::f32) {
      std::memcpy(element, &value, sizeof value);
    } else if (dtype == Dtype::f64) {
      const double wide = value;
      std::memcpy(element, &wide, sizeof wide);
    } else if (is_narrow_float(dtype)) {
      const std::uint16_t code = encode_narrow(dtype, value);
      std::memcpy(element, &code, size_of(dtype));
    } else {
      *element = static_cast<std::byte>(static_cast<int>(value));
    }
  }
  return bytes;
}

// GB/s of the best of the calls that fit into `seconds`.
template <class Call>
double measure(double seconds, double bytes_per_call, Call call) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  double best = 1e30;
  do {
    const auto start = Clock::now();
    call();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  } while (Clock::now() < end);
  return bytes_per_call / best * 1e-9;
}

// One row of the table; false if kernel and reference differ.
bool run_pair(const Options& options, Dtype dtype, Op op) {
  std::size_t element_bytes = size_of(dtype);
  const UserOp user{three_a_plus_b, &element_bytes, false, 0};
  ReduceOp reduce_op = op;
  reduce_op.user = user;
  const std::size_t count = options.size_bytes / element_bytes;
  std::mt19937 random(1);
  std::vector<std::vector<std::byte>> inputs;
  std::vector<const void*> sources;
  for (std::size_t k = 0; k < options.source_count; ++k) inputs.push_back(make_input(dtype, count, random));
  sources.reserve(inputs.size());
  for (const auto& input : inputs) sources.push_back(input.data());
  std::vector<std::byte> expected(count * element_bytes);
  std::vector<std::byte> actual(count * element_bytes, std::byte{0xA5});

  const KernelFn kernel = select_kernel(op, dtype);
  kernel(&reduce_op.user, actual.data(), sources.data(), sources.size(), count);
  reduce_reference(reduce_op, dtype, expected.data(), sources, count);
  const bool is_same = actual == expected;
  std::printf("%-7s %-10s %s", std::string(to_string(dtype)).c_str(), std::string(to_string(op)).c_str(),
              is_same ? "same " : "WRONG");
  if (!options.only_check) {
    const double bytes = static_cast<double>(count * element_bytes * (options.source_count + 1));
    const double fast = measure(options.seconds, bytes, [&] {
      kernel(&reduce_op.user, actual.data(), sources.data(), sources.size(), count);
    });
    const double slow = measure(options.seconds, bytes,
                                [&] { reduce_reference(reduce_op, dtype, actual.data(), sources, count); });
    std::printf(" %10.2f %10.3f %8.1f", fast, slow, fast / slow);
  }
  std::printf("\n");
  return is_same;
}

// memcpy of the same size, as a measure of what the memory or cache gives.
void print_copy(const Options& options) {
  const std::vector<std::byte> src(options.size_bytes, std::byte{1});
  std::vector<std::byte> dst(options.size_bytes);
  const double bytes = 2.0 * static_cast<double>(options.size_bytes);
  const double plain =
      measure(options.seconds, bytes, [&] { copy_bytes(dst.data(), src.data(), src.size()); });
  const double streaming =
      measure(options.seconds, bytes, [&] { copy_bytes_streaming(dst.data(), src.data(), src.size()); });
  std::printf("copy %.2f GB/s, streaming copy %.2f GB/s\n", plain, streaming);
}

int usage() {
  std::fprintf(
      stderr,
      "usage: bench_kernels [--check] [--seconds S] [--size BYTES] [--sources N] [--dtype NAME] [--op "
      "NAME] [--target NAME]\n");
  return 2;
}

int run(int argc, char* argv[]) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--check") {
      options.only_check = true;
      continue;
    }
    if (i + 1 == argc) return usage();
    const std::string value = argv[++i];
    if (name == "--seconds") {
      options.seconds = std::atof(value.c_str());
    } else if (name == "--size" && parse_size(value)) {
      options.size_bytes = *parse_size(value);
    } else if (name == "--sources" && std::atoi(value.c_str()) > 0) {
      options.source_count = static_cast<std::size_t>(std::atoi(value.c_str()));
    } else if (name == "--dtype" && parse_dtype(value)) {
      options.dtype = value;
    } else if (name == "--op" && parse_op(value)) {
      options.op = value;
    } else if (name == "--target" && set_kernel_target_for_test(value)) {
      options.target = value;
    } else {
      return usage();
    }
  }
  const std::string target = options.target.empty() ? std::string(kernel_target()) : options.target;
  std::printf("target %s, %zu bytes per source, %zu sources\n", target.c_str(), options.size_bytes,
              options.source_count);
  if (!options.only_check) {
    print_copy(options);
    std::printf("%-7s %-10s %s %10s %10s %8s\n", "dtype", "op", "check", "GB/s", "reference", "ratio");
  }
  int wrong = 0;
  for (int d = 0; d < kDtypeCount; ++d) {
    for (int o = 0; o < kOpCount; ++o) {
      const auto dtype = static_cast<Dtype>(d);
      const auto op = static_cast<Op>(o);
      const bool is_asked_for = (options.dtype.empty() || options.dtype == to_string(dtype)) &&
                                (options.op.empty() || options.op == to_string(op));
      if (is_asked_for && is_scalar(dtype) && is_legal(op, dtype) && !run_pair(options, dtype, op)) ++wrong;
    }
  }
  if (wrong != 0) std::printf("%d kernels differ from the reference\n", wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tutti

int main(int argc, char* argv[]) { return tutti::run(argc, argv); }
