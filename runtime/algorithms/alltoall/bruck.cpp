// Bruck alltoall: blocks travel digit by digit of their distance, many in one message; few messages, more
// bytes.
// Knows nothing of transports, dtypes, time or memory.
//
// Index i on rank r means the block that is i ranks away from its destination or origin: at first input block
// r+i, in the end output block r-i. It moves by z * radix^j for each digit z at place j of i.
// p = 5, radix 2, which indices each rank sends, and how far:
//   place 0: 1 and 3 by 1      place 1: 2 and 3 by 2      place 2: 4 by 4
// Index i is kept in output block r-i throughout, so the rotation at the start is one strided copy and none
// is needed at the end. The indices of one message are gathered in scratch.
//
// input, output: p blocks; scratch: about 2 ceil(p/radix) (radix-1) blocks, in place at least p.
// rounds ceil(log_radix p) of up to radix-1 messages
// bytes sent per rank: the sum of nonzero digits of 1..p-1, blocks (radix 2: about m/2 log2 p).
// A slot takes blocks of several pairs of ranks -> equal counts.
// Source: Bruck, Ho, Kipnis, Upfal, Weathersby, TPDS 1997.
#include <algorithm>
#include <vector>

#include "runtime/schedule/builder.hpp"

namespace tutti {
namespace {

// The indices below p with digit z at place `weight`, as runs of equal distance: few long runs or few wide
// strides, whichever is fewer.
struct Run {
  std::uint32_t first, count, stride;
};
std::vector<Run> runs_of_digit(std::uint32_t p, std::uint32_t radix, std::uint32_t weight, std::uint32_t z) {
  const std::uint64_t start = std::uint64_t{z} * weight, period = std::uint64_t{radix} * weight;
  std::vector<Run> runs;
  if (start >= p) return runs;
  const std::uint64_t periods = (p - start + period - 1) / period;
  if (periods <= weight) {
    for (std::uint64_t i = start; i < p; i += period)
      runs.push_back({static_cast<std::uint32_t>(i),
                      static_cast<std::uint32_t>(std::min<std::uint64_t>(weight, p - i)), 1});
  } else {
    for (std::uint64_t i = start; i < std::min<std::uint64_t>(start + weight, p); ++i)
      runs.push_back({static_cast<std::uint32_t>(i),
                      static_cast<std::uint32_t>((p - i + period - 1) / period),
                      static_cast<std::uint32_t>(period)});
  }
  return runs;
}

// The messages of one digit: gathers what leaves, then scatters what arrived, from slot `slot` on.
class DigitExchange {
 public:
  DigitExchange(Builder& b, std::uint32_t& slot) : b_(b), slot_(slot) {}

  void post(std::vector<Run> runs, std::uint32_t distance) {
    const std::uint32_t p = b_.size(), r = b_.rank();
    std::uint32_t count = 0;
    for (const Run& run : runs) {
      b_.copy(b_.scratch(slot_ + count, r, run.count), kept(run));
      count += run.count;
    }
    b_.recv((r + p - distance) % p, b_.scratch(slot_ + count, r, count));
    b_.send((r + distance) % p, b_.scratch(slot_, r, count));
    arriving_.push_back({std::move(runs), slot_ + count});
    slot_ += 2 * count;
  }
  void finish() {
    for (const Arriving& arriving : arriving_) {
      std::uint32_t slot = arriving.slot;
      for (const Run& run : arriving.runs) {
        b_.copy(kept(run), b_.scratch(slot, b_.rank(), run.count));
        slot += run.count;
      }
    }
  }

 private:
  // Indices first, first + stride, ... lie in output blocks r - first, r - first - stride, ...
  Slice kept(const Run& run) const {
    const std::uint32_t p = b_.size();
    return b_.output(std::int64_t{b_.rank()} - run.first, run.count, p - run.stride % p);
  }
  struct Arriving {
    std::vector<Run> runs;
    std::uint32_t slot;
  };

  Builder& b_;
  std::uint32_t& slot_;
  std::vector<Arriving> arriving_;
};

}  // namespace

Result<Schedule> alltoall_bruck(const CollectiveSpec& spec, const GroupView& view,
                                const AlgorithmParams& params) {
  Builder b(spec, view, view.size);
  const std::uint32_t p = b.size(), r = b.rank(), radix = std::clamp(params.radix, 2U, std::max(p, 2U));
  const Slice turned = b.output(r, p, p - 1);
  if (b.in_place() && p > 2) {
    b.copy(b.scratch(0, r, p), b.input(r, p));
    b.copy(turned, b.scratch(0, r, p));
  } else {
    b.copy(turned, b.input(r, p));
  }
  for (std::uint64_t weight = 1; weight < p; weight *= radix) {
    std::uint32_t slot = 0;
    DigitExchange exchange(b, slot);
    for (std::uint32_t z = 1; z < radix && z * weight < p; ++z)
      exchange.post(runs_of_digit(p, radix, static_cast<std::uint32_t>(weight), z),
                    static_cast<std::uint32_t>(z * weight));
    exchange.finish();
  }
  return std::move(b).finish();
}

}  // namespace tutti
