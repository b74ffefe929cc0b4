// Composition: the steps of a part (a flat algorithm emitted over a view of some members) become steps of a
// whole, so that a hierarchical algorithm is a sequence of flat ones. Knows no algorithm and no hierarchy:
// the author gives the place of the part.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/schedule/builder.hpp"

namespace tutti {

// A place for blocks in the whole: a user buffer, or scratch from a slot on.
struct PartBuffer {
  Buffer buffer = Buffer::output;
  std::uint32_t slot =
      0;  // scratch: of the part's block 0; block b begins b * PartPlace::width() slots later
};

struct PartPlace {
  // Block b of the part is these blocks of the whole, in this order. Equal on all members of the part.
  std::vector<std::vector<std::uint32_t>> blocks;
  PartBuffer input{Buffer::input};  // where the part reads its input; a part emitted in place has none
  PartBuffer output{Buffer::output};

  // The most blocks that one block of the part stands for.
  std::uint32_t width() const;
};

// Block b of a part of `count` blocks is blocks first + b * width, ... of the whole.
std::vector<std::vector<std::uint32_t>> neighbouring_blocks(std::uint32_t first, std::uint32_t count,
                                                            std::uint32_t width);

// Appends the steps of `part` to the whole. The view of the part lists its members as members of the whole's
// view. Its scratch lies behind the slots that the whole has used so far. A step whose blocks are no slice of
// the whole becomes several. Its blocks alone decide the cuts, so sender and receiver agree. The verifier
// proves the whole.
// Errors: invalid_argument for a part that is segmented or lowered, or has another grid than `place`.
Status splice(Builder& whole, const Schedule& part, const PartPlace& place);

}  // namespace tutti
