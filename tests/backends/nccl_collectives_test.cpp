// Every collective that NCCL carries, by its stand-in, against a serial reference; run for the newest version
// and for the oldest.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "runtime/kernels/reference.hpp"
#include "tests/backends/nccl_support.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace tutti;
using namespace tutti::test;

const bool is_named = use_stand_ins(CUDA_STAND_IN_FILE, NCCL_STAND_IN_FILE);

// The element `index` of a rank's input: small numbers, exact in every dtype, not the same everywhere.
void put_element(Dtype dtype, std::uint32_t rank, std::uint64_t index, std::byte* to) {
  const auto value = static_cast<int>((rank * 5 + index * 3 + index / 7) % 4 + 1);
  const auto put = [to](auto one) { std::memcpy(to, &one, sizeof one); };
  switch (dtype) {
    case Dtype::f32:
      return put(static_cast<float>(value));
    case Dtype::f64:
      return put(static_cast<double>(value));
    case Dtype::f16:
    case Dtype::bf16:
      return put(encode_narrow(dtype, static_cast<float>(value)));
    case Dtype::f8e4m3:
    case Dtype::f8e5m2:
      return put(static_cast<std::uint8_t>(encode_narrow(dtype, static_cast<float>(value))));
    default: {
      const auto wide = static_cast<std::uint64_t>(value);
      for (std::size_t at = 0; at < size_of(dtype); at += sizeof wide)
        std::memcpy(to + at, &wide, std::min(sizeof wide, size_of(dtype) - at));
    }
  }
}

using Bytes = std::vector<std::byte>;

Bytes input_of(Dtype dtype, std::uint32_t rank, std::uint64_t first, std::uint64_t count) {
  Bytes made(count * size_of(dtype));
  for (std::uint64_t i = 0; i < count; ++i)
    put_element(dtype, rank, first + i, made.data() + i * size_of(dtype));
  return made;
}

// Elements [first, first + count) of all inputs, combined.
Bytes reduced(Dtype dtype, const ReduceOp& op, std::uint32_t size, std::uint64_t first, std::uint64_t count) {
  std::vector<Bytes> inputs;
  std::vector<const void*> sources;
  for (std::uint32_t r = 0; r < size; ++r) {
    inputs.push_back(input_of(dtype, r, first, count));
    if (op.op == Op::premul_sum)
      scale_reference(op, static_cast<int>(size), dtype, inputs[r].data(), inputs[r].data(), count);
  }
  for (const Bytes& one : inputs) sources.push_back(one.data());
  Bytes result(count * size_of(dtype));
  const bool is_sum = op.op == Op::avg || op.op == Op::premul_sum;
  reduce_reference(is_sum ? ReduceOp(Op::sum) : op, dtype, result.data(), sources, count);
  if (op.op == Op::avg)
    scale_reference(op, static_cast<int>(size), dtype, result.data(), result.data(), count);
  return result;
}

enum class Blocks { equal, listed, with_gaps };

struct Case {
  Collective collective;
  Dtype dtype = Dtype::f32;
  ReduceOp op;
  std::uint64_t count = 0;
  std::uint32_t root = 0;
  bool in_place = false;
  Blocks blocks = Blocks::equal;
};

std::string text_of(const Case& c) {
  return fmt::format("{} {} {} count {} root {}{} blocks {}", to_string(c.collective), to_string(c.dtype),
                     to_string(c.op.op), c.count, c.root, c.in_place ? " in place" : "",
                     static_cast<int>(c.blocks));
}

// Counts and places of the blocks of one vector: that which rank `row` sends in an alltoall, any in the rest.
struct Layout {
  std::vector<std::uint64_t> counts, starts;
};
Layout layout_of(const Case& c, std::uint32_t size, std::uint32_t row, bool is_column) {
  Layout made;
  std::uint64_t start = 0;
  for (std::uint32_t b = 0; b < size; ++b) {
    std::uint64_t count = c.count;
    if (c.blocks != Blocks::equal) {
      count = c.count + b;
      // Asymmetric, and some are empty.
      if (c.collective == Collective::alltoall) count = is_column ? (2 * b + row) % 4 : (2 * row + b) % 4;
    }
    made.counts.push_back(count);
    made.starts.push_back(start);
    start += count + (c.blocks == Blocks::with_gaps ? 1 : 0);
  }
  return made;
}

