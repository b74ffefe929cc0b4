// Ranks that meet anew and have a world in common already: the worlds that each of them has open, as bytes
// that they swap, and the choice that all of them make alike. Pure; knows no connection and no group.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// A world that a process has open, and its rank there.
struct OpenWorld {
  std::string identity;  // of kWorldIdentityBytes random bytes, equal on all ranks of the world
  int rank = 0;
  bool operator==(const OpenWorld&) const = default;
};

inline constexpr std::size_t kWorldIdentityBytes = 16;
inline constexpr std::size_t kMaxOpenWorlds = 64;  // that a rank tells of, the oldest first

std::string encode_open_worlds(const std::vector<OpenWorld>& worlds);
// Nothing for bytes that no encode_open_worlds() gives.
std::optional<std::vector<OpenWorld>> decode_open_worlds(std::string_view bytes);

// A world that all of the ranks have open.
struct CommonWorld {
  std::string identity;
  std::vector<int> ranks;  // in that world, in the order of the notes
};

// `notes`: encode_open_worlds() of each rank, where empty ones and what cannot be decoded name no world. The
// first world of the first rank's note that all have, each as a rank of its own; nullopt if there is none.
std::optional<CommonWorld> find_common_world(const std::vector<std::string>& notes);

}  // namespace tutti
