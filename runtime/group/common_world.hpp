// Finds a world that all ranks of a new group have open: encodes the list of open worlds, and chooses one
// alike on all ranks. Pure; knows no connection and no group.
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
inline constexpr std::size_t kMaxOpenWorlds = 64;  // in one list, the oldest first

std::string encode_open_worlds(const std::vector<OpenWorld>& worlds);
// nullopt for bytes that no encode_open_worlds() writes.
std::optional<std::vector<OpenWorld>> decode_open_worlds(std::string_view bytes);

// A world that all of the ranks have open.
struct CommonWorld {
  std::string identity;
  std::vector<int> ranks;  // in that world, in the order of the notes
};

// `notes`: encode_open_worlds() of each rank; notes that are empty or malformed name no world. Returns the
// first world of the first note that all notes have, with distinct ranks; nullopt if there is none.
std::optional<CommonWorld> find_common_world(const std::vector<std::string>& notes);

}  // namespace tutti
