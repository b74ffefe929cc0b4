// Fuzz target: any bytes are either refused as the worlds that a rank has open, or are what encoding gives; a
// choice names a rank for each note.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "runtime/group/common_world.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto worlds = tutti::decode_open_worlds(bytes);
  if (worlds && tutti::encode_open_worlds(*worlds) != bytes) std::abort();
  const std::size_t half = size / 2;
  const auto common = tutti::find_common_world({bytes.substr(0, half), bytes.substr(half)});
  if (common && (common->ranks.size() != 2 || common->ranks[0] == common->ranks[1])) std::abort();
  if (tutti::find_common_world({bytes}).has_value() != (worlds && !worlds->empty())) std::abort();
  return 0;
}
