// The cost of a schedule: simulates the schedules of all ranks in virtual time and returns the duration and
// its parts. Knows no algorithm, so that every row of the catalogue is priced without a formula of its own;
// knows no transport, topology or clock: prices of messages are arguments. Integer arithmetic, in
// picoseconds.
//
// Messages: LogGP per level, with one way in and one way out of a rank. A message takes its sender's way
// out and its receiver's way in for `message_ps` and its bytes, and arrives `latency_ps` later. A message
// starts when both sides are there (rendezvous, as everywhere in schedule.hpp). Additions and copies take the
// rank's time and hold up their channel. Resources that the ranks of a node share (a NIC, the link between
// sockets) serve one message after the other.
//
// Lowered schedules move cache lines instead (LineCost). Each line has one owner, and the ranks that read it in
// the call before still hold it. So a store becomes visible when the farthest holder has lost its copy, and a
// rank's stores become visible in their order. Then every waiting rank fetches the line, one after the other. A
// rank that waits for many flags in a row overlaps its fetches. Bytes behind the flag come as lines in a row.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/algorithms/catalog.hpp"
#include "runtime/base/status.hpp"

namespace tutti {

// The nearest level that two ranks share: the core (or a cache of a few cores), the last-level cache, the NUMA
// domain, the socket, the node, or only the network. Ascending: a farther level compares greater.
enum class Level : std::uint8_t { core, cache, numa, socket, node, network };
inline constexpr std::size_t kLevelCount = 6;
std::string_view to_string(Level level);

struct LinkCost {
  std::uint64_t latency_ps = 0;  // from the sender's last byte on its way to the receiver's first
  std::uint64_t message_ps = 0;  // what each message takes of the way out and of the way in
  std::uint64_t kib_ps = 0;      // so many picoseconds per 1024 bytes, of both
  // Time that 1024 bytes take of a resource that all ranks of a node share at this level; 0: nothing is
  // shared.
  std::uint64_t shared_kib_ps = 0;
  bool operator==(const LinkCost&) const = default;
};

// Cache lines between two ranks of a node.
struct LineCost {
  // To load a line that the other rank has written. As long until a store is visible where the other rank holds a copy.
  std::uint64_t transfer_ps = 0;
  // For each further line of which the address is known: of the next flag in a row of waits, and of the next
  // source of a reduction. By so much also the next reader of one flag is later than the one before.
  std::uint64_t further_ps = 0;
  std::uint64_t kib_ps = 0;        // to load 1024 bytes of lines in a row, or to store them
  std::uint64_t crowd_kib_ps = 0;  // as much more for each other rank that loads the same lines
  bool operator==(const LineCost&) const = default;
};

// A machine, as far as prices go.
struct CostModel {
  std::array<LinkCost, kLevelCount> links;
  std::array<LineCost, kLevelCount> lines;
  // A line that one rank holds on another socket costs all its readers what it costs that one: the snoop filter
  // of Intel's server processors asks the other socket first.
  bool far_reader_slows_all = false;
  std::uint64_t call_ps = 0;        // once per call
  std::uint64_t reduce_kib_ps = 0;  // to add 1024 bytes to others
  // The same of operands that fit the core's private caches, which are in them once their lines have come. 0: unknown.
  std::uint64_t cached_reduce_kib_ps = 0;
  static constexpr std::uint64_t kMostCachedBytes = 65536;
  std::uint64_t copy_kib_ps = 0;
  const LinkCost& link(Level level) const { return links[static_cast<std::size_t>(level)]; }
  LinkCost& link(Level level) { return links[static_cast<std::size_t>(level)]; }
  const LineCost& line(Level level) const { return lines[static_cast<std::size_t>(level)]; }
  LineCost& line(Level level) { return lines[static_cast<std::size_t>(level)]; }
  bool has_lines() const {
    constexpr std::array<LineCost, kLevelCount> kNone{};
    return lines != kNone;
  }
  // Levels within the node without figures get those of the next nearer level that has some, or else of the next farther
  // one; lines without any get those of messages.
  void complete();
  bool operator==(const CostModel&) const = default;
};

// Where the ranks are: ranks with equal numbers share the node, the cache, ...
struct Places {
  std::vector<std::uint32_t> node, cache;         // by rank
  std::vector<std::uint32_t> core, numa, socket;  // the same; empty: not known, nothing is shared

