// Segments, directory and heap of one transport instance. Knows no endpoint and no peer; see instance.hpp.
#include "transports/memory/instance.hpp"

#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

namespace tutti::memory {

namespace {

// Small messages must work even when staging memory is used up; so much goes beyond the bound.
constexpr std::size_t kReserveBytes = std::size_t{256} << 20U;
// Link memory begins in the segment of the page; further segments double.
constexpr std::size_t kFirstSegmentBytes = std::size_t{1} << 20U;
constexpr std::size_t kLargestLinkSegment = std::size_t{64} << 20U;
constexpr std::size_t kLargestHeapSegment = std::size_t{1} << 30U;
constexpr std::size_t kPageBytes = 4096;
static_assert(sizeof(InstancePage) < kFirstSegmentBytes);

std::size_t round_to_pages(std::size_t bytes) { return (bytes + kPageBytes - 1) & ~(kPageBytes - 1); }

class PrivateSource final : public SegmentSource {
 public:
  Result<Segment> create(std::size_t bytes) override {
    void* base =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
      return Status(StatusCode::resource_exhausted, "cannot map " + std::to_string(bytes) +
                                                        " bytes: " + std::strerror(errno) +
                                                        " (address space limit, ulimit -v, or overcommit)");
    }
    return Segment{static_cast<std::byte*>(base), bytes, -1};
  }
  Status back(const Segment&, std::uint64_t, std::uint64_t) override { return {}; }
  void destroy(const Segment& segment) override { ::munmap(segment.base, segment.bytes); }
};

std::uint64_t hash_key(const Nonce& peer, std::uint64_t context) {
  std::uint64_t bits = peer.low ^ (context * 0x9e3779b97f4a7c15U);
  bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9U;
  return bits ^ (bits >> 31U);
}

}  // namespace

std::unique_ptr<SegmentSource> make_private_source() { return std::make_unique<PrivateSource>(); }

Nonce make_nonce() {
  Nonce nonce;
  if (::getrandom(&nonce, sizeof(nonce), 0) != static_cast<ssize_t>(sizeof(nonce))) {
    std::random_device device;  // a kernel or filter without getrandom
    auto draw = [&device] { return (std::uint64_t{device()} << 32U) ^ device(); };
    nonce = {draw(), draw()};
  }
  return nonce;
}

Result<std::shared_ptr<Instance>> Instance::make(std::unique_ptr<SegmentSource> source, const Nonce& nonce,
                                                 const MemoryOptions& options) {
  std::shared_ptr<Instance> instance(new Instance(std::move(source), nonce, options));
  Result<std::uint32_t> index = instance->add_segment(kFirstSegmentBytes);
  if (!index) return index.status();
  TUTTI_RETURN_IF_ERROR(instance->back(0, sizeof(InstancePage)));
  Instance* raw = instance.get();
  instance->link_bytes_ = instance->next_link_bytes_ = kFirstSegmentBytes;
  instance->link_arena_ = Arena(
      {sizeof(InstancePage), kFirstSegmentBytes},
      [raw](std::uint64_t place, std::uint64_t size) { return raw->back(place, size); },
      [raw](std::size_t size) { return raw->grow_links(size); });
  InstancePage* page = instance->page();
  page->is_alive.store(1, std::memory_order_relaxed);
  page->magic.store(kLayoutMagic, std::memory_order_release);
  return instance;
}

Instance::~Instance() {
  for (std::uint32_t i = 0; i < segment_count(); ++i) source_->destroy(segments_[i]);
}

Result<std::uint32_t> Instance::add_segment(std::size_t bytes) {
  std::uint32_t index = 0;
  {
    const std::lock_guard lock(segments_mutex_);
    index = segment_count_.load(std::memory_order_relaxed);
    if (index == kMaxSegments) {
      return Status(StatusCode::resource_exhausted,
                    "all " + std::to_string(kMaxSegments) + " segments are in use");
    }
    Result<Segment> segment = source_->create(bytes);
    if (!segment) return segment.status();
    segments_[index] = *segment;
    segment_count_.store(index + 1, std::memory_order_release);
  }
  if (segment_hook_) segment_hook_();
  return index;
}

Result<Arena::Range> Instance::add_range(std::size_t preferred_bytes, std::size_t needed_bytes) {
  const std::size_t least = round_to_pages(needed_bytes);
  const std::size_t largest = source_->largest_bytes() & ~(kPageBytes - 1);
  std::size_t bytes = std::max(std::min(preferred_bytes, largest), least);
  Result<std::uint32_t> index = add_segment(bytes);
  // Near a limit of the process, a smaller one may still fit.
  for (; !index && bytes > least && index.status().code() == StatusCode::resource_exhausted;
       index = add_segment(bytes)) {
    bytes = std::max(round_to_pages(bytes / 2), least);
  }
  if (!index) return index.status();
  return Arena::Range{make_place(*index, 0), make_place(*index, bytes)};
}

