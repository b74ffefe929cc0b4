// Argument checks and the rules of in place: every error names the function and the argument.
#include <vector>

#include "runtime/group/call_check.hpp"
#include "tests/support/catch.hpp"

using namespace tutti;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

constexpr std::uint32_t kRank = 1, kSize = 4;

Call call_of(Collective collective, const void* input, void* output, std::uint64_t count,
             std::uint32_t root = 0) {
  Call call;
  call.collective = collective;
  call.input = input;
  call.output = output;
  call.count = count;
  call.root = root;
  return call;
}

std::string error_of(const char* name, const Call& call) {
  const Status status = check_call(name, call, kRank, kSize);
  if (!status) CHECK(status.code() == StatusCode::invalid_argument);
  return status.message();
}

bool in_place(Call call, std::uint32_t rank = kRank) {
  normalise(call, rank, kSize);
  return call.in_place;
}

}  // namespace

TEST_CASE("a missing buffer is named where it is needed and only there") {
  std::vector<float> a(100), b(400);
  CHECK(error_of("allreduce", call_of(Collective::allreduce, nullptr, b.data(), 7)) ==
        "allreduce: input: a null pointer for 7 elements of f32");
  CHECK(error_of("allgather", call_of(Collective::allgather, a.data(), nullptr, 7)) ==
        "allgather: output: a null pointer for 28 elements of f32");
  CHECK_THAT(error_of("broadcast", call_of(Collective::broadcast, nullptr, nullptr, 1)),
             StartsWith("broadcast: buffer:"));
  CHECK_THAT(error_of("recv", call_of(Collective::send_recv, nullptr, nullptr, 1)),
             StartsWith("recv: buffer:"));
  CHECK(error_of("allreduce", call_of(Collective::allreduce, nullptr, nullptr, 0)).empty());
  CHECK(error_of("barrier", call_of(Collective::barrier, nullptr, nullptr, 0)).empty());
  // Only the root has the output of reduce and gather and the input of scatter.
  CHECK(error_of("reduce", call_of(Collective::reduce, a.data(), nullptr, 7, 0)).empty());
  CHECK_FALSE(error_of("reduce", call_of(Collective::reduce, a.data(), nullptr, 7, kRank)).empty());
  CHECK(error_of("gather", call_of(Collective::gather, a.data(), nullptr, 7, 0)).empty());
  CHECK_FALSE(error_of("gather", call_of(Collective::gather, a.data(), nullptr, 7, kRank)).empty());
  CHECK(error_of("scatter", call_of(Collective::scatter, nullptr, a.data(), 7, 0)).empty());
  CHECK_FALSE(error_of("scatter", call_of(Collective::scatter, nullptr, a.data(), 7, kRank)).empty());
}

TEST_CASE("roots and peers must be ranks") {
  std::vector<float> a(10);
  CHECK(error_of("broadcast", call_of(Collective::broadcast, nullptr, a.data(), 1, 4)) ==
        "broadcast: root: 4 is no rank of the group; expected 0 to 3");
  CHECK(error_of("reduce",
                 call_of(Collective::reduce, a.data(), a.data(), 1, static_cast<std::uint32_t>(-1))) ==
        "reduce: root: -1 is no rank of the group; expected 0 to 3");
  CHECK_THAT(error_of("recv", call_of(Collective::send_recv, nullptr, a.data(), 1, 9)),
             StartsWith("recv: peer: 9"));
  CHECK_THAT(error_of("recv", call_of(Collective::send_recv, nullptr, a.data(), 1, kRank)),
             Contains("is this rank itself"));
}

TEST_CASE("counts that overflow are refused before anything is multiplied") {
  std::vector<float> a(10);
  for (const std::uint64_t count : {~std::uint64_t{0}, std::uint64_t{1} << 62U, std::uint64_t{1} << 61U}) {
    CHECK_THAT(error_of("allreduce", call_of(Collective::allreduce, a.data(), a.data(), count)),
               Contains("more bytes than there can be"));
    CHECK_THAT(error_of("allgather", call_of(Collective::allgather, a.data(), a.data(), count)),
               Contains("more bytes than there can be"));
  }
  CHECK(error_of("allreduce", call_of(Collective::allreduce, a.data(), a.data(), std::uint64_t{1} << 33U))
            .empty());
}

