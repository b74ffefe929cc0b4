// The bodies of the kernels that reduce among ranks whose memory they can reach: one shot and two shots.
// Knows the areas of all ranks, and its position in the grid. Like kernel_bodies.hpp, compiled for the device
// and, in the tests' stand-in, for the host. The same bits on every rank: all fold in rank order.
//
// One shot, for few bytes: every rank stores its vector into the area of every rank. Words have 4 bytes of data
// and 4 of a flag (as NCCL's LL). Both arrive together, so a reader that sees the flag has the data. Two
// calls use the words alternately: a rank that begins the call after the next has received all of the next
// one, so its peers are through with this one.
//
// Two shots, for more: rank r folds slice r of all inputs and stores the result into all outputs, which moves
// the fewest bytes. Block b of a rank has a barrier with block b of the others before (inputs are there) and
// after (outputs are there). So all ranks launch equal grids, of which all blocks are resident.
#pragma once

#include "backends/cuda/kernel_bodies.hpp"

#if !defined(__CUDACC__)
#include <sched.h>
#endif

namespace tutti::cuda {

inline constexpr uint32_t kMaxPeers = 16;
inline constexpr uint32_t kMostPeerBlocks = 256;

// The memory of one rank that all reach; begins as zeros.
struct PeerArea {
  struct Line {  // from one block of one rank to the same block of another
    uint64_t input;
    uint64_t output;
    uint32_t arrived;  // epochs
    uint32_t left;
  };
  Line lines[kMostPeerBlocks][kMaxPeers];
  // Behind it: words of one shot [2][size][capacity], then memory for staging.
};

struct PeerArguments {
  uint64_t count;
  FoldRule rule;
  ScaleRule average;
  uint32_t is_average;
  uint32_t rank;
  uint32_t size;
  uint32_t epoch;          // of this call; never 0
  uint32_t is_staged;      // two shots: in the staging memory of all areas, not in their own vectors
  uint32_t word_capacity;  // one shot: of one rank, in words
  uint64_t staging_offset;
  const void* input;
  void* output;
  const uint32_t* abort;  // not 0: give up
  PeerArea* areas[kMaxPeers];
};

// The position of a thread in the grid, and the barrier of a block.
struct PeerThread {
  uint32_t block;
  uint32_t blocks;
  uint32_t index;  // in its block
  uint32_t count;  // of a block

  TUTTI_DEVICE Thread in_grid() const { return {uint64_t{block} * count + index, uint64_t{blocks} * count}; }
  TUTTI_DEVICE void sync() const {
#if defined(__CUDA_ARCH__)
    __syncthreads();
#endif
  }
  // Does it hold for all threads of the block? Each gets the same answer.
  TUTTI_DEVICE bool all(bool holds) const {
#if defined(__CUDA_ARCH__)
    return __syncthreads_and(holds ? 1 : 0) != 0;
#else
    return holds;
#endif
  }
};

// The addresses of all ranks' vectors, shared by a block.
struct PeerVectors {
  const void* inputs[kMaxPeers];
  void* outputs[kMaxPeers];
};

// Memory that other devices and processes write and read at the same time.
TUTTI_DEVICE uint64_t load_relaxed(const uint64_t* from) {
#if defined(__CUDA_ARCH__)
  uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
#else
  return __atomic_load_n(from, __ATOMIC_RELAXED);
#endif
}
TUTTI_DEVICE void store_relaxed(uint64_t* to, uint64_t value) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
#else
  __atomic_store_n(to, value, __ATOMIC_RELAXED);
#endif
}
TUTTI_DEVICE uint32_t load_acquire(const uint32_t* from) {
#if defined(__CUDA_ARCH__)
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
#else
  return __atomic_load_n(from, __ATOMIC_ACQUIRE);
#endif
}
TUTTI_DEVICE void store_release(uint32_t* to, uint32_t value) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
#else
  __atomic_store_n(to, value, __ATOMIC_RELEASE);
#endif
}