Verdict exercise(Rank& rank, const Case& c) {
  const std::uint32_t me = rank.rank(), size = rank.size();
  const std::size_t element_bytes = size_of(c.dtype);
  const Layout in = layout_of(c, size, me, false);
  const bool is_alltoall = c.collective == Collective::alltoall;
  const Layout out = is_alltoall ? layout_of(c, size, me, true) : in;
  Call call = rank.call(c.collective, c.dtype, c.count);
  call.op = c.op;
  call.root = c.root;
  if (c.blocks != Blocks::equal) {
    call.counts = in.counts;
    if (is_alltoall) call.output_counts = out.counts;
  }
  if (c.blocks == Blocks::with_gaps) {
    call.displacements = in.starts;
    if (is_alltoall) call.output_displacements = out.starts;
  }
  const Extent in_extent = input_extent(call, me, size), out_extent = output_extent(call, me, size);
  const bool gathers = c.collective == Collective::allgather || c.collective == Collective::gather;
  const bool scatters = c.collective == Collective::reduce_scatter || c.collective == Collective::scatter;
  const bool is_broadcast = c.collective == Collective::broadcast;
  // As the calls above the engine are made normal.
  call.in_place = is_broadcast || (c.in_place && is_root(call, me));
  std::byte* const input = rank.input.data();
  std::byte* const output = call.in_place && !gathers && !is_broadcast ? input : rank.output.data();
  call.output = output;
  if (call.in_place) call.input = call.output;
  std::memset(input, 0xEE, kBufferBytes);
  std::memset(rank.output.data(), 0xEE, kBufferBytes);
  const std::size_t own = in.starts[me] * element_bytes;
  if (is_broadcast ? me == c.root : in_extent.is_used) {
    const Bytes data = input_of(c.dtype, me, 0, is_broadcast ? c.count : *in_extent.count);
    std::byte* const place = call.in_place ? output + (gathers ? own : 0) : input;
    if (!data.empty()) std::memcpy(place, data.data(), data.size());
  }

  const Status supported = rank.engine->prepare(call, {}).status();
  if (!supported) return text_of(c) + ": " + supported.to_string();
  auto work = rank.start(call);
  if (!work) return text_of(c) + ": " + work.status().to_string();
  // Lists are the caller's to reuse once the call is submitted.
  const Status status = (*work)->wait(soon());
  if (!status) return text_of(c) + ": " + status.to_string();
  if (!out_extent.is_used || c.collective == Collective::barrier) return {};

  Bytes expected(*out_extent.count * element_bytes, std::byte{0xEE});
  const auto expect = [&](std::uint64_t at, const Bytes& data) {
    if (!data.empty()) std::memcpy(expected.data() + at * element_bytes, data.data(), data.size());
  };
  switch (c.collective) {
    case Collective::allreduce:
    case Collective::reduce:
      expect(0, reduced(c.dtype, c.op, size, 0, c.count));
      break;
    case Collective::reduce_scatter:
      expect(0, reduced(c.dtype, c.op, size, in.starts[me], in.counts[me]));
      break;
    case Collective::broadcast:
      expect(0, input_of(c.dtype, c.root, 0, c.count));
      break;
    case Collective::allgather:
    case Collective::gather:
      for (std::uint32_t b = 0; b < size; ++b) expect(in.starts[b], input_of(c.dtype, b, 0, in.counts[b]));
      break;
    case Collective::scatter:
      expect(0, input_of(c.dtype, c.root, in.starts[me], in.counts[me]));
      break;
    case Collective::alltoall:
      for (std::uint32_t b = 0; b < size; ++b) {
        const Layout sender = layout_of(c, size, b, false);
        expect(out.starts[b], input_of(c.dtype, b, sender.starts[me], sender.counts[me]));
      }
      break;
    default:
      break;
  }
  const std::byte* found = call.in_place && scatters ? output + own : output;
  if (expected.empty() || std::memcmp(found, expected.data(), expected.size()) == 0) return {};
  std::size_t first = 0;
  while (found[first] == expected[first]) ++first;
  return fmt::format("{}: byte {} of {} is {:#x} instead of {:#x}", text_of(c), first, expected.size(),
                     static_cast<int>(found[first]), static_cast<int>(expected[first]));
}

