// Control blocks: shared memory in which the ranks of a group signal each other. Every rank owns one (flag lines
// and staging buffers) and sees those of the others. Knows no schedule, no call and no waiting.
//
// A control block has areas by (slot, parity). Operations of one slot run one after the other. Each takes one or
// more *epochs* of the slot (1, 2, ...), and epoch e uses the areas of parity e mod 2. A rank may write an area
// again two epochs later: by then no peer may read it any more, see LoweredRun.
//
// A flag line carries a sequence (its epoch), the digest of the owner's calls up to this one (call_contract.hpp)
// and up to kPayloadBytes beside them. So all of a small message is one coherence miss.
//
// Two ranks alternate. In one epoch of an area each writes in its own control block, in the next one in the other's:
// the lines that it has just read there. So a line crosses once between the cores, when it is read. A fixed owner
// would have to take it back as well.
//
// Memory: an area is written as its epoch says, everything else by the owner alone. Peers write two words of a head
// alone: each raises `left` once, as its last access; and all count their sleeping processes in rank 0's.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/scheduler/staging_stores.hpp"
#include "transports/transport.hpp"

namespace tutti {

struct alignas(64) FlagLine {
  static constexpr std::size_t kPayloadBytes = 48;
  std::atomic<std::uint64_t> sequence;
  std::uint64_t digest;
  std::array<std::byte, kPayloadBytes> payload;

  void signal(std::uint64_t epoch, std::uint64_t own_digest) {
    digest = own_digest;
    sequence.store(epoch, std::memory_order_release);
  }
  // Has the owner signaled it in that epoch, after the same calls?
  bool is_of(std::uint64_t epoch, std::uint64_t expected_digest) const {
    return sequence.load(std::memory_order_acquire) == epoch && digest == expected_digest;
  }
};
static_assert(sizeof(FlagLine) == 64);

// Looks at a line that go without a pause in between, which may take as long as a line takes to come.
constexpr std::uint32_t kPollsWithoutPause = 128;

// First on every control block.
struct ControlBlockHead {
  alignas(64) std::atomic<std::uint32_t> left;  // peers that have read it for the last time
  // Of rank 0: the ranks of the group that sleep, or are about to, while they wait for flags. Mostly 0, so every
  // rank has the line in its own cache, and a signal costs one load whatever the number of ranks. No line of its
  // own, because the areas behind the head keep their place in pairs of lines.
  std::atomic<std::uint32_t> sleepers;
  alignas(64) std::atomic<std::uint32_t> is_revoked;   // peers may no longer touch buffers of the owner
  alignas(64) std::atomic<std::uint32_t> is_touching;  // the owner is touching buffers of others now
  alignas(64) std::atomic<std::uint32_t> cpu;  // where the owner last signaled or waited, plus 1; 0: not told
};

// A group has control blocks of three sizes, each made when it is first needed: those of a group that moves little
// take little.
enum class BlockKind : std::uint8_t { tiny, small, bulk };
inline constexpr std::array kBlockKinds{BlockKind::tiny, BlockKind::small, BlockKind::bulk};
template <class T>
using ByBlockKind = std::array<T, kBlockKinds.size()>;

struct ControlBlockShape {
  std::uint32_t slots = 1;
  std::uint32_t lines = 1;         // by area
  std::size_t staging_bytes = 64;  // of one epoch; a multiple of 64
  bool rotates_offset = false;     // small epochs take all places of their area in turn

  std::size_t area_bytes() const { return lines * sizeof(FlagLine) + staging_bytes; }
  // Where in the staging buffer of its area an epoch that takes so much begins. Where the offset rotates, a line is
  // written again after it has left the peers' own caches for the common one. Then it comes back two to three times
  // faster. Large epochs have that effect by themselves.
  std::size_t rotated_offset(std::uint64_t epoch, std::size_t taken_bytes) const {
    if (!rotates_offset || taken_bytes == 0 || taken_bytes > staging_bytes / 2) return 0;
    return (epoch >> 1U) % (staging_bytes / taken_bytes) * taken_bytes;
  }
  std::size_t total_bytes() const {
    return sizeof(ControlBlockHead) + slots * sizeof(FlagLine) + 2 * slots * area_bytes();
  }
};

// A control block whose owner has left before all its peers had: memory to give back later.
struct RetiredBlock {
  SharedHeap* heap = nullptr;
  ByteRange memory;
  std::uint32_t awaited = 0;  // of ControlBlockHead::left

  bool is_quiet() const {
    return reinterpret_cast<const ControlBlockHead*>(memory.data())->left.load(std::memory_order_acquire) ==
           awaited;
  }
};

// The control blocks of all ranks of one group, as one rank sees them. Belongs to the holder of the progress lock.
class ControlBlocks {
 public:
  enum class State : std::uint8_t { absent, exchanging, linked, refused };

  ControlBlocks(const ControlBlockShape& shape, StagingPolicy policy, std::uint32_t rank, std::uint32_t size)
      : shape_(shape), stores_(policy), rank_(rank), size_(size) {}

