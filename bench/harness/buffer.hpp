// A benchmark buffer: page-aligned anonymous memory on 4 KiB or on transparent huge pages.
// Knows nothing of what is stored in it or of who communicates it.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

namespace tutti::bench {

// small: 4 KiB pages, also where the system would merge them; huge: transparent huge pages where the system
// grants them.
enum class Pages : std::uint8_t { small, huge };

inline std::optional<Pages> parse_pages(std::string_view name) {
  if (name == "4k") return Pages::small;
  if (name == "thp") return Pages::huge;
  return std::nullopt;
}

// Move-only owner. The address is a multiple of 2 MiB (huge) or of 4 KiB (small), so of a cache line too. The
// pages are written once at the start: no timed call pays for a page fault. Throws std::bad_alloc.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t bytes, Pages pages = Pages::small) : bytes_(bytes) {
    if (bytes == 0) return;
    constexpr std::size_t kHuge = std::size_t{2} << 20;
    mapped_bytes_ = (bytes + kHuge - 1) / kHuge * kHuge + kHuge;
    mapping_ = ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping_ == MAP_FAILED) throw std::bad_alloc();
    const auto address = reinterpret_cast<std::uintptr_t>(mapping_);
    data_ = reinterpret_cast<unsigned char*>((address + kHuge - 1) / kHuge * kHuge);
    // A kernel without huge pages refuses both; the buffer is then what "4k" asks for anyway.
    ::madvise(mapping_, mapped_bytes_, pages == Pages::huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    for (std::size_t at = 0; at < bytes; at += 4096) data_[at] = 0;
  }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        mapping_(std::exchange(other.mapping_, nullptr)),
        mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(mapping_, other.mapping_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (mapping_ != nullptr) ::munmap(mapping_, mapped_bytes_);
  }

  unsigned char* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  unsigned char* data_ = nullptr;
  std::size_t bytes_ = 0;
  void* mapping_ = nullptr;
  std::size_t mapped_bytes_ = 0;
};

}  // namespace tutti::bench