TEST_CASE("lists need one number per rank") {
  std::vector<float> a(100), b(100);
  const std::vector<std::uint64_t> three(3, 1), four(4, 1);
  Call call = call_of(Collective::allgather, a.data(), b.data(), 0);
  call.counts = three;
  CHECK(error_of("allgatherv", call) == "allgatherv: counts: 3 numbers for 4 ranks; one per rank is needed");
  call.counts = {};
  CHECK_THAT(error_of("allgatherv", call), StartsWith("allgatherv: counts: 0 numbers"));
  call.counts = four;
  CHECK(error_of("allgatherv", call).empty());
  call.displacements = three;
  CHECK_THAT(error_of("allgatherv", call), StartsWith("allgatherv: displacements: 3 numbers"));
  call = call_of(Collective::alltoall, a.data(), b.data(), 0);
  call.counts = four;
  CHECK_THAT(error_of("alltoallv", call), StartsWith("alltoallv: output_counts: 0 numbers"));
  call.output_counts = four;
  CHECK(error_of("alltoallv", call).empty());
  const std::vector<std::uint64_t> huge(4, std::uint64_t{1} << 62U);
  call.output_displacements = huge;
  CHECK_THAT(error_of("alltoallv", call), Contains("output: the counts ask for more bytes"));
}

TEST_CASE("an op that the dtype does not have is named") {
  std::vector<float> a(10), b(10);
  Call call = call_of(Collective::allreduce, a.data(), b.data(), 10);
  call.op = Op::bxor;
  CHECK_THAT(error_of("allreduce", call), StartsWith("allreduce: op: ") && Contains("f32"));
}

TEST_CASE("in place is recognised as documented") {
  std::vector<float> v(400);
  float* p = v.data();
  CHECK(in_place(call_of(Collective::allreduce, p, p, 100)));
  CHECK_FALSE(in_place(call_of(Collective::allreduce, p, p + 100, 100)));
  CHECK(in_place(call_of(Collective::alltoall, p, p, 100)));
  CHECK(in_place(call_of(Collective::allgather, p + 100, p, 100)));
  CHECK_FALSE(in_place(call_of(Collective::allgather, p, p + 200, 10)));
  CHECK(in_place(call_of(Collective::allgather, p, p, 100), 0));
  CHECK(in_place(call_of(Collective::reduce, p, p, 100, kRank)));
  CHECK_FALSE(in_place(call_of(Collective::reduce, p, p, 100, 0)));  // not the root: output means nothing
  CHECK(in_place(call_of(Collective::gather, p + 100, p, 100, kRank)));
  Call scatter = call_of(Collective::reduce_scatter, p, p + 100, 100);
  normalise(scatter, kRank, kSize);
  CHECK(scatter.in_place);
  CHECK(scatter.output == p);  // the whole vector, as the scheduler wants it
  const std::vector<std::uint64_t> counts{1, 2, 3, 4}, displacements{50, 10, 0, 5};
  Call listed = call_of(Collective::allgather, p + 1, p, 0);
  listed.counts = counts;
  CHECK(in_place(listed));
  listed.displacements = displacements;
  CHECK_FALSE(in_place(listed));
  listed.input = p + 10;
  CHECK(in_place(listed));
}

TEST_CASE("buffers that overlap without being in place are refused") {
  std::vector<float> v(1000);
  float* p = v.data();
  CHECK(error_of("allreduce", call_of(Collective::allreduce, p, p + 1, 100)) ==
        "allreduce: output: shares elements with input; for an operation in place, output must be equal to "
        "input");
  CHECK(error_of("allreduce", call_of(Collective::allreduce, p, p + 100, 100)).empty());
  CHECK_THAT(error_of("allgather", call_of(Collective::allgather, p, p, 100)),
             Contains("input must be this rank's block"));
  CHECK_THAT(error_of("reduce_scatter", call_of(Collective::reduce_scatter, p, p, 100)),
             Contains("output must be this rank's block"));
  CHECK(error_of("reduce_scatter", call_of(Collective::reduce_scatter, p, p + 100, 100)).empty());
  const std::vector<std::uint64_t> four(4, 1);
  Call call = call_of(Collective::alltoall, p, p, 0);
  call.counts = call.output_counts = four;
  CHECK(error_of("alltoallv", call).empty());  // in place
  CHECK(in_place(call));
  const std::vector<std::uint64_t> others{1, 1, 1, 2};
  call.output_counts = others;
  CHECK_FALSE(in_place(call));
  CHECK(error_of("alltoallv", call) ==
        "alltoallv: output: shares elements with input; for an operation in place, output must be equal to "
        "input, with equal counts and displacements");
}

