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
        "allreduce: output: overlaps input; for an operation in place output must be equal to input");
  CHECK(error_of("allreduce", call_of(Collective::allreduce, p, p + 100, 100)).empty());
  CHECK_THAT(error_of("allgather", call_of(Collective::allgather, p, p, 100)),
             Contains("input must be this rank's block"));
  CHECK_THAT(error_of("reduce_scatter", call_of(Collective::reduce_scatter, p, p, 100)),
             Contains("output must be this rank's block"));
  CHECK(error_of("reduce_scatter", call_of(Collective::reduce_scatter, p, p + 100, 100)).empty());
  const std::vector<std::uint64_t> four(4, 1);
  Call call = call_of(Collective::alltoall, p, p, 0);
  call.counts = call.output_counts = four;
  CHECK_THAT(error_of("alltoallv", call), Contains("not possible with alltoallv"));
}
