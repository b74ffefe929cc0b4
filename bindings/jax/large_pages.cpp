// By madvise(). See large_pages.hpp.
#include "bindings/jax/large_pages.hpp"

#include <sys/mman.h>

#include <cstdint>

namespace tutti::jax {
namespace {

constexpr std::uintptr_t kLargePage = std::uintptr_t{2} << 20;
// Smaller ones are memory that the allocator had before.
constexpr std::size_t kLeast = std::size_t{4} << 20;

}  // namespace

void prefer_large_pages(void* data, std::size_t bytes) {
  if (bytes < kLeast) return;
  const auto begin = (reinterpret_cast<std::uintptr_t>(data) + kLargePage - 1) & ~(kLargePage - 1);
  const std::uintptr_t end = (reinterpret_cast<std::uintptr_t>(data) + bytes) & ~(kLargePage - 1);
  // Only advice: a kernel without large pages refuses it.
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace tutti::jax
