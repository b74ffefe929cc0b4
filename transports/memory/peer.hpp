// One peer instance as seen from here: its segments and a way to read its ordinary memory.
// Knows no endpoint; several endpoints share one peer.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "transports/memory/instance.hpp"
#include "transports/transport.hpp"

namespace tutti::memory {

// Threading: every method by any thread.
class Peer {
 public:
  enum class Access : std::uint8_t {
    none,    // not at all
    direct,  // one address space: follow the pointer
    copied,  // through copy()
  };
  enum class Copied : std::uint8_t {
    ok,
    denied,  // not permitted: do not try again
    failed,  // this memory cannot be read
  };
  virtual ~Peer() = default;

  // The segment as mapped here; empty until it can be mapped.
  virtual ByteRange segment(std::uint32_t index) = 0;
  // Why memory of a peer that lives cannot be used, with the limit of this process that is reached.
  virtual Status trouble() { return {}; }
  // Has the peer's instance ended or died? May make a system call.
  virtual bool is_gone() = 0;
  // Does the peer know of all our memory?
  virtual bool is_told() { return true; }
  // Can the peer not be told of memory that it needs, see trouble()?
  virtual bool is_cut_off() { return false; }
  // Can the peer die while its memory stays (another process), so that waiting for it must be bounded?
  virtual bool is_other_process() const = 0;
  // How ordinary memory of the peer can be read from here.
  virtual Access access() const = 0;
  virtual Copied copy(std::span<const iovec> local, std::span<const iovec> remote) = 0;

  InstancePage* page() {
    const ByteRange first = segment(0);
    return first.empty() ? nullptr : reinterpret_cast<InstancePage*>(first.data());
  }
};

}  // namespace tutti::memory
