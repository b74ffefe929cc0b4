// The dispatch of device calls, with a counting engine in the part of NCCL: each signature is decided once,
// and rules, arguments and failures still count. One rank on a device of the stand-in.
#include <cstdlib>

#include <string>

#include "backends/cuda/device_dispatch.hpp"
#include "backends/cuda/driver.hpp"
#include "runtime/group/comm_group.hpp"
#include "runtime/group/device_calls.hpp"
#include "tests/selection/selection_support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/cuda_stand_in/shared_services.hpp"
#include "tutti/tutti.hpp"

namespace {

using namespace tutti;
using Catch::Matchers::Contains;

// Set before anything else asks.
const bool is_named = ::setenv("TUTTI_CUDA_LIBRARY", STAND_IN_FILE, 0) == 0;

class DoneWork final : public WorkState {
 public:
  DoneWork() { is_complete_.store(true); }
  bool test() override { return true; }
  Status wait(Clock::time_point /*deadline*/) override { return {}; }
  Status status() const override { return {}; }
  int source() const override { return -1; }
  void when_complete(CompletionCallback /*callback*/) override {}

 private:
  void recycle() override { delete this; }
};

int prepared = 0, started = 0, made = 0;

// Refuses i16, as NCCL does.
class CountingEngine final : public cuda::DeviceEngine {
 public:
  Result<std::unique_ptr<cuda::PreparedCall>> prepare(const Call& call,
                                                      std::string_view /*algorithm*/) override {
    ++prepared;
    if (call.dtype == Dtype::i16) return unsupported("no i16");
    return std::unique_ptr<cuda::PreparedCall>(
        std::make_unique<cuda::PreparedFor<CountingEngine, Dtype>>(*this, call.dtype));
  }
  Result<WorkRef> start(const Call& call, Dtype dtype) {
    REQUIRE(call.dtype == dtype);
    ++started;
    return WorkRef(new DoneWork);
  }
};

Result<std::unique_ptr<cuda::DeviceEngine>> make_counting(GroupServices& /*services*/, int /*device*/) {
  ++made;
  return std::unique_ptr<cuda::DeviceEngine>(std::make_unique<CountingEngine>());
}

// Staged calls would run on `host`; no call of these tests is staged.
class ServicesOverHost final : public test::SharedServices {
 public:
  ServicesOverHost(test::SharedPlace& place, Backend& host) : SharedServices(place, 0, 1), host_(host) {}
  Backend& host() override { return host_; }

 private:
  Backend& host_;
};

struct Fixture {
  explicit Fixture(const std::string& rules, const Status& nccl_refusal = {})
      : selector(test::selector_of({{Collective::allreduce, "RULES", rules}})),
        services(place, CommGroup::Impl::of(group, "test").backend()),
        dispatch(services, options_with(selector, nccl_refusal), make_counting) {
    prepared = started = made = 0;
  }
  // "" or the error.
  std::string allreduce(std::uint64_t count, Dtype dtype = Dtype::f32, std::string_view algorithm = {},
                        int device = 0) {
    Call call;
    call.dtype = dtype;
    call.count = count;
    call.in_place = call.is_device = true;
    call.device = device;
    return dispatch.start(call, algorithm).status().message();
  }

  static DeviceOptions options_with(const Selector& selector, const Status& nccl_refusal) {
    DeviceOptions options{selector};
    options.nccl_refusal = nccl_refusal;
    return options;
  }
  static CommGroup alone() {
    InitOptions options;
    options.unique_id = make_unique_id();
    options.rank = 0;
    options.size = 1;
    return init(options);
  }
  CommGroup group = alone();
  test::SharedPlace place;
  Selector selector;
  ServicesOverHost services;
  cuda::DeviceDispatch dispatch;
};

}  // namespace

TEST_CASE("each signature is decided once, whatever comes between", "[stand-in]") {
  REQUIRE(is_named);
  Fixture fixture("nccl");
  for (int round = 0; round < 3; ++round) {
    CHECK(fixture.allreduce(10) == "");
    CHECK(fixture.allreduce(1000) == "");
    CHECK(fixture.allreduce(10, Dtype::f64) == "");
    CHECK(fixture.allreduce(10, Dtype::f32, "nccl") == "");
  }
  CHECK(made == 1);
  CHECK(prepared == 4);
  CHECK(started == 12);
  CHECK(fixture.dispatch.last().engine == "nccl");
}

TEST_CASE("more signatures than places are decided again, and run all the same", "[stand-in]") {
  Fixture fixture("nccl");
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t count = 1; count <= 500; ++count) CHECK(fixture.allreduce(count) == "");
  }
  CHECK(started == 1000);
  CHECK(prepared > 500);
  CHECK(prepared <= 1000);
}

TEST_CASE("refusals, failures and wrong devices are answered on every call", "[stand-in]") {
  Fixture fixture("nccl");
  for (int round = 0; round < 2; ++round) {
    CHECK(fixture.allreduce(10) == "");
    CHECK_THAT(fixture.allreduce(10, Dtype::i16), Contains("nccl by RULES item 1") && Contains("no i16"));
    CHECK_THAT(fixture.allreduce(10, Dtype::f32, "rong"), Contains("algorithm argument"));
    CHECK_THAT(fixture.allreduce(10, Dtype::f32, "", 1), Contains("one GPU on each rank"));
  }
  fixture.services.fail(Status(StatusCode::aborted, "a rank is lost"));
  CHECK_THAT(fixture.allreduce(10), Contains("a rank is lost"));
  CHECK(started == 2);
}

TEST_CASE("NCCL is not used between nodes where connections are protected", "[stand-in]") {
  CHECK(check_nccl(WireSecurity::off, 2).is_ok());
  CHECK(check_nccl(WireSecurity::encrypt, 1).is_ok());
  const Status refusal = check_nccl(WireSecurity::auth, 2);
  Fixture fixture("nccl", refusal);
  CHECK_THAT(fixture.allreduce(10), Contains("nccl by RULES item 1") &&
                                        Contains("TUTTI_WIRE_SECURITY=auth") &&
                                        Contains("neither authenticate nor encrypt"));
  CHECK(made == 0);
}
