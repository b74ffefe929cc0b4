// Encoding, parsing and choosing of worlds that ranks have in common; see common_world.hpp.
#include "runtime/group/common_world.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "runtime/job/control_frame.hpp"

namespace tutti {
namespace {

// The rank of each note in the world; empty if some note lacks it or two notes name the same rank.
std::vector<int> ranks_in(const std::string& identity, const std::vector<std::vector<OpenWorld>>& notes) {
  std::vector<int> ranks;
  std::set<int> seen;
  for (const std::vector<OpenWorld>& note : notes) {
    const auto found = std::find_if(note.begin(), note.end(),
                                    [&](const OpenWorld& world) { return world.identity == identity; });
    if (found == note.end() || !seen.insert(found->rank).second) return {};
    ranks.push_back(found->rank);
  }
  return ranks;
}

}  // namespace

std::string encode_open_worlds(const std::vector<OpenWorld>& worlds) {
  ByteWriter writer;
  for (const OpenWorld& world : worlds) {
    writer.put_text(world.identity);
    writer.put(static_cast<std::int32_t>(world.rank));
  }
  return writer.take();
}

std::optional<std::vector<OpenWorld>> decode_open_worlds(std::string_view bytes) {
  std::vector<OpenWorld> worlds;
  ByteReader reader(bytes);
  while (!reader.is_at_end()) {
    OpenWorld& world = worlds.emplace_back();
    std::int32_t rank = 0;
    if (!reader.get_text(world.identity) || !reader.get(rank)) return std::nullopt;
    if (world.identity.size() != kWorldIdentityBytes || rank < 0 || worlds.size() > kMaxOpenWorlds)
      return std::nullopt;
    world.rank = rank;
  }
  return worlds;
}

std::optional<CommonWorld> find_common_world(const std::vector<std::string>& notes) {
  std::vector<std::vector<OpenWorld>> decoded;
  for (const std::string& note : notes) {
    std::optional<std::vector<OpenWorld>> worlds = decode_open_worlds(note);
    if (!worlds || worlds->empty()) return std::nullopt;
    decoded.push_back(*std::move(worlds));
  }
  if (decoded.empty()) return std::nullopt;
  for (const OpenWorld& world : decoded.front()) {
    std::vector<int> ranks = ranks_in(world.identity, decoded);
    if (!ranks.empty()) return CommonWorld{world.identity, std::move(ranks)};
  }
  return std::nullopt;
}

}  // namespace tutti
