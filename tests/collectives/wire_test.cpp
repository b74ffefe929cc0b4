// Sums of f32 whose messages travel in a narrower dtype: every row against the serial reference, with the same bits on
// all ranks, over messages of the memory family and over tcp with faults.
#include <bit>
#include <cmath>
#include <limits>

#include "runtime/kernels/reference.hpp"
#include "tests/collectives/exercise.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/test_fraction.hpp"
#include "tests/transports/faulty_transport.hpp"
#include "transports/message/tcp/plugin.hpp"

namespace tutti::test {
namespace {

constexpr std::uint64_t kLarge = 1ULL << 17U;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool may_be_compressed(const AlgorithmRow& row) {
  return row.collective == Collective::allreduce || row.collective == Collective::reduce ||
         row.collective == Collective::reduce_scatter;
}

World::Adjust by_messages(std::uint32_t p, const WireSetting& wire, Reach reach = Reach::node) {
  World::Adjust adjust;
  adjust.group = [](std::uint32_t, GroupContext::Options& group) { group.uses_control_blocks = false; };
  adjust.hierarchy = domains_of(p);
  adjust.wire = wire;
  adjust.reach = reach;
  return adjust;
}

const WireSetting kAllMessages{std::nullopt, true};

std::unique_ptr<Transport> make_faulty_tcp(std::uint32_t rank) {
  TransportSettings settings;
  settings.interface = "lo";
  return make_faulty_transport(*make_tcp_transport(settings), rank + 1);
}

std::vector<Case> cases_of(const AlgorithmRow& row, std::uint32_t p) {
  std::vector<Case> cases;
  const Hierarchy domains = domains_of(p);
  for (const Flavour& flavour : kWireFlavours) {
    for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{p + 1}, std::uint64_t{4097}, kLarge}) {
      if (count == kLarge && flavour.wire != Dtype::bf16) continue;
      for (const std::uint32_t root : {0U, p - 1}) {
        if (root != 0 && !is_rooted(row.collective)) continue;
        for (const bool in_place : {false, true}) {
          for (const bool has_counts : {false, true}) {
            if (has_counts && (!has_rank_blocks(row.collective) || count == kLarge)) continue;
            if (!check_legality(row, p, true, in_place, !has_counts, &domains)) continue;
            cases.push_back({&row, &flavour, count, root, in_place, has_counts});
          }
        }
      }
    }
  }
  return cases;
}

std::string run_cases(const Member& member, const std::vector<Case>& cases, ReferenceCache& references,
                      std::vector<std::vector<std::byte>>& outputs) {
  Call barrier;
  barrier.collective = Collective::barrier;
  for (const Case& c : cases) {
    if (std::string wrong = exercise(member, c, references, &outputs[member.rank]); !wrong.empty())
      return wrong;
    if (c.row->collective != Collective::allreduce || !c.row->same_bits) continue;
    // Outputs of all ranks are stable between these two barriers.
    if (Status s = member.run(barrier); !s) return s.to_string();
    if (outputs[member.rank] != outputs[0]) return describe(c) + ": not the bits of rank 0";
    if (Status s = member.run(barrier); !s) return s.to_string();
  }
  return {};
}

void run_all(std::uint32_t p, const World::Adjust& adjust, const World::Decorate& decorate = {}) {
  World world(WorldTransport::inproc, p, World::oversubscribed(), decorate, adjust);
  ReferenceCache references;
  std::uint64_t number = p * 1000003ULL;
  for (const AlgorithmRow& row : catalog()) {
    if (!may_be_compressed(row)) continue;
    std::vector<Case> cases = cases_of(row, p);
    std::erase_if(cases, [&](const Case&) { return !is_selected(number++); });
    std::vector<std::vector<std::byte>> outputs(p);
    INFO(to_string(row.collective) << " " << row.name << ", " << cases.size() << " cases");
    REQUIRE(world.run([&](Member& member) { return run_cases(member, cases, references, outputs); }) == "");
  }
}

