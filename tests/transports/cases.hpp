// Shared by the cases of the conformance suite. Knows no transport.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/transports/world.hpp"

namespace tutti::test {

inline std::string unexpected(const Event& event) {
  return "unexpected event of kind " + std::to_string(static_cast<int>(event.kind)) + ": request " +
         std::to_string(event.request) + ", match header " + std::to_string(event.match_header) + ", " +
         std::to_string(event.bytes) + " bytes";
}

inline Sink sink_of(const ByteRange* range) { return {{range, 1}, range->size(), nullptr, nullptr}; }

// Checks deliveries: ascending, gapless, at multiples of 64, and nothing but the last piece is odd.
struct Collector {
  std::vector<std::byte> data;
  std::size_t expected = 0;
  bool is_sound = true;
  bool had_short_piece = false;
  static void deliver(void* context, std::size_t offset, ConstByteRange piece) {
    auto* self = static_cast<Collector*>(context);
    self->is_sound = self->is_sound && offset == self->data.size() && offset % 64 == 0 &&
                     !self->had_short_piece && !piece.empty() && offset + piece.size() <= self->expected;
    self->had_short_piece = piece.size() % 64 != 0;
    self->data.insert(self->data.end(), piece.begin(), piece.end());
  }
};

// Sizes around every threshold of the memory transports, and some that are on none.
inline std::vector<std::size_t> threshold_sizes() {
  std::vector<std::size_t> sizes{0, 1, 7};
  for (const std::size_t at :
       {40UL, 64UL, 1024UL, 4096UL, 8192UL, 32768UL, 65536UL, 131072UL, 262144UL, 1048576UL}) {
    for (const std::size_t size : {at - 1, at, at + 1}) sizes.push_back(size);
  }
  sizes.push_back((1U << 20U) + 7);
  return sizes;
}

// Splits a buffer into ranges of uneven lengths, some empty.
inline std::vector<ConstByteRange> split(const std::vector<std::byte>& data, std::size_t pieces) {
  std::vector<ConstByteRange> ranges;
  std::size_t at = 0;
  for (std::size_t i = 0; i < pieces; ++i) {
    const std::size_t end =
        i + 1 == pieces ? data.size() : data.size() * (i + 1) * (i + 1) / (pieces * pieces);
    ranges.emplace_back(data.data() + at, end - at);
    at = end;
  }
  return ranges;
}

inline std::vector<ByteRange> split_to(std::vector<std::byte>& data, std::size_t pieces) {
  std::vector<ByteRange> ranges;
  for (const ConstByteRange& range : split(data, pieces)) {
    ranges.emplace_back(const_cast<std::byte*>(range.data()), range.size());
  }
  return ranges;
}

}  // namespace tutti::test
