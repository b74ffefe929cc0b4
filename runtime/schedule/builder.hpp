// The builder, with which algorithms are written: four verbs over chunks, in program order, for one rank.
// Knows no counts and no pointers; infers the dependencies.
#pragma once

#include <initializer_list>
#include <string>

#include "runtime/base/status.hpp"
#include "runtime/schedule/hierarchy.hpp"
#include "runtime/schedule/schedule.hpp"

namespace tutti {

// The task of an algorithm, apart from the ranks that it runs on.
struct CollectiveSpec {
  Collective collective = Collective::allreduce;
  std::uint32_t root = 0;
  bool in_place = false;
  bool operator==(const CollectiveSpec&) const = default;
};

// The ranks an algorithm runs over: position `rank` among `size` members. Member i is rank first + i * stride
// of the group that executes the schedule, or list[i] where a list is given. An algorithm sees members
// 0..size-1 only. `hierarchy` (null: flat) is over these members and equal on all of them; flat algorithms do
// not look at it.
struct GroupView {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::uint32_t first = 0;
  std::uint32_t stride = 1;
  const std::uint32_t* list = nullptr;
  const Hierarchy* hierarchy = nullptr;

  std::uint32_t group_rank(std::uint32_t member) const {
    return list ? list[member] : first + member * stride;
  }
};

// Parameters of an algorithm. Each row of the catalogue says which it reads, with defaults and limits.
struct AlgorithmParams {
  std::uint32_t radix = 2;      // fan-out of k-nomial trees, recursive multiplying, Bruck
  std::uint32_t segments = 1;   // pieces a block is cut into for pipelining; n of the n-block algorithms
  std::uint32_t channels = 1;   // channels that segments are spread over
  std::uint32_t aggregate = 0;  // PAT: subtrees per message, a power of two; 0 = all (fewest rounds)
  std::uint32_t leaders = 0;    // hierarchical: members of a domain that talk to other domains; 0 = all
  std::uint32_t across = 0;     // hierarchical: what runs between domains, a number in the row's list
  std::uint32_t mates = 0;      // hierarchical: 1 = no domain of one rank, see Hierarchy::joined()
  bool operator==(const AlgorithmParams&) const = default;
};

// Emits the steps of one rank. Block numbers are taken modulo the number of blocks and may be negative, peers
// are members of the view (0..size-1, not wrapped). With `segments` > 1 a slice of blocks still means whole
// blocks; segmentation is a pass. A mistake (slice out of bounds, send to oneself, write to a read-only
// buffer) is remembered and returned by finish().
class Builder {
 public:
  Builder(const CollectiveSpec& spec, const GroupView& view, std::uint32_t blocks);

  std::uint32_t rank() const { return view_.rank; }
  std::uint32_t size() const { return view_.size; }
  std::uint32_t root() const { return schedule_.root; }
  bool in_place() const { return schedule_.in_place; }
  std::uint32_t scratch_slots() const { return schedule_.scratch_slots; }  // used so far

  // Slices of blocks first, first + stride, ... ; in place, input(x) is output(x).
  Slice input(std::int64_t first, std::uint32_t count = 1, std::uint32_t stride = 1) const;
  Slice output(std::int64_t first, std::uint32_t count = 1, std::uint32_t stride = 1) const;
  // Scratch slots slot.. with the shape of blocks first, first + stride, ...
  Slice scratch(std::uint32_t slot, std::int64_t first, std::uint32_t count = 1,
                std::uint32_t stride = 1) const;

  void send(std::uint32_t peer, const Slice& source, std::uint16_t channel = 0);
  void recv(std::uint32_t peer, const Slice& dst, std::uint16_t channel = 0);
  // Copying a slice onto itself (input to output in place) is no step.
  void copy(const Slice& dst, const Slice& source, std::uint16_t channel = 0);
  // dst <- ((s0 + s1) + s2) ...; one source is a copy.
  void reduce(const Slice& dst, std::span<const Slice> sources, std::uint16_t channel = 0);
  void reduce(const Slice& dst, std::initializer_list<Slice> sources, std::uint16_t channel = 0) {
    reduce(dst, std::span<const Slice>(sources.begin(), sources.size()), channel);
  }

  // The schedule, or the first mistake with the number of the step that made it.
  Result<Schedule> finish() &&;

 private:
  void add(Verb verb, std::uint32_t peer, const Slice* dst, std::span<const Slice> sources,
           std::uint16_t channel);
  void check_slice(const Slice& slice, bool is_written);
  void fail(const std::string& what);
  Slice make(Buffer buffer, std::int64_t first, std::uint32_t count, std::uint32_t stride,
             std::uint32_t slot) const;

  GroupView view_;
  Schedule schedule_;
  Status status_;
};

}  // namespace tutti
