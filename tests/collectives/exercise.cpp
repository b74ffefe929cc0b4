// One call: buffers laid out for the collective, outputs poisoned first, inputs checked to be untouched
// afterwards.
#include "tests/collectives/exercise.hpp"

#include <algorithm>
#include <numeric>

namespace tutti::test {
namespace {

constexpr std::byte kPoison{0xA5};
constexpr std::uint64_t kGap = 3;  // elements between the blocks of a v-variant

using Bytes = std::vector<std::byte>;

// Blocks of a call: sizes, and where they lie in a buffer that holds all of them.
struct Blocks {
  std::vector<std::uint64_t> counts, displacements;
  std::uint64_t total = 0;   // elements without gaps
  std::uint64_t extent = 0;  // with gaps
  std::uint64_t before(std::uint32_t b) const {
    return std::accumulate(counts.begin(), counts.begin() + b, std::uint64_t{0});
  }
};

Blocks make_blocks(const Case& c, std::uint32_t p) {
  Blocks blocks;
  for (std::uint32_t b = 0; b < p; ++b) {
    const std::uint64_t count = c.has_counts ? c.count * (b + 1) / p + b : c.count;
    blocks.counts.push_back(count);
    blocks.displacements.push_back(blocks.extent);
    blocks.total += count;
    blocks.extent += count + (c.has_counts ? kGap : 0);
  }
  return blocks;
}

// Buffers of a test that spend one call in shared memory: copied there, and back at the end.
class Lodgers {
 public:
  Lodgers(SharedHeap* heap, std::size_t element_bytes) : heap_(heap), element_bytes_(element_bytes) {}
  Lodgers(const Lodgers&) = delete;
  Lodgers& operator=(const Lodgers&) = delete;
  ~Lodgers() {
    for (const Lodger& one : lodgers_) {
      if (!one.home.empty())
        std::memcpy(one.home.data(), one.memory.data() + element_bytes_, one.home.size());
      heap_->release(one.memory);
    }
  }
  Status add(std::byte* home, std::size_t bytes, std::byte** moved) {
    // Aligned as elements are, no better.
    auto memory = heap_->allocate(bytes + element_bytes_);
    if (!memory) return memory.status();
    lodgers_.push_back({ByteRange(home, bytes), *memory});
    *moved = memory->data() + element_bytes_;
    if (bytes != 0) std::memcpy(*moved, home, bytes);
    return {};
  }

 private:
  struct Lodger {
    ByteRange home, memory;
  };
  SharedHeap* heap_;  // null where nothing is asked to lodge
  std::size_t element_bytes_;
  std::vector<Lodger> lodgers_;
};

class Exercise {
 public:
  Exercise(const Member& member, const Case& c, ReferenceCache& references)
      : member_(member),
        case_(c),
        references_(references),
        width_(size_of(c.flavour->dtype)),
        p_(member.size),
        r_(member.rank) {
    call_.collective = c.row->collective;
    call_.dtype = c.flavour->dtype;
    call_.op = op_of(*c.flavour);
    call_.wire_dtype = c.flavour->wire;
    call_.root = c.root;
    call_.count = c.count;
    if (has_rank_blocks(call_.collective)) blocks_ = make_blocks(c, p_);
    if (c.has_counts) {
      call_.counts = blocks_.counts;
      call_.displacements = blocks_.displacements;
    }
  }

  std::string run(Bytes* result) {
    std::string wrong;
    switch (call_.collective) {
      case Collective::allreduce:
      case Collective::reduce:
      case Collective::scan:
      case Collective::exscan:
        wrong = vector_reduction();
        break;
      case Collective::broadcast:
        wrong = broadcast();
        break;
      case Collective::allgather:
      case Collective::gather:
        wrong = gather();
        break;
      case Collective::reduce_scatter:
        wrong = reduce_scatter();
        break;
      case Collective::scatter:
        wrong = scatter();
        break;
      case Collective::alltoall:
        wrong = alltoall();
        break;
      case Collective::barrier:
        wrong = start(nullptr, nullptr);
        break;
      case Collective::send_recv:
        break;
    }
    if (result != nullptr) *result = output_;
    return wrong.empty() ? wrong : describe(case_) + ": " + wrong;
  }

 private:
  Bytes elements(std::uint32_t rank, std::uint64_t first, std::uint64_t count) const {
    return input_of(*case_.flavour, rank, first, count);
  }
  Bytes poisoned(std::uint64_t count) const { return Bytes(count * width_, kPoison); }
  bool is_root() const { return r_ == case_.root; }

