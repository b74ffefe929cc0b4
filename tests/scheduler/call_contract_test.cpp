// Digests of calls, and how a difference is found and named. Needs no ranks.
#include <map>
#include <set>
#include <vector>

#include "runtime/scheduler/submitted_calls.hpp"
#include "tests/support/catch.hpp"

using namespace tutti;

namespace {

Call call_of(Collective collective, std::uint64_t count, std::uint32_t root = 0) {
  Call call;
  call.collective = collective;
  call.dtype = Dtype::i32;
  call.count = count;
  call.root = root;
  return call;
}

CallHistory history_of(const std::vector<Call>& calls) {
  record::GroupRecord record({});
  SubmittedCalls submitted(record);
  std::uint32_t sequence = 0;
  for (const Call& call : calls) {
    const CallContract contract = contract_of(call, 5);
    submitted.add(++sequence, submitted.digest_with(contract), contract, {});
  }
  return submitted.recent(sequence);
}

}  // namespace

TEST_CASE("contracts of different calls have different hashes") {
  std::set<std::uint64_t> hashes;
  constexpr std::uint64_t kCounts = 100000;
  for (std::uint64_t count = 0; count < kCounts; ++count)
    hashes.insert(contract_of(call_of(Collective::allreduce, count), 5).hash);
  CHECK(hashes.size() == kCounts);
  const CallContract usual = contract_of(call_of(Collective::reduce, 7, 1), 5);
  for (auto change : std::vector<void (*)(Call&)>{
           [](Call& c) { c.root = 65537; }, [](Call& c) { c.dtype = Dtype::f32; },
           [](Call& c) { c.op = Op::max; }, [](Call& c) { c.count = std::uint64_t{7} << 40U; },
           [](Call& c) { c.collective = Collective::broadcast; }}) {
    Call other = call_of(Collective::reduce, 7, 1);
    change(other);
    CHECK(contract_of(other, 5).hash != usual.hash);
  }
  CHECK(contract_of(call_of(Collective::reduce, 7, 1), 6).hash != usual.hash);
  // Neither the root of a collective that has none nor the place of its buffers is compared.
  CHECK(contract_of(call_of(Collective::allreduce, 7, 1), 5).hash ==
        contract_of(call_of(Collective::allreduce, 7, 2), 5).hash);
}

TEST_CASE("whose data a rank needs is known from the contract") {
  const auto needs = [](const Call& call, std::uint32_t waiting, std::uint32_t other) {
    const CallContract contract = contract_of(call, 5);
    return needs_data_of(contract.kind, contract.count, waiting, other);
  };
  for (const Collective all : {Collective::allreduce, Collective::allgather, Collective::reduce_scatter,
                               Collective::alltoall, Collective::barrier})
    CHECK((needs(call_of(all, 1), 0, 1) && needs(call_of(all, 1), 1, 0) && !needs(call_of(all, 1), 1, 1)));
  CHECK(needs(call_of(Collective::barrier, 0), 0, 1));
  CHECK_FALSE(needs(call_of(Collective::allreduce, 0), 0, 1));
  for (const Collective down : {Collective::broadcast, Collective::scatter})
    CHECK((needs(call_of(down, 1, 2), 0, 2) && !needs(call_of(down, 1, 2), 2, 0) &&
           !needs(call_of(down, 1, 2), 0, 1)));
  for (const Collective up : {Collective::reduce, Collective::gather})
    CHECK((needs(call_of(up, 1, 2), 2, 0) && !needs(call_of(up, 1, 2), 0, 2) &&
           !needs(call_of(up, 1, 2), 0, 1)));
  for (const Collective prefix : {Collective::scan, Collective::exscan})
    CHECK((needs(call_of(prefix, 1), 2, 1) && !needs(call_of(prefix, 1), 1, 2)));
  CHECK_FALSE(needs(call_of(Collective::send_recv, 1), 0, 1));
  const std::vector<std::uint64_t> counts{0, 3};
  Call uneven = call_of(Collective::allgather, 0);
  uneven.counts = counts;
  CHECK_FALSE(needs(uneven, 1, 0));  // it has nothing to give
}

TEST_CASE("counts by rank are compared one by one, but for alltoall") {
  const std::vector<std::uint64_t> one{1, 2, 3}, other{2, 1, 3};
  Call call = call_of(Collective::allgather, 0);
  call.counts = one;
  const CallContract first = contract_of(call, 5);
  call.counts = other;
  CHECK(contract_of(call, 5).hash != first.hash);
  CHECK(contract_of(call, 5).count == first.count);
  CHECK(describe_contract(first.kind, first.count) == "allgather of 6 i32, counts by rank");
  call.collective = Collective::alltoall;
  const CallContract third = contract_of(call, 5);
  call.counts = one;
  CHECK(contract_of(call, 5).hash == third.hash);
}

TEST_CASE("digests tell orders and numbers of calls apart, and never agree again") {
  const Call sum = call_of(Collective::allreduce, 4), all = call_of(Collective::allgather, 4);
  CHECK(history_of({sum, all}).back().digest != history_of({all, sum}).back().digest);
  CHECK(history_of({sum, sum}).back().digest != history_of({sum}).back().digest);
  std::vector<Call> one{sum}, other{all};
  for (int i = 0; i < 1000; ++i) {
    one.push_back(sum);
    other.push_back(sum);
  }
  const CallHistory first = history_of(one), second = history_of(other);
  REQUIRE(first.size() == SubmittedCalls::kRemembered);
  CHECK(first.back().sequence == 1001);
  CHECK(first.front().sequence == 1001 - SubmittedCalls::kRemembered + 1);
  for (std::size_t i = 0; i < first.size(); ++i) CHECK(first[i].digest != second[i].digest);
}

TEST_CASE("the first difference is named with all ranks") {
  const Call sum = call_of(Collective::allreduce, 4), one = call_of(Collective::broadcast, 4, 1),
             zero = call_of(Collective::broadcast, 4);
  CallDifference found;
  std::map<int, CallHistory> histories{
      {0, history_of({sum, zero})}, {1, history_of({sum, one, sum})}, {2, history_of({sum, zero, sum})}};
  REQUIRE(find_difference(histories, &found));
  CHECK(found.sequence == 2);
  CHECK(found.peer == 1);
  CHECK(found.text ==
        "ranks 0, 2 called broadcast of 4 i32, root 0; rank 1 called broadcast of 4 i32, root 1");
  // A rank that has called nothing has no history.
  histories[1] = {};
  CHECK_FALSE(find_difference(histories, &found));
  // Equal calls behind a difference that is no longer remembered.
  std::vector<Call> longer{one}, shorter{zero};
  longer.insert(longer.end(), 200, sum);
  shorter.insert(shorter.end(), 200, sum);
  histories = {{0, history_of(longer)}, {3, history_of(shorter)}};
  REQUIRE(find_difference(histories, &found));
  CHECK(found.text ==
        "rank 0 called allreduce of 4 i32, sum; rank 3 called allreduce of 4 i32, sum after other calls "
        "before it");
}

TEST_CASE("messages between two ranks are read back from their words") {
  Call call = call_of(Collective::send_recv, 4);
  const std::uint64_t word = make_message_word(9, message_kind(contract_of(call, 5)));
  CHECK(describe_message(word, 12) == "send_recv of 3 i32, number 9 of the pair");
  call.dtype = Dtype::f64;
  CHECK(make_message_word(9, message_kind(contract_of(call, 5))) != word);
  CHECK(describe_message(~std::uint64_t{0}, 3) == "a message of 3 bytes that is no send_recv");
}
