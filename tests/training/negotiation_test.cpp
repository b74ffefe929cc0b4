// Requests, the cache and the coordinator: what ranks tell each other of named tensors, without ranks.
#include <chrono>
#include <string>

#include "runtime/training/batch_refusals.hpp"
#include "runtime/training/coordinator.hpp"
#include "runtime/training/fusion.hpp"
#include "runtime/training/residuals.hpp"
#include "runtime/training/response_cache.hpp"
#include "tests/support/catch.hpp"

using namespace tutti;

namespace {

TensorRequest allreduce(std::string name, std::vector<std::uint64_t> shape = {4}) {
  TensorRequest request;
  request.name = std::move(name);
  request.signature.shape = std::move(shape);
  return request;
}

TensorRequest gather(std::string name, std::uint64_t rows) {
  TensorRequest request = allreduce(std::move(name), {3});
  request.signature.collective = Collective::allgather;
  request.rows = rows;
  return request;
}

TensorRequest in_batch(std::string name, std::string batch, std::uint32_t size) {
  TensorRequest request = allreduce(std::move(name));
  request.signature.batch = std::move(batch);
  request.signature.batch_size = size;
  return request;
}

RequestBatch from(std::vector<std::uint32_t> ranks, std::vector<TensorRequest> requests) {
  RequestBatch batch;
  for (TensorRequest& request : requests) batch.requests.push_back({std::move(request), ranks});
  return batch;
}

TensorResponse response_to(const TensorRequest& request) {
  TensorResponse response;
  response.name = request.name;
  response.signature = request.signature;
  return response;
}

const RunningClock::time_point kNow{};

}  // namespace

TEST_CASE("requests of many ranks travel as one, and are read as they were written") {
  RequestBatch batch = from({1}, {allreduce("b"), allreduce("a", {2, 3})});
  merge(batch, from({0}, {allreduce("a", {2, 3}), gather("g", 7)}));
  RequestBatch joined;
  joined.joined_ranks = {2};
  joined.ranks_with_device = {2};
  joined.events = {{"a",
                    Collective::allgather,
                    TensorPhase::moving,
                    2,
                    SteadyClock::time_point(std::chrono::seconds(3)),
                    {}}};
  joined.refusals = {{"step", "why", {2}}};
  merge(batch, joined);
  RequestBatch refused;
  refused.refusals = {{"step", "why", {1}}, {"step", "why else", {0}}};
  merge(batch, refused);
  REQUIRE(batch.requests.size() == 3);
  CHECK(batch.requests[0].ranks == std::vector<std::uint32_t>{1});
  CHECK(batch.requests[1].ranks == std::vector<std::uint32_t>{0, 1});
  CHECK(batch.requests[2].request.rows == 7);
  CHECK(batch.refusals == std::vector<BatchRefusal>{{"step", "why", {1, 2}}, {"step", "why else", {0}}});
  const std::string bytes = encode(batch);
  RequestBatch read;
  REQUIRE(decode(bytes, 3, read));
  CHECK(read == batch);
  CHECK_FALSE(decode(bytes, 2, read));  // rank 2 of 2
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    INFO("cut at " << length);
    CHECK_FALSE(decode(bytes.substr(0, length), 3, read));
  }
  // A request of all of many ranks is as long as that of one.
  std::vector<std::uint32_t> all(512);
  for (std::uint32_t rank = 0; rank < 512; ++rank) all[rank] = rank;
  CHECK(encode(from(all, {allreduce("a")})).size() == encode(from({0}, {allreduce("a")})).size());
}

TEST_CASE("decisions are read as they were written") {
  ResponseList list;
  list.responses.push_back(response_to(allreduce("a")));
  list.responses.push_back(response_to(gather("g", 1)));
  list.responses.back().rows = {1, 0, 5};
  list.responses.push_back(response_to(gather("w", 1)));
  list.responses.back().code = StatusCode::mismatch;
  list.responses.back().message = "why";
  list.responses.back().peer = 2;
  list.refused_batches = {"step"};
  list.last_joined_rank = 1;
  ResponseList read;
  REQUIRE(decode(encode(list), 3, read));
  CHECK(read == list);
  CHECK_FALSE(decode(encode(list), 4, read));  // rows of 3 ranks
}

