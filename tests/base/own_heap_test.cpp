// Work on a heap that ends with it: what comes back, errors, and where the memory goes.
#include "runtime/base/own_heap.hpp"

#include <malloc.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/catch.hpp"

using tutti::make_on_own_heap;

namespace {

// Many small blocks in no order, as lists of lists leave them.
std::vector<std::vector<int>> take_megabytes() {
  std::vector<std::vector<int>> lists;
  for (std::size_t i = 0; i < 50000; ++i) lists.emplace_back(10 + i * 7919 % 90);
  return lists;
}

// A sanitizer has an allocator of its own.
bool counts_heap() {
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  return false;
#endif
#endif
  return true;
}

}  // namespace

TEST_CASE("the copy comes back, made here, of what another thread has made") {
  std::thread::id made_by;
  const auto make = [&] {
    made_by = std::this_thread::get_id();
    return std::string("made");
  };
  const auto copy = [](const std::string& made) { return std::pair(made, std::this_thread::get_id()); };
  CHECK(make_on_own_heap(make, copy) == std::pair(std::string("made"), std::this_thread::get_id()));
  CHECK(made_by != std::this_thread::get_id());
}

TEST_CASE("an exception of either part reaches the caller") {
  const auto fail = [](auto&&...) -> int { throw std::runtime_error("no"); };
  CHECK_THROWS_AS(make_on_own_heap(fail, [](int) { return 0; }), std::runtime_error);
  CHECK_THROWS_AS(make_on_own_heap([] { return 0; }, fail), std::runtime_error);
}

TEST_CASE("what the work has taken is given back to the system") {
  if (!counts_heap()) return;
  const auto copy_last = [](const auto& lists) { return lists.back(); };
  const std::size_t before = ::mallinfo2().arena;
  const std::vector<int> kept = make_on_own_heap(take_megabytes, copy_last);
  CHECK(kept.size() == 51);
  CHECK(::mallinfo2().arena < before + 1000000);  // of some 12 MB
}
