// Which part of an activation each rank holds, and which blocks travel between two connected activations. A function
// of sizes and places: no communication, no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bindings/mlsl/distribution.hpp"

namespace tutti::mlsl {

struct Range {
  std::size_t first = 0, count = 0;
  bool operator==(const Range&) const = default;
};
// Part `index` of `total`; the first parts have one more where it does not divide.
Range part_of(std::size_t total, std::size_t parts, std::size_t index);

// Samples and feature maps, by their numbers in the whole mini-batch and the whole activation. While transfers are
// planned, maps are counted in units.
struct Rectangle {
  Range samples, maps;
  bool operator==(const Rectangle&) const = default;
  std::size_t area() const { return samples.count * maps.count; }
};

struct Block {
  Rectangle part;                // by its place in the rank's own part
  std::size_t buffer_index = 0;  // elements
};

// How one activation's blocks get to the other one.
enum class Pattern { none, allreduce, reduce_scatter, allgather, exchange };

// One way of a connection, for one rank. Counts are elements for each member of the group.
struct Transfer {
  Pattern pattern = Pattern::none;
  std::vector<Block> packed, unpacked;
  std::vector<std::uint64_t> sent, received;
  std::size_t sent_count = 0, received_count = 0;
};

// A connection, as the members of the group see it that carries it.
struct Connection {
  // By member.
  std::vector<Place> outputs, inputs;
  std::size_t self = 0;  // this rank's index
  std::size_t minibatch = 0;
  // The two sides have equally many elements, in maps of other sizes. A unit is the smaller map; each side's map has
  // `units` of them.
  std::size_t unit_size = 0;  // elements
  std::size_t output_maps = 0, output_units = 0, input_maps = 0, input_units = 0;
  bool needs_reduction = false;  // each output is a partial sum of all feature maps
};

struct Transfers {
  Transfer forward, backward;
};
// Blocks count the maps of the side that has them. Errors: a text that says which distributions cannot be connected,
// or that a block would have a part of a map.
std::optional<std::string> plan_transfers(const Connection& connection, Transfers& made);

// Is an input elsewhere than its output, although both have equally many data partitions (case 2 of MLSL)? Then each
// rank goes on with the samples of its output.
bool moves_samples(const Connection& connection);

}  // namespace tutti::mlsl
