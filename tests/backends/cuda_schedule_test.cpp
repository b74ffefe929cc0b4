// Our schedules over memory of devices that all ranks reach. Through the public interface every algorithm of
// the catalogue that has such a form, against the same call on host memory, bit for bit; and as an engine,
// the failure when a rank does not come. Ranks are threads with a device of the stand-in each.
#include <cstdlib>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "backends/cuda/peer_engines.hpp"
#include "backends/native/native_backend.hpp"
#include "runtime/algorithms/catalog.hpp"
#include "runtime/group/comm_group.hpp"
#include "runtime/group/device_calls.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/cuda_stand_in/shared_services.hpp"
#include "tests/support/device_calls.hpp"
#include "tests/support/test_fraction.hpp"

namespace {

using namespace tutti;
using Catch::Matchers::Contains;
using namespace std::chrono_literals;

// Set before anything else asks.
const bool is_named =
    ::setenv("TUTTI_CUDA_LIBRARY", STAND_IN_FILE, 0) == 0 && ::setenv("CUDA_STAND_IN_DEVICES", "5", 1) == 0;

// The engine of the group's last call on its GPU.
std::string last_engine(const CommGroup& group) {
  const DeviceCalls* const calls = CommGroup::Impl::of(group, "test").device_calls();
  return calls == nullptr ? "none" : std::string(calls->backend().last().engine);
}

std::string text_of(const AlgorithmRow& row) { return to_text(row, default_params(row)); }

}  // namespace

TEST_CASE("with a GPU for each rank all but uneven blocks stays on the GPUs", "[stand-in]") {
  REQUIRE(is_named);
  const int size = GENERATE(2, 3, 4);
  const Verdict verdict_of_all = with_ranks(size, [size](CommGroup& group) -> Verdict {
    Verdict verdict;
    for (const std::size_t count : {0U, 1U, 7U, 4097U}) {
      const int root = static_cast<int>(count % static_cast<std::size_t>(size));
      for (const char* name : {"allreduce", "broadcast", "reduce", "allgather", "reduce_scatter", "alltoall",
                               "gather", "scatter", "scan", "exscan", "allgatherv", "scatterv"}) {
        const bool is_uneven = std::string_view(name).back() == 'v';
        const std::string expected = is_uneven                               ? "staged"
                                     : std::string_view(name) == "allreduce" ? "one_shot"
                                                                             : "ipc_schedule";
        const auto look = [&, expected]() -> Verdict {
          const std::string engine = last_engine(group);
          return engine == expected ? "" : std::string(name) + " runs on " + engine + ", not " + expected;
        };
        const Comparison how{name, group.rank(), "", look};
        if (verdict.empty()) verdict = compare_calls(group, count, Dtype::i32, Op::sum, root, how);
        // Scans of the host may go by another algorithm, which rounds otherwise.
        if (verdict.empty() && std::string_view(name).find("scan") == std::string_view::npos)
          verdict = compare_calls(group, count, Dtype::f32, Op::avg, root, how);
      }
    }
    return verdict;
  });
  CHECK(verdict_of_all == "");
}

TEST_CASE("every algorithm of the catalogue does on GPUs what it does on the host, or is staged",
          "[stand-in]") {
  const int size = GENERATE(2, 3, 4);
  std::atomic<int> on_gpus{0};
  const Verdict verdict_of_all = with_ranks(size, [&, size](CommGroup& group) -> Verdict {
    std::uint64_t number = 0;
    for (const AlgorithmRow& row : catalog()) {
      const bool is_by_kernels =
          row.collective == Collective::allreduce && (row.name == "one_shot" || row.name == "two_shot");
      if (row.collective == Collective::barrier || row.collective == Collective::send_recv || is_by_kernels)
        continue;
      if (!may_run(row, static_cast<std::uint32_t>(size), true, false, true, nullptr)) continue;
      if (!test::is_selected(number++)) continue;
      const auto look = [&]() -> Verdict {
        on_gpus += last_engine(group) == "ipc_schedule" ? 1 : 0;
        return "";
      };
      const Comparison how{std::string(to_string(row.collective)), group.rank(), text_of(row), look};
      for (const std::size_t count : {1U, 1003U}) {
        const Verdict verdict = compare_calls(group, count, Dtype::f32, Op::sum, size - 1, how);
        if (!verdict.empty()) return text_of(row) + ": " + verdict;
      }
    }
    return {};
  });
  CHECK(verdict_of_all == "");
  CHECK(on_gpus > 0);
}

