// Sizes from which on calls on control blocks are carried out in another way. Knows no plan and no call.
#pragma once

#include <cstddef>

namespace tutti {

// Equal on all ranks of a group.
struct LoweredLimits {
  std::size_t announce_bytes = std::size_t{8} << 10U;  // from here on ranks announce where their buffers lie
  std::size_t stream_bytes = std::size_t{16} << 20U;   // from here on stores into the buffers are nt_stores
  // A pass over several sources and destinations goes piece by piece: a piece is stored everywhere while it is
  // in the first cache. After each streamed piece the store buffers drain.
  std::size_t piece_bytes = std::size_t{16} << 10U;
  std::size_t streamed_piece_bytes = std::size_t{32} << 10U;
  static constexpr std::size_t kMostPieceBytes = std::size_t{64} << 10U;

  bool operator==(const LoweredLimits&) const = default;
};

}  // namespace tutti