// The sum of `inputs` (by rank), and of the residuals that an allreduce of them leaves, by element. Empty: as expected.
std::string lost_sum(std::uint32_t p, std::string_view algorithm, const World::Adjust& adjust,
                     std::uint64_t count) {
  World world(WorldTransport::inproc, p, World::oversubscribed(), {}, adjust);
  std::vector<std::vector<float>> outputs(p), residuals(p, std::vector<float>(count, 0.0F));
  // 12 bits each: the sum of all is exact in f32, none is a bf16.
  const auto value = [](std::uint32_t rank, std::uint64_t i) {
    return static_cast<float>((rank * 1237U + i * 331U) % 4096U) + 0.25F * static_cast<float>(rank % 3U);
  };
  const std::string wrong = world.run([&](Member& member) -> std::string {
    std::vector<float>& mine = outputs[member.rank];
    for (std::uint64_t i = 0; i < count; ++i) mine.push_back(value(member.rank, i));
    Call call;
    call.in_place = true;
    call.input = call.output = mine.data();
    call.count = count;
    call.wire_dtype = Dtype::bf16;
    call.residual = residuals[member.rank].data();
    const Status status = member.run(call, algorithm);
    return status ? "" : status.to_string();
  });
  if (!wrong.empty()) return wrong;
  bool has_lost = false;
  for (std::uint64_t i = 0; i < count; ++i) {
    double exact = 0, found = outputs[0][i];
    for (std::uint32_t rank = 0; rank < p; ++rank) {
      exact += value(rank, i);
      found += residuals[rank][i];
      has_lost |= residuals[rank][i] != 0;
    }
    if (std::fabs(exact - found) > 0.01)
      return "element " + std::to_string(i) + " of " + std::to_string(count);
  }
  return has_lost ? "" : "nothing was rounded";
}

// The vector of rank r of p ranks after an allreduce of `inputs` (by rank).
std::vector<std::vector<float>> sums_of(const WireSetting& wire, std::string_view algorithm, Op op,
                                        const std::vector<std::vector<float>>& inputs) {
  const auto p = static_cast<std::uint32_t>(inputs.size());
  World world(WorldTransport::inproc, p, World::oversubscribed(), {}, by_messages(p, wire));
  std::vector<std::vector<float>> outputs = inputs;
  const std::string wrong = world.run([&](Member& member) -> std::string {
    std::vector<float>& mine = outputs[member.rank];
    Call call;
    call.op = op;
    call.in_place = true;
    call.input = call.output = mine.data();
    call.count = mine.size();
    const Status status = member.run(call, algorithm);
    return status ? "" : status.to_string();
  });
  REQUIRE(wrong == "");
  return outputs;
}

}  // namespace

TEST_CASE("compressed rows agree with the serial reference, with equal bits") {
  const std::uint32_t p = GENERATE(2U, 3U, 4U, 5U, 6U, 7U, 8U);
  CAPTURE(p);
  run_all(p, by_messages(p, kAllMessages));
}

TEST_CASE("rows of domains, compressed between them alone, agree with the serial reference") {
  const std::uint32_t p = GENERATE(3U, 4U, 5U, 7U);
  CAPTURE(p);
  run_all(p, by_messages(p, {}, Reach::network));
}

TEST_CASE("compressed rows agree with the serial reference over tcp that delays and reorders") {
  const std::uint32_t p = GENERATE(2U, 3U, 5U);
  CAPTURE(p);
  run_all(p, by_messages(p, kAllMessages),
          [](const std::unique_ptr<Transport>&, std::uint32_t rank) { return make_faulty_tcp(rank); });
}