// With mutex_ held.
Result<Arena::Range> Instance::grow_links(std::size_t bytes) {
  const std::size_t bound = options_.staging_bytes + kReserveBytes;
  if (link_bytes_ >= bound || bytes > bound - link_bytes_) {
    return Status(StatusCode::resource_exhausted,
                  "the bound of " + std::to_string(bound) + " bytes on what endpoints may take is reached (" +
                      std::to_string(kReserveBytes) + " and TUTTI_SHM_BYTES)");
  }
  Result<Arena::Range> range = add_range(std::min(next_link_bytes_, bound - link_bytes_), bytes);
  if (!range) return range.status();
  link_bytes_ += range->end - range->begin;
  next_link_bytes_ = std::min(2 * next_link_bytes_, kLargestLinkSegment);
  return range;
}

Result<std::uint64_t> Instance::allocate_link(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  Result<Arena::Block> block = link_arena_.allocate(bytes);
  if (!block) return block.status().with_context("link memory");
  return block->offset;
}

Result<std::uint64_t> Instance::allocate_promised_link(std::size_t bytes, Need need) {
  const std::lock_guard lock(mutex_);
  if (need == Need::optional && link_arena_.used_bytes() + bytes > options_.staging_bytes) {
    return Status(StatusCode::resource_exhausted,
                  "the bound of " + std::to_string(options_.staging_bytes) +
                      " bytes on staging memory (TUTTI_SHM_BYTES) is reached");
  }
  Result<Arena::Block> block = link_arena_.allocate(bytes, true);
  if (!block) return block.status().with_context("link memory");
  return block->offset;
}

void Instance::promise_links(std::size_t count) {
  const std::lock_guard lock(mutex_);
  link_arena_.promise(count);
}

void Instance::withdraw_links(std::size_t count) {
  const std::lock_guard lock(mutex_);
  link_arena_.withdraw(count);
}

bool Instance::has_staging_room(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  return link_arena_.used_bytes() + bytes <= options_.staging_bytes;
}

void Instance::release_link(std::uint64_t place) {
  const std::lock_guard lock(mutex_);
  link_arena_.release(place);
}

Result<DirectoryEntry*> Instance::announce(const Nonce& peer, std::uint64_t context, std::uint64_t place) {
  const std::lock_guard lock(mutex_);
  InstancePage* p = page();
  const std::uint64_t hash = hash_key(peer, context);
  for (std::uint32_t part = 0; part < kDirectoryParts; ++part) {
    const std::uint64_t part_place = p->part_places[part].load(std::memory_order_relaxed);
    DirectoryEntry* entries = part == 0 ? p->first_part.data() : at<DirectoryEntry>(part_place);
    if (part > 0 && part_place == 0) {
      auto added = add_part(part);
      if (!added) {
        link_arena_.release(place);
        return added.status();
      }
      entries = *added;
    }
    for (std::uint32_t probe = 0; probe < kMostProbes; ++probe) {
      DirectoryEntry& entry = entries[(hash + probe) % entries_of_part(part)];
      const std::uint64_t state = entry.state.load(std::memory_order_relaxed);
      const std::uint64_t kind = state & DirectoryEntry::kStateMask;
      if (kind == DirectoryEntry::kLive || kind == DirectoryEntry::kClosing) continue;
      entry.peer_low.store(peer.low, std::memory_order_release);
      entry.peer_high.store(peer.high, std::memory_order_release);
      entry.context.store(context, std::memory_order_release);
      entry.place.store(place, std::memory_order_release);
      const std::uint64_t generation = (state & ~DirectoryEntry::kStateMask) + DirectoryEntry::kStateMask + 1;
      entry.state.store(generation | DirectoryEntry::kLive, std::memory_order_release);
      p->directory_version.fetch_add(1, std::memory_order_release);
      return &entry;
    }
  }
  link_arena_.release(place);
  return Status(
      StatusCode::resource_exhausted,
      "the directory of " + std::to_string(kMostEntries) +
          " endpoints and windows of this rank's shared memory is full; every open group or stream takes "
          "1, for each other member 4 more for collectives that messages carry, and up to 2 for sends and "
          "receives: close those that are "
          "no longer used, make smaller ones, or use TUTTI_TRANSPORTS=tcp, which has no such limit");
}

// With mutex_ held. It stays: peers may be looking at it.
Result<DirectoryEntry*> Instance::add_part(std::uint32_t part) {
  const std::size_t bytes = entries_of_part(part) * sizeof(DirectoryEntry);
  Result<Arena::Block> block = link_arena_.allocate(bytes);
  if (!block) return block.status().with_context("the directory of endpoints");
  auto* const entries = at<DirectoryEntry>(block->offset);
  if (!block->is_fresh) std::memset(static_cast<void*>(entries), 0, bytes);
  page()->part_places[part].store(block->offset, std::memory_order_release);
  return entries;
}