  const ControlBlockShape& shape() const { return shape_; }
  std::uint32_t rank() const { return rank_; }
  std::uint32_t size() const { return size_; }
  State state() const { return state_; }

  // Makes the own control block and exposes it in the window under that number. Where there is no memory for it the
  // peers are told so, and all ranks do without control blocks. The window outlives this object's use, until leave().
  void make(SharedHeap* heap, SharedWindow& window, std::uint32_t number);
  std::uint32_t number() const { return number_; }
  // Looks for those of the others: linked, refused (some rank has none), or still exchanging.
  State link();
  // The rank whose control block is not known or not mapped yet; the own rank: none.
  std::uint32_t awaited_rank() const {
    if (known_count_ < size()) return known_count_;
    return mapped_count_ < size() ? mapped_count_ : rank_;
  }
  // Will nothing come from the awaited rank: it is gone, or its memory cannot be mapped? Costs system calls.
  bool is_awaited_lost();

  ControlBlockHead& head(std::uint32_t rank) const {
    return *reinterpret_cast<ControlBlockHead*>(base_[rank]);
  }
  // The last epoch of the slot that the rank has ended.
  std::atomic<std::uint64_t>& ended(std::uint32_t rank, std::uint32_t slot) const {
    return reinterpret_cast<FlagLine*>(base_[rank] + sizeof(ControlBlockHead))[slot].sequence;
  }
  // Has the rank ended that epoch of the slot? Reads its control block only if it had not when last asked.
  bool has_ended(std::uint32_t rank, std::uint32_t slot, std::uint64_t epoch) {
    std::uint64_t& seen = seen_[std::size_t{slot} * size() + rank];
    if (seen < epoch) seen = ended(rank, slot).load(std::memory_order_acquire);
    return seen >= epoch;
  }
  // The ranks, in ascending order, that read what this rank writes in an epoch; null: all others do. The same set is
  // kept once, as long as this object. None is for two ranks: the area was the other's in the epoch before, so the
  // other is asked whether or not it reads.
  using Readers = const std::vector<std::uint32_t>*;
  Readers keep_readers(const std::vector<std::uint32_t>& readers) {
    return alternates_owner() ? nullptr : &*reader_sets_.insert(readers).first;
  }
  // The first rank, from `from` on, that may still read the area as this rank wrote it two epochs before `epoch`.
  // size(): there is none, and the area may be written again. Others than the readers of that epoch are not asked,
  // so a leaf asks nobody, and the root of a tree its children.
  std::uint32_t first_behind(std::uint32_t slot, std::uint64_t epoch, std::uint32_t from) {
    if (epoch <= 2) return size();
    const Readers readers = slots_[slot].readers[epoch & 1U];
    if (readers == nullptr) {
      while (from < size() && (from == rank_ || has_ended(from, slot, epoch - 2))) ++from;
      return from;
    }
    for (auto at = std::lower_bound(readers->begin(), readers->end(), from); at != readers->end(); ++at)
      if (!has_ended(*at, slot, epoch - 2)) return *at;
    return size();
  }
  // From now on ranks may be asked: an operation may end before it has heard from all.
  void reserve_ended() { seen_.resize(std::size_t{shape_.slots} * size()); }
  // May this rank write the area of that epoch? `behind`: the rank that it waits for if not; where to go on
  // asking.
  bool may_write(std::uint32_t slot, std::uint64_t epoch, std::uint32_t* behind) {
    if (slots_[slot].has_heard_from_all) return true;
    *behind = first_behind(slot, epoch, *behind);
    return *behind == size();
  }
  // Where the ranks write in one epoch. `own`: the distance from the start of this rank's control block to its area.
  // `others`: the same for every other rank.
  struct Area {
    std::uintptr_t own = 0, others = 0;
  };
  Area area(std::uint32_t slot, std::uint64_t epoch) const {
    const std::uintptr_t offset = sizeof(ControlBlockHead) + shape_.slots * sizeof(FlagLine) +
                                  (2 * std::size_t{slot} + (epoch & 1U)) * shape_.area_bytes();
    if (!alternates_owner() || (epoch & 2U) == 0) return {offset, offset};
    const std::uintptr_t across =
        reinterpret_cast<std::uintptr_t>(base_[1 - rank_]) - reinterpret_cast<std::uintptr_t>(base_[rank_]);
    return {offset + across, offset - across};
  }
  // Does the reader of a line write it next?
  bool alternates_owner() const { return size() == 2; }
  // As ControlBlockShape says, unless lines alternate owners and both ranks write (`all_write`). Then a rank has just
  // read the lines that it writes next, so without rotation they are in its own caches.
  std::size_t staging_place(std::uint64_t epoch, std::size_t taken_bytes, bool all_write) const {
    return alternates_owner() && all_write ? 0 : shape_.rotated_offset(epoch, taken_bytes);
  }
  // The lines that the rank writes in that area, which lies on another rank's control block at times: a distance may lead back.
  FlagLine* lines_at(std::uint32_t rank, const Area& area) const {
    return reinterpret_cast<FlagLine*>(reinterpret_cast<std::uintptr_t>(base_[rank]) +
                                       (rank == rank_ ? area.own : area.others));
  }
  // Stores of this rank into areas that others read go through here.
  StagingStores& stores() { return stores_; }
  const StagingStores& stores() const { return stores_; }
  std::size_t staging_offset() const { return shape_.lines * sizeof(FlagLine); }  // behind the lines