TEST_CASE("a result is a value of the wire dtype, and what leaves its range is as docs/tensors.md says") {
  const auto [dtype, overflow] = GENERATE(table<Dtype, float>({{Dtype::bf16, kInfinity},
                                                               {Dtype::f16, kInfinity},
                                                               {Dtype::f8e4m3, 448.0F},
                                                               {Dtype::f8e5m2, kInfinity}}));
  const std::string_view algorithm =
      GENERATE("ring", "two_shot", "one_shot", "recursive_doubling", "rabenseifner");
  CAPTURE(to_string(dtype), algorithm);
  const float largest = std::numeric_limits<float>::max(), least = std::numeric_limits<float>::denorm_min();
  const std::vector<float> mine = {1.001F, kInfinity, largest, std::nanf(""), 0.0F, least, -0.0F, kInfinity};
  const std::vector<float> other = {2.002F, 1.0F, largest, 1.0F, 0.0F, 0.0F, -0.0F, -kInfinity};
  const auto outputs =
      sums_of({dtype, true}, algorithm, Op::sum, {mine, other, std::vector<float>(8, -0.0F)});
  for (const std::vector<float>& result : outputs) {
    for (const float value : result) {
      if (!std::isnan(value)) CHECK(value == decode_narrow(dtype, encode_narrow(dtype, value)));
    }
    const float unit = dtype == Dtype::f8e5m2 ? 0x1p-2F : dtype == Dtype::f8e4m3 ? 0x1p-3F : 0x1p-7F;
    CHECK(std::fabs(result[0] - 3.003F) <= 4 * unit);
    CHECK(result[1] == (dtype == Dtype::f8e4m3 ? 448.0F : kInfinity));
    CHECK(result[2] == overflow);
    CHECK(std::isnan(result[3]));
    CHECK(result[4] == 0);
    CHECK(result[5] >= 0);
    CHECK(result[5] <= (dtype == Dtype::bf16 ? 0x1p-133F : 0.0F));
    CHECK(std::bit_cast<std::uint32_t>(result[6]) == std::bit_cast<std::uint32_t>(-0.0F));
    CHECK(std::isnan(result[7]) == (dtype != Dtype::f8e4m3));  // which has no infinities to add up
    for (std::size_t i = 0; i < result.size(); ++i) {
      CHECK((std::isnan(result[i])
                 ? std::isnan(outputs[0][i])
                 : std::bit_cast<std::uint32_t>(result[i]) == std::bit_cast<std::uint32_t>(outputs[0][i])));
    }
  }
}

TEST_CASE("an average divides the rounded sum, on all ranks alike") {
  const auto outputs = sums_of({Dtype::bf16, true}, "ring", Op::avg, {{3.0F}, {4.0F}, {6.0F}});
  for (const std::vector<float>& result : outputs) CHECK(result[0] == 13.0F / 3);
}

TEST_CASE("the residuals of all ranks are what the rounded sum lacks, with every row") {
  const std::uint32_t p = GENERATE(2U, 3U, 4U, 5U, 8U);
  for (const AlgorithmRow& row : catalog()) {
    if (row.collective != Collective::allreduce || !row.same_bits) continue;
    const Hierarchy domains = domains_of(p);
    if (!check_legality(row, p, true, true, true, &domains)) continue;
    for (const std::uint64_t count : {std::uint64_t{3}, std::uint64_t{4097}}) {
      INFO(row.name << " p " << p << " count " << count);
      CHECK(lost_sum(p, row.name, by_messages(p, kAllMessages), count) == "");
      if (domains.domain_count() > 1)
        CHECK(lost_sum(p, row.name, by_messages(p, {}, Reach::network), count) == "");
    }
  }
  const std::string refused = lost_sum(2, "census", by_messages(2, kAllMessages), 3);
  CHECK(refused.find("'census' gives ranks different bits") != std::string::npos);
}

TEST_CASE("groups on one node, and calls that do not add f32, send in full") {
  const std::vector<std::vector<float>> inputs = {{1.001F}, {2.002F}};
  const float exact = 1.001F + 2.002F;
  CHECK(sums_of({Dtype::bf16, true}, "ring", Op::sum, inputs)[0][0] != exact);
  CHECK(sums_of({Dtype::bf16, false}, "ring", Op::sum, inputs)[0][0] == exact);
  CHECK(sums_of({Dtype::bf16, true}, "ring", Op::max, inputs)[1][0] == 2.002F);
}

}  // namespace tutti::test
