// The kernels' bodies: reducing n sources into one vector, and scaling, for one kind of element.
// Knows pointers and its position in the grid. Compiled for the device by kernels.cu, and for the host by the
// tests' stand-in, which runs every block as one thread.
#pragma once

#include "backends/cuda/elements.hpp"

namespace tutti::cuda {

inline constexpr uint32_t kMaxSources = 32;
inline constexpr uint32_t kThreads = 256;  // of a block, on the device
inline constexpr uint32_t kChunkBytes = 16;

// How a vector is cut: `head` elements until dst is aligned, chunks of 16 bytes, and the rest.
// The one parameter of a kernel; made by plan_pass().
struct Cut {
  uint64_t count;   // elements
  uint64_t head;    // elements
  uint64_t chunks;  // 0 where dst is not aligned to its elements
};
struct ReduceArguments {
  Cut cut;
  FoldRule rule;
  uint32_t source_count;
  uint32_t aligned_sources;  // bit k: the chunks of source k lie at multiples of 16 bytes
  void* dst;
  const void* sources[kMaxSources];
};
struct ScaleArguments {
  Cut cut;
  ScaleRule rule;
  uint32_t is_aligned;
  void* dst;
  const void* src;
};

// Where in the grid a thread is.
struct Thread {
  uint64_t index;
  uint64_t count;
};

// 16 bytes in registers; the first byte is the lowest of the first word.
struct Chunk {
  uint32_t words[4];

  template <class T>
  TUTTI_DEVICE T get(int i) const {
    if constexpr (sizeof(T) == 8) {
      return static_cast<T>(words[2 * i]) | static_cast<T>(words[2 * i + 1]) << 32U;
    } else {
      constexpr int kPerWord = 4 / static_cast<int>(sizeof(T));
      return static_cast<T>(words[i / kPerWord] >> (8 * sizeof(T) * static_cast<unsigned>(i % kPerWord)));
    }
  }
  // Into a chunk of zeros, every element once.
  template <class T>
  TUTTI_DEVICE void put(int i, T value) {
    if constexpr (sizeof(T) == 8) {
      words[2 * i] = static_cast<uint32_t>(value);
      words[2 * i + 1] = static_cast<uint32_t>(value >> 32U);
    } else {
      constexpr int kPerWord = 4 / static_cast<int>(sizeof(T));
      words[i / kPerWord] |= static_cast<uint32_t>(value)
                             << (8 * sizeof(T) * static_cast<unsigned>(i % kPerWord));
    }
  }
};

TUTTI_DEVICE uint32_t load_word(const unsigned char* at) {
#if defined(__CUDA_ARCH__)
  return *reinterpret_cast<const uint32_t*>(at);
#else
  uint32_t word = 0;
  __builtin_memcpy(&word, at, sizeof word);
  return word;
#endif
}

TUTTI_DEVICE Chunk load_chunk(const unsigned char* at, bool is_aligned) {
  Chunk chunk;
  if (is_aligned) {
#if defined(__CUDA_ARCH__)
    const uint4 words = *reinterpret_cast<const uint4*>(at);
    chunk.words[0] = words.x, chunk.words[1] = words.y, chunk.words[2] = words.z, chunk.words[3] = words.w;
#else
    __builtin_memcpy(chunk.words, at, sizeof chunk.words);
#endif
    return chunk;
  }
  // The words that the bytes lie in, shifted into place. The last is read for its first bytes only;
  // plan_pass() leaves enough behind the last chunk.
  const uint32_t skipped = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(at) & 3U);
  const unsigned char* word = at - skipped;
  uint32_t low = load_word(word);
  if (skipped == 0) {
    chunk.words[0] = low;
    for (int i = 1; i < 4; ++i) chunk.words[i] = load_word(word + 4 * i);
    return chunk;
  }
  for (int i = 0; i < 4; ++i) {
    const uint32_t high = load_word(word + 4 * (i + 1));
    chunk.words[i] = low >> (8 * skipped) | high << (32 - 8 * skipped);
    low = high;
  }
  return chunk;
}

TUTTI_DEVICE void store_chunk(unsigned char* at, const Chunk& chunk) {
#if defined(__CUDA_ARCH__)
  *reinterpret_cast<uint4*>(at) = make_uint4(chunk.words[0], chunk.words[1], chunk.words[2], chunk.words[3]);
#else
  __builtin_memcpy(at, chunk.words, sizeof chunk.words);
#endif
}