  std::uint32_t size() const { return static_cast<std::uint32_t>(node.size()); }
  Level level(std::uint32_t a, std::uint32_t b) const {
    const auto share = [&](const std::vector<std::uint32_t>& part) {
      return !part.empty() && part[a] == part[b];
    };
    if (node[a] != node[b]) return Level::network;
    return share(core)     ? Level::core
           : share(cache)  ? Level::cache
           : share(numa)   ? Level::numa
           : share(socket) ? Level::socket
                           : Level::node;
  }
  // Is it one level between all of them?
  bool is_uniform() const;
};
// `per_node` neighbours on each node, without caches in common.
Places places_of(std::uint32_t size, std::uint32_t per_node);

// Counts along the longest path through the schedules, which a call waits for in sequence. total_ps is their
// sum by the model.
struct PathCounts {
  struct AtLevel {
    std::uint64_t latencies = 0, messages = 0, bytes = 0, shared_bytes = 0;
    // Of lines: first loads and stores, further loads, bytes of lines in a row, and these times their other readers.
    std::uint64_t line_transfers = 0, further_lines = 0, line_bytes = 0, crowd_bytes = 0;
    bool operator==(const AtLevel&) const = default;
  };
  std::array<AtLevel, kLevelCount> levels;
  std::uint64_t reduced_bytes = 0, copied_bytes = 0;
  std::uint64_t cached_reduced_bytes = 0;  // at CostModel::cached_reduce_kib_ps
  bool operator==(const PathCounts&) const = default;
};

struct Price {
  std::uint64_t total_ps = 0;
  std::uint64_t latency_ps = 0;  // of calls and messages, whatever their length
  std::uint64_t bytes_ps = 0;    // moved and copied
  std::uint64_t reduce_ps = 0;   // added
  PathCounts path;
  bool is_estimate = false;  // by the row's claim, because there are too many steps to walk
};
// The part of the path at one level.
std::uint64_t price_level(const PathCounts& path, const CostModel& model, Level level);
// The price of a path in another model; the path that is longest in that model may be another one.
Price price_path(const PathCounts& path, const CostModel& model);

// The schedules of all ranks, plain or lowered, for a full vector of that many bytes (see Question::bytes).
// `ends`: when each step of each rank was done, by rank and step; null: not asked for.
// Errors: invalid_argument where messages do not match or the ranks wait for each other forever.
Result<Price> price_schedules(std::span<const Schedule> ranks, std::uint64_t bytes, const Places& places,
                              const CostModel& model,
                              std::vector<std::vector<std::uint64_t>>* ends = nullptr);

// One call of a row.
struct PricedCall {
  const AlgorithmRow* row = nullptr;
  AlgorithmParams params;
  std::uint64_t bytes = 0;               // of the full vector
  const Hierarchy* hierarchy = nullptr;  // null: flat
  bool is_lowered = false;               // through shared memory, in its staged form, rather than by messages
};
// The schedules of a call of a row, for any number of bytes: emitted once, priced often.
// Where all ranks do the same but for a shift of ranks (a ring) or an exclusive or (a butterfly), one rank
// stands for all if they are equally far from each other. Where all nodes are alike, the ranks of one node
// stand for all. The cost is then that of those schedules, for any number of ranks. (A sample of ranks is
// compared.) Beyond kMostWalkedSteps steps prices follow from the row's claims: its rounds and the most that
// a rank sends, in sequence.
class Program {
 public:
  // `is_node_shared`: ranks of a node share something at the levels within it (LinkCost::shared_kib_ps).
  // The call's bytes do not matter. Errors: those of the row.
  static Result<Program> make(const PricedCall& call, const Places& places, bool is_node_shared);
  Result<Price> price(std::uint64_t bytes, const Places& places, const CostModel& model) const;

 private:
  Price estimate(std::uint64_t bytes, const Places& places, const CostModel& model) const;

  std::vector<Schedule> ranks_;  // empty: too many
  bool is_butterfly_ = false;    // ranks that are not there follow by exclusive or, else by a shift
  Collective collective_ = Collective::allreduce;
  Claim claim_;
};
inline constexpr std::uint64_t kMostWalkedSteps = 1ULL << 22U;

// Both at once.
Result<Price> price_call(const PricedCall& call, const Places& places, const CostModel& model);

}  // namespace tutti