void Instance::set_closing(DirectoryEntry& entry) {
  const std::uint64_t generation = entry.state.load(std::memory_order_relaxed) & ~DirectoryEntry::kStateMask;
  entry.state.store(generation | DirectoryEntry::kClosing, std::memory_order_seq_cst);
}

void Instance::remove(DirectoryEntry& entry) {
  const std::lock_guard lock(mutex_);
  entry.state.store(entry.state.load(std::memory_order_relaxed) | DirectoryEntry::kRemoved,
                    std::memory_order_release);
}

Found find_in_part(const DirectoryEntry* part, std::uint32_t number, const Nonce& peer,
                   std::uint64_t context) {
  const std::uint64_t hash = hash_key(peer, context);
  for (std::uint32_t probe = 0; probe < kMostProbes; ++probe) {
    const DirectoryEntry& entry = part[(hash + probe) % entries_of_part(number)];
    const std::uint64_t state = entry.state.load(std::memory_order_acquire);
    const std::uint64_t kind = state & DirectoryEntry::kStateMask;
    if (kind == DirectoryEntry::kNever) return {};
    if (kind == DirectoryEntry::kRemoved) continue;
    const bool is_ours = entry.peer_low.load(std::memory_order_acquire) == peer.low &&
                         entry.peer_high.load(std::memory_order_acquire) == peer.high &&
                         entry.context.load(std::memory_order_acquire) == context;
    const std::uint64_t place = entry.place.load(std::memory_order_acquire);
    if (!is_ours) continue;
    const std::uint64_t state_after = entry.state.load(std::memory_order_acquire);
    // live -> closing keeps the generation, and what the entry says stays true.
    if ((state_after ^ state) & ~DirectoryEntry::kStateMask) continue;
    if ((state_after & DirectoryEntry::kStateMask) == DirectoryEntry::kRemoved) continue;
    return {&entry, (state & ~DirectoryEntry::kStateMask) | DirectoryEntry::kLive, place};
  }
  return {};
}

// -- heap -------------------------------------------------------------------------------------------------

Heap::Heap(Instance* instance)
    : instance_(instance),
      arena_([instance](std::uint64_t place, std::uint64_t size) { return instance->back(place, size); },
             [this](std::size_t bytes) {
               if (next_segment_bytes_ == 0) next_segment_bytes_ = instance_->options().heap_segment_bytes;
               Result<Arena::Range> range = instance_->add_range(next_segment_bytes_, bytes);
               if (range && next_segment_bytes_ < kLargestHeapSegment) next_segment_bytes_ *= 2;
               return range;
             }) {}

Result<ByteRange> Heap::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const MemoryOptions& options = instance_->options();
  if (bytes > options.heap_bytes - used_bytes_) {
    return Status(StatusCode::resource_exhausted, "the shared heap is bounded to " +
                                                      std::to_string(options.heap_bytes) + " bytes, " +
                                                      std::to_string(used_bytes_) + " are in use, " +
                                                      std::to_string(bytes) + " were asked for");
  }
  const Result<Arena::Block> block = arena_.allocate(bytes);
  if (!block) return block.status().with_context("shared heap");
  used_bytes_ += bytes;
  const ByteRange memory(instance_->at<std::byte>(block->offset), bytes);
  if (!block->is_fresh) std::memset(memory.data(), 0, memory.size());
  return memory;
}

void Heap::release(ByteRange memory) {
  Location location;
  const bool is_ours = locate(memory.data(), memory.size(), &location);
  TUTTI_ASSERT(is_ours, "released memory that is not of this heap");
  const std::lock_guard lock(mutex_);
  arena_.release(make_place(location.segment, location.offset));
  used_bytes_ -= memory.size();
}

std::shared_ptr<SharedHeap> Heap::hold() { return {instance_->shared_from_this(), this}; }

bool Heap::locate(const std::byte* address, std::size_t bytes, Location* location) const {
  const std::uint32_t count = instance_->segment_count();
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  for (std::uint32_t i = 1; i < count; ++i) {
    const Segment& segment = instance_->segment(i);
    const auto base = reinterpret_cast<std::uintptr_t>(segment.base);
    if (wanted < base || wanted - base >= segment.bytes || bytes > segment.bytes - (wanted - base)) continue;
    *location = {i, wanted - base};
    return true;
  }
  return false;
}

// -- registry ---------------------------------------------------------------------------------------------

InstanceRegistry::InstanceRegistry() : id_(make_nonce()) {}

void InstanceRegistry::add(const std::shared_ptr<Instance>& instance) {
  const std::lock_guard lock(mutex_);
  for (auto it = instances_.begin(); it != instances_.end();) {
    it = it->second.expired() ? instances_.erase(it) : std::next(it);
  }
  instances_[instance->nonce()] = instance;
}

std::shared_ptr<Instance> InstanceRegistry::find(const Nonce& nonce) const {
  const std::lock_guard lock(mutex_);
  const auto found = instances_.find(nonce);
  return found == instances_.end() ? nullptr : found->second.lock();
}

}  // namespace tutti::memory
