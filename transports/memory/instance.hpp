// The memory of one transport instance: its segments, directory, link memory and shared heap.
// Knows neither endpoints nor how peers obtain a mapping; a SegmentSource knows where memory comes from.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/base/status.hpp"
#include "transports/memory/arena.hpp"
#include "transports/memory/layout.hpp"
#include "transports/options.hpp"
#include "transports/transport.hpp"

namespace tutti::memory {

// 128 random bits that name an instance for ever.
struct Nonce {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const Nonce&) const = default;
  bool operator<(const Nonce& other) const {
    return high != other.high ? high < other.high : low < other.low;
  }
};

struct Segment {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  int fd = -1;                    // shm only; several segments may lie in one file
  std::uint64_t file_offset = 0;  // where in the file this one begins
};

// Where segments come from: anonymous memory or memfd.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;
  // Address space of `bytes`, mapped; not yet usable. Calls come one at a time.
  virtual Result<Segment> create(std::size_t bytes) = 0;
  // No segment can be larger, for a limit of this process.
  virtual std::size_t largest_bytes() const { return ~std::size_t{0}; }
  // Takes the memory, so that touching it later cannot fail.
  virtual Status back(const Segment& segment, std::uint64_t offset, std::uint64_t bytes) = 0;
  virtual void destroy(const Segment& segment) = 0;
};

// Anonymous memory of this process.
std::unique_ptr<SegmentSource> make_private_source();

class Instance;

// Buffers that peers can map. Segments are added as needed.
class Heap final : public SharedHeap {
 public:
  explicit Heap(Instance* instance);
  Result<ByteRange> allocate(std::size_t bytes) override;
  void release(ByteRange memory) override;
  std::shared_ptr<SharedHeap> hold() override;
  bool locate(const std::byte* address, std::size_t bytes, Location* location) const override;

 private:
  Instance* instance_;
  std::mutex mutex_;
  Arena arena_;
  std::size_t next_segment_bytes_ = 0;
  std::size_t used_bytes_ = 0;
};

// Shared by its transport and, in one process, by the peers that read it; freed with the last of them.
// Threading: segments() and page() by any thread; allocate_link and the directory take a mutex.
class Instance : public std::enable_shared_from_this<Instance> {
 public:
  static constexpr std::uint32_t kMaxSegments = 256;

  static Result<std::shared_ptr<Instance>> make(std::unique_ptr<SegmentSource> source, const Nonce& nonce,
                                                const MemoryOptions& options);
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  const Nonce& nonce() const { return nonce_; }
  const MemoryOptions& options() const { return options_; }
  InstancePage* page() const { return reinterpret_cast<InstancePage*>(segments_[0].base); }
  Heap& heap() { return heap_; }

  // Segments, in order of creation; number 0 begins with the page. Each holds link memory or belongs to the
  // heap. Peers map all of them, so they start small and double.
  std::uint32_t segment_count() const { return segment_count_.load(std::memory_order_acquire); }
  const Segment& segment(std::uint32_t index) const { return segments_[index]; }
  // A segment of `preferred_bytes`, or as large as limits permit but with room for `needed_bytes`.
  Result<Arena::Range> add_range(std::size_t preferred_bytes, std::size_t needed_bytes);
  // Called whenever a segment was added; it must not call back. Set before anybody else uses the instance.
  void set_segment_hook(std::function<void()> hook) { segment_hook_ = std::move(hook); }
  Status back(std::uint64_t place, std::uint64_t bytes) {
    return source_->back(segments_[segment_of(place)], offset_of(place), bytes);
  }

  // Link memory. A promised block takes nothing of this process's memory any more, see Arena, unless a
  // segment must be added for it. An optional block respects options().staging_bytes, others may go beyond.
  enum class Need : std::uint8_t { vital, optional };
  Result<std::uint64_t> allocate_link(std::size_t bytes);
  Result<std::uint64_t> allocate_promised_link(std::size_t bytes, Need need);
  void promise_links(std::size_t count);
  void withdraw_links(std::size_t count);
  void release_link(std::uint64_t place);
  // Would optional blocks of so many bytes in all respect the bound now?
  bool has_staging_room(std::size_t bytes);
  template <class T>
  T* at(std::uint64_t place) const {
    return reinterpret_cast<T*>(segments_[segment_of(place)].base + offset_of(place));
  }

  // Announces a block towards a peer, or, with the own nonce, the block of a window; returns its entry. Errors:
  // resource_exhausted; the block is given back then.
  Result<DirectoryEntry*> announce(const Nonce& peer, std::uint64_t context, std::uint64_t place);
  static void set_closing(DirectoryEntry& entry);
  void remove(DirectoryEntry& entry);

 private:
  Instance(std::unique_ptr<SegmentSource> source, const Nonce& nonce, const MemoryOptions& options)
      : source_(std::move(source)), nonce_(nonce), options_(options), heap_(this) {}
  Result<std::uint32_t> add_segment(std::size_t bytes);
  Result<DirectoryEntry*> add_part(std::uint32_t part);
  Result<Arena::Range> grow_links(std::size_t bytes);

  std::unique_ptr<SegmentSource> source_;
  Nonce nonce_;
  MemoryOptions options_;
  Heap heap_;
  std::mutex mutex_;  // of link memory and the directory; taken before segments_mutex_
  Arena link_arena_;
  std::size_t link_bytes_ = 0;  // of all segments for links
  std::size_t next_link_bytes_ = 0;
  std::mutex segments_mutex_;
  std::array<Segment, kMaxSegments> segments_{};
  std::atomic<std::uint32_t> segment_count_{0};
  std::function<void()> segment_hook_;
};

// A block found in a peer's directory.
struct Found {
  const DirectoryEntry* entry = nullptr;  // null: it is not there
  std::uint64_t state = 0;                // what entry->state was
  std::uint64_t place = 0;

  // Has it been found, and its owner closed it since?
  bool is_closed() const { return entry != nullptr && entry->state.load(std::memory_order_acquire) != state; }
};

// Looks in one part of a directory for the block that its owner announced towards `peer`.
Found find_in_part(const DirectoryEntry* part, std::uint32_t number, const Nonce& peer,
                   std::uint64_t context);

// The same in the whole directory of the owner of `page`. `map(place, bytes)`: its link memory, null while it is not
// mapped; then `is_sure` becomes false.
template <class Map>
Found find_block(const InstancePage& page, const Nonce& peer, std::uint64_t context, const Map& map,
                 bool* is_sure) {
  *is_sure = true;
  Found found = find_in_part(page.first_part.data(), 0, peer, context);
  for (std::uint32_t part = 1; part < kDirectoryParts && found.entry == nullptr; ++part) {
    const std::uint64_t place = page.part_places[part].load(std::memory_order_acquire);
    if (place == 0) break;
    const auto* entries =
        reinterpret_cast<const DirectoryEntry*>(map(place, entries_of_part(part) * sizeof(DirectoryEntry)));
    if (entries == nullptr) {
      *is_sure = false;
      break;
    }
    found = find_in_part(entries, part, peer, context);
  }
  return found;
}

// The instances of this process, so that they can use each other's mapping. Thread-safe.
class InstanceRegistry {
 public:
  InstanceRegistry();
  const Nonce& id() const { return id_; }
  void add(const std::shared_ptr<Instance>& instance);
  // Null if there is no such instance (any more).
  std::shared_ptr<Instance> find(const Nonce& nonce) const;

 private:
  Nonce id_;
  mutable std::mutex mutex_;
  std::map<Nonce, std::weak_ptr<Instance>> instances_;
};

Nonce make_nonce();

}  // namespace tutti::memory