  std::string start(const void* input, void* output) {
    call_.input = input;
    call_.output = output;
    SharedHeap* const heap =
        case_.maps_input || case_.maps_output ? member_.engine->transport(0).caps().heap : nullptr;
    Lodgers lodgers(heap, width_);
    if (std::string wrong = move_buffers(lodgers); !wrong.empty()) return wrong;
    const Status status = member_.run(call_, case_.row->name);
    return status ? std::string() : status.to_string();
  }
  // Elements that this rank's input, or output, spans if it has one.
  std::uint64_t extent(bool is_input) const {
    switch (call_.collective) {
      case Collective::allgather:
      case Collective::gather:
        return is_input ? case_.count : blocks_.extent;
      case Collective::reduce_scatter:
      case Collective::scatter:
        return is_input ? blocks_.extent : case_.count;
      case Collective::alltoall:
        return case_.count * p_;
      default:
        return case_.count;
    }
  }
  std::string move_buffers(Lodgers& lodgers) {
    const auto* input = static_cast<const std::byte*>(call_.input);
    auto* output = static_cast<std::byte*>(call_.output);
    const std::size_t input_bytes = extent(true) * width_, output_bytes = extent(false) * width_;
    std::byte* moved = nullptr;
    Status status;
    if (call_.in_place && input != nullptr && output != nullptr) {
      // One lies within the other.
      const bool is_input_larger = input_bytes > output_bytes;
      std::byte* const larger = is_input_larger ? const_cast<std::byte*>(input) : output;
      if (!(is_input_larger ? case_.maps_input : case_.maps_output)) return {};
      status = lodgers.add(larger, std::max(input_bytes, output_bytes), &moved);
      if (!status) return status.to_string();
      call_.input = moved + (input - larger);
      call_.output = moved + (output - larger);
      return {};
    }
    if (case_.maps_input && input != nullptr) {
      status = lodgers.add(const_cast<std::byte*>(input), input_bytes, &moved);
      if (!status) return status.to_string();
      call_.input = moved;
    }
    if (case_.maps_output && output != nullptr) {
      status = lodgers.add(output, output_bytes, &moved);
      if (!status) return status.to_string();
      call_.output = moved;
    }
    return {};
  }
  std::string same(const Bytes& expected, const std::byte* found, const char* what) const {
    const bool is_same = expected.empty() || std::memcmp(expected.data(), found, expected.size()) == 0;
    return is_same ? std::string() : std::string(what) + " differs";
  }
  // Runs with `input`, in place if asked, then checks that an input that is not the output was left alone.
  std::string call_with(Bytes& input, bool in_place, std::byte* output) {
    call_.in_place = in_place;
    if (in_place) return start(output, output);
    const Bytes before = input;
    if (std::string wrong = start(input.data(), output); !wrong.empty()) return wrong;
    return same(before, input.data(), "the input");
  }

  std::string vector_reduction() {
    const Flavour& flavour = *case_.flavour;
    Bytes input = elements(r_, 0, case_.count);
    const bool has_output = call_.collective != Collective::reduce || is_root();
    const bool in_place = case_.in_place && has_output;
    output_ = in_place ? input : poisoned(has_output ? case_.count : 0);
    if (std::string wrong = call_with(input, in_place, has_output ? output_.data() : nullptr);
        !wrong.empty() || !has_output)
      return wrong;
    std::uint32_t ranks = p_;
    if (call_.collective == Collective::scan) ranks = r_ + 1;
    if (call_.collective == Collective::exscan) ranks = r_;
    if (ranks == 0)
      return same(in_place ? input : poisoned(case_.count), output_.data(), "rank 0's output of exscan");
    return compare(flavour, references_.get(flavour, ranks, case_.count), 0, output_.data(), case_.count);
  }

  std::string broadcast() {
    Bytes input = is_root() ? elements(case_.root, 0, case_.count) : Bytes();
    const bool in_place = case_.in_place && is_root();
    output_ = in_place ? input : poisoned(case_.count);
    if (std::string wrong = call_with(input, in_place, output_.data()); !wrong.empty()) return wrong;
    return same(elements(case_.root, 0, case_.count), output_.data(), "the output");
  }

  std::string gather() {
    const bool has_output = call_.collective == Collective::allgather || is_root();
    const std::uint64_t own = blocks_.counts[r_];
    Bytes input = elements(r_, 0, own);
    output_ = poisoned(has_output ? blocks_.extent : 0);
    const bool in_place = case_.in_place && has_output;
    std::byte* own_place = has_output ? output_.data() + blocks_.displacements[r_] * width_ : nullptr;
    if (in_place) std::copy(input.begin(), input.end(), own_place);
    call_.in_place = in_place;
    const Bytes before = input;
    if (std::string wrong = start(in_place ? own_place : input.data(), has_output ? output_.data() : nullptr);
        !wrong.empty())
      return wrong;
    if (std::string wrong = same(before, input.data(), "the input"); !wrong.empty() || !has_output)
      return wrong;
    for (std::uint32_t b = 0; b < p_; ++b) {
      const std::byte* at = output_.data() + blocks_.displacements[b] * width_;
      if (std::string wrong = same(elements(b, 0, blocks_.counts[b]), at, "a block"); !wrong.empty())
        return wrong;
      if (case_.has_counts) {
        if (std::string wrong = same(poisoned(kGap), at + blocks_.counts[b] * width_, "a gap between blocks");
            !wrong.empty())
          return wrong;
      }
    }
    return {};
  }

