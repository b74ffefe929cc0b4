// Operations of all kinds that ranks draw alike, with the result that each must have. Knows no algorithm.
#pragma once

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/scheduler/scheduler_support.hpp"

namespace tutti::test {

using Words = std::vector<std::uint32_t>;

// Words in the transport's shared heap, or ordinary ones.
class WordBuffer {
 public:
  WordBuffer(const Member& member, bool is_mapped, std::size_t count) {
    SharedHeap* heap = member.engine->transport(0).caps().heap;
    if (is_mapped && count != 0) {
      auto memory = heap->allocate(count * sizeof(std::uint32_t));
      if (memory) {
        heap_ = heap;
        memory_ = *memory;
        words_ = {reinterpret_cast<std::uint32_t*>(memory_.data()), count};
        return;
      }
    }
    ordinary_.resize(count);
    words_ = ordinary_;
  }
  WordBuffer(WordBuffer&& other) noexcept
      : heap_(std::exchange(other.heap_, nullptr)),
        memory_(other.memory_),
        ordinary_(std::move(other.ordinary_)),
        words_(other.words_) {}
  WordBuffer(const WordBuffer&) = delete;
  WordBuffer& operator=(const WordBuffer&) = delete;
  WordBuffer& operator=(WordBuffer&&) = delete;
  ~WordBuffer() {
    if (heap_ != nullptr) heap_->release(memory_);
  }
  std::span<std::uint32_t> words() const { return words_; }

 private:
  SharedHeap* heap_ = nullptr;
  ByteRange memory_;
  Words ordinary_;
  std::span<std::uint32_t> words_;
};

// Element i of rank r's input of operation n.
inline std::uint32_t value_of(std::uint32_t rank, std::uint32_t n, std::size_t i) {
  return (rank + 1) * 1000003U + n * 7919U + static_cast<std::uint32_t>(i) * 13U;
}

inline std::uint32_t sum_of(std::uint32_t ranks, std::uint32_t n, std::size_t i) {
  std::uint32_t sum = 0;
  for (std::uint32_t r = 0; r < ranks; ++r) sum += value_of(r, n, i);
  return sum;
}

// One operation of a mixed sequence that all ranks draw alike: made, started, and judged when it is complete.
class Mixed {
 public:
  Mixed(const Member& member, std::uint32_t number, std::mt19937& random)
      : member_(member),
        number_(number),
        collective_(kKinds[random() % std::size(kKinds)]),
        root_(static_cast<std::uint32_t>(random() % member.size)),
        count_(kCounts[random() % std::size(kCounts)]),
        // Now and then one rank's buffers are ordinary where all others' are shared.
        is_mapped_(random() % 2 != 0 && (number % 4 != 0 || member.rank != 1)),
        in_place_(may_be_in_place() && (number + member.rank) % 3 == 0),  // ranks need not agree
        input_(member, is_mapped_, in_place_ ? 0 : blocks(true) * count_),
        output_(member, is_mapped_, blocks(false) * count_) {
    std::fill(output_.words().begin(), output_.words().end(), 0xdeadbeefU);
    const std::span<std::uint32_t> input = in_place_ ? own_part_of_output() : input_.words();
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = value_of(member.rank, number, i);
  }

  Call call() const {
    Call call;
    call.collective = collective_;
    call.dtype = Dtype::u32;
    call.root = root_;
    call.count = collective_ == Collective::barrier ? 0 : count_;
    call.output = output_.words().data();
    call.input = in_place_ ? call.output : input_.words().data();
    call.in_place = in_place_;
    return call;
  }

  Status start() {
    auto work = member_.backend->start(call(), {});
    if (!work) return work.status();
    work_ = *std::move(work);
    return {};
  }
  // As a cached call, if it can be one now.
  Status start(CachedCall* cached) {
    return cached != nullptr && cached->run(call(), Completion::blocking, &work_) ? Status() : start();
  }

  bool is_done_at_once() const { return !work_; }

  std::string finish() {
    const Status outcome = work_ ? work_->wait(Clock::now() + kPatience) : Status();
    if (!outcome) return describe() + outcome.to_string();
    for (std::size_t i = 0; i < output_.words().size(); ++i) {
      if (output_.words()[i] != expected(i))
        return fmt::format("{}element {} is {:#x}, expected {:#x}", describe(), i, output_.words()[i],
                           expected(i));
    }
    return {};
  }

 private:
  static constexpr Collective kKinds[] = {
      Collective::allreduce, Collective::broadcast, Collective::broadcast, Collective::gather,
      Collective::reduce,    Collective::barrier,   Collective::scatter,   Collective::reduce_scatter,
      Collective::allgather, Collective::alltoall,  Collective::scan};
  static constexpr std::size_t kCounts[] = {1, 2, 11, 12, 13, 100, 700, 3000, 20000};

  bool may_be_in_place() const {
    return collective_ == Collective::allreduce || collective_ == Collective::scan ||
           collective_ == Collective::allgather;
  }
  std::span<std::uint32_t> own_part_of_output() const {
    if (collective_ != Collective::allgather) return output_.words();
    return output_.words().subspan(member_.rank * count_, count_);
  }
  // Length of this rank's buffer, in units of `count`.
  std::size_t blocks(bool is_input) const {
    const bool is_root = member_.rank == root_;
    switch (collective_) {
      case Collective::barrier:
        return 0;
      case Collective::broadcast:
        return is_input && !is_root ? 0 : 1;
      case Collective::reduce:
        return is_input || is_root ? 1 : 0;
      case Collective::gather:
        return is_input ? 1 : is_root ? member_.size : 0;
      case Collective::allgather:
        return is_input ? 1 : member_.size;
      case Collective::scatter:
        return !is_input ? 1 : is_root ? member_.size : 0;
      case Collective::reduce_scatter:
        return is_input ? member_.size : 1;
      case Collective::alltoall:
        return member_.size;
      default:
        return 1;
    }
  }
  std::uint32_t expected(std::size_t i) const {
    const std::size_t block = i / count_, within = i % count_, own = member_.rank * count_;
    switch (collective_) {
      case Collective::broadcast:
        return value_of(root_, number_, i);
      case Collective::gather:
      case Collective::allgather:
        return value_of(static_cast<std::uint32_t>(block), number_, within);
      case Collective::scatter:
        return value_of(root_, number_, own + i);
      case Collective::reduce_scatter:
        return sum_of(member_.size, number_, own + i);
      case Collective::alltoall:
        return value_of(static_cast<std::uint32_t>(block), number_, own + within);
      case Collective::scan:
        return sum_of(member_.rank + 1, number_, i);
      default:
        return sum_of(member_.size, number_, i);
    }
  }
  std::string describe() const {
    return fmt::format("operation {}, {} of {}, root {}{}{}: ", number_, to_string(collective_), count_,
                       root_, is_mapped_ ? ", mapped" : "", in_place_ ? ", in place" : "");
  }

  const Member& member_;
  std::uint32_t number_;
  Collective collective_;
  std::uint32_t root_;
  std::size_t count_;
  bool is_mapped_, in_place_;
  WordBuffer input_, output_;
  WorkRef work_;
};

}  // namespace tutti::test
