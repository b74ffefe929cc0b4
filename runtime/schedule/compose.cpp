// Translating the slices of a part, block by block, and putting together again what is one slice of the
// whole. Knows steps only.
#include "runtime/schedule/compose.hpp"

#include <algorithm>
#include <numeric>
#include <span>

namespace tutti {

std::uint32_t PartPlace::width() const {
  std::size_t most = 0;
  for (const auto& list : blocks) most = std::max(most, list.size());
  return static_cast<std::uint32_t>(most);
}

std::vector<std::vector<std::uint32_t>> neighbouring_blocks(std::uint32_t first, std::uint32_t count,
                                                            std::uint32_t width) {
  std::vector<std::vector<std::uint32_t>> blocks(count, std::vector<std::uint32_t>(width));
  for (std::uint32_t b = 0; b < count; ++b) std::iota(blocks[b].begin(), blocks[b].end(), first + b * width);
  return blocks;
}

namespace {

class Splicer {
 public:
  Splicer(Builder& whole, const Schedule& part, const PartPlace& place)
      : whole_(whole),
        part_(part),
        place_(place),
        width_(place.width()),
        first_slot_(whole.scratch_slots()),
        is_even_(std::all_of(place.blocks.begin(), place.blocks.end(),
                             [this](const auto& list) { return list.size() == width_; })) {}

  void add(const Step& step) {
    const auto sources = part_.sources_of(step);
    std::vector<Slice> slices(sources.begin(), sources.end());
    const bool has_dst = step.verb != Verb::send;
    if (has_dst) slices.push_back(step.dst);
    for (const std::vector<Slice>& piece : cut(slices)) {
      const std::span<const Slice> piece_sources(piece.data(), sources.size());
      switch (step.verb) {
        case Verb::send:
          whole_.send(step.peer, piece[0], step.channel);
          break;
        case Verb::recv:
          whole_.recv(step.peer, piece[0], step.channel);
          break;
        default:
          whole_.reduce(piece.back(), piece_sources, step.channel);  // of one source: a copy
      }
    }
  }

 private:
  // One block of the whole, as a slice of the part names it.
  struct Spot {
    std::uint32_t block = 0;
    std::uint32_t slot = 0;
    bool starts_piece = false;
  };

  PartBuffer home_of(const Slice& slice) const {
    if (slice.buffer == Buffer::scratch) return {Buffer::scratch, first_slot_ + slice.slot * width_};
    return slice.buffer == Buffer::input ? place_.input : place_.output;
  }

  std::vector<Spot> spots_of(const Slice& slice) const {
    const PartBuffer home = home_of(slice);
    std::vector<Spot> spots;
    std::uint32_t previous = 0;
    for (std::uint32_t k = 0; k < slice.count; ++k) {
      const std::uint32_t b = part_.atom(slice, k);
      const std::uint32_t slot = home.slot + (slice.buffer == Buffer::scratch ? k : b) * width_;
      // Slots go on from one block of the part to the next only here.
      bool starts_piece = k == 0 || !is_even_ || b != previous + 1;
      std::uint32_t i = 0;
      for (const std::uint32_t block : place_.blocks[b]) {
        spots.push_back({block, slot + i++, starts_piece});
        starts_piece = false;
      }
      previous = b;
    }
    return spots;
  }

  // The same positions of all slices, in pieces that are slices of the whole.
  std::vector<std::vector<Slice>> cut(std::span<const Slice> slices) const {
    std::vector<std::vector<Spot>> spots;
    for (const Slice& slice : slices) spots.push_back(spots_of(slice));
    std::size_t count = spots[0].size();
    for (const auto& one : spots) count = std::min(count, one.size());
    std::vector<std::vector<Slice>> pieces;
    for (std::size_t first = 0; first < count;) {
      std::size_t end = first + 1;
      const auto continues = [&](const std::vector<Spot>& one) {
        const std::uint32_t stride = one[first + 1].block - one[first].block;
        return !one[end].starts_piece && one[end - 1].block < one[end].block &&
               one[end].block - one[end - 1].block == stride;
      };
      while (end < count && std::all_of(spots.begin(), spots.end(), continues)) ++end;
      std::vector<Slice>& piece = pieces.emplace_back();
      for (std::size_t i = 0; i < slices.size(); ++i)
        piece.push_back(make(home_of(slices[i]).buffer, std::span(spots[i]).subspan(first, end - first)));
      first = end;
    }
    return pieces;
  }

  Slice make(Buffer buffer, std::span<const Spot> spots) const {
    const auto count = static_cast<std::uint32_t>(spots.size());
    const std::uint32_t first = spots[0].block, stride = count > 1 ? spots[1].block - first : 1;
    if (buffer == Buffer::scratch) return whole_.scratch(spots[0].slot, first, count, stride);
    return buffer == Buffer::input ? whole_.input(first, count, stride) : whole_.output(first, count, stride);
  }

  Builder& whole_;
  const Schedule& part_;
  const PartPlace& place_;
  std::uint32_t width_;
  std::uint32_t first_slot_;
  bool is_even_;
};

}  // namespace

Status splice(Builder& whole, const Schedule& part, const PartPlace& place) {
  if (place.blocks.size() != part.blocks)
    return invalid_argument("compose: a place for another number of blocks than the part has");
  const auto is_lowered = [](const Step& s) { return s.verb == Verb::signal || s.verb == Verb::wait; };
  if (part.segments != 1 || std::any_of(part.steps.begin(), part.steps.end(), is_lowered))
    return invalid_argument("compose: parts are put together before they are segmented or lowered");
  Splicer splicer(whole, part, place);
  for (const Step& step : part.steps) splicer.add(step);
  return {};
}

}  // namespace tutti