Verdict run_all(const std::vector<Case>& cases) {
  for (std::uint32_t size = 1; size <= 4; ++size) {
    FakeGroup group(size, std::chrono::seconds(20));
    const Verdict verdict = with_engines(group, [&](Rank& rank) -> Verdict {
      for (Case c : cases) {
        if (c.root >= size) c.root = size - 1;
        if (Verdict one = exercise(rank, c); !one.empty()) return one;
      }
      return {};
    });
    if (!verdict.empty()) return fmt::format("{} ranks, {}", size, verdict);
  }
  return {};
}

bool has_float8() { return (*nccl::library())->version >= nccl::kHasFloat8; }

}  // namespace

TEST_CASE("reductions: every dtype and operation that NCCL has") {
  REQUIRE(is_named);
  std::vector<Case> cases;
  for (int d = 0; d < kDtypeCount; ++d) {
    const auto dtype = static_cast<Dtype>(d);
    for (const Op op : {Op::sum, Op::prod, Op::min, Op::max, Op::avg, Op::premul_sum}) {
      Case c{Collective::allreduce, dtype, op, 37};
      if (op == Op::premul_sum) {
        c.op = class_of(dtype) == DtypeClass::integer ? ReduceOp::premul_sum_integer(3)
                                                      : ReduceOp::premul_sum(0.5);
      }
      if (!is_scalar(dtype) || !is_legal(op, dtype)) continue;
      if (dtype == Dtype::boolean || dtype == Dtype::i16 || dtype == Dtype::u16) continue;
      if (size_of(dtype) == 1 && is_narrow_float(dtype) && !has_float8()) continue;
      cases.push_back(c);
      c.collective = Collective::reduce_scatter;
      cases.push_back(c);
    }
  }
  CHECK(run_all(cases) == "");
}

TEST_CASE("reductions: counts, roots, in place, uneven blocks") {
  std::vector<Case> cases;
  for (const std::uint64_t count : {0, 1, 5, 1000}) {
    for (const bool in_place : {false, true}) {
      cases.push_back({Collective::allreduce, Dtype::f32, Op::sum, count, 0, in_place});
      for (const std::uint32_t root : {0U, 2U})
        cases.push_back({Collective::reduce, Dtype::i64, Op::max, count, root, in_place});
      for (const Blocks blocks : {Blocks::equal, Blocks::listed, Blocks::with_gaps})
        cases.push_back({Collective::reduce_scatter, Dtype::f64, Op::sum, count, 0, in_place, blocks});
    }
  }
  CHECK(run_all(cases) == "");
}

TEST_CASE("moves: every dtype, counts, roots, in place, uneven blocks") {
  std::vector<Case> cases;
  for (int d = 0; d < static_cast<int>(Dtype::opaque); ++d)
    cases.push_back({Collective::broadcast, static_cast<Dtype>(d), {}, 9, static_cast<std::uint32_t>(d % 3)});
  for (const std::uint64_t count : {0, 1, 333}) {
    for (const bool in_place : {false, true}) {
      for (const Blocks blocks : {Blocks::equal, Blocks::listed, Blocks::with_gaps}) {
        cases.push_back({Collective::allgather, Dtype::u16, {}, count, 0, in_place, blocks});
        for (const std::uint32_t root : {0U, 3U}) {
          cases.push_back({Collective::gather, Dtype::f8e5m2, {}, count, root, in_place, blocks});
          cases.push_back({Collective::scatter, Dtype::f32, {}, count, root, in_place, blocks});
        }
        if (in_place && blocks != Blocks::equal) continue;
        cases.push_back({Collective::alltoall, Dtype::f64, {}, count, 0, in_place, blocks});
      }
    }
  }
  cases.push_back({Collective::barrier, Dtype::u8, {}, 0});
  CHECK(run_all(cases) == "");
}