TEST_CASE("a tensor is decided once every rank has submitted it, in the order of completion") {
  Coordinator coordinator(2);
  CHECK(coordinator.decide(from({0}, {allreduce("a"), allreduce("b")}), kNow).responses.empty());
  ResponseList list = coordinator.decide(from({1}, {allreduce("b")}), kNow);
  REQUIRE(list.responses.size() == 1);
  CHECK(list.responses[0].name == "b");
  CHECK(list.responses[0].code == StatusCode::ok);
  list = coordinator.decide(from({1}, {allreduce("a")}), kNow);
  REQUIRE(list.responses.size() == 1);
  CHECK(coordinator.is_empty());
}

TEST_CASE("ranks that differ are told who submitted what") {
  Coordinator coordinator(3);
  coordinator.decide(from({1}, {allreduce("w", {3, 5})}), kNow);
  const ResponseList list = coordinator.decide(from({0, 2}, {allreduce("w", {3, 4})}), kNow);
  REQUIRE(list.responses.size() == 1);
  CHECK(list.responses[0].code == StatusCode::mismatch);
  CHECK(list.responses[0].peer == 1);
  CHECK(list.responses[0].message ==
        "ranks submitted tensor \"w\" with different shape [3,4] and [3,5]: ranks 0, 2 of 3 submitted "
        "allreduce "
        "of f32[3,4], sum; rank 1 of 3 submitted allreduce of f32[3,5], sum");
}

TEST_CASE("rows of an allgather come back by rank") {
  Coordinator coordinator(3);
  RequestBatch batch = from({0}, {gather("g", 2)});
  merge(batch, from({1}, {gather("g", 0)}));
  merge(batch, from({2}, {gather("g", 2)}));
  const ResponseList list = coordinator.decide(batch, kNow);
  REQUIRE(list.responses.size() == 1);
  CHECK(list.responses[0].rows == std::vector<std::uint64_t>{2, 0, 2});
}

TEST_CASE("decisions on an alltoall are as long for many ranks as for two") {
  const auto decided_bytes = [](std::uint32_t size) {
    TensorRequest request = allreduce("x", {3});
    request.signature.collective = Collective::alltoall;
    Coordinator coordinator(size);
    RequestBatch batch;
    for (std::uint32_t rank = 0; rank < size; ++rank) merge(batch, from({rank}, {request}));
    return encode(coordinator.decide(batch, kNow)).size();
  };
  CHECK(decided_bytes(512) == decided_bytes(2));
}

TEST_CASE("a batch is decided as a whole, also its failure") {
  Coordinator coordinator(2);
  RequestBatch batch = from({0, 1}, {in_batch("a", "step", 2)});
  CHECK(coordinator.decide(batch, kNow).responses.empty());
  batch = from({0}, {in_batch("b", "step", 2)});
  TensorRequest other = in_batch("b", "step", 2);
  other.signature.dtype = Dtype::f64;
  merge(batch, from({1}, {other}));
  const ResponseList list = coordinator.decide(batch, kNow);
  REQUIRE(list.responses.size() == 2);
  CHECK(list.responses[0].code == StatusCode::mismatch);
  CHECK(list.responses[0].message == list.responses[1].message);
}

TEST_CASE("a rank's refusal takes the place of its batch") {
  Coordinator coordinator(3);
  RequestBatch refused;
  refused.refusals = {{"step", "why", {1}}};
  // Rank 1 has submitted a part of it before.
  CHECK(coordinator.decide(from({1, 2}, {in_batch("a", "step", 2)}), kNow).responses.empty());
  CHECK(coordinator.decide(refused, kNow).refused_batches.empty());
  CHECK(coordinator.decide(from({2}, {in_batch("b", "step", 2)}), kNow).responses.empty());
  const auto stalled = coordinator.stalled(kNow + std::chrono::seconds(1), {});
  REQUIRE(stalled.size() == 2);
  CHECK(stalled[1].missing == std::vector<std::uint32_t>{0});
  const ResponseList list =
      coordinator.decide(from({0}, {in_batch("a", "step", 2), in_batch("b", "step", 2)}), kNow);
  CHECK(list.refused_batches == std::vector<std::string>{"step"});
  REQUIRE(list.responses.size() == 2);
  for (const TensorResponse& response : list.responses) {
    CHECK(response.code == StatusCode::mismatch);
    CHECK(response.peer == 1);
    CHECK(response.message == "batch \"step\" was refused by rank 1 of 3: why");
  }
  CHECK(coordinator.is_empty());
  // Refused by all, it has no tensors to answer.
  refused.refusals = {{"step", "why", {0, 2}}, {"step", "why else", {1}}};
  CHECK(coordinator.decide(refused, kNow).refused_batches.size() == 1);
  CHECK(coordinator.is_empty());
}

