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

std::vector<Rectangle> parts(const Connection& c, const std::vector<Place>& places, bool has_all_maps) {
  std::vector<Rectangle> made;
  for (const Place& place : places)
    made.push_back(
        {part_of(c.minibatch, place.data_count, place.data_index),
         has_all_maps ? Range{0, c.map_count} : part_of(c.map_count, place.model_count, place.model_index)});
  return made;
}

// Appends the common part of `whole` and `other`, as a block behind the blocks before it.
void append(const Rectangle& whole, const Rectangle& other, std::size_t map_size, std::vector<Block>& blocks,
            std::vector<std::size_t>& counts, std::size_t& total) {
  const Rectangle part = common(whole, other);
  const std::size_t count = part.area() * map_size;
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
    append(from[c.self], to[other], c.map_size, made.packed, made.sent, made.sent_count);
    append(to[c.self], from[other], c.map_size, made.unpacked, made.received, made.received_count);
  }
  return made;
}

Transfer plan_allreduce(const Connection& c, const Rectangle& whole) {
  Transfer made;
  made.pattern = Pattern::allreduce;
  append(whole, whole, c.map_size, made.packed, made.sent, made.sent_count);
  append(whole, whole, c.map_size, made.unpacked, made.received, made.received_count);
  return made;
}

// Sums of the whole are scattered; their gradients are gathered.
Transfers plan_scatter(const Connection& c, const Rectangle& whole, const std::vector<Rectangle>& pieces) {
  Transfers made;
  made.forward.pattern = Pattern::reduce_scatter;
  made.backward.pattern = Pattern::allgather;
  const Rectangle& own = pieces[c.self];
  for (const Rectangle& piece : pieces) {
    append(whole, piece, c.map_size, made.forward.packed, made.forward.sent, made.forward.sent_count);
    append(whole, piece, c.map_size, made.backward.unpacked, made.backward.received,
           made.backward.received_count);
  }
  append(own, own, c.map_size, made.forward.unpacked, made.forward.received, made.forward.received_count);
  append(own, own, c.map_size, made.backward.packed, made.backward.sent, made.backward.sent_count);
  return made;
}

std::string describe(const Place& place) {
  return fmt::format("{} data times {} model partitions", place.data_count, place.model_count);
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
  const auto outputs = parts(c, c.outputs, c.needs_reduction);
  const auto inputs = parts(c, c.inputs, false);
  if (c.needs_reduction) {
    if (in.model_count == 1 && in.data_count == out.data_count) {
      made.forward = plan_allreduce(c, outputs[c.self]);
      return std::nullopt;
    }
    std::size_t area = 0;
    for (const Rectangle& input : inputs) area += input.area();
    if (covers(inputs, outputs[c.self]) && area == outputs[c.self].area()) {
      made = plan_scatter(c, outputs[c.self], inputs);
      return std::nullopt;
    }
  } else if (covers(outputs, inputs[c.self]) && covers(inputs, outputs[c.self])) {
    made.forward = plan_exchange(c, outputs, inputs);
    made.backward = plan_exchange(c, inputs, outputs);
    return std::nullopt;
  }
  return fmt::format("an output of {}{} cannot be connected to an input of {}", describe(out),
                     c.needs_reduction ? ", which needs a reduction," : "", describe(in));
}

}  // namespace tutti::mlsl