  // Tells the others which CPU this rank runs on, as ControlBlockHead::cpu has it. Takes 5 ns.
  std::uint32_t tell_cpu();
  // Until it tells again, it runs on none.
  void tell_no_cpu() { head(rank_).cpu.store(0, std::memory_order_relaxed); }
  std::uint32_t told_cpu(std::uint32_t rank) const { return head(rank).cpu.load(std::memory_order_relaxed); }
  // Have all others that last told that CPU signaled that line of the area in that epoch?
  bool have_signaled_on(std::uint32_t cpu, const Area& area, std::uint32_t line, std::uint64_t epoch) const;

  std::uint64_t epoch(std::uint32_t slot) const { return slots_[slot].epoch; }
  // Numbers epochs of a slot, from 1.
  std::uint64_t next_epoch(std::uint32_t slot) { return ++slots_[slot].epoch; }
  // `readers`: of what this rank has written in it.
  void end_epoch(std::uint32_t slot, bool has_heard_from_all, Readers readers) {
    stores_.end_batch();
    slots_[slot].has_heard_from_all = has_heard_from_all;
    slots_[slot].readers[slots_[slot].epoch & 1U] = readers;
    ended(rank_, slot).store(slots_[slot].epoch, std::memory_order_release);
  }
  // How many of the epochs so far touched buffers of peers.
  void count_direct() { ++direct_count_; }
  std::uint64_t direct_count() const { return direct_count_; }

  // Wakes peers that sleep, so that they see what was just signaled. The order of our signal and the load of
  // `sleepers` is forced by the sleeper: it counts itself, then calls membarrier(2), then looks at the flags again.
  // So either it sees the signal, or the loads here see its count and its bell. Where a member cannot use
  // membarrier, the addition of nothing stands before or after its count in the order of that word. If before, the
  // sleeper has acquired our signal when it looks.
  void wake_sleepers() {
    std::atomic<std::uint32_t>& sleepers = head(0).sleepers;
    const std::uint32_t count = needs_fence_ ? sleepers.fetch_add(0, std::memory_order_acq_rel)
                                             : sleepers.load(std::memory_order_relaxed);
    if (count != 0) [[unlikely]]
      ring_bells();
  }
  // Counts this rank among the sleepers, or no longer; returns whether that is new. Linked. Afterwards the caller
  // arms the transport (membarrier), then looks at the flags once more, then sleeps.
  bool count_sleeper(bool is_sleeping);
  SharedHeap* heap() const { return heap_; }
  // Memory of a peer as mapped here; null while it is not.
  std::byte* map(std::uint32_t peer, const SegmentRange& place);
  // Has the peer closed or died? May cost a system call.
  bool is_gone(std::uint32_t peer) const;
  // No peer touches buffers of this rank afterwards; waits for those that do, while they live.
  void revoke();

  // Says goodbye to the peers' control blocks. True if the own one is to be given back later (`retired`).
  bool leave(RetiredBlock* retired);

 private:
  struct SlotState {
    std::uint64_t epoch = 0;
    bool has_heard_from_all = true;       // nothing was written before the first epoch
    std::array<Readers, 2> readers = {};  // of the last two epochs, by parity
  };
  bool find_all();
  bool map_all();
  bool attach(std::uint32_t peer);
  void ring_bells();

  ControlBlockShape shape_;
  StagingStores stores_;
  std::uint32_t rank_, size_;
  State state_ = State::absent;
  bool needs_fence_ = false;        // some member cannot use membarrier(2)
  bool is_counted_ = false;         // in `sleepers`
  std::uint32_t known_count_ = 0;   // so many first ranks have said where theirs is
  std::uint32_t mapped_count_ = 0;  // so many are mapped
  SharedWindow* window_ = nullptr;
  std::uint32_t number_ = 0;  // in the window
  std::uint64_t direct_count_ = 0;
  SharedHeap* heap_ = nullptr;
  ByteRange own_;
  // The following have their elements from make() on.
  std::vector<std::byte*> base_;      // by rank
  std::vector<SegmentRange> places_;  // by rank; until all are mapped
  std::vector<std::vector<ByteRange>>
      segments_;  // of peers, mapped so far; by rank and number, from the first map() on
  std::vector<SlotState> slots_;
  std::set<std::vector<std::uint32_t>> reader_sets_;
  std::vector<std::uint64_t> seen_;  // of ended(), by slot and rank, from reserve_ended() on
};

}  // namespace tutti