// Polls until `is_there`; false if the host aborts.
template <class IsThere>
TUTTI_DEVICE bool wait_until(const uint32_t* abort, IsThere is_there) {
  for (uint32_t polls = 1; !is_there(); ++polls) {
#if !defined(__CUDA_ARCH__)
    ::sched_yield();
#endif
    if (polls % 256 == 0 && load_acquire(abort) != 0) return false;
  }
  return true;
}

// Up to 8 bytes of a vector that need no alignment.
TUTTI_DEVICE uint64_t load_unit(const void* from, uint64_t offset, uint32_t size_bytes) {
  const unsigned char* at = static_cast<const unsigned char*>(from) + offset;
  if (size_bytes == 8 && reinterpret_cast<uintptr_t>(at) % 8 == 0) return load_element<uint64_t>(at, 0);
  uint64_t unit = 0;
  for (uint32_t i = 0; i < size_bytes; ++i) unit |= uint64_t{at[i]} << (8 * i);
  return unit;
}
TUTTI_DEVICE void store_unit(void* to, uint64_t offset, uint32_t size_bytes, uint64_t unit) {
  unsigned char* at = static_cast<unsigned char*>(to) + offset;
  if (size_bytes == 8 && reinterpret_cast<uintptr_t>(at) % 8 == 0)
    return store_element<uint64_t>(at, 0, unit);
  for (uint32_t i = 0; i < size_bytes; ++i) at[i] = static_cast<unsigned char>(unit >> (8 * i));
}

// Where a rank's words lie in an area, this epoch.
TUTTI_DEVICE uint64_t* words_of(const PeerArguments& a, PeerArea* area, uint32_t rank) {
  return reinterpret_cast<uint64_t*>(area + 1) + (uint64_t{a.epoch & 1U} * a.size + rank) * a.word_capacity;
}

TUTTI_DEVICE uint32_t bytes_of_unit(uint64_t size_bytes, uint64_t unit) {
  return static_cast<uint32_t>(size_bytes - 8 * unit < 8 ? size_bytes - 8 * unit : 8);
}

// Writes the input into the areas of all ranks: half a unit and the epoch in each word.
TUTTI_DEVICE void push_units(const PeerArguments& a, uint64_t size_bytes, uint64_t units, Thread thread) {
  const uint64_t flag = uint64_t{a.epoch} << 32U;
  for (uint64_t u = thread.index; u < units; u += thread.count) {
    const uint64_t data = load_unit(a.input, 8 * u, bytes_of_unit(size_bytes, u));
    for (uint32_t i = 0; i < a.size; ++i) {
      const uint32_t peer = (a.rank + i) % a.size;  // not all at the same one
      uint64_t* words = words_of(a, a.areas[peer], a.rank) + 2 * u;
      store_relaxed(words, flag | (data & 0xFFFFFFFFU));
      store_relaxed(words + 1, flag | data >> 32U);
    }
  }
}

