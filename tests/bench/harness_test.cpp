// The benchmark harness: sizes, statistics, exact inputs and their check, the loop over the shared page.
// Knows no collective library; what the peers' programs do with it is
// tests/bench/peers_protocol_test.py.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bench/harness/buffer.hpp"
#include "bench/harness/checked_call.hpp"
#include "bench/harness/harness.hpp"
#include "bench/harness/inputs.hpp"
#include "bench/harness/record.hpp"
#include "bench/harness/remote_memory.hpp"
#include "bench/harness/shared_page.hpp"
#include "tests/support/catch.hpp"

namespace tutti::bench {
namespace {

TEST_CASE("sizes are parsed with binary multiples and refused otherwise") {
  CHECK(parse_bytes("4") == std::size_t{4});
  CHECK(parse_bytes("64k") == std::size_t{65536});
  CHECK(parse_bytes("256M") == std::size_t{268435456});
  CHECK(parse_bytes("1g") == std::size_t{1} << 30);
  for (const char* text : {"", "k", "4kb", "-4", "4 k", "99999999999999999999", "18446744073709551615k"}) {
    INFO(text);
    CHECK_FALSE(parse_bytes(text).has_value());
  }
}

TEST_CASE("a sweep rounds up to whole elements per rank and names no size twice") {
  const auto shapes = sweep(Collective::allgather, Dtype::f32, 4, 4, 1024, 4);
  std::vector<std::size_t> bytes;
  bytes.reserve(shapes.size());
  for (const Shape& shape : shapes) bytes.push_back(shape.bytes());
  CHECK(bytes == std::vector<std::size_t>{16, 64, 256, 1024});
  CHECK(make_shape(Collective::alltoall, Dtype::f64, 3, 64).count == 9);
  CHECK(make_shape(Collective::allreduce, Dtype::f32, 3, 1).count == 1);
  CHECK(sweep(Collective::barrier, Dtype::f32, 4, 4, 1024, 4).size() == 1);
  CHECK(sweep(Collective::allreduce, Dtype::f32, 4, 4, SIZE_MAX, 1u << 30).size() == 3);
}

TEST_CASE("statistics are nearest-rank percentiles") {
  std::vector<double> samples;
  for (int i = 100; i >= 1; --i) samples.push_back(i);
  const Measurement m = summarize(samples, 100, 7);
  CHECK(m.p50_us == 50);
  CHECK(m.p95_us == 95);
  CHECK(m.min_us == 1);
  CHECK(m.mean_us == 50.5);
  CHECK(m.last_seed == 7);
  CHECK(summarize({3.0}, 1, 0).p95_us == 3.0);
}

TEST_CASE("bus factors are nccl-tests'") {
  CHECK(bus_factor(Collective::allreduce, 4) == 1.5);
  CHECK(bus_factor(Collective::reduce_scatter, 4) == 0.75);
  CHECK(bus_factor(Collective::broadcast, 4) == 1.0);
  CHECK(bus_factor(Collective::barrier, 4) == 0.0);
}

TEST_CASE("small integers are encoded as the compiler encodes them") {
  for (int value = -300; value <= 300; ++value) {
    float f = 0;
    double d = 0;
    detail::encode(Dtype::f32, value, reinterpret_cast<unsigned char*>(&f));
    detail::encode(Dtype::f64, value, reinterpret_cast<unsigned char*>(&d));
    REQUIRE(f == static_cast<float>(value));
    REQUIRE(d == static_cast<double>(value));
  }
  // bfloat16 is the upper half of a float; the other formats by their definitions: 12 = 1.5 * 2^3.
  std::uint16_t half = 0;
  detail::encode(Dtype::bf16, 200, reinterpret_cast<unsigned char*>(&half));
  CHECK(half == 0x4348);
  detail::encode(Dtype::f16, 12, reinterpret_cast<unsigned char*>(&half));
  CHECK(half == 0x4A00);
  unsigned char byte = 0;
  detail::encode(Dtype::f8e4m3, 12, &byte);
  CHECK(byte == 0x54);
  detail::encode(Dtype::f8e5m2, 12, &byte);
  CHECK(byte == 0x4A);
}

// The result of a correct library at `rank`, computed naively in the integers that i64 holds.
std::vector<std::int64_t> serial_result(const Shape& shape, Op op, int rank,
                                        const std::vector<std::vector<std::int64_t>>& in) {
  std::vector<std::int64_t> out(shape.output_count(rank));
  const std::size_t block = shape.block_count();
  for (std::size_t i = 0; i < out.size(); ++i) {
    switch (shape.collective) {
      case Collective::broadcast:
        out[i] = in[0][i];
        continue;
      case Collective::allgather:
        out[i] = in[i / block][i % block];
        continue;
      case Collective::alltoall:
        out[i] = in[i / block][static_cast<std::size_t>(rank) * block + i % block];
        continue;
      default:
        break;
    }
    const std::size_t at =
        shape.collective == Collective::reduce_scatter ? static_cast<std::size_t>(rank) * block + i : i;
    out[i] = in[0][at];
    for (std::size_t source = 1; source < in.size(); ++source) {
      const std::int64_t next = in[source][at];
      if (op == Op::sum) out[i] += next;
      if (op == Op::prod) out[i] *= next;
      if (op == Op::min) out[i] = std::min(out[i], next);
      if (op == Op::max) out[i] = std::max(out[i], next);
      if (op == Op::bxor) out[i] ^= next;
    }
  }
  return out;
}

TEST_CASE("the check accepts the right result and counts every wrong element") {
  const std::uint64_t seed = GENERATE(1u, 300u);
  const int ranks = GENERATE(1, 2, 3, 8);
  for (const Collective collective : {Collective::allreduce, Collective::broadcast, Collective::allgather,
                                      Collective::reduce_scatter, Collective::alltoall}) {
    for (const Op op : {Op::sum, Op::prod, Op::min, Op::max, Op::bxor}) {
      const Shape shape = make_shape(collective, Dtype::i64, ranks, 8 * 1200);
      Inputs inputs(Dtype::i64, op, ranks);
      std::vector<std::vector<std::int64_t>> in;
      for (int rank = 0; rank < ranks; ++rank) {
        in.emplace_back(shape.input_count(rank));
        fill_input(inputs, shape, rank, seed, in.back().data());
      }
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<std::int64_t> out = serial_result(shape, op, rank, in);
        INFO(to_string(collective) << " " << to_string(op) << " rank " << rank << " of " << ranks);
        REQUIRE(wrong_elements(inputs, shape, rank, seed, out.data()) == 0);
        out.front() += 1;
        out.back() += 1;
        REQUIRE(wrong_elements(inputs, shape, rank, seed, out.data()) == 2);
        std::memset(out.data(), kPoison, out.size() * sizeof(std::int64_t));
        REQUIRE(wrong_elements(inputs, shape, rank, seed, out.data()) == out.size());
      }
    }
  }
}

TEST_CASE("another seed, rank or position is seen as wrong") {
  Inputs inputs(Dtype::f32, Op::sum, 4);
  std::vector<float> data(1000);
  inputs.fill(data.data(), data.size(), 1, 0, 5);
  CHECK(inputs.wrong_copied(data.data(), data.size(), 1, 0, 5) == 0);
  CHECK(inputs.wrong_copied(data.data(), data.size(), 1, 0, 6) > 500);
  CHECK(inputs.wrong_copied(data.data(), data.size(), 2, 0, 5) > 500);
  CHECK(inputs.wrong_copied(data.data(), data.size(), 1, 1, 5) > 500);
}

TEST_CASE("sums stay within the integers that the dtype holds, at any number of ranks") {
  for (const Dtype dtype :
       {Dtype::i8, Dtype::u8, Dtype::f16, Dtype::bf16, Dtype::f8e4m3, Dtype::f8e5m2, Dtype::f32}) {
    for (const int ranks : {1, 2, 5, 16, 100, 300}) {
      const Inputs inputs(dtype, Op::sum, ranks);
      std::int64_t largest = 0;
      for (std::size_t phase = 0; phase < 251; ++phase) {
        std::int64_t sum = 0;
        for (int rank = 0; rank < ranks; ++rank) sum += inputs.value(rank, phase);
        largest = std::max(largest, sum);
      }
      INFO(to_string(dtype) << " " << ranks);
      CHECK(largest <= detail::exact_limit(dtype));
      CHECK(largest > 0);
    }
  }
}

TEST_CASE("buffers are aligned and cleared, also huge and empty ones") {
  for (const Pages pages : {Pages::small, Pages::huge}) {
    const Buffer buffer(5000, pages);
    CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64 == 0);
    CHECK(buffer.data()[4999] == 0);
  }
  CHECK(Buffer(0).data() == nullptr);
}

