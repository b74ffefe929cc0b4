// Prices against closed forms, and explanations against what is chosen. Knows no machine.
#include <algorithm>
#include <string>
#include <vector>

#include "bench/lines/fan_out.hpp"
#include "runtime/algorithms/prove.hpp"
#include "runtime/schedule/passes/lower.hpp"
#include "runtime/selection/explain.hpp"
#include "tests/selection/selection_support.hpp"

namespace tutti {
namespace {

constexpr std::uint64_t kLatency = 1000, kMessage = 300, kByte = 7, kAdd = 3;  // picoseconds
constexpr std::uint64_t kTransfer = 5000, kFurther = 600;

CostModel flat_model() {
  CostModel model;
  for (LinkCost& link : model.links) link = {kLatency, kMessage, kByte * 1024, 0};
  for (LineCost& line : model.lines) line = {kTransfer, kFurther, kByte * 1024, 0};
  model.reduce_kib_ps = kAdd * 1024;
  return model;
}

PricedCall call_of(Collective collective, std::string_view name, std::uint64_t bytes) {
  const AlgorithmRow* row = find_algorithm(collective, name);
  REQUIRE(row != nullptr);
  return {row, default_params(*row), bytes, nullptr, false};
}

Price price(const PricedCall& call, const Places& places, const CostModel& model) {
  const auto found = price_call(call, places, model);
  INFO(found.status().to_string());
  REQUIRE(found.is_ok());
  return *found;
}

TEST_CASE("a round costs latency, message and bytes; a ring costs its rounds") {
  for (const std::uint32_t p : {2U, 3U, 16U, 65536U}) {
    const std::uint64_t block = 48, rounds = 2 * (p - 1ULL);
    const Price ring =
        price(call_of(Collective::allreduce, "ring", block * p), places_of(p, 1), flat_model());
    CHECK(ring.latency_ps == rounds * (kLatency + kMessage));
    CHECK(ring.bytes_ps == rounds * block * kByte);
    CHECK(ring.reduce_ps == (p - 1ULL) * block * kAdd);
    CHECK(ring.total_ps == ring.latency_ps + ring.bytes_ps + ring.reduce_ps);
  }
}

TEST_CASE("few bytes are added at the speed of the core's own caches") {
  CostModel model = flat_model();
  model.cached_reduce_kib_ps = 1024;
  constexpr std::uint32_t kRanks = 4;
  for (const std::uint64_t block : {64ULL, 65536ULL, 65600ULL}) {
    const Price ring =
        price(call_of(Collective::allreduce, "ring", block * kRanks), places_of(kRanks, 1), model);
    const bool is_cached = block <= CostModel::kMostCachedBytes;
    CHECK(ring.reduce_ps == (kRanks - 1) * block * (is_cached ? 1 : kAdd));
    CHECK((is_cached ? ring.path.cached_reduced_bytes : ring.path.reduced_bytes) == (kRanks - 1) * block);
  }
}

TEST_CASE("messages in a row overlap in flight, but not at their ends") {
  const std::uint32_t p = 9;
  const std::uint64_t block = 10;
  const Price scattered =
      price(call_of(Collective::scatter, "linear", block * p), places_of(p, 1), flat_model());
  CHECK(scattered.total_ps == kLatency + (p - 1) * (kMessage + block * kByte));
  const Price gathered =
      price(call_of(Collective::gather, "linear", block * p), places_of(p, 1), flat_model());
  CHECK(gathered.total_ps == scattered.total_ps);
}

TEST_CASE("one rank's walk is the walk of all where ranks are alike, one node's where nodes are") {
  CostModel model = flat_model();
  model.link(Level::network) = {20 * kLatency, 5 * kMessage, 3 * kByte * 1024, 2 * kByte * 1024};
  for (const AlgorithmRow& row : catalog()) {
    for (const std::uint32_t p : {2U, 6U, 8U, 16U}) {
      for (const std::uint32_t per_node : {1U, 2U, 4U}) {
        const Places places = places_of(p, per_node);
        const Hierarchy nodes(places.node);
        if (!may_run(row, p, true, false, true, &nodes)) continue;
        const PricedCall call{&row, default_params(row), 64ULL * p, &nodes, false};
        const auto ranks = emit_all(row, {p, 0, false, call.params, nodes});
        REQUIRE(ranks.is_ok());
        if (call.params.segments > 1 && has_segment_pass(row)) continue;
        const auto all = price_schedules(*ranks, call.bytes, places, model);
        INFO(to_string(row.collective) << " " << row.name << " " << p << " by " << per_node);
        REQUIRE(all.is_ok());
        CHECK(price(call, places, model).total_ps == all->total_ps);
      }
    }
  }
}

TEST_CASE("a shared resource serves one message after the other") {
  CostModel model = flat_model();
  model.link(Level::network).shared_kib_ps = kByte * 1024;
  // Two nodes of four: each pair exchanges across, through one NIC.
  const PricedCall call = call_of(Collective::allreduce, "recursive_doubling", 1024);
  const std::uint64_t alone = price(call, places_of(8, 4), flat_model()).total_ps;
  CHECK(price(call, places_of(8, 4), model).total_ps == alone + 3 * 1024 * kByte - kLatency - kMessage);
}

TEST_CASE("levels have prices of their own") {
  CostModel model = flat_model();
  model.link(Level::network).latency_ps = 50 * kLatency;
  const PricedCall call = call_of(Collective::allreduce, "recursive_doubling", 0);
  CHECK(price(call, places_of(8, 2), model).latency_ps == (1 + 50 + 50) * kLatency + 3 * kMessage);
  Places caches = places_of(8, 8);
  for (std::uint32_t rank = 0; rank < 8; ++rank) caches.cache[rank] = rank / 4;
  model.link(Level::cache).latency_ps = 0;
  CHECK(price(call, caches, model).latency_ps == kLatency + 3 * kMessage);
}

TEST_CASE("lowered schedules read each other's memory and wait for lines") {
  PricedCall call = call_of(Collective::allreduce, "one_shot", 1024);
  call.is_lowered = true;
  const Price lowered = price(call, places_of(4, 4), flat_model());
  CHECK(lowered.reduce_ps == 3 * 1024 * kAdd);
  // The copy into the staging buffer, of lines that the others hold, and the loads of theirs.
  CHECK(lowered.bytes_ps == 4 * (1024 - 64) * kByte);
  // A store, the first flag and the first data. The flags of two more, each behind the readers before, and their data.
  CHECK(lowered.path.levels[static_cast<std::size_t>(Level::node)].line_transfers >= 3);
  CHECK(lowered.latency_ps >= 3 * kTransfer + 2 * kFurther);
  // 48 bytes come with the flags.
  call.bytes = 48;
  CHECK(price(call, places_of(4, 4), flat_model()).latency_ps + kTransfer <= lowered.latency_ps);
}

Places two_sockets(std::uint32_t p) {
  Places places = places_of(p, p);
  for (std::uint32_t rank = 0; rank < p; ++rank) places.socket.push_back(rank * 2 / p);
  return places;
}

TEST_CASE("many readers of a line, and many lines of a reader, come one after the other") {
  for (const std::string_view name : {"linear", "direct"}) {
    const bool is_fan_out = name == "linear";
    PricedCall call = call_of(is_fan_out ? Collective::broadcast : Collective::reduce, "linear", 4);
    call.is_lowered = true;
    std::uint64_t before = 0;
    for (const std::uint32_t p : {8U, 9U, 32U, 33U}) {
      const std::uint64_t now = price(call, places_of(p, p), flat_model()).total_ps;
      if (p % 2 == 1) CHECK(now >= before + kFurther);
      before = now;
    }
  }
}

TEST_CASE("one reader on the other socket slows all where the machine is such a one") {
  CostModel model = flat_model();
  model.line(Level::node).transfer_ps = 4 * kTransfer;
  PricedCall call = call_of(Collective::broadcast, "linear", 4);
  call.is_lowered = true;
  Places places = two_sockets(8);
  places.socket.assign(8, 0);
  places.socket[7] = 1;
  const auto ends_of = [&](bool slows) {
    model.far_reader_slows_all = slows;
    const auto ranks = emit_all(*call.row, {8, 0, false, call.params, {}});
    REQUIRE(ranks.is_ok());
    const auto lowered = lower_for_shared_memory(*ranks, Sharing::scratch);
    REQUIRE(lowered.is_ok());
    std::vector<std::vector<std::uint64_t>> ends;
    REQUIRE(price_schedules(*lowered, 4, places, model, &ends).is_ok());
    return ends;
  };
  const auto apart = ends_of(false), together = ends_of(true);
  CHECK(apart[7].back() >= apart[1].back() + 3 * kTransfer);
  CHECK(together[1].back() >= apart[1].back() + 3 * kTransfer);
}

TEST_CASE("published times of flat broadcasts are met by the model of lines") {
  const auto times = bench::read_fan_out(TUTTI_FAN_OUT_DATA);
  REQUIRE(times.size() == 240);
  for (const std::string name : {"SKX-24", "CSX-48", "ICX-48"}) {
    const auto errors = bench::fan_out_errors(times, name, bench::class_of(name));
    INFO(name << ": median error " << errors[errors.size() / 2]);
    CHECK(errors.size() == 80);
    CHECK(errors[errors.size() / 2] < 0.15);
  }
}

TEST_CASE("processors have a class, named nodes have one of the table") {
  const std::pair<std::string_view, std::string_view> models[] = {
      {"Intel(R) Xeon(R) Platinum 8175M CPU @ 2.50GHz", "skylake-sp"},
      {"Intel(R) Xeon(R) Gold 6242 CPU @ 2.80GHz", "cascade-lake"},
      {"Intel(R) Xeon(R) Platinum 8480+", "ice-lake"},
      {"AMD EPYC 7R13 48-Core Processor", "epyc"},
      {"ARM Neoverse-V2", "neoverse"},
      {"", "ice-lake"},
  };
  for (const auto& [model, name] : models) CHECK(machine_class_of(model).name == name);
  for (const NamedNode& node : named_nodes()) {
    const MachineClass* const machine = find_machine_class(node.machine_class);
    REQUIRE(machine != nullptr);
    // Farther is never cheaper, by any figure but the crowd's.
    for (std::size_t i = 1; i < machine->lines.size(); ++i) {
      const LineCost &near = machine->lines[i - 1], &far = machine->lines[i];
      CHECK((near.transfer_ps <= far.transfer_ps && near.further_ps <= far.further_ps &&
             near.kib_ps <= far.kib_ps));
    }
  }
}

TEST_CASE("every row has a price, also over domains") {
  const Hierarchy hierarchy = Hierarchy::of_sizes(std::vector<std::uint32_t>{3, 3, 2});
  for (const AlgorithmRow& row : catalog()) {
    for (const AlgorithmParams& params : sample_params(row)) {
      const PricedCall call{&row, params, 5000, &hierarchy, false};
      INFO(to_string(row.collective) << " " << to_text(row, params));
      CHECK(price(call, places_of(8, 3), flat_model()).total_ps > 0);
    }
  }
}

TEST_CASE("a deadlock has no price") {
  const auto ranks = emit_all(*find_algorithm(Collective::allreduce, "ring"), {3, 0, false, {}});
  REQUIRE(ranks.is_ok());
  std::vector<Schedule> broken = *ranks;
  broken[1].steps.pop_back();
  CHECK(!price_schedules(broken, 30, places_of(3, 1), flat_model()).is_ok());
}

TEST_CASE("too many steps are not walked: the claim is priced") {
  const std::uint64_t bytes = 1U << 20U;
  PricedCall call = call_of(Collective::broadcast, "circulant", bytes);
  call.params.segments = 1024;
  const Price estimate = price(call, places_of(4096, 1), flat_model());
  const Claim claim = claim_of(*call.row, 4096, call.params, nullptr);
  CHECK(estimate.is_estimate);
  CHECK(estimate.latency_ps == claim.rounds * (kLatency + kMessage));
  CHECK(estimate.bytes_ps == bytes / claim.blocks * claim.sent_blocks * kByte);
  CHECK(!price(call_of(Collective::broadcast, "binomial", bytes), places_of(4096, 1), flat_model())
             .is_estimate);
}

TEST_CASE("an explanation chooses what a call chooses and has every row") {
  const Selector selector =
      test::selector_of({{Collective::allreduce, "TUTTI_ADJUST_ALLREDUCE", "ring:1m-;auto"}});
  for (const std::uint64_t bytes : {64ULL, 65536ULL, 4ULL << 20U}) {
    const Question question = test::ask(Collective::allreduce, bytes, 6);
    const auto answer = explain(selector, question, {}, {places_of(6, 6), flat_model(), true});
    REQUIRE(answer.is_ok());
    const auto chosen = selector.choose(question);
    REQUIRE(chosen.is_ok());
    CHECK(answer->chosen.row == chosen->row);
    CHECK(answer->chosen.params == chosen->params);
    CHECK(answer->chosen.source == chosen->source);
    CHECK(answer->chosen.item == chosen->item);
    std::uint32_t chosen_count = 0;
    for (const Candidate& candidate : answer->candidates) {
      CHECK(!candidate.reason.empty());
      chosen_count += candidate.is_chosen ? 1 : 0;
      CHECK(candidate.is_legal == (candidate.row->name != "hierarchical"));
      CHECK(candidate.price.has_value() == candidate.is_legal);
    }
    CHECK(chosen_count == 1);
    for (const AlgorithmRow& row : catalog()) {
      if (row.collective != Collective::allreduce) continue;
      CHECK(std::any_of(answer->candidates.begin(), answer->candidates.end(),
                        [&](const Candidate& c) { return c.row == &row; }));
    }
  }
}

TEST_CASE("an explanation names the argument, and fails as the call does") {
  const Selector selector = test::selector_of({});
  const Setting setting{places_of(6, 6), flat_model(), false};
  const auto answer = explain(selector, test::ask(Collective::allreduce, 100, 6), "census", setting);
  REQUIRE(answer.is_ok());
  CHECK(answer->chosen.source == "argument");
  CHECK(answer->chosen.row->name == "census");
  CHECK(!explain(selector, test::ask(Collective::allreduce, 100, 6), "hierarchical", setting).is_ok());
}

TEST_CASE("items print as they parse") {
  for (const std::string_view text :
       {"ring", "auto", "ring:-4k", "ring:4k-", "ring:0", "ring:0-@9-", "ring:-1m@-2,4m-1g@3-8",
        "recursive_multiplying(radix=8):17-33@5", "ring(segment=256k):1025", "ring(segments=4)",
        "hierarchical(leaders=1,across=2)"}) {
    const auto rules = parse_rules(Collective::allreduce, text);
    REQUIRE(rules.is_ok());
    CHECK(to_text(rules->front()) == text);
  }
}

}  // namespace
}  // namespace tutti
