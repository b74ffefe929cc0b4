// Fuzzes what a part of an elastic job writes to its launcher: output of programs with messages in it, in pieces of any
// size. Its first byte is the size of the pieces.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/run/part_messages.hpp"

using namespace tutti;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

struct Taken {
  std::string rest;
  std::vector<PartMessage> messages;
};

Taken take(std::string_view text, std::size_t piece_bytes) {
  Taken taken;
  PartMessageReader reader("job");
  for (; !text.empty(); text.remove_prefix(std::min(piece_bytes, text.size())))
    taken.rest += reader.feed(text.substr(0, piece_bytes), taken.messages);
  return taken;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Taken whole = take(text, size);
  const Taken pieces = take(text, std::size_t{data[0]} + 1);
  require(whole.rest == pieces.rest && whole.messages == pieces.messages);
  require(whole.rest.size() <= text.size());
  for (const PartMessage& message : whole.messages) {
    require(message.slot >= 0);
    require(parse_part_message(to_text(message)) == message);
  }
  return 0;
}
