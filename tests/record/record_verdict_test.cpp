// Verdicts on records of ranks, and the clocks of several machines.
#include "tools/cli/record/verdict.hpp"

#include <string>
#include <vector>

#include "runtime/base/call.hpp"
#include "runtime/scheduler/call_contract.hpp"
#include "tests/support/catch.hpp"

using namespace tutti;
using namespace tutti::tool;
using record::Phase;
using record::RecordedCall;

namespace {

constexpr std::uint64_t kMillisecond = 1000000;

CallContract allreduce_of(std::uint64_t count) {
  Call call;
  call.count = count;
  return contract_of(call, 1);
}

RecordedCall made(std::uint64_t sequence, std::uint64_t digest, std::uint64_t began, std::uint64_t ended,
                  Phase phase = Phase::complete, std::uint32_t peer = record::kNoPeer) {
  RecordedCall call;
  const CallContract contract = allreduce_of(4);
  call.sequence = sequence;
  call.digest = digest;
  call.kind = contract.kind;
  call.count = contract.count;
  call.state = {phase, false, 0, peer};
  call.times = {began, began, ended, 0, 0};
  return call;
}

// Ranks of one group, on one machine, that run.
JobRecords job_of(const std::vector<std::vector<RecordedCall>>& calls) {
  JobRecords job;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    record::RecordedRank rank;
    rank.rank = static_cast<int>(i);
    rank.size = static_cast<int>(calls.size());
    rank.pid = 100 + rank.rank;
    rank.host = "h";
    rank.is_alive = true;
    record::RecordedGroup group;
    group.context = 5;
    group.rank = static_cast<std::uint32_t>(i);
    group.size = static_cast<std::uint32_t>(calls.size());
    group.operations = calls[i];
    rank.groups.push_back(group);
    job.ranks.push_back(rank);
  }
  return job;
}

}  // namespace

TEST_CASE("nothing differs where all ranks have completed the same calls") {
  const JobVerdict verdict = judge(job_of({{made(1, 8, 10, 20)}, {made(1, 8, 12, 20)}}));
  CHECK(verdict.kind == JobVerdict::Kind::nothing);
  CHECK(verdict.sentence.find("all 2 ranks with a record made the same 1 calls") != std::string::npos);
}

TEST_CASE("the first operation with different digests is the mismatch") {
  JobRecords job = job_of({{made(1, 8, 10, 20), made(2, 9, 30, 0, Phase::waiting, 1)},
                           {made(1, 8, 10, 20), made(2, 77, 30, 0, Phase::waiting, 0)},
                           {made(1, 8, 10, 20), made(2, 9, 30, 0, Phase::waiting, 1)}});
  job.ranks[1].groups[0].operations[1].count = 5;
  const JobVerdict verdict = judge(job);
  CHECK(verdict.kind == JobVerdict::Kind::mismatch);
  CHECK(verdict.culprits == std::vector<int>{1});
  CHECK(
      verdict.sentence.find("operation 2 of the group of all 3 ranks: ranks 0, 2 called allreduce of 4 f32, "
                            "sum; rank 1 called allreduce of 5 f32, sum") != std::string::npos);
}

TEST_CASE("a rank that has not called is told from one that has") {
  JobRecords job = job_of(
      {{made(1, 8, 10, 20), made(2, 9, 5 * kMillisecond, 0, Phase::waiting, 1)}, {made(1, 8, 10, 20)}});
  const JobVerdict verdict = judge(job);
  CHECK(verdict.kind == JobVerdict::Kind::absent);
  CHECK(verdict.culprits == std::vector<int>{1});
  CHECK(
      verdict.sentence ==
      "rank 1 has not called allreduce of 4 f32, sum (operation 2 of the group of all 2 ranks), which rank 0 "
      "has "
      "called: the last call of rank 1 was allreduce of 4 f32, sum (operation 1), complete 5.0 ms before the "
      "others called.");
  job.ranks[1].is_alive = false;
  CHECK(judge(job).sentence.find("the process of rank 1 (pid 101 on h) was killed, or crashed") !=
        std::string::npos);
}

TEST_CASE("a rank that was killed is told from those that were told of its death") {
  JobRecords job = job_of(
      {{made(1, 8, 10, 20)}, {made(1, 8, 10, 20)}, {made(1, 8, 10, 20), made(2, 9, 30, 0, Phase::failed)}});
  for (record::RecordedRank& rank : job.ranks) {
    rank.is_alive = false;
    if (rank.rank != 1) rank.groups[0].failure = "rank 1 is gone";
  }
  const JobVerdict verdict = judge(job);
  CHECK(verdict.kind == JobVerdict::Kind::absent);
  CHECK(verdict.culprits == std::vector<int>{1});
  CHECK(verdict.sentence.find("rank 1 has not called") != std::string::npos);
  CHECK(verdict.sentence.find("was killed, or crashed") != std::string::npos);
}

