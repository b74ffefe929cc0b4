// Engines for buffers of GPUs: prices against closed forms, the choice that follows, and its reasons. Needs no
// GPU.
#include <algorithm>
#include <string>

#include "backends/cuda/engine_choice.hpp"
#include "backends/cuda/engine_explanation.hpp"
#include "backends/cuda/peer_limits.hpp"
#include "tests/selection/selection_support.hpp"

namespace tutti {
namespace {

using test::ask;
using test::selector_of;

constexpr std::uint64_t kKib = 1024;

// Figures that are told apart in every sum.
DeviceModel plain_model() {
  DeviceModel model;
  model.launch_ps = 1'000'000;
  model.flag_ps = 10'000'000;
  model.link_kib_ps = 2000;
  model.memory_kib_ps = 300;
  model.copy_ps = 5'000'000;
  model.copy_kib_ps = 7000;
  model.network_kib_ps = 40'000;
  model.turn_ps = 600'000'000;
  model.host_round_ps = 70'000'000;
  model.network_round_ps = 90'000'000;
  model.host_kib_ps = 11'000;
  model.nccl[0] = {.call_ps = 3'000'000,
                   .hop_ps = 400'000,
                   .network_hop_ps = 50'000'000,
                   .kib_ps = 9000,
                   .network_kib_ps = 30'000};
  model.nccl[1] = {.call_ps = 900'000'000, .hop_ps = 0, .kib_ps = 1000, .is_switched = true};
  return model;
}

EngineOffer offer_of(DeviceEngineKind kind, const Question& q, const DeviceLayout& layout,
                     const DeviceModel& model) {
  const EngineOffers offers = engine_offers(q, layout, model);
  const auto found = std::find_if(offers.begin(), offers.end(),
                                  [&](const EngineOffer& offer) { return offer.kind == kind; });
  REQUIRE(found != offers.end());
  return *found;
}

EnginePrice price_of(DeviceEngineKind kind, const Question& q, const DeviceLayout& layout) {
  const EngineOffer offer = offer_of(kind, q, layout, plain_model());
  INFO(offer.refusal);
  REQUIRE(offer.refusal.empty());
  CHECK(offer.price.total_ps == offer.price.latency_ps + offer.price.bytes_ps);
  return offer.price;
}

DeviceEngineKind cheapest(const Question& q, const DeviceLayout& layout) {
  return engine_offers(q, layout, device_model(GpuLink::nvlink))[0].kind;
}

TEST_CASE("what kernels take: words to all at once, or slices in three moves") {
  const Question q = ask(Collective::allreduce, 64 * kKib, 4);
  const EnginePrice one = price_of(DeviceEngineKind::one_shot, q, {1, 4});
  CHECK(one.latency_ps == 11'000'000);
  CHECK(one.bytes_ps == 64ULL * (2 * 3 * 2000 + 4 * 4 * 300));
  const EnginePrice two = price_of(DeviceEngineKind::two_shot, q, {1, 4});
  CHECK(two.latency_ps == 43'000'000);
  CHECK(two.bytes_ps == 96ULL * 2000 + 256ULL * 300);
  // Piece by piece.
  const Question more = ask(Collective::allreduce, kTwoShotPieceBytes + std::uint64_t{1}, 4);
  CHECK(price_of(DeviceEngineKind::two_shot, more, {1, 4}).latency_ps == 2 * two.latency_ps);
}

TEST_CASE("what NCCL takes: hops of its rings, and the way that is cheapest for the bytes") {
  const std::uint64_t call = 3'000'000, hop = 400'000, between = 50'000'000;
  const auto price = [](Collective collective, std::uint64_t bytes, std::uint32_t size, DeviceLayout places) {
    return price_of(DeviceEngineKind::nccl, ask(collective, bytes, size), places);
  };
  const EnginePrice sums = price(Collective::allreduce, 8 * kKib, 4, {1, 4});
  CHECK(sums.latency_ps == call + 6 * hop);
  CHECK(sums.bytes_ps == 12 * 9000);
  CHECK(price(Collective::allgather, 8 * kKib, 4, {1, 4}).latency_ps == call + 3 * hop);
  CHECK(price(Collective::allgather, 8 * kKib, 4, {1, 4}).bytes_ps == 6 * 9000);
  CHECK(price(Collective::broadcast, 8 * kKib, 4, {1, 4}).bytes_ps == 8 * 9000);
  CHECK(price(Collective::alltoall, 8 * kKib, 4, {1, 4}).latency_ps == call + hop);
  CHECK(price(Collective::allreduce, 8 * kKib, 1, {1, 1}).total_ps == call);
  // Additions in the switch are for many bytes, more than two ranks, and one node.
  const std::uint64_t many = 1 << 30;
  CHECK(price(Collective::allreduce, many, 4, {1, 4}).latency_ps == 900'000'000);
  CHECK(price(Collective::allreduce, many, 2, {1, 2}).latency_ps == call + 2 * hop);
  CHECK(price(Collective::allgather, many, 4, {1, 4}).latency_ps == call + 3 * hop);
  // Trees between nodes, whose ranks share the bytes; no faster than NCCL's own limit there.
  const EnginePrice far = price(Collective::allreduce, 8 * kKib, 8, {4, 2});
  CHECK(far.latency_ps == call + 2 * hop + 4 * between);
  CHECK(far.bytes_ps == 14 * 30'000);
  CHECK(price(Collective::allreduce, 8 * kKib, 4, {4, 1}).bytes_ps == 12 * 40'000);
  CHECK(price(Collective::allgather, 8 * kKib, 8, {4, 2}).latency_ps == call + 4 * hop + 3 * between);
}

TEST_CASE("what staging takes: two copies, a turn of the host, and its rounds and bytes") {
  const EnginePrice sums =
      price_of(DeviceEngineKind::staged, ask(Collective::allreduce, 8 * kKib, 5), {1, 5});
  CHECK(sums.latency_ps == 610'000'000 + 3 * 70'000'000);
  // A fifth of 8192 bytes is 1638, and 6554 go to the others, twice.
  CHECK(sums.bytes_ps == 16 * 7000 + 13108 / 1024 * 11'000ULL + 13108 % 1024 * 11'000ULL / 1024);
  const EnginePrice gathered =
      price_of(DeviceEngineKind::staged, ask(Collective::allgather, 8 * kKib, 4), {2, 2});
  CHECK(gathered.latency_ps == 610'000'000 + 2 * 90'000'000);
  CHECK(gathered.bytes_ps == 10 * 7000 + 6 * 80'000);
  CHECK(price_of(DeviceEngineKind::staged, ask(Collective::scan, 8 * kKib, 1), {1, 1}).latency_ps ==
        610'000'000);
}

TEST_CASE("prices grow with bytes, however many") {
  for (const GpuLink link : {GpuLink::nvlink, GpuLink::pcie}) {
    for (const DeviceLayout places : {DeviceLayout{1, 8}, DeviceLayout{4, 2}}) {
      for (const DeviceEngineKind kind : {DeviceEngineKind::nccl, DeviceEngineKind::two_shot,
                                          DeviceEngineKind::ipc_schedule, DeviceEngineKind::staged}) {
        std::uint64_t before = 0;
        for (std::uint32_t bits = 0; bits < 64; ++bits) {
          const EngineOffer offer =
              offer_of(kind, ask(Collective::allreduce, 1ULL << bits, 8), places, device_model(link));
          if (!offer.refusal.empty()) break;
          INFO(to_string(kind) << " by " << to_string(link) << ", 2^" << bits);
          CHECK(offer.price.total_ps >= before);
          before = offer.price.total_ps;
        }
      }
    }
  }
}

TEST_CASE(
    "the cheapest is taken: kernels for short sums, NCCL for long ones, schedules where nobody else can") {
  for (const std::uint32_t size : {2U, 4U, 8U, 16U}) {
    const DeviceLayout places{1, size};
    INFO(size << " ranks");
    CHECK(cheapest(ask(Collective::allreduce, 4, size), places) == DeviceEngineKind::one_shot);
    CHECK(cheapest(ask(Collective::allreduce, 16 * kKib, size), places) == DeviceEngineKind::one_shot);
    CHECK(cheapest(ask(Collective::allreduce, 64 << 20, size), places) == DeviceEngineKind::nccl);
    CHECK(cheapest(ask(Collective::allgather, 4, size), places) == DeviceEngineKind::nccl);
    CHECK(cheapest(ask(Collective::scan, 4 << 20, size), places) == DeviceEngineKind::ipc_schedule);
  }
  CHECK(cheapest(ask(Collective::allreduce, 1 << 20, 8), {1, 8}) == DeviceEngineKind::two_shot);
  CHECK(cheapest(ask(Collective::allreduce, 4, 17), {1, 17}) == DeviceEngineKind::nccl);
  CHECK(cheapest(ask(Collective::allreduce, 4, 16), {2, 8}) == DeviceEngineKind::nccl);
  Question ordered = ask(Collective::allreduce, 4, 8);
  ordered.is_commutative = false;
  CHECK(cheapest(ordered, {1, 8}) == DeviceEngineKind::staged);
  CHECK(cheapest(ask(Collective::scan, 4 << 20, 16), {2, 8}) == DeviceEngineKind::staged);
  CHECK(cheapest(ask(Collective::scan, 4, 16), {1, 16}) == DeviceEngineKind::staged);
}

TEST_CASE("what ranks do not share decides nothing") {
  Question q = ask(Collective::alltoall, 4, 8);
  q.has_known_bytes = q.has_equal_counts = false;
  const EngineOffers few = engine_offers(q, {1, 8}, plain_model());
  q.bytes = 1 << 30;
  const EngineOffers many = engine_offers(q, {1, 8}, plain_model());
  for (std::size_t i = 0; i < few.size(); ++i) {
    CHECK(few[i].kind == many[i].kind);
    CHECK(few[i].price.total_ps == many[i].price.total_ps);
  }
}

TEST_CASE("rules name engines; rows that kernels implement mean the kernels") {
  const auto named = [](Collective collective, std::string_view text) {
    const auto item = parse_argument(collective, text);
    REQUIRE(item.is_ok());
    return engine_named_by(item->engine, item->row);
  };
  CHECK(named(Collective::allreduce, "nccl") == DeviceEngineKind::nccl);
  CHECK(named(Collective::allreduce, "staged") == DeviceEngineKind::staged);
  CHECK(named(Collective::allreduce, "one_shot") == DeviceEngineKind::one_shot);
  CHECK(named(Collective::allreduce, "two_shot") == DeviceEngineKind::two_shot);
  CHECK(named(Collective::allreduce, "ring") == DeviceEngineKind::ipc_schedule);
  CHECK(named(Collective::scan, "chain") == DeviceEngineKind::ipc_schedule);
  CHECK(named(Collective::allreduce, "auto") == std::nullopt);
}

// -- reasons

struct Asked {
  Question question = ask(Collective::allreduce, 8 * kKib, 4);
  DeviceSetting setting;
  std::string rules = "auto", argument;

  Asked() {
    question.is_device = true;
    setting = {{1, 4}, device_model(GpuLink::nvlink), 4, Dtype::f32};
  }
  Result<DeviceExplanation> answer() const {
    const Selector selector = selector_of({{Collective::allreduce, "RULES", rules}});
    auto explained = explain_device(selector, question, argument, setting);
    if (!explained) return explained;
    // Names in the answer are the selector's, which is gone.
    explained->chosen.source = {};
    return explained;
  }
  DeviceExplanation explained() const {
    auto made = answer();
    INFO(made.status().to_string());
    REQUIRE(made.is_ok());
    return *std::move(made);
  }
};

EngineCandidate candidate_of(const DeviceExplanation& answer, DeviceEngineKind kind) {
  const auto found = std::find_if(answer.candidates.begin(), answer.candidates.end(),
                                  [&](const EngineCandidate& c) { return c.kind == kind; });
  REQUIRE(found != answer.candidates.end());
  return *found;
}

TEST_CASE("an explanation has all engines, the cheapest first, and what decided") {
  const DeviceExplanation by_price = Asked().explained();
  REQUIRE(by_price.candidates.size() == kDeviceEngineCount);
  CHECK(by_price.engine == DeviceEngineKind::one_shot);
  CHECK(by_price.candidates[0].is_chosen);
  CHECK(by_price.candidates[0].reason == "the lowest price");
  for (std::size_t i = 1; i < kDeviceEngineCount; ++i) {
    const EngineCandidate& one = by_price.candidates[i];
    CHECK(one.price->total_ps >= by_price.candidates[i - 1].price->total_ps);
    CHECK(one.reason.substr(0, 10) == "predicted ");
    CHECK(one.reason.find(';') == std::string::npos);
  }

  Asked ruled;
  ruled.rules = "staged:1k-16k;nccl";
  const DeviceExplanation by_rule = ruled.explained();
  CHECK(by_rule.engine == DeviceEngineKind::staged);
  CHECK(by_rule.rule == "staged:1k-16k");
  CHECK(candidate_of(by_rule, DeviceEngineKind::staged).reason == "RULES item 1 (staged:1k-16k)");
  CHECK(candidate_of(by_rule, DeviceEngineKind::nccl).reason.find("RULES item 2 (nccl) comes later") !=
        std::string::npos);
  CHECK(candidate_of(by_rule, DeviceEngineKind::one_shot).reason.find("no rule names it") !=
        std::string::npos);

  ruled.argument = "ring";
  const DeviceExplanation by_argument = ruled.explained();
  CHECK(by_argument.engine == DeviceEngineKind::ipc_schedule);
  CHECK(by_argument.algorithm == "ring");
  CHECK(by_argument.rule.empty());
  // Where memory is not reached, by way of the host.
  ruled.question.size = 16;
  ruled.setting.layout.nodes = 2;
  CHECK(ruled.explained().engine == DeviceEngineKind::staged);
  CHECK(ruled.explained().algorithm == "ring");
}

TEST_CASE("who shares a GPU does without NCCL, and without kernels unless they are named") {
  Asked sharing;
  sharing.setting.gpus_per_node = 2;
  const DeviceExplanation answer = sharing.explained();
  CHECK(answer.engine == DeviceEngineKind::staged);
  CHECK_FALSE(candidate_of(answer, DeviceEngineKind::nccl).is_possible);
  CHECK(candidate_of(answer, DeviceEngineKind::one_shot).is_possible);
  CHECK(candidate_of(answer, DeviceEngineKind::one_shot).reason.find("take turns") != std::string::npos);
  sharing.argument = "one_shot";
  CHECK(sharing.explained().engine == DeviceEngineKind::one_shot);
  sharing.argument = "nccl";
  CHECK(sharing.answer().status().message() == "nccl by argument: ranks share a GPU, which NCCL refuses");
}

TEST_CASE("whom a rule names carries the call, or the answer is the reason why not") {
  Asked asked;
  asked.setting.dtype = Dtype::i16;
  asked.argument = "nccl";
  CHECK(asked.answer().status().message() == "nccl by argument: NCCL does not reduce this dtype");
  asked.argument = "one_shot";
  asked.question.bytes = kMostOneShotBytes + std::uint64_t{1};
  CHECK(asked.answer().status().message() == "one_shot by argument: one shot carries at most 262144 bytes");
  // Where there are no kernels, their algorithms are steps of the host's.
  asked.question.size = 32;
  asked.setting.layout.per_node = asked.setting.gpus_per_node = 32;
  CHECK(asked.explained().engine == DeviceEngineKind::staged);
  CHECK(asked.explained().algorithm == "one_shot");
  // What the host could not run either.
  asked.question.is_commutative = false;
  asked.argument = "ring";
  CHECK(asked.answer().status().message().find("argument") == 0);
}

}  // namespace
}  // namespace tutti
