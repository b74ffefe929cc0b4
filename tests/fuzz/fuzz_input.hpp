// Reads values from the input of a fuzz target; zeros after its end. Knows no target.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

namespace tutti::fuzz {

struct Input {
  std::span<const std::byte> rest;

  template <class T>
  T take() {
    T value{};
    const std::size_t bytes = std::min(sizeof(T), rest.size());
    std::memcpy(static_cast<void*>(&value), rest.data(), bytes);
    rest = rest.subspan(bytes);
    return value;
  }
  std::span<const std::byte> take_bytes(std::size_t count) {
    const auto taken = rest.first(std::min(count, rest.size()));
    rest = rest.subspan(taken.size());
    return taken;
  }
};

}  // namespace tutti::fuzz
