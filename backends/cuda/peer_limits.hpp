// Limits of kernels that reach the memory of all ranks, shared by device engine selection and the kernels.
// Knows neither.
#pragma once

#include <cstdint>
#include <string_view>

namespace tutti {

inline constexpr std::uint32_t kMostPeers = 16;                // ranks of a group
inline constexpr std::uint32_t kMostOneShotBytes = 256 << 10;  // of a vector, by one shot
// By two shots between processes, at a time: the memory in which they show each other their vectors.
inline constexpr std::uint32_t kTwoShotPieceBytes = 8 << 20;
// By schedules, at a time: the scratch of a rank that the others read.
inline constexpr std::uint32_t kSchedulePieceBytes = 8 << 20;

// The reason why these kernels run only where they are named.
inline constexpr std::string_view kWhyNotOnSharedGpu =
    "processes share a GPU, and take turns on it unless MPS runs";

}  // namespace tutti