  // The input with its gaps: block b holds elements before(b) .. of the rank's sequence.
  Bytes spread(std::uint32_t rank) const {
    Bytes bytes = poisoned(blocks_.extent);
    for (std::uint32_t b = 0; b < p_; ++b) {
      const Bytes block = elements(rank, blocks_.before(b), blocks_.counts[b]);
      std::copy(block.begin(), block.end(),
                bytes.begin() + static_cast<std::ptrdiff_t>(blocks_.displacements[b] * width_));
    }
    return bytes;
  }

  std::string reduce_scatter() {
    const Flavour& flavour = *case_.flavour;
    Bytes input = spread(r_);
    const std::uint64_t own = blocks_.counts[r_];
    call_.in_place = case_.in_place;
    std::byte* output = nullptr;
    const Bytes before = input;
    if (case_.in_place) {
      output = input.data() + blocks_.displacements[r_] * width_;
    } else {
      output_ = poisoned(own);
      output = output_.data();
    }
    if (std::string wrong = start(input.data(), output); !wrong.empty()) return wrong;
    if (!case_.in_place) {
      if (std::string wrong = same(before, input.data(), "the input"); !wrong.empty()) return wrong;
    }
    return compare(flavour, references_.get(flavour, p_, blocks_.total), blocks_.before(r_), output, own);
  }

  std::string scatter() {
    Bytes input = is_root() ? spread(case_.root) : Bytes();
    const bool in_place = case_.in_place && is_root();
    const std::uint64_t own = blocks_.counts[r_];
    output_ = in_place ? Bytes() : poisoned(own);
    std::byte* output = in_place ? input.data() + blocks_.displacements[r_] * width_ : output_.data();
    call_.in_place = in_place;
    const Bytes before = input;
    if (std::string wrong = start(input.data(), output); !wrong.empty()) return wrong;
    if (std::string wrong = same(before, input.data(), "the input"); !wrong.empty()) return wrong;
    return same(elements(case_.root, blocks_.before(r_), own), output, "the output");
  }

  // v-variant: rank s sends count + s * p + d elements to d, so that every message has a length of its own.
  // In place what goes to a rank must be as long as what comes from it.
  std::string alltoall() {
    const auto length = [&](std::uint32_t s, std::uint32_t d) {
      if (!case_.has_counts) return case_.count;
      return case_.in_place ? case_.count + std::min(s, d) * p_ + std::max(s, d) : case_.count + s * p_ + d;
    };
    Bytes input, expected;
    std::vector<std::uint64_t> send(p_), receive(p_);
    for (std::uint32_t q = 0; q < p_; ++q) {
      send[q] = length(r_, q);
      receive[q] = length(q, r_);
      const Bytes out = elements(r_, q * 100000ULL, send[q]), in = elements(q, r_ * 100000ULL, receive[q]);
      input.insert(input.end(), out.begin(), out.end());
      expected.insert(expected.end(), in.begin(), in.end());
    }
    if (case_.has_counts) {
      call_.counts = send;
      call_.displacements = {};
      call_.output_counts = receive;
    }
    output_ = case_.in_place ? input : Bytes(expected.size(), kPoison);
    if (std::string wrong = call_with(input, case_.in_place, output_.data()); !wrong.empty()) return wrong;
    return same(expected, output_.data(), "the output");
  }

  const Member& member_;
  const Case& case_;
  ReferenceCache& references_;
  std::size_t width_;
  std::uint32_t p_, r_;
  Call call_;
  Blocks blocks_;
  Bytes output_;
};

}  // namespace

std::string describe(const Case& c) {
  return fmt::format("{} {}, {}, count {}, root {}{}{}{}{}", to_string(c.row->collective), c.row->name,
                     c.flavour->name, c.count, c.root, c.in_place ? ", in place" : "",
                     c.has_counts ? ", uneven counts" : "", c.maps_input ? ", input mapped" : "",
                     c.maps_output ? ", output mapped" : "");
}

std::string exercise(const Member& member, const Case& c, ReferenceCache& references, Bytes* result) {
  return Exercise(member, c, references).run(result);
}

}  // namespace tutti::test
