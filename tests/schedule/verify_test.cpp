// The verifier accepts what is right, in each algebra, and reports what it found.
#include "tests/schedule/support.hpp"

using namespace tutti;
using namespace tutti::test;
using Catch::Matchers::Contains;

TEST_CASE("ring: rounds, blocks sent and messages are reported") {
  for (const std::uint32_t p : {1U, 2U, 5U, 16U}) {
    const auto report = verify(emit_row(Collective::allreduce, "ring", p), Algebra::multiset);
    INFO(report.status().message());
    REQUIRE(report.is_ok());
    CHECK(report->rounds == 2 * (p - 1));
    CHECK(report->max_sent_atoms == 2 * (p - 1));
    CHECK(report->messages == 2ULL * p * (p - 1));
    CHECK(report->v_safe);
  }
}

TEST_CASE("word algebra: a ring adds out of rank order, two_shot in it") {
  CHECK_THAT(verdict(emit_row(Collective::allreduce, "ring", 4), Algebra::word), Contains("not rank order"));
  CHECK(verdict(emit_row(Collective::allreduce, "two_shot", 5), Algebra::word).empty());
}

TEST_CASE("expression algebra: commuted sums are equal, regrouped ones are not") {
  const auto commuted = build(Collective::allreduce, 2, 1, false, [](Builder& b) {
    b.send(1 - b.rank(), b.input(0));
    b.recv(1 - b.rank(), b.scratch(0, 0));
    b.reduce(b.output(0), {b.input(0), b.scratch(0, 0)});
  });
  const auto same = verify(commuted, Algebra::expression);
  REQUIRE(same.is_ok());
  CHECK(same->same_bits);

  const auto regrouped = build(Collective::allreduce, 3, 1, false, [](Builder& b) {
    for (std::uint32_t d = 1; d < 3; ++d) {
      b.send((b.rank() + d) % 3, b.input(0));
      b.recv((b.rank() + 3 - d) % 3, b.scratch(d, 0));
    }
    b.reduce(b.output(0), {b.input(0), b.scratch(1, 0), b.scratch(2, 0)});  // a rotated order on each rank
  });
  CHECK(verdict(regrouped).empty());
  const auto different = verify(regrouped, Algebra::expression);
  REQUIRE(different.is_ok());
  CHECK_FALSE(different->same_bits);
}

TEST_CASE("a barrier counts arrivals: hearing of a rank twice is no mistake") {
  const auto dissemination = build(Collective::barrier, 3, 1, false, [](Builder& b) {
    b.copy(b.output(0), b.input(0));
    for (const std::uint32_t d : {1U, 2U}) {
      b.send((b.rank() + d) % 3, b.output(0));
      b.recv((b.rank() + 3 - d) % 3, b.scratch(0, 0));
      b.reduce(b.output(0), {b.output(0), b.scratch(0, 0)});
    }
  });
  CHECK(verdict(dissemination).empty());
}

TEST_CASE("a block must stay that block on its way, or uneven counts would not fit") {
  auto shifted = build(Collective::allgather, 2, 2, false, [](Builder& b) {
    b.copy(b.output(b.rank()), b.input(b.rank()));
    b.send(1 - b.rank(), b.input(b.rank()));
    b.recv(1 - b.rank(), b.output(b.rank() + 1));
  });
  CHECK(verdict(shifted).empty());
  shifted[1].scratch_slots = 1;
  shifted[1] = edit(shifted[1], [](auto& lines) { lines[2] = "recv scratch.0[1] from 0"; });
  CHECK_THAT(verdict(shifted), Contains("block 0 is taken as block 1"));
}

TEST_CASE("alltoall: direct messages are safe for uneven counts, relayed blocks are not") {
  const auto direct = build(Collective::alltoall, 3, 3, false, [](Builder& b) {
    b.copy(b.output(b.rank()), b.input(b.rank()));
    for (std::uint32_t d = 1; d < 3; ++d) {
      b.send((b.rank() + d) % 3, b.input(b.rank() + d));
      b.recv((b.rank() + 3 - d) % 3, b.output(b.rank() - std::int64_t{d}));
    }
  });
  const auto safe = verify(direct, Algebra::multiset);
  REQUIRE(safe.is_ok());
  CHECK(safe->v_safe);

  const auto relayed = build(Collective::alltoall, 2, 2, false, [](Builder& b) {
    b.copy(b.output(b.rank()), b.input(b.rank()));
    b.copy(b.scratch(0, b.rank()), b.input(1 - b.rank()));  // packed under another block's shape
    b.send(1 - b.rank(), b.scratch(0, b.rank()));
    b.recv(1 - b.rank(), b.output(1 - b.rank()));
  });
  const auto unsafe = verify(relayed, Algebra::multiset);
  INFO(unsafe.status().message());
  REQUIRE(unsafe.is_ok());
  CHECK_FALSE(unsafe->v_safe);
  CHECK_THAT(unsafe->not_v_safe, Contains("rank 0"));
}

TEST_CASE("a channel blocks only itself: independent channels avoid a wait across ranks") {
  const auto crossed = [](std::uint16_t channel) {
    return build(Collective::alltoall, 2, 2, false, [channel](Builder& b) {
      b.copy(b.output(b.rank()), b.input(b.rank()));
      b.recv(1 - b.rank(), b.scratch(0, 0));
      b.copy(b.output(1 - b.rank()), b.scratch(0, 0));  // waits for the message before the next is issued
      b.send(1 - b.rank(), b.input(1 - b.rank()), channel);
    });
  };
  CHECK_THAT(verdict(crossed(0)), Contains("deadlock"));
  auto ranks = crossed(1);
  for (Schedule& s : ranks) s = edit(s, [](auto& lines) { lines[1] += " on 1"; });
  CHECK(verdict(ranks).empty());
}

TEST_CASE("send_recv and no ranks at all are refused, not crashed on") {
  CHECK_THAT(verdict({}), Contains("no ranks"));
  auto single = build(Collective::send_recv, 1, 1, false, [](Builder&) {});
  CHECK_THAT(verdict(single), Contains("send_recv"));
}
