// Allreduce by one shot and two shots among ranks that are threads, on one device of the stand-in or on two.
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/cuda/memory.hpp"
#include "backends/cuda/peer_allreduce.hpp"
#include "backends/cuda/peer_engines.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/cuda_stand_in/control.hpp"
#include "tests/support/cuda_stand_in/peer_exercise.hpp"
#include "tests/support/cuda_stand_in/shared_services.hpp"
#include "tests/support/test_fraction.hpp"

namespace {

using namespace tutti;
using namespace tutti::cuda;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

// The stand-in, unless the suite of tests on GPUs has named a GPU's driver.
const bool is_named = ::setenv("TUTTI_CUDA_LIBRARY", STAND_IN_FILE, 0) == 0;

// One thread for each rank; what each returns.
std::vector<std::string> run_ranks(std::uint32_t size,
                                   const std::function<std::string(test::SharedServices&, int device)>& body,
                                   int devices = 1) {
  REQUIRE(is_named);
  REQUIRE(driver().is_ok());
  test::SharedPlace place;
  std::vector<std::string> results(size);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      test::SharedServices services(place, rank, size);
      const int device = static_cast<int>(rank) % devices;
      const auto context = ContextScope::enter(device);
      results[rank] = context ? body(services, device) : context.status().to_string();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

// One of three shares of the short cases, and the long ones.
std::vector<test::PeerCase> share_of_cases(std::uint64_t share) {
  std::vector<test::PeerCase> cases;
  std::uint64_t number = 0;
  for (const test::PeerCase& one : test::peer_cases()) {
    ++number;
    const bool is_mine = number / 2 % 3 == share || one.count > 16384;
    if (is_mine && (cases.empty() || test::is_selected(number))) cases.push_back(one);  // one at least
  }
  return cases;
}

}  // namespace

TEST_CASE(
    "allreduce by shots equals the reference: every dtype and op, ranks that share a device or do not") {
  const struct {
    std::uint32_t size;
    int devices;
  } groups[] = {{2, 1}, {3, 1}, {5, 1}};
  for (std::uint64_t share = 0; share < 3; ++share) {
    const auto [size, devices] = groups[share];
    const std::vector<test::PeerCase> cases = share_of_cases(share);
    REQUIRE_FALSE(cases.empty());
    const auto results = run_ranks(
        size,
        [&](test::SharedServices& services, int device) -> std::string {
          auto peers = PeerAllreduce::create(services, device);
          if (!peers) return peers.status().to_string();
          return test::exercise_peers(**peers, cases, services, device);
        },
        devices);
    INFO(size << " ranks on " << devices << " devices");
    CHECK(results == std::vector<std::string>(size));
  }
}

TEST_CASE("ranks on two devices reach each other's memory", "[stand-in]") {
  const auto results = run_ranks(
      3,
      [](test::SharedServices& services, int device) -> std::string {
        auto peers = PeerAllreduce::create(services, device);
        if (!peers) return peers.status().to_string();
        std::vector<test::PeerCase> cases = share_of_cases(0);
        cases.resize(std::min<std::size_t>(cases.size(), 20));
        return test::exercise_peers(**peers, cases, services, device);
      },
      2);
  CHECK(results == std::vector<std::string>(3));
}

TEST_CASE("a group of one, and one that is too large, are refused in words") {
  test::SharedPlace place;
  test::SharedServices alone(place, 0, 1);
  CHECK_THAT(PeerAllreduce::create(alone, 0).status().message(), Contains("2 to 16 ranks, not of 1"));
  test::SharedServices many(place, 0, 17);
  CHECK_THAT(PeerAllreduce::create(many, 0).status().message(), Contains("not of 17"));
}

TEST_CASE("where one rank has no memory, all ranks hear of it, and of whose it is") {
  const auto results = run_ranks(3, [](test::SharedServices& services, int device) {
    // Rank 1's device does not exist.
    return PeerAllreduce::create(services, services.rank() == 1 ? 7 : device).status().to_string();
  });
  CHECK_THAT(results[0], Contains("rank 1 cannot show"));
  CHECK_THAT(results[1], Contains("cuDeviceGet(7)"));
  CHECK_THAT(results[2], Contains("rank 1 cannot show"));
}

TEST_CASE("what no kernel reduces is refused before anything is put on a stream") {
  const auto results = run_ranks(2, [](test::SharedServices& services, int device) -> std::string {
    auto peers = PeerAllreduce::create(services, device);
    if (!peers) return peers.status().to_string();
    const std::size_t too_many = kMostOneShotBytes / 4 + 1;
    return (*peers)->find_kernel(too_many, Dtype::f32, Op::sum, Shots::one).status().message() + "; " +
           (*peers)->find_kernel(4, Dtype::f32, Op::bor, Shots::two).status().message();
  });
  for (const std::string& result : results) {
    CHECK_THAT(result, Contains("at most 262144 bytes, not 262148") && Contains("bor is not defined"));
  }
}

TEST_CASE("kernels that wait for a rank that does not come give up when told to") {
  for (const Shots shots : {Shots::one, Shots::two}) {
    const auto results = run_ranks(2, [&](test::SharedServices& services, int device) -> std::string {
      auto peers = PeerAllreduce::create(services, device);
      if (!peers) return peers.status().to_string();
      char at_end = 0;
      std::vector<char> all(2);
      std::string outcome;
      if (services.rank() == 0) {
        EventPool events(device);
        const auto stream = Stream::create(device);
        const test::PeerVector vector(64);
        auto event = events.take();
        if (!test::start_by_kernel(**peers, vector.data(), vector.data(), 16, Dtype::f32, Op::sum,
                                   stream->get(), shots))
          return "start";
        if (!event->record(stream->get())) return "record";
        if (event->wait(Clock::now() + 5ms).code() != StatusCode::timeout)
          return "did not wait for the other rank";
        (*peers)->abort();
        outcome = event->wait(Clock::now() + 60s).to_string();
      }
      const Status met = services.allgather(&at_end, all.data(), 1);  // rank 1 keeps its area until then
      return met ? outcome : met.to_string();
    });
    CHECK(results[0] == Status().to_string());
    CHECK(results[1].empty());
  }
}

namespace {

Call allreduce_of(const test::PeerVector& vector, std::size_t count, CUstream stream) {
  Call call;
  call.in_place = true;
  call.input = vector.data();
  call.output = vector.data();
  call.count = count;
  call.is_device = true;
  call.device = 0;
  call.stream = stream;
  return call;
}

}  // namespace

TEST_CASE(
    "as an engine: calls return at once, works end with the device, callbacks are called, names are obeyed") {
  const auto results = run_ranks(3, [](test::SharedServices& services, int device) -> std::string {
    auto engine = make_kernel_engine(services, device);
    if (!engine) return engine.status().to_string();
    const auto stream = Stream::create(device);
    const test::PeerVector vector(400);
    std::vector<float> values(100, static_cast<float>(services.rank() + 1));
    if (!test::copy_now(vector.data(), values.data(), 400)) return "no copy";
    Call call = allreduce_of(vector, 100, stream->get());
    std::atomic<int> called{0};
    std::vector<WorkRef> works;
    for (const std::string_view algorithm : {"one_shot", "two_shot", "two_shot"}) {
      auto work = test::start_by(**engine, call, algorithm);
      if (!work) return work.status().to_string();
      (*work)->when_complete([&](const Status& status) { called += status ? 1 : 100; });
      works.push_back(*work);
    }
    for (const WorkRef& work : works) {
      if (const Status status = work->wait(Clock::now() + 60s); !status) return status.to_string();
    }
    while (called < 3) std::this_thread::yield();
    if (!test::copy_now(values.data(), vector.data(), 400)) return "no copy";
    if (called != 3 || values[0] != 54 || values[99] != 54) return "6, 18, 54 were expected";
    const Status other = test::start_by(**engine, call, "ring").status();
    const Status none = test::start_by(**engine, call, "").status();
    call.collective = Collective::broadcast;
    return other.message() + "; " + none.message() + "; " +
           test::start_by(**engine, call, "one_shot").status().message();
  });
  for (const std::string& result : results) {
    CHECK_THAT(result, Contains("one_shot and two_shot, not ring") && Contains("not a choice of their own") &&
                           Contains("not broadcast"));
  }
}

TEST_CASE("a rank that does not come fails the group after its timeout, and the works with it") {
  const auto results = run_ranks(2, [](test::SharedServices& services, int device) -> std::string {
    auto engine = make_kernel_engine(services, device);
    if (!engine) return engine.status().to_string();
    char at_end = 0;
    std::vector<char> all(2);
    std::string outcome;
    if (services.rank() == 0) {
      services.set_timeout(20ms);
      const auto stream = Stream::create(device);
      const test::PeerVector vector(64);
      auto work = test::start_by(**engine, allreduce_of(vector, 16, stream->get()), "one_shot");
      if (!work) return work.status().to_string();
      outcome = (*work)->wait(Clock::now() + 60s).to_string();
      outcome +=
          "; then " +
          test::start_by(**engine, allreduce_of(vector, 16, stream->get()), "one_shot").status().message();
      services.set_timeout(60s);
    }
    const Status met = services.allgather(&at_end, all.data(), 1);  // rank 1 keeps its area until then
    return met ? outcome : met.to_string();
  });
  CHECK_THAT(results[0],
             Contains("timeout: allreduce of 16 f32, sum by kernels on GPU 0 has been under way") &&
                 Contains("then allreduce of 16 f32, sum by kernels on GPU 0 has"));
}
