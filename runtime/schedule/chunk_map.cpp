// Element ranges of atoms: balanced cutting in whole granules, windows, listed counts.
#include "runtime/schedule/chunk_map.hpp"

#include <algorithm>

#include "runtime/base/status.hpp"

namespace tutti {

namespace {

// Part `index` of `parts` of `count` elements, cut in whole granules: the first parts get one granule more.
// Counts go beyond 2^32 and no product here exceeds the count itself.
Range cut(std::uint64_t count, std::uint64_t granule, std::uint32_t parts, std::uint32_t index) {
  if (parts == 1) return {0, count};  // short vectors are one block: no division on their way
  const std::uint64_t units = count / granule + (count % granule != 0 ? 1 : 0);
  const std::uint64_t each = units / parts, longer = units % parts;
  const std::uint64_t begin = index * each + std::min<std::uint64_t>(index, longer);
  const std::uint64_t end = begin + each + (index < longer ? 1 : 0);
  const std::uint64_t first = std::min(count, begin * granule);
  return {first, std::min(count, end * granule) - first};
}

// Does the buffer hold the rank's own block only? The same answer for all ranks but the root.
bool holds_own_block(const Schedule& s, Buffer buffer, bool is_root) {
  const bool is_input = buffer == Buffer::input;
  switch (s.collective) {
    case Collective::allgather:
      return is_input;
    case Collective::gather:
      return is_input || !is_root;
    case Collective::reduce_scatter:
      return !is_input && !s.in_place;
    case Collective::scatter:
      return !is_input && !(s.in_place && is_root);
    default:
      return false;
  }
}

}  // namespace

ChunkMap::ChunkMap(const Schedule& s) { reset(s); }

void ChunkMap::reset(const Schedule& s) {
  is_root_ = s.rank == s.root;
  root_ = s.root;
  blocks_ = s.blocks;
  segments_ = s.segments;
  bind(Kind::vector, 0, 1);
  max_atom_count_ = 0;
  for (const Buffer buffer : {Buffer::input, Buffer::output}) {
    Side& at = buffer == Buffer::input ? input_ : output_;
    at.window = window(s, buffer);
    for (const bool is_root : {false, true}) at.is_own_block[is_root] = holds_own_block(s, buffer, is_root);
  }
}

void ChunkMap::reserve(std::uint32_t blocks) {
  for (Side* side : {&input_, &output_}) {
    side->first.reserve(blocks);
    side->count.reserve(blocks);
  }
}

void ChunkMap::bind(Kind kind, std::uint64_t count, std::uint64_t granule) {
  kind_ = kind;
  count_ = count;
  granule_ = std::max<std::uint64_t>(granule, 1);
}

void ChunkMap::bind_vector(std::uint64_t count, std::uint64_t granule) {
  bind(Kind::vector, count, granule);
  max_atom_count_ = segment_of(block_range(output_, 0), 0).count;  // the first parts are the longest
}

void ChunkMap::bind_equal_part(std::uint64_t block_count, std::uint64_t first, std::uint64_t count,
                               std::uint64_t granule) {
  bind(Kind::equal, block_count, granule);
  part_ = {first, count};
  max_atom_count_ = segment_of({0, count}, 0).count;
}

void ChunkMap::list(Side& side, std::span<const std::uint64_t> counts,
                    std::span<const std::uint64_t> displacements) {
  TUTTI_ASSERT(counts.size() == blocks_, "one count per block");
  TUTTI_ASSERT(displacements.empty() || displacements.size() == counts.size(), "one displacement per block");
  side.count.assign(counts.begin(), counts.end());
  side.first.assign(displacements.begin(), displacements.end());
  if (displacements.empty()) {
    std::uint64_t next = 0;
    for (const std::uint64_t count : counts) {
      side.first.push_back(next);
      next += count;
    }
  }
  for (const std::uint64_t count : counts)
    max_atom_count_ = std::max(max_atom_count_, segment_of({0, count}, 0).count);
}

void ChunkMap::bind_counts(std::span<const std::uint64_t> counts,
                           std::span<const std::uint64_t> displacements, std::uint64_t granule) {
  bind(Kind::listed, 0, granule);
  max_atom_count_ = 0;
  list(input_, counts, displacements);
  list(output_, counts, displacements);
}

void ChunkMap::bind_alltoall(std::span<const std::uint64_t> send_counts,
                             std::span<const std::uint64_t> send_displacements,
                             std::span<const std::uint64_t> receive_counts,
                             std::span<const std::uint64_t> receive_displacements, std::uint64_t granule) {
  bind(Kind::listed, 0, granule);
  max_atom_count_ = 0;
  const bool has_input = input_.window.count != 0;
  list(input_, has_input ? send_counts : receive_counts,
       has_input ? send_displacements : receive_displacements);
  list(output_, receive_counts, receive_displacements);
}

Range ChunkMap::block_range(const Side& side, std::uint32_t block) const {
  switch (kind_) {
    case Kind::vector:
      return cut(count_, granule_, blocks_, block);
    case Kind::equal:
      return {block * count_ + part_.first, part_.count};
    case Kind::listed:
      return {side.first[block], side.count[block]};
  }
  return {};
}

Range ChunkMap::segment_of(const Range& block, std::uint32_t segment) const {
  if (segments_ == 1) return block;
  const Range part = cut(block.count, granule_, segments_, segment);
  return {block.first + part.first, part.count};
}

Range ChunkMap::range(Buffer buffer, std::uint32_t atom, bool owner_is_root) const {
  const Side& at = side(buffer);
  Range block = block_range(at, segments_ == 1 ? atom : atom / segments_);
  if (at.is_own_block[owner_is_root] && buffer != Buffer::scratch)
    block.first = kind_ == Kind::equal ? part_.first : 0;
  Range found = segments_ == 1 ? block : segment_of(block, atom % segments_);
  if (buffer == Buffer::scratch) found.first = 0;
  return found;
}

std::uint64_t ChunkMap::extent(Buffer buffer) const {
  if (buffer == Buffer::scratch) return max_atom_count_;
  const Side& at = side(buffer);
  std::uint64_t end = 0;
  for (std::uint32_t a = at.window.first; a < at.window.first + at.window.count; a += segments_) {
    const Range block = block_range(at, a / segments_);
    if (block.count != 0) end = std::max(end, range(buffer, a).first + block.count);
  }
  return end;
}

}  // namespace tutti