TEST_CASE("refusals of a batch are announced one by one, those behind a batch under way once it has ended") {
  BatchRefusals refusals(4);
  refusals.add("step", "behind", true);
  CHECK(refusals.take_due().empty());
  CHECK_FALSE(refusals.holds("step"));
  refusals.end_batches([](const std::string& /*batch*/) { return true; });
  CHECK(refusals.take_due().empty());
  refusals.end_batches([](const std::string& batch) { return batch != "step"; });
  refusals.add("step", "next", false);
  CHECK_FALSE(refusals.is_announced("step"));
  CHECK(refusals.take_due() == std::vector<BatchRefusal>{{"step", "behind", {4}}});
  CHECK(refusals.take_due().empty());
  CHECK(refusals.is_announced("step"));
  CHECK(refusals.holds("step"));
  refusals.settle("another");
  refusals.settle("step");
  CHECK(refusals.take_due() == std::vector<BatchRefusal>{{"step", "next", {4}}});
  refusals.settle("step");
  CHECK_FALSE(refusals.holds("step"));
}

TEST_CASE("ranks that have joined are no longer waited for") {
  Coordinator coordinator(2);
  RequestBatch joined;
  joined.joined_ranks = {1};
  CHECK(coordinator.decide(joined, kNow).last_joined_rank == -1);
  ResponseList list = coordinator.decide(from({0}, {allreduce("a"), gather("g", 1)}), kNow);
  REQUIRE(list.responses.size() == 2);
  CHECK(list.responses[0].code == StatusCode::ok);
  CHECK(list.responses[1].code == StatusCode::mismatch);
  CHECK(list.responses[1].peer == 1);
  RequestBatch last;
  last.joined_ranks = {0};
  list = coordinator.decide(last, kNow);
  CHECK(list.last_joined_rank == 0);
  CHECK(coordinator.decide(from({0}, {allreduce("a")}), kNow).responses.empty());  // all are back
}

TEST_CASE("a rank that has joined takes part in allreduces on GPUs if it can give zeros there") {
  TensorRequest on_device = allreduce("a");
  on_device.signature.is_device = true;
  for (const bool has_zeros : {true, false}) {
    Coordinator coordinator(3);
    RequestBatch joined;
    joined.joined_ranks = {1, 2};
    joined.ranks_with_device = {1};
    if (has_zeros) joined.ranks_with_device.push_back(2);
    coordinator.decide(joined, kNow);
    const ResponseList list = coordinator.decide(from({0}, {on_device}), kNow);
    REQUIRE(list.responses.size() == 1);
    CHECK(list.responses[0].code == (has_zeros ? StatusCode::ok : StatusCode::mismatch));
    CHECK(list.responses[0].peer == (has_zeros ? -1 : 2));
  }
}

TEST_CASE("tensors that some ranks lack are named with those ranks") {
  using std::chrono::seconds;
  Coordinator coordinator(3);
  coordinator.decide(from({0, 2}, {allreduce("a")}), kNow);
  coordinator.decide(from({0, 1, 2}, {allreduce("b")}), kNow);
  CHECK(coordinator.stalled(kNow + seconds(1), seconds(2)).empty());
  const auto stalled = coordinator.stalled(kNow + seconds(3), seconds(2));
  REQUIRE(stalled.size() == 1);
  CHECK(stalled[0].name == "a");
  CHECK(stalled[0].missing == std::vector<std::uint32_t>{1});
}

TEST_CASE("a tensor that lacks ranks for too long is refused, with the rest of its batch") {
  using std::chrono::seconds;
  Coordinator coordinator(3, seconds(2));
  coordinator.decide(from({0, 2}, {allreduce("a"), in_batch("b", "step", 2)}), kNow);
  coordinator.decide(from({0, 1, 2}, {in_batch("c", "step", 2)}), kNow + seconds(1));
  CHECK_FALSE(coordinator.has_expired(kNow + seconds(1)));
  CHECK(coordinator.decide({}, kNow + seconds(1)).responses.empty());
  REQUIRE(coordinator.has_expired(kNow + seconds(3)));
  const ResponseList list = coordinator.decide(from({0}, {allreduce("late")}), kNow + seconds(3));
  REQUIRE(list.responses.size() == 3);
  for (const TensorResponse& response : list.responses) {
    INFO(response.name);
    CHECK(response.code == StatusCode::mismatch);
    CHECK(response.peer == 1);
    CHECK_THAT(response.message,
               Catch::Matchers::Contains("TUTTI_STALL_TIMEOUT") &&
                   Catch::Matchers::Contains("submitted by ranks 0, 2 of 3, not by rank 1 of 3"));
  }
  CHECK_FALSE(coordinator.has_expired(kNow + seconds(4)));
  // Asked for again, they begin anew.
  CHECK(coordinator.decide(from({0, 1, 2}, {allreduce("a")}), kNow + seconds(9)).responses.size() == 2);
}