TEST_CASE("ranks that were all killed differ in their last calls") {
  JobRecords job = job_of({{made(1, 8, 10, 20), made(2, 9, 30, 0)}, {made(1, 8, 10, 20)}});
  CHECK(judge(job).kind == JobVerdict::Kind::nothing);  // one is just ahead
  for (record::RecordedRank& rank : job.ranks) rank.is_alive = false;
  CHECK(judge(job).kind == JobVerdict::Kind::absent);
  CHECK(judge(job).culprits == std::vector<int>{1});
}

TEST_CASE("ranks that use two groups in different orders are found in the group that waits first") {
  JobRecords job = job_of({{made(1, 8, 100, 0, Phase::waiting, 1)}, {}});
  for (record::RecordedRank& rank : job.ranks) {
    record::RecordedGroup other = rank.groups[0];
    other.context = 6;
    other.operations.clear();
    rank.groups.push_back(other);
  }
  job.ranks[1].groups[1].operations = {made(1, 8, 50, 0, Phase::waiting, 0)};
  const JobVerdict verdict = judge(job);
  CHECK(verdict.kind == JobVerdict::Kind::absent);
  CHECK(verdict.culprits == std::vector<int>{0});
  CHECK(verdict.sentence.find("rank 0 is in allreduce of 4 f32, sum (operation 1 of") != std::string::npos);
}

TEST_CASE("a chain of waiting ranks ends at the one that is to blame") {
  JobRecords job = job_of({{made(1, 8, 10, 0, Phase::moving, 1)},
                           {made(1, 8, 10, 0, Phase::waiting, 2)},
                           {made(1, 8, 10, 0, Phase::moving)}});
  job.ranks[2].is_alive = false;
  const JobVerdict verdict = judge(job);
  CHECK(verdict.kind == JobVerdict::Kind::blocked);
  CHECK(verdict.culprits == std::vector<int>{2});
  CHECK(verdict.sentence.find(
            "rank 0 waits for rank 1; rank 1 waits for rank 2; rank 2 moves data; the process of "
            "rank 2 (pid 102 on h) was killed, or crashed") != std::string::npos);
}

TEST_CASE("clocks of two machines are aligned by the collectives that both took part in") {
  constexpr std::int64_t kBehind = 7000;
  std::vector<RecordedCall> here, there;
  for (std::uint64_t i = 1; i <= 50; ++i) {
    // The span of the other rank begins and ends up to 20 us apart from this one's.
    const std::uint64_t began = 100000 * i, skew = i * 37 % 20000;
    here.push_back(made(i, i, began, began + 30000));
    there.push_back(made(i, i, began + skew - kBehind, began + 30000 - kBehind));
  }
  JobRecords job = job_of({here, there});
  job.ranks[0].boot = 1;
  job.ranks[1].boot = 2;
  job.ranks[1].wall = 900 * kMillisecond;  // these clocks are far apart
  CHECK(align_clocks(job).at(0) == 0);
  const std::int64_t offset = align_clocks(job).at(1);
  CHECK(offset >= kBehind - 15500);
  CHECK(offset <= kBehind + 15500);
  job.ranks[1].groups[0].operations.clear();
  CHECK(align_clocks(job).at(1) == 900 * static_cast<std::int64_t>(kMillisecond));
  job.ranks[1].boot = 1;
  CHECK(align_clocks(job).at(1) == 0);
}

TEST_CASE("of several worlds the one that runs is meant, and foreign files do no harm") {
  std::vector<record::RecordedRank> ranks(4);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ranks[i].world = i < 2 ? "old" : "new";
    ranks[i].job = "run:5";
    ranks[i].rank = static_cast<int>(i % 2);
    ranks[i].size = 2;
    ranks[i].pid = 10 + static_cast<int>(i);
    ranks[i].wall = i < 2 ? 5 : 9;
  }
  CHECK(choose_world(ranks, "")->world == "new");
  CHECK(choose_world(ranks, "11")->world == "old");
  CHECK(choose_world(ranks, "5")->ranks.size() == 2);
  ranks[0].is_alive = true;
  CHECK(choose_world(ranks, "")->world == "old");
  ranks[1].rank = 0;  // twice the same
  CHECK(choose_world(ranks, "")->ranks.size() == 1);
  ranks[1].rank = 1;
  ranks[1].size = 7;  // of another size
  CHECK(choose_world(ranks, "")->ranks.size() == 1);
  const auto none = choose_world(ranks, "nothing");
  CHECK(none.status().message() ==
        "no rank of 'nothing' has a record; there is job 'run:5' (world new, 2 ranks), job 'run:5' (world "
        "old, 2 ranks)");
}