TEST_CASE("messages, one stream for each direction") {
  FakeGroup group(3, std::chrono::seconds(20));
  CHECK(with_engines(group, [](Rank& rank) -> Verdict {
          auto other = cuda::Stream::create(rank.device);
          if (!other) return other.status().to_string();
          constexpr std::uint64_t kCount = 100;
          const Bytes data = input_of(Dtype::i32, rank.rank(), 0, kCount);
          std::memcpy(rank.input.data(), data.data(), data.size());
          Call send = rank.call(Collective::send_recv, Dtype::i32, kCount);
          send.is_send = true;
          send.root = (rank.rank() + 1) % 3;
          Call receive = send;
          receive.is_send = false;
          receive.root = (rank.rank() + 2) % 3;
          receive.stream = other->get();
          auto sent = rank.start(send);
          auto received = rank.start(receive);
          if (!sent || !received) return "not started";
          if (!(*sent)->wait(soon()) || !(*received)->wait(soon())) return "not complete";
          if ((*received)->source() != static_cast<int>(receive.root) || (*sent)->source() != -1)
            return "wrong source";
          const Bytes expected = input_of(Dtype::i32, receive.root, 0, kCount);
          return std::memcmp(rank.output.data(), expected.data(), expected.size()) == 0 ? "" : "wrong data";
        }) == "");
}

TEST_CASE("calls are ordered on their stream, and return before they are complete") {
  FakeGroup group(2, std::chrono::seconds(20));
  CHECK(with_engines(group, [](Rank& rank) -> Verdict {
          std::memset(rank.input.data(), 1, kBufferBytes);
          // Nothing runs on the devices until all calls are made, and all ranks have looked at them.
          if (rank.rank() == 0) cuda_stand_in_hang(0, true);
          Call call = rank.call(Collective::allreduce, Dtype::u8, 1000);
          std::vector<WorkRef> works;
          for (int i = 0; i < 3; ++i) {
            auto work = rank.start(call);
            if (!work) return work.status().to_string();
            works.push_back(*std::move(work));
            std::swap(call.output, const_cast<void*&>(call.input));
          }
          char is_early = works[2]->test() ? 1 : 0, early[2] = {};
          Status status = rank.services.allgather(&is_early, early, 1);
          if (rank.rank() == 0) cuda_stand_in_hang(0, false);
          if (!status) return status.to_string();
          if (is_early != 0) return "complete while a device is busy";
          status = works[2]->wait(soon());
          if (!status) return status.to_string();
          if (!works[0]->test() || !works[1]->test()) return "an earlier one is not complete";
          return rank.output.data()[999] == std::byte{8} ? "" : "1 + 1, doubled twice, is something else";
        }) == "");
}

TEST_CASE("a callback is called without anybody waiting, or at once") {
  FakeGroup group(2, std::chrono::seconds(20));
  CHECK(with_engines(group, [](Rank& rank) -> Verdict {
          std::promise<bool> first, second;
          auto work = rank.start(rank.call(Collective::allreduce, Dtype::f32, 10));
          if (!work) return work.status().to_string();
          (*work)->when_complete([&first](const Status& status) { first.set_value(status.is_ok()); });
          if (!first.get_future().get()) return "failed";
          (*work)->when_complete([&second](const Status& status) { second.set_value(status.is_ok()); });
          return second.get_future().get() ? "" : "failed";
        }) == "");
}