TEST_CASE("the cache knows equal requests, says when one has changed, and forgets the least recent one") {
  ResponseCache cache(2);
  bool is_stale = false;
  CHECK_FALSE(cache.find(allreduce("a"), 0, &is_stale));
  CHECK(cache.insert(response_to(allreduce("a"))) == 0U);
  CHECK(cache.insert(response_to(allreduce("b"))) == 1U);
  CHECK(cache.find(allreduce("a"), 0, &is_stale) == 0U);
  CHECK_FALSE(cache.find(allreduce("a", {5}), 0, &is_stale));
  CHECK(is_stale);
  cache.touch(0);
  CHECK(cache.insert(response_to(allreduce("c"))) == 1U);
  CHECK_FALSE(cache.find_name("b"));
  TensorResponse rows = response_to(gather("g", 0));
  rows.rows = {4, 6};
  CHECK(cache.insert(rows) == 0U);
  CHECK(cache.find(gather("g", 6), 1, &is_stale) == 0U);
  CHECK_FALSE(cache.find(gather("g", 6), 0, &is_stale));
  CHECK(ResponseCache(0).insert(response_to(allreduce("a"))) == std::nullopt);
}

TEST_CASE("a batch is remembered and forgotten as a whole") {
  ResponseCache cache(3);
  cache.insert(response_to(in_batch("a", "step", 2)));
  cache.insert(response_to(in_batch("b", "step", 2)));
  cache.insert(response_to(allreduce("c")));
  cache.insert(response_to(allreduce("d")));
  CHECK_FALSE(cache.find_name("a"));
  CHECK_FALSE(cache.find_name("b"));
  CHECK(cache.size() == 2);
  CHECK(cache.insert(response_to(in_batch("e", "large", 4))) == std::nullopt);
}

TEST_CASE("fusion keeps to the limits, to equal kinds and to the order of priority") {
  std::vector<TensorResponse> tensors;
  for (const std::uint64_t count : {10, 20, 1000, 30})
    tensors.push_back(response_to(allreduce("t", {count})));
  tensors.push_back(response_to(allreduce("d", {5})));
  tensors.back().signature.dtype = Dtype::f64;
  tensors.back().signature.priority = 3;
  std::vector<const TensorResponse*> ready;
  for (const TensorResponse& tensor : tensors) ready.push_back(&tensor);
  const auto plan = [&](TensorPriority priority, FusionLimits limits) {
    std::vector<std::vector<std::uint32_t>> lists;
    for (const FusedOperation& operation : plan_fusion(ready, priority, limits))
      lists.push_back(operation.tensors);
    return lists;
  };
  using Lists = std::vector<std::vector<std::uint32_t>>;
  CHECK(plan(TensorPriority::none, {1000, 500}) == Lists{{0, 1, 3}, {2}, {4}});
  CHECK(plan(TensorPriority::none, {150, 500}) == Lists{{0, 1}, {2}, {3}, {4}});
  CHECK(plan(TensorPriority::none, {0, 500}) == Lists{{0}, {1}, {2}, {3}, {4}});
  CHECK(plan(TensorPriority::direct, {1000, 500}) == Lists{{4}, {0, 1, 3}, {2}});
  CHECK(plan(TensorPriority::lifo, {1000, 500}) == Lists{{4}, {3, 1, 0}, {2}});
  tensors[1].signature.wire_dtype = Dtype::bf16;
  CHECK(plan(TensorPriority::none, {1000, 500}) == Lists{{0, 3}, {1}, {2}, {4}});
  tensors[3].signature.has_feedback = true;
  CHECK(plan(TensorPriority::none, {1000, 500}) == Lists{{0}, {1}, {2}, {3}, {4}});
}

TEST_CASE("residuals are kept by name, for as many tensors as there is room") {
  Residuals residuals(2);
  *residuals.of("a", 3) = 1;
  *residuals.of("b", 3) = 2;
  CHECK(*residuals.of("a", 3) == 1);
  *residuals.of("c", 1) = 3;  // "b" was used longest ago
  CHECK(*residuals.of("a", 3) == 1);
  CHECK(*residuals.of("b", 3) == 0);
  CHECK(*residuals.of("b", 2) == 0);  // of another length
}