template <class Element>
TUTTI_DEVICE void one_shot_body(const PeerArguments& a, PeerThread peer_thread) {
  using T = typename Element::Stored;
  constexpr uint32_t kElements = 8 / sizeof(T);
  const Thread thread = peer_thread.in_grid();
  const uint64_t size_bytes = a.count * sizeof(T);
  const uint64_t units = (size_bytes + 7) / 8;
  push_units(a, size_bytes, units, thread);
  // The units of a thread are read by it alone, so output may be input.
  for (uint64_t u = thread.index; u < units; u += thread.count) {
    typename Element::Wide values[kElements];
    TUTTI_ROLLED
    for (uint32_t k = 0; k < a.size; ++k) {
      const uint64_t* words = words_of(a, a.areas[a.rank], k) + 2 * u;
      uint64_t low = 0;
      uint64_t high = 0;
      const bool is_there = wait_until(a.abort, [&] {
        low = load_relaxed(words);
        high = load_relaxed(words + 1);
        return low >> 32U == a.epoch && high >> 32U == a.epoch;
      });
      if (!is_there) return;
      const uint64_t unit = (low & 0xFFFFFFFFU) | high << 32U;
      const auto element = [&](uint32_t e) {
        return Element::widen(static_cast<T>(unit >> (8 * sizeof(T) * e)));
      };
      if (k == 0) {
        TUTTI_UNROLL
        for (uint32_t e = 0; e < kElements; ++e) values[e] = element(e);
        continue;
      }
      with_fold<Element>(a.rule.fold, [&]<Fold fold>() {
        TUTTI_UNROLL
        for (uint32_t e = 0; e < kElements; ++e) {
          values[e] = Element::template combine<fold>(values[e], element(e), a.rule);
        }
      });
    }
    uint64_t result = 0;
    TUTTI_UNROLL
    for (uint32_t e = 0; e < kElements; ++e) {
      T stored = Element::store(values[e]);
      if (a.is_average != 0) stored = Element::scale(stored, a.average);
      result |= uint64_t{stored} << (8 * sizeof(T) * e);
    }
    store_unit(a.output, 8 * u, bytes_of_unit(size_bytes, u), result);
  }
}

// A barrier with the same block of all ranks: signals them and waits for their flags. False: aborted.
TUTTI_DEVICE bool meet(const PeerArguments& a, PeerThread thread, uint32_t PeerArea::Line::*flag) {
  bool is_met = true;
  for (uint32_t k = thread.index; k < a.size; k += thread.count) {
    store_release(&(a.areas[k]->lines[thread.block][a.rank].*flag), a.epoch);
  }
  for (uint32_t k = thread.index; k < a.size; k += thread.count) {
    const uint32_t* from = &(a.areas[a.rank]->lines[thread.block][k].*flag);
    is_met = wait_until(a.abort, [&] { return load_acquire(from) == a.epoch; }) && is_met;
  }
  return is_met;
}

// Folds elements [first, end) of all inputs into all outputs, one at a time.
template <class Element>
TUTTI_DEVICE void fold_elements(const PeerArguments& a, const PeerVectors& vectors, uint64_t first,
                                uint64_t end, Thread thread) {
  using T = typename Element::Stored;
  for (uint64_t i = first + thread.index; i < end; i += thread.count) {
    typename Element::Wide value = Element::widen(load_element<T>(vectors.inputs[0], i));
    TUTTI_ROLLED
    for (uint32_t k = 1; k < a.size; ++k) {
      const auto next = Element::widen(load_element<T>(vectors.inputs[k], i));
      with_fold<Element>(a.rule.fold,
                         [&]<Fold fold>() { value = Element::template combine<fold>(value, next, a.rule); });
    }
    T stored = Element::store(value);
    if (a.is_average != 0) stored = Element::scale(stored, a.average);
    TUTTI_ROLLED
    for (uint32_t k = 0; k < a.size; ++k) store_element<T>(vectors.outputs[k], i, stored);
  }
}

