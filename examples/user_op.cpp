// A user-defined operation: 2x2 integer matrices multiplied in rank order, which does not commute.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "tutti/tutti.hpp"

namespace {

using Matrix = std::array<std::uint8_t, 4>;  // one element of dtype u32: four bytes, modulo 256

void multiply(void* /*context*/, void* dst, const void* a, const void* b, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    Matrix x, y;
    std::memcpy(x.data(), static_cast<const char*>(a) + 4 * i, 4);
    std::memcpy(y.data(), static_cast<const char*>(b) + 4 * i, 4);
    const auto cell = [&](int r, int c) {
      return static_cast<std::uint8_t>(x[2 * r] * y[c] + x[2 * r + 1] * y[2 + c]);
    };
    const Matrix product{cell(0, 0), cell(0, 1), cell(1, 0), cell(1, 1)};
    std::memcpy(static_cast<char*>(dst) + 4 * i, product.data(), 4);
  }
}

}  // namespace

int main() {
  const tutti::CommGroup world = tutti::init();
  const auto step = static_cast<std::uint8_t>(world.rank() + 1);
  Matrix matrix = world.rank() % 2 == 0 ? Matrix{1, step, 0, 1} : Matrix{1, 0, step, 1};
  const auto product = tutti::Reduction::user(multiply, nullptr, false);
  world.allreduce(matrix.data(), matrix.data(), 1, tutti::Dtype::u32, product);
  std::printf("rank %d of %d: product %d %d %d %d\n", world.rank(), world.size(), matrix[0], matrix[1],
              matrix[2], matrix[3]);
  return 0;
}
