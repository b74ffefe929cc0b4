// The chunk map: turns the atoms of a schedule into element ranges once the counts of a call are known.
// Knows no pointer, no dtype and no step. Uneven counts, v-variants, in place and segmentation are its
// business alone: an algorithm never divides a count.
//
// Where an atom lies follows from window(): a buffer that holds the whole vector has every block at its
// place; one that holds only the rank's own block (input of allgather and gather, output of reduce_scatter
// and scatter, and in place the same buffers of ranks other than the root) has it at offset 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/schedule/schedule.hpp"

namespace tutti {

// Elements [first, first + count) of a buffer.
struct Range {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  bool operator==(const Range&) const = default;
};

// One bound call. range() is O(1). Binding a vector or equal blocks allocates nothing. Binding counts reuses
// the storage of earlier bindings of the same object, so pool it. Not thread-safe while binding.
//
// `granule` is in elements, at least 1. Boundaries inside of blocks, which the caller does not see, are
// rounded up to multiples of it, so that no two ranks write one cache line. Trailing blocks and segments may
// be empty.
class ChunkMap {
 public:
  ChunkMap() = default;
  // Takes the grid, windows and placement of a schedule; all counts are zero until one of the following.
  explicit ChunkMap(const Schedule& schedule);
  // The same for an object that has been bound before: keeps its storage.
  void reset(const Schedule& schedule);

  // Counts of so many blocks can be bound without allocating.
  void reserve(std::uint32_t blocks);

  // allreduce, broadcast, reduce, scan, exscan: `count` elements cut into balanced blocks.
  void bind_vector(std::uint64_t count, std::uint64_t granule = 1);
  // allgather, gather, reduce_scatter, scatter, alltoall: every block has `block_count` elements.
  void bind_equal(std::uint64_t block_count, std::uint64_t granule = 1) {
    bind_equal_part(block_count, 0, block_count, granule);
  }
  // The same for elements [first, first + count) of every block: an operation that is carried out in parts.
  void bind_equal_part(std::uint64_t block_count, std::uint64_t first, std::uint64_t count,
                       std::uint64_t granule = 1);
  // allgatherv, gatherv, reduce_scatterv, scatterv: block b has counts[b] elements. Where the whole vector
  // lies, block b starts at displacements[b]; without displacements blocks follow each other.
  // counts.size() == blocks; displacements.size() == blocks or 0.
  void bind_counts(std::span<const std::uint64_t> counts, std::span<const std::uint64_t> displacements = {},
                   std::uint64_t granule = 1);
  // alltoallv: input block d has send_counts[d] elements, output block s has receive_counts[s]; displacements
  // as above. In place only the output is looked at. Scratch takes the shape of the output, which is why an
  // alltoall that relays blocks is not for uneven counts (VerifyReport::v_safe).
  void bind_alltoall(std::span<const std::uint64_t> send_counts,
                     std::span<const std::uint64_t> send_displacements,
                     std::span<const std::uint64_t> receive_counts,
                     std::span<const std::uint64_t> receive_displacements, std::uint64_t granule = 1);

  // The elements of an atom in that buffer; of scratch: {0, count}, relative to the start of its slot.
  Range range(Buffer buffer, std::uint32_t atom) const { return range(buffer, atom, is_root_); }
  // The same in the memory of another rank (lowered schedules), by this rank's counts and displacements. Not
  // for alltoallv, whose other ranks have counts of their own.
  Range range_at(std::uint32_t owner, Buffer buffer, std::uint32_t atom) const {
    return range(buffer, atom, owner == root_);
  }
  // The largest atom: what a scratch slot has to hold, in elements.
  std::uint64_t max_atom_count() const { return max_atom_count_; }
  // One past the last element that any atom of the buffer's window occupies: what its memory has to span.
  std::uint64_t extent(Buffer buffer) const;

 private:
  enum class Kind : std::uint8_t { vector, equal, listed };
  struct Side {  // a user buffer
    Window window;
    bool is_own_block[2] = {};         // by "is the owner the root": the owner's block alone, at offset 0
    std::vector<std::uint64_t> first;  // listed only
    std::vector<std::uint64_t> count;  // listed only
  };

  Range range(Buffer buffer, std::uint32_t atom, bool owner_is_root) const;
  Range block_range(const Side& side, std::uint32_t block) const;
  Range segment_of(const Range& block, std::uint32_t segment) const;
  void list(Side& side, std::span<const std::uint64_t> counts, std::span<const std::uint64_t> displacements);
  void bind(Kind kind, std::uint64_t count, std::uint64_t granule);
  const Side& side(Buffer buffer) const { return buffer == Buffer::input ? input_ : output_; }

  Kind kind_ = Kind::vector;
  bool is_root_ = false;
  std::uint32_t root_ = 0;
  std::uint32_t blocks_ = 1, segments_ = 1;
  std::uint64_t count_ = 0;  // vector: elements in all; equal: of a block
  Range part_;               // equal: what is bound of every block
  std::uint64_t granule_ = 1;
  std::uint64_t max_atom_count_ = 0;
  Side input_, output_;
};

}  // namespace tutti
