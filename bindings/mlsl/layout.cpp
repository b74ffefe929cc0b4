// Intersects the parts of connected activations. See layout.hpp.
#include "bindings/mlsl/layout.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::mlsl {
namespace {

Range common(const Range& a, const Range& b) {
  const std::size_t first = std::max(a.first, b.first);
  const std::size_t end = std::min(a.first + a.count, b.first + b.count);
  return {first, end > first ? end - first : 0};
}

Rectangle common(const Rectangle& a, const Rectangle& b) {
  return {common(a.samples, b.samples), common(a.maps, b.maps)};
}

// Maps in units: each map has `units` of them.
std::vector<Rectangle> parts(const Connection& c, const std::vector<Place>& places, std::size_t map_count,
                             std::size_t units, bool has_all_maps) {
  std::vector<Rectangle> made;
  for (const Place& place : places) {
    const Range maps =
        has_all_maps ? Range{0, map_count} : part_of(map_count, place.model_count, place.model_index);
    made.push_back(
        {part_of(c.minibatch, place.data_count, place.data_index), {maps.first * units, maps.count * units}});
  }
  return made;
}

// Appends the common part of `whole` and `other`, as a block behind the blocks before it.
void append(const Rectangle& whole, const Rectangle& other, std::size_t unit_size, std::vector<Block>& blocks,
            std::vector<std::uint64_t>& counts, std::size_t& total) {
  const Rectangle part = common(whole, other);
  const std::size_t count = part.area() * unit_size;
  if (count > 0)
    blocks.push_back({{{part.samples.first - whole.samples.first, part.samples.count},
                       {part.maps.first - whole.maps.first, part.maps.count}},
                      total});
  counts.push_back(count);
  total += count;
}

// Do the distinct ones of `pieces` cover `whole`? Parts of one division are equal or disjoint.
bool covers(const std::vector<Rectangle>& pieces, const Rectangle& whole) {
  std::size_t area = 0;
  for (auto piece = pieces.begin(); piece != pieces.end(); ++piece)
    if (std::find(pieces.begin(), piece, *piece) == piece) area += common(*piece, whole).area();
  return area == whole.area();
}

// Every rank sends each other one the part that both have.
Transfer plan_exchange(const Connection& c, const std::vector<Rectangle>& from,
                       const std::vector<Rectangle>& to) {
  Transfer made;
  made.pattern = Pattern::exchange;
  for (std::size_t other = 0; other < from.size(); ++other) {
    append(from[c.self], to[other], c.unit_size, made.packed, made.sent, made.sent_count);
    append(to[c.self], from[other], c.unit_size, made.unpacked, made.received, made.received_count);
  }
  return made;
}

Transfer plan_allreduce(const Connection& c, const Rectangle& whole) {
  Transfer made;
  made.pattern = Pattern::allreduce;
  append(whole, whole, c.unit_size, made.packed, made.sent, made.sent_count);
  append(whole, whole, c.unit_size, made.unpacked, made.received, made.received_count);
  return made;
}

// Sums of the whole are scattered; their gradients are gathered.
Transfers plan_scatter(const Connection& c, const Rectangle& whole, const std::vector<Rectangle>& pieces) {
  Transfers made;
  made.forward.pattern = Pattern::reduce_scatter;
  made.backward.pattern = Pattern::allgather;
  const Rectangle& own = pieces[c.self];
  for (const Rectangle& piece : pieces) {
    append(whole, piece, c.unit_size, made.forward.packed, made.forward.sent, made.forward.sent_count);
    append(whole, piece, c.unit_size, made.backward.unpacked, made.backward.received,
           made.backward.received_count);
  }
  append(own, own, c.unit_size, made.forward.unpacked, made.forward.received, made.forward.received_count);
  append(own, own, c.unit_size, made.backward.packed, made.backward.sent, made.backward.sent_count);
  return made;
}

// From units to maps. False where a block has a part of a map.
bool divide(std::vector<Block>& blocks, std::size_t units) {
  for (Block& block : blocks) {
    Range& maps = block.part.maps;
    if (maps.first % units != 0 || maps.count % units != 0) return false;
    maps = {maps.first / units, maps.count / units};
  }
  return true;
}

std::string describe(const Place& place) {
  return fmt::format("{} data times {} model partitions", place.data_count, place.model_count);
}

// Blocks in units. False for distributions that cannot be connected.
bool plan_units(const Connection& c, Transfers& made) {
  const Place& out = c.outputs[c.self];
  const Place& in = c.inputs[c.self];
  const auto outputs = parts(c, c.outputs, c.output_maps, c.output_units, c.needs_reduction);
  const auto inputs = parts(c, c.inputs, c.input_maps, c.input_units, false);
  if (c.needs_reduction) {
    if (in.model_count == 1 && in.data_count == out.data_count) {
      made.forward = plan_allreduce(c, outputs[c.self]);
      return true;
    }
    std::size_t area = 0;
    for (const Rectangle& input : inputs) area += input.area();
    if (!covers(inputs, outputs[c.self]) || area != outputs[c.self].area()) return false;
    made = plan_scatter(c, outputs[c.self], inputs);
    return true;
  }
  if (!covers(outputs, inputs[c.self]) || !covers(inputs, outputs[c.self])) return false;
  made.forward = plan_exchange(c, outputs, inputs);
  made.backward = plan_exchange(c, inputs, outputs);
  return true;
}

}  // namespace

Range part_of(std::size_t total, std::size_t parts, std::size_t index) {
  const std::size_t least = total / parts, longer = total % parts;
  return {index * least + std::min(index, longer), least + (index < longer ? 1 : 0)};
}

bool moves_samples(const Connection& c) {
  return c.needs_reduction && c.outputs[c.self].data_index != c.inputs[c.self].data_index &&
         c.outputs[c.self].data_count == c.inputs[c.self].data_count;
}

std::optional<std::string> plan_transfers(const Connection& c, Transfers& made) {
  const Place& out = c.outputs[c.self];
  const Place& in = c.inputs[c.self];
  if (!plan_units(c, made))
    return fmt::format("an output of {}{} cannot be connected to an input of {}", describe(out),
                       c.needs_reduction ? ", which needs a reduction," : "", describe(in));
  if (!divide(made.forward.packed, c.output_units) || !divide(made.forward.unpacked, c.input_units) ||
      !divide(made.backward.packed, c.input_units) || !divide(made.backward.unpacked, c.output_units))
    return fmt::format(
        "{} feature maps of the output are {} of the input, and {} to {} splits a map; let the number of "
        "maps divide by the model partitions",
        c.output_maps, c.input_maps, describe(out), describe(in));
  return std::nullopt;
}

}  // namespace tutti::mlsl