// One element, wherever it lies.
template <class T>
TUTTI_DEVICE T load_element(const void* from, uint64_t index) {
  const unsigned char* at = static_cast<const unsigned char*>(from) + index * sizeof(T);
  if (reinterpret_cast<uintptr_t>(at) % sizeof(T) == 0) {
#if defined(__CUDA_ARCH__)
    return *reinterpret_cast<const T*>(at);
#else
    T value;
    __builtin_memcpy(&value, at, sizeof value);
    return value;
#endif
  }
  T value = 0;
  for (uint32_t i = 0; i < sizeof(T); ++i) value = static_cast<T>(value | static_cast<T>(at[i]) << (8 * i));
  return value;
}
template <class T>
TUTTI_DEVICE void store_element(void* to, uint64_t index, T value) {
  unsigned char* at = static_cast<unsigned char*>(to) + index * sizeof(T);
  if (reinterpret_cast<uintptr_t>(at) % sizeof(T) == 0) {
#if defined(__CUDA_ARCH__)
    *reinterpret_cast<T*>(at) = value;
#else
    __builtin_memcpy(at, &value, sizeof value);
#endif
    return;
  }
  for (uint32_t i = 0; i < sizeof(T); ++i) at[i] = static_cast<unsigned char>(value >> (8 * i));
}

// Calls `use` with every element outside the chunks, those of one thread.
template <class T, class Use>
TUTTI_DEVICE void for_each_single(const Cut& cut, Thread thread, Use use) {
  const uint64_t tail = cut.head + cut.chunks * (kChunkBytes / sizeof(T));
  const uint64_t singles = cut.head + cut.count - tail;
  for (uint64_t i = thread.index; i < singles; i += thread.count) use(i < cut.head ? i : i - cut.head + tail);
}

// dst[i] = ((s0[i] fold s1[i]) fold s2[i]) ...; one source is a copy of its bits (made with U8).
template <class Element>
TUTTI_DEVICE void reduce_body(const ReduceArguments& a, Thread thread) {
  using T = typename Element::Stored;
  using Wide = typename Element::Wide;
  constexpr int kElements = kChunkBytes / sizeof(T);
  const uint64_t head_bytes = a.cut.head * sizeof(T);
  const auto load = [&](uint32_t k, uint64_t offset) {
    return load_chunk(static_cast<const unsigned char*>(a.sources[k]) + offset,
                      (a.aligned_sources >> k & 1U) != 0);
  };
  for (uint64_t i = thread.index; i < a.cut.chunks; i += thread.count) {
    const uint64_t offset = head_bytes + i * kChunkBytes;
    Chunk result = load(0, offset);
    if (a.source_count > 1) {
      // The next source is on its way while one is folded.
      Chunk next = load(1, offset);
      Wide values[kElements];
      TUTTI_UNROLL
      for (int e = 0; e < kElements; ++e) values[e] = Element::widen(result.template get<T>(e));
      TUTTI_ROLLED
      for (uint32_t k = 1; k < a.source_count; ++k) {
        const Chunk current = next;
        if (k + 1 < a.source_count) next = load(k + 1, offset);
        with_fold<Element>(a.rule.fold, [&]<Fold fold>() {
          TUTTI_UNROLL
          for (int e = 0; e < kElements; ++e) {
            values[e] = Element::template combine<fold>(values[e], Element::widen(current.template get<T>(e)),
                                                        a.rule);
          }
        });
      }
      result = Chunk{};
      TUTTI_UNROLL
      for (int e = 0; e < kElements; ++e) result.put(e, Element::store(values[e]));
    }
    store_chunk(static_cast<unsigned char*>(a.dst) + offset, result);
  }
  for_each_single<T>(a.cut, thread, [&](uint64_t i) {
    T result = load_element<T>(a.sources[0], i);
    if (a.source_count > 1) {
      Wide value = Element::widen(result);
      TUTTI_ROLLED
      for (uint32_t k = 1; k < a.source_count; ++k) {
        const Wide next = Element::widen(load_element<T>(a.sources[k], i));
        with_fold<Element>(
            a.rule.fold, [&]<Fold fold>() { value = Element::template combine<fold>(value, next, a.rule); });
      }
      result = Element::store(value);
    }
    store_element<T>(a.dst, i, result);
  });
}

template <class Element>
TUTTI_DEVICE void scale_body(const ScaleArguments& a, Thread thread) {
  using T = typename Element::Stored;
  constexpr int kElements = kChunkBytes / sizeof(T);
  const uint64_t head_bytes = a.cut.head * sizeof(T);
  for (uint64_t i = thread.index; i < a.cut.chunks; i += thread.count) {
    const uint64_t offset = head_bytes + i * kChunkBytes;
    const Chunk from = load_chunk(static_cast<const unsigned char*>(a.src) + offset, a.is_aligned != 0);
    Chunk to{};
    TUTTI_UNROLL
    for (int e = 0; e < kElements; ++e) to.put(e, Element::scale(from.template get<T>(e), a.rule));
    store_chunk(static_cast<unsigned char*>(a.dst) + offset, to);
  }
  for_each_single<T>(a.cut, thread, [&](uint64_t i) {
    store_element<T>(a.dst, i, Element::scale(load_element<T>(a.src, i), a.rule));
  });
}

}  // namespace tutti::cuda