TEST_CASE("buffers overlap where they share elements, not where one reaches into the other") {
  std::vector<float> v(100);
  float* p = v.data();
  const std::vector<std::uint64_t> ones(4, 1), every_third{0, 3, 6, 9};
  // The input lies between two blocks of the output.
  Call call = call_of(Collective::allgather, p + 1, p, 0);
  call.counts = ones;
  call.displacements = every_third;
  CHECK(error_of("allgatherv", call).empty());
  CHECK_FALSE(in_place(call));
  call.input = p + 6;  // block 2, and this is rank 1
  CHECK_THAT(error_of("allgatherv", call), Contains("shares elements"));
  call.input = reinterpret_cast<const char*>(p) + 2;  // half of block 0
  CHECK_THAT(error_of("allgatherv", call), Contains("shares elements"));
  // Blocks of both, by turns.
  call = call_of(Collective::alltoall, p, p + 1, 0);
  call.counts = call.output_counts = ones;
  call.displacements = call.output_displacements = every_third;
  CHECK(error_of("alltoallv", call).empty());
  const std::vector<std::uint64_t> one_lies_on_block_2{0, 3, 5, 9};
  call.output_displacements = one_lies_on_block_2;
  CHECK_THAT(error_of("alltoallv", call), Contains("shares elements"));
  // Of the root alone.
  call = call_of(Collective::scatter, p, p + 2, 0, kRank);
  call.counts = ones;
  call.displacements = every_third;
  CHECK(error_of("scatterv", call).empty());
}

TEST_CASE("counts at the root alone: its own count must be among them") {
  std::vector<float> v(100), w(100);
  const std::vector<std::uint64_t> counts{1, 2, 3, 4};
  Call call = call_of(Collective::gather, v.data(), w.data(), 2, kRank);
  call.has_counts_at_root = true;
  CHECK_THAT(error_of("gatherv", call), Contains("counts: 0 numbers for 4 ranks"));
  call.counts = counts;
  CHECK(error_of("gatherv", call).empty());
  call.count = 3;
  CHECK(error_of("gatherv", call) == "gatherv: own_count: 3, but counts[1], of the root itself, is 2");
  call.root = 0;  // elsewhere they mean nothing
  call.counts = {};
  CHECK(error_of("gatherv", call).empty());
}

TEST_CASE("opaque elements are for user-defined ops") {
  std::vector<float> v(100), w(100);
  Call call = call_of(Collective::allreduce, v.data(), w.data(), 3);
  call.dtype = Dtype::opaque;
  CHECK_THAT(error_of("allreduce", call), Contains("only a user-defined op knows what opaque elements hold"));
  const auto function = [](void*, void*, const void*, const void*, std::size_t) noexcept {};
  call.op = ReduceOp::user_defined({function, nullptr, true, 24});
  CHECK(error_of("allreduce", call).empty());
  call.output = v.data() + 6;  // one element of 24 bytes further
  CHECK_THAT(error_of("allreduce", call), Contains("shares elements"));
  call = call_of(Collective::broadcast, nullptr, v.data(), 3);
  call.dtype = Dtype::opaque;
  CHECK_THAT(error_of("broadcast", call), Contains("move elements of any kind as u8"));
}

TEST_CASE("only sums of f32 travel in another dtype, and only in a narrower float") {
  std::vector<float> v(100), w(100);
  Call call = call_of(Collective::allreduce, v.data(), w.data(), 3);
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f8e4m3, Dtype::f8e5m2}) {
    call.wire_dtype = dtype;
    CHECK(error_of("allreduce", call).empty());
  }
  call.wire_dtype = Dtype::f64;
  CHECK(error_of("allreduce", call) ==
        "allreduce: wire_dtype: expected bf16, f16, f8e4m3 or f8e5m2, or f32 itself for messages in full");
  call.wire_dtype = static_cast<Dtype>(200);
  CHECK_THAT(error_of("allreduce", call), StartsWith("allreduce: wire_dtype: expected"));
  call.wire_dtype = Dtype::bf16;
  call.op = Op::max;
  CHECK_THAT(error_of("allreduce", call), Contains("not allreduce of f32, max"));
  call.op = Op::sum;
  call.dtype = Dtype::i32;
  CHECK_THAT(error_of("allreduce", call), Contains("only sums of f32 travel in another dtype"));
  call = call_of(Collective::broadcast, nullptr, v.data(), 3);
  call.wire_dtype = Dtype::bf16;
  CHECK_THAT(error_of("broadcast", call), Contains("not broadcast of f32"));
  call.wire_dtype = Dtype::f32;
  CHECK(error_of("broadcast", call).empty());
  float residual = 0;
  call.residual = &residual;
  CHECK_THAT(error_of("broadcast", call), Contains("residual: only sums of f32 by allreduce have one"));
}
