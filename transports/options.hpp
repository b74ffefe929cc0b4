// Settings of transports, and the shared vocabulary of the memory transports' two constructors.
// Knows no configuration variable: the reader of TUTTI_* fills these in.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/status.hpp"
#include "runtime/net/network.hpp"
#include "runtime/net/wire_security.hpp"
#include "transports/transport.hpp"

namespace tutti {

namespace memory {
class InstanceRegistry;
}

// May a message be copied once, straight from the sender's ordinary buffer?
enum class SingleCopy : std::uint8_t {
  automatic,  // where the probe at start and every later attempt permit it
  off,        // never: always through the staged ring (buffers of the shared heap are still read in place)
  on,         // as automatic, and asks the kernel's Yama module to let peers of this user read us
};

struct MemoryOptions {
  // Bound on staging memory of this instance (TUTTI_SHM_BYTES). When it is near, rings get smaller; small
  // messages and a minimal ring always work.
  std::size_t staging_bytes = std::size_t{256} << 20U;
  // The staged ring of one (peer, channel, direction): pieces of at most piece_bytes, piece_count of them.
  std::size_t piece_bytes = std::size_t{32} << 10U;
  std::uint32_t piece_count = 8;
  SingleCopy single_copy = SingleCopy::automatic;
  // Messages from here on are read by the receiver where they lie: in the shared heap or in one address space
  // (mapped), or through the kernel (copied).
  std::size_t mapped_read_bytes = std::size_t{8} << 10U;
  std::size_t copied_read_bytes = std::size_t{2} << 20U;
  // Address space of the first heap segment, here and in every peer; each further one is twice as large, up
  // to a gigabyte. Memory is only taken as it is allocated.
  std::size_t heap_segment_bytes = std::size_t{1} << 20U;
  // Bound on the shared heap of this instance.
  std::size_t heap_bytes = std::size_t{64} << 30U;
};

// Ranks that are threads of one process meet through one fabric.
using InprocFabric = memory::InstanceRegistry;

struct ShmOptions {
  MemoryOptions memory;
  // Which ranks share memory: empty means boot id + network namespace; TUTTI_NODE_ID overrides.
  std::string node_id;
  // Ranks of one process that were given the same registry use one mapping of each other's memory.
  std::shared_ptr<memory::InstanceRegistry> registry;
};

// All settings of all transports.
struct TransportSettings {
  MemoryOptions memory;
  std::string node_id;             // ShmOptions::node_id
  std::string interface;           // network interface that TCP traffic must use; empty: the library's choice
  std::optional<PortRange> ports;  // that may be listened at; none: any
  WireSecurity security = WireSecurity::off;  // of connections between nodes; not every transport has it
  std::optional<WireKey> wire_key;            // that all ranks of the job have; none: the job has no secret
  std::chrono::milliseconds silence{300000};  // of another host, after which it counts as gone
  std::string ofi_provider;                   // of libfabric; empty: the best that is known to work
  std::string module_path;  // folders to look for modules in, separated by colons; empty: the usual ones
};

// How an instance is made; every transport brings such a function.
using TransportMaker = Result<std::unique_ptr<Transport>> (*)(const TransportSettings& settings);

}  // namespace tutti
