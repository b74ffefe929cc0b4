// Memory of memfd files: sealed, taken before it is touched, gone with its last user.
// Knows no peer; sockets carry the descriptors.
#pragma once

#include <memory>

#include "transports/memory/instance.hpp"

namespace tutti::shm {

// Segments lie one behind the other in one file, which costs one descriptor; in several where the limit of
// file sizes (ulimit -f) is too low for one.
std::unique_ptr<memory::SegmentSource> make_memfd_source();

// Maps a segment that another process made. Errors: refused if the file is not what it is said to be (its
// size could shrink under us), resource_exhausted.
Result<memory::Segment> map_foreign_segment(int fd, std::uint64_t file_offset, std::size_t bytes);
void unmap_segment(const memory::Segment& segment);

}  // namespace tutti::shm