struct LoopResult {
  Measurement measurement;
  int op_count = 0;
  int rewrite_count = 0;
  int finish_count = 0;
  std::vector<double> gathered;
};

// Runs the loop with one thread per rank, each with a mapping of its own of one shared page.
std::vector<LoopResult> run_loop(int ranks, BarrierWait wait, const LoopPlan& plan) {
  SharedPage first = SharedPage::create(ranks);
  std::vector<LoopResult> results(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      LoopResult& result = results[static_cast<std::size_t>(rank)];
      SharedPage page = first.with_rank(rank);
      page.set_wait(wait);
      std::vector<double> mine(2500, rank);  // more than one piece
      result.gathered.resize(mine.size() * static_cast<std::size_t>(ranks));
      page.gather(mine, result.gathered);
      result.measurement = measure(
          plan, page, [&](std::uint64_t) { ++result.rewrite_count; }, [&] { ++result.op_count; },
          [&] { ++result.finish_count; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST_CASE("all ranks run the same calls and agree on the result") {
  const BarrierWait wait = GENERATE(BarrierWait::spin, BarrierWait::block);
  for (const Mode mode : {Mode::fresh, Mode::hot, Mode::b2b}) {
    LoopPlan plan;
    plan.mode = mode;
    plan.iteration_count = 40;
    plan.warmup_count = 4;
    plan.budget_seconds = 60;
    const auto results = run_loop(3, wait, plan);
    for (const LoopResult& result : results) {
      // The loop of two calls that warms up is shorter than those of four that are timed: another one.
      const bool is_b2b = mode == Mode::b2b;
      CHECK(result.op_count == (is_b2b ? 48 : 44));
      CHECK(result.rewrite_count == (mode == Mode::fresh ? 44 : 0));
      CHECK(result.finish_count == (is_b2b ? 4 + kBatchCount : 44));
      CHECK(result.measurement.iteration_count == 40);
      CHECK(result.measurement.p50_us == results[0].measurement.p50_us);
      CHECK(result.measurement.min_us <= result.measurement.p95_us);
      CHECK(result.gathered[0] == 0);
      CHECK(result.gathered[2500] == 1);
      CHECK(result.gathered.back() == 2);
    }
  }
}

TEST_CASE("a budget that is used up leaves the smallest number of calls") {
  LoopPlan plan;
  plan.budget_seconds = 0;
  plan.minimum_count = 3;
  for (const LoopResult& result : run_loop(2, BarrierWait::block, plan)) {
    CHECK(result.measurement.iteration_count == 3);
    CHECK(result.op_count == 5);
  }
}

// Memory that a host which looks at it itself misreads: all bits are inverted. Calls are carried out when
// somebody waits for them.
class Elsewhere : public RemoteMemory {
 public:
  void write(void* there, const void* here, std::size_t bytes) override {
    wait();
    copy_inverted(there, here, bytes);
  }
  void read(void* here, const void* there, std::size_t bytes) override {
    wait();
    copy_inverted(here, there, bytes);
  }
  void fill(void* there, unsigned char value, std::size_t bytes) override {
    wait();
    std::memset(there, static_cast<unsigned char>(~value), bytes);
  }
  void wait() override {
    for (const auto& call : calls) call();
    carried_out_count += static_cast<int>(calls.size());
    calls.clear();
  }

  std::vector<std::function<void()>> calls;
  int carried_out_count = 0;

 private:
  static void copy_inverted(void* to, const void* from, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i)
      static_cast<unsigned char*>(to)[i] =
          static_cast<unsigned char>(~static_cast<const unsigned char*>(from)[i]);
  }
};

TEST_CASE("buffers that the host does not reach are written, checked and waited for where they lie") {
  const Mode mode = GENERATE(Mode::fresh, Mode::hot, Mode::b2b);
  const bool is_right = GENERATE(true, false);
  SharedPage page = SharedPage::create(1);
  Elsewhere memory;
  std::vector<unsigned char> input(4000), output(4000);
  CheckedCall call;
  call.shape = make_shape(Collective::allreduce, Dtype::i32, 1, input.size());
  call.input = input.data();
  call.output = output.data();
  call.output_memory = output;
  // A call that is not right leaves the last element out.
  call.run = [&] {
    memory.calls.emplace_back([&] { std::copy_n(input.data(), is_right ? 4000 : 3996, output.data()); });
  };
  Inputs inputs(Dtype::i32, Op::sum, 1);
  CheckedPlan plan;
  plan.loop.mode = mode;
  plan.loop.iteration_count = 30;
  plan.loop.budget_seconds = 60;
  plan.memory = &memory;
  const CheckedResult result =
      check_and_measure(std::span<const CheckedCall>(&call, 1), inputs, 0, plan, page);
  CHECK(result.wrong_count == (is_right ? 0 : 2));  // of the two checks
  CHECK(memory.calls.empty());
  CHECK(memory.carried_out_count == plan.loop.warmup_count + 30 + (mode == Mode::fresh ? 1 : 2));
}

TEST_CASE("commands reach the ranks that sleep") {
  SharedPage first = SharedPage::create(2);
  std::vector<std::string> seen;
  std::thread other([&] {
    SharedPage page = first.with_rank(1);
    for (int i = 0; i < 2; ++i) {
      seen.push_back(page.wait_command());
      page.barrier();
    }
  });
  for (const char* command : {"run allreduce 4", "quit"}) {
    first.post_command(command);
    first.barrier();
  }
  other.join();
  CHECK(seen == std::vector<std::string>{"run allreduce 4", "quit"});
}

TEST_CASE("a record is one JSON object with escaped text") {
  Record record;
  record.shape = make_shape(Collective::allreduce, Dtype::f32, 4, 4096);
  record.algorithm = "a\"b\\c\n";
  record.times.p50_us = 2;
  const std::string text = to_json(record);
  CHECK(text.find("\"algorithm\": \"a\\\"b\\\\c\\u000a\"") != std::string::npos);
  CHECK(text.find("\"algbw_GBs\": 2.048") != std::string::npos);
  CHECK(text.find("\"busbw_GBs\": 3.072") != std::string::npos);
  CHECK(text.find("library") == std::string::npos);
  CHECK(text.find('\n') == std::string::npos);
}

}  // namespace
}  // namespace tutti::bench
