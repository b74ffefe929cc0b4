// The driver's table, contexts, classification of pointers, pinned memory and events, on the stand-in.
// Knows the driver API's names; the functions are the stand-in's, with which this program is linked.
#include <dlfcn.h>
#include <stdlib.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "backends/cuda/driver.hpp"
#include "backends/cuda/memory.hpp"
#include "backends/cuda/stream_event.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/cuda_stand_in/control.hpp"
#include "tests/support/device_memory.hpp"

namespace {

using namespace tutti;
using namespace tutti::cuda;
using Catch::Matchers::Contains;
using tutti::test::DeviceMemory;
using namespace std::chrono_literals;

// The stand-in is what the library looks for; set before anything else asks.
const bool is_named = ::setenv("TUTTI_CUDA_LIBRARY", STAND_IN_FILE, 1) == 0;

const Driver& table() {
  const auto loaded = driver();
  REQUIRE(loaded.is_ok());
  return **loaded;
}

}  // namespace

// First of all: what comes later initialises it.
TEST_CASE("a pointer is host memory before CUDA is initialised, and asking does not initialise it") {
  REQUIRE(is_named);
  int value = 0;
  CHECK(location_of(&value) == MemoryLocation{});
  CHECK(driver_in_use() != nullptr);  // the program is linked with it
  CHECK(cuda_stand_in_calls("cuInit") == 0);
}

TEST_CASE("cuInit that fails says why and what to look at") {
  auto loaded = load_driver(STAND_IN_FILE);
  REQUIRE(loaded.is_ok());
  cuda_stand_in_fail("cuInit", CUDA_ERROR_NO_DEVICE, 1);
  const Status status = initialise(*loaded);
  CHECK(status.code() == StatusCode::unsupported);
  CHECK_THAT(status.message(), Contains("CUDA_ERROR_NO_DEVICE") && Contains("CUDA_VISIBLE_DEVICES"));
}

TEST_CASE("a library that is absent or is none of CUDA's is refused by name") {
  const auto absent = load_driver("libno_such_driver.so.1");
  CHECK(absent.status().code() == StatusCode::unsupported);
  CHECK_THAT(absent.status().message(), Contains("libno_such_driver.so.1"));
  const auto other = load_driver("libm.so.6");
  CHECK(other.status().code() == StatusCode::unsupported);
  CHECK_THAT(other.status().message(), Contains("libm.so.6") && Contains("cuInit"));
}

TEST_CASE("errors of the driver become statuses with its words") {
  const Driver& cuda = table();
  CHECK(cuda.version == CUDA_VERSION);
  CHECK(to_status(cuda, CUDA_SUCCESS, "nothing").is_ok());
  const Status memory = to_status(cuda, CUDA_ERROR_OUT_OF_MEMORY, "cuMemAlloc(7)");
  CHECK(memory.code() == StatusCode::resource_exhausted);
  CHECK(memory.message() == "cuMemAlloc(7) failed: CUDA_ERROR_OUT_OF_MEMORY (out of memory)");
  CHECK(to_status(cuda, CUDA_ERROR_INVALID_VALUE, "x").code() == StatusCode::invalid_argument);
  CHECK_THAT(to_status(cuda, CUDA_ERROR_ECC_UNCORRECTABLE, "x").message(), Contains("CUDA error 214"));
}

TEST_CASE("contexts are nested and left as they were found") {
  const Driver& cuda = table();
  CUcontext before = nullptr;
  REQUIRE(cuda.cuCtxGetCurrent(&before) == CUDA_SUCCESS);
  CHECK(before == nullptr);
  {
    const auto outer = ContextScope::enter(0);
    REQUIRE(outer.is_ok());
    {
      const auto same = ContextScope::enter(0);
      const auto inner = ContextScope::enter(1);
      CUdevice device = -1;
      REQUIRE(cuda.cuCtxGetDevice(&device) == CUDA_SUCCESS);
      CHECK(device == 1);
    }
    CUdevice device = -1;
    REQUIRE(cuda.cuCtxGetDevice(&device) == CUDA_SUCCESS);
    CHECK(device == 0);
  }
  CUcontext after = nullptr;
  REQUIRE(cuda.cuCtxGetCurrent(&after) == CUDA_SUCCESS);
  CHECK(after == nullptr);
  const auto beyond = ContextScope::enter(9);
  CHECK(beyond.status().code() == StatusCode::invalid_argument);
  CHECK_THAT(beyond.status().message(), Contains("cuDeviceGet(9)"));
}