TEST_CASE("long vectors go in parts, through areas that take turns", "[stand-in]") {
  const Verdict verdict_of_all = with_ranks(3, [](CommGroup& group) -> Verdict {
    // Scratch of 8 MiB for each rank.
    for (const auto& [name, algorithm] :
         {std::pair("reduce", "linear"), std::pair("allreduce", "ring"), std::pair("allgather", "direct"),
          std::pair("broadcast", "scatter_allgather")}) {
      const Comparison how{name, group.rank(), algorithm};
      if (Verdict verdict = compare_calls(group, 5000000, Dtype::i32, Op::sum, 1, how); !verdict.empty())
        return verdict;
    }
    return {};
  });
  CHECK(verdict_of_all == "");
}

namespace {

// A group whose own schedules are those of the catalogue.
class PlannedServices final : public test::SharedServices {
 public:
  using test::SharedServices::SharedServices;
  Result<std::shared_ptr<const LoweredPlans>> lowered_plans(const Call& call,
                                                            std::string_view algorithm) override {
    const AlgorithmRow* const row = find_algorithm(call.collective, algorithm);
    if (row == nullptr) return std::shared_ptr<const LoweredPlans>();
    Instance instance;
    instance.size = size();
    instance.params = default_params(*row);
    auto plans = make_lowered_plans(*row, nullptr, instance, rank(), 128, std::size_t{1} << 20U);
    if (!plans) return plans.status();
    return std::make_shared<const LoweredPlans>(*std::move(plans));
  }
};

}  // namespace

TEST_CASE("a rank that does not come fails the group after its timeout, and schedules with it",
          "[stand-in]") {
  REQUIRE(cuda::driver().is_ok());
  test::SharedPlace place;
  std::vector<std::string> results(2);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      PlannedServices services(place, rank, 2);
      const int device = static_cast<int>(rank);
      const auto context = cuda::ContextScope::enter(device);
      auto engine = cuda::make_schedule_engine(services, device);
      char at_end = 0;
      std::vector<char> all(2);
      if (engine && rank == 0) {
        services.set_timeout(20ms);
        const auto stream = cuda::Stream::create(device);
        const test::DeviceMemory memory(device, 64);
        Call call;
        call.collective = Collective::allreduce;
        call.in_place = call.is_device = true;
        call.input = call.output = memory.data();
        call.count = 16;
        call.stream = stream->get();
        const auto work = test::start_by(**engine, call, "ring");
        results[0] = work ? (*work)->wait(Clock::now() + 60s).to_string() : work.status().to_string();
        results[0] += "; then " + test::start_by(**engine, call, "ring").status().message();
        results[0] += "; and " + test::start_by(**engine, call, "rong").status().message();
        call.collective = Collective::barrier;
        results[0] += "; and " + test::start_by(**engine, call, "ring").status().message();
        services.set_timeout(60s);
      }
      if (!engine) results[rank] = engine.status().to_string();
      static_cast<void>(services.allgather(&at_end, all.data(), 1));  // rank 1 keeps its area until then
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_THAT(results[0],
             Contains("timeout: allreduce of 16 f32, sum by schedules on GPU 0 has been under way") &&
                 Contains("then allreduce of 16 f32, sum by schedules on GPU 0 has") &&
                 Contains("rong of allreduce has no form") && Contains("no schedule on the memory of GPUs"));
  CHECK(results[1].empty());
}

TEST_CASE("threads of one process that share a GPU go by the host instead", "[stand-in]") {
  const Verdict verdict_of_all = with_ranks(2, [](CommGroup& group) -> Verdict {
    const auto look = [&]() -> Verdict {
      return last_engine(group) == "staged" ? "" : "runs on " + last_engine(group);
    };
    return compare_calls(group, 100, Dtype::f32, Op::sum, 0, {"allgather", 0, "", look});
  });
  CHECK(verdict_of_all == "");
}