// Folds elements [first, end) of all inputs into all outputs, a chunk at a time where outputs are aligned.
// Has more than 15 decisions because values stay in registers from their load to their store.
template <class Element>
TUTTI_DEVICE void fold_slice(const PeerArguments& a, const PeerVectors& vectors, uint64_t first, uint64_t end,
                             Thread thread) {
  using T = typename Element::Stored;
  using Wide = typename Element::Wide;
  constexpr uint32_t kElements = kChunkBytes / sizeof(T);
  bool are_outputs_aligned = true;
  bool are_inputs_aligned = true;
  TUTTI_ROLLED
  for (uint32_t k = 0; k < a.size; ++k) {
    are_outputs_aligned =
        are_outputs_aligned && reinterpret_cast<uintptr_t>(vectors.outputs[k]) % kChunkBytes == 0;
    are_inputs_aligned =
        are_inputs_aligned && reinterpret_cast<uintptr_t>(vectors.inputs[k]) % kChunkBytes == 0;
  }
  // Slices begin at chunks. A source that is shifted into place is read up to three bytes past its last
  // chunk.
  uint64_t chunks = are_outputs_aligned ? (end - first) / kElements : 0;
  if (!are_inputs_aligned && chunks > 0 && (end - first - chunks * kElements) * sizeof(T) < 4) --chunks;
  const auto load = [&](uint32_t k, uint64_t offset) {
    const auto* input = static_cast<const unsigned char*>(vectors.inputs[k]);
    return load_chunk(input + offset, reinterpret_cast<uintptr_t>(input) % kChunkBytes == 0);
  };
  for (uint64_t i = thread.index; i < chunks; i += thread.count) {
    const uint64_t offset = first * sizeof(T) + i * kChunkBytes;
    Wide values[kElements];
    Chunk next = load(0, offset);
    TUTTI_ROLLED
    for (uint32_t k = 0; k < a.size; ++k) {
      const Chunk current = next;
      if (k + 1 < a.size) next = load(k + 1, offset);
      if (k == 0) {
        TUTTI_UNROLL
        for (uint32_t e = 0; e < kElements; ++e)
          values[e] = Element::widen(current.get<T>(static_cast<int>(e)));
        continue;
      }
      with_fold<Element>(a.rule.fold, [&]<Fold fold>() {
        TUTTI_UNROLL
        for (uint32_t e = 0; e < kElements; ++e) {
          values[e] = Element::template combine<fold>(
              values[e], Element::widen(current.get<T>(static_cast<int>(e))), a.rule);
        }
      });
    }
    Chunk result{};
    TUTTI_UNROLL
    for (uint32_t e = 0; e < kElements; ++e) {
      T stored = Element::store(values[e]);
      if (a.is_average != 0) stored = Element::scale(stored, a.average);
      result.put(static_cast<int>(e), stored);
    }
    TUTTI_ROLLED
    for (uint32_t k = 0; k < a.size; ++k)
      store_chunk(static_cast<unsigned char*>(vectors.outputs[k]) + offset, result);
  }
  fold_elements<Element>(a, vectors, first + chunks * kElements, end, thread);
}

// `vectors` is shared by the block.
template <class Element>
TUTTI_DEVICE void two_shot_body(const PeerArguments& a, PeerThread thread, PeerVectors& vectors) {
  using T = typename Element::Stored;
  constexpr uint64_t kElements = kChunkBytes / sizeof(T);
  for (uint32_t k = thread.index; k < a.size; k += thread.count) {
    PeerArea::Line& line = a.areas[k]->lines[thread.block][a.rank];
    line.input = reinterpret_cast<uintptr_t>(a.input);
    line.output = reinterpret_cast<uintptr_t>(a.output);
  }
  // A rank that aborts does not signal, so no other gets past its next barrier.
  if (!thread.all(meet(a, thread, &PeerArea::Line::arrived))) return;
  for (uint32_t k = thread.index; k < a.size; k += thread.count) {
    const PeerArea::Line& line = a.areas[a.rank]->lines[thread.block][k];
    unsigned char* staging = reinterpret_cast<unsigned char*>(a.areas[k]) + a.staging_offset;
    vectors.inputs[k] = a.is_staged != 0 ? staging : reinterpret_cast<const void*>(line.input);
    vectors.outputs[k] = a.is_staged != 0 ? staging : reinterpret_cast<void*>(line.output);
  }
  thread.sync();
  const uint64_t per_rank = ((a.count + a.size - 1) / a.size + kElements - 1) / kElements * kElements;
  const uint64_t first = per_rank * a.rank < a.count ? per_rank * a.rank : a.count;
  const uint64_t end = first + per_rank < a.count ? first + per_rank : a.count;
  fold_slice<Element>(a, vectors, first, end, thread.in_grid());
  thread.sync();
#if defined(__CUDA_ARCH__)
  __threadfence_system();
#endif
  meet(a, thread, &PeerArea::Line::left);
}

}  // namespace tutti::cuda