TEST_CASE("pointers are classified: devices', managed, pinned, plain, and just outside") {
  const DeviceMemory first(0, 1000);
  const DeviceMemory second(1, 1000);
  CHECK(location_of(first.data()) == MemoryLocation{true, 0});
  CHECK(location_of(first.data() + 999) == MemoryLocation{true, 0});
  CHECK(location_of(first.data() + 1000) == MemoryLocation{});
  CHECK(location_of(second.data() + 1) == MemoryLocation{true, 1});
  std::vector<int> plain(10);
  CHECK(location_of(plain.data()) == MemoryLocation{});
  CHECK(location_of(nullptr) == MemoryLocation{});
  const auto context = ContextScope::enter(1);
  PinnedPool pool(1 << 20);
  const auto pinned = pool.take(100);
  REQUIRE(pinned.is_ok());
  CHECK(location_of(pinned->data()) == MemoryLocation{});
  CUdeviceptr managed = 0;
  REQUIRE(cuMemAllocManaged(&managed, 64, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
  CHECK(location_of(pointer_to(managed)) == MemoryLocation{true, 1});
  REQUIRE(table().cuMemFree(managed) == CUDA_SUCCESS);
}

TEST_CASE("pinned memory is reused and bounded") {
  const auto context = ContextScope::enter(0);
  const unsigned long before = cuda_stand_in_calls("cuMemHostAlloc");
  PinnedPool pool(64 << 10);
  void* first = nullptr;
  {
    const auto buffer = pool.take(5000);
    REQUIRE(buffer.is_ok());
    CHECK(buffer->size_bytes() == 8192);
    first = buffer->data();
  }
  {
    const auto again = pool.take(8192);
    REQUIRE(again.is_ok());
    CHECK(again->data() == first);
    CHECK(cuda_stand_in_calls("cuMemHostAlloc") == before + 1);
    CHECK(pool.take((64 << 10) + 1).status().code() == StatusCode::resource_exhausted);
    // Lent memory stays, idle memory makes room.
    CHECK(pool.take(64 << 10).status().code() == StatusCode::resource_exhausted);
  }
  const auto all = pool.take(64 << 10);
  REQUIRE(all.is_ok());
  CHECK(pool.pinned_bytes() == 64 << 10);
  const auto more = pool.take(1);
  CHECK_THAT(more.status().message(), Contains("65536 bytes of pinned memory are in use"));
}

TEST_CASE("the system that pins no more is reported as it is") {
  const auto context = ContextScope::enter(0);
  PinnedPool pool(1 << 20);
  cuda_stand_in_fail("cuMemHostAlloc", CUDA_ERROR_OUT_OF_MEMORY, 1);
  const auto failed = pool.take(100);
  CHECK(failed.status().code() == StatusCode::resource_exhausted);
  CHECK_THAT(failed.status().message(), Contains("cuMemHostAlloc of 4096 bytes"));
  CHECK(pool.pinned_bytes() == 0);
  CHECK(pool.take(100).is_ok());
}

TEST_CASE("copies go in the order of their stream, and events tell how far it is") {
  const auto context = ContextScope::enter(0);
  EventPool events(0);
  const auto stream = Stream::create(0);
  REQUIRE(stream.is_ok());
  PinnedPool pool(1 << 20);
  auto from = pool.take(4096);
  auto to = pool.take(4096);
  const DeviceMemory device(0, 4096);
  std::memset(from->data(), 7, 4096);
  std::memset(to->data(), 0, 4096);
  cuda_stand_in_hang(0, true);
  REQUIRE(copy_async(device.data(), from->data(), 4096, stream->get()).is_ok());
  REQUIRE(copy_async(to->data(), device.data(), 4096, stream->get()).is_ok());
  auto event = events.take();
  REQUIRE(event.is_ok());
  REQUIRE(event->record(stream->get()).is_ok());
  CHECK_FALSE(*event->query());
  const Status late = event->wait(Clock::now() + 5ms);
  CHECK(late.code() == StatusCode::timeout);
  CHECK(static_cast<const char*>(to->data())[0] == 0);
  cuda_stand_in_hang(0, false);
  REQUIRE(event->wait(Clock::now() + 60s).is_ok());
  CHECK(*event->query());
  CHECK(std::memcmp(from->data(), to->data(), 4096) == 0);
}

TEST_CASE("a stream that is held waits for another's mark") {
  const auto context = ContextScope::enter(0);
  EventPool events(0);
  const auto slow = Stream::create(0);
  const auto other = Stream::create(0);
  struct Gate {
    std::atomic<bool> is_open{false};
    std::atomic<bool> is_behind{false};
  } gate;
  const Driver& cuda = table();
  const auto wait = [](void* pointer) {
    while (!static_cast<Gate*>(pointer)->is_open) std::this_thread::yield();
  };
  const auto pass = [](void* pointer) {
    auto* at = static_cast<Gate*>(pointer);
    at->is_behind = at->is_open.load();
  };
  REQUIRE(cuda.cuLaunchHostFunc(slow->get(), wait, &gate) == CUDA_SUCCESS);
  auto event = events.take();
  REQUIRE(event->record(slow->get()).is_ok());
  REQUIRE(event->hold(other->get()).is_ok());
  REQUIRE(cuda.cuLaunchHostFunc(other->get(), pass, &gate) == CUDA_SUCCESS);
  auto last = events.take();
  REQUIRE(last->record(other->get()).is_ok());
  CHECK_FALSE(*last->query());
  gate.is_open = true;
  REQUIRE(last->wait(Clock::now() + 60s).is_ok());
  CHECK(gate.is_behind);
}

TEST_CASE("events go back to their pool; a fault of the device is what they report") {
  const auto context = ContextScope::enter(1);
  EventPool events(1);
  const auto stream = Stream::create(1);
  CUevent first = nullptr;
  {
    auto event = events.take();
    first = event->get();
    REQUIRE(event->record(stream->get()).is_ok());
    REQUIRE(event->wait(Clock::now() + 60s).is_ok());
  }
  auto event = events.take();
  CHECK(event->get() == first);
  cuda_stand_in_break(1, CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK_THAT(event->query().status().message(), Contains("CUDA_ERROR_ILLEGAL_ADDRESS"));
  CHECK(event->wait(Clock::now() + 60s).code() == StatusCode::internal);
  cuda_stand_in_break(1, CUDA_SUCCESS);
  // An event of one device marks no stream of another.
  const auto other = Stream::create(0);
  CHECK(event->record(other->get()).code() == StatusCode::invalid_argument);
}
