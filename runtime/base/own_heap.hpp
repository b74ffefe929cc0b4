// Memory that is given back to the system once its work is done.
#pragma once

#include <cstdlib>
#include <exception>
#include <future>
#include <optional>
#include <thread>
#include <type_traits>

#include "runtime/base/thread.hpp"

namespace tutti {

// Of the thread that calls, whose blocks are free. glibc keeps small ones apart until a large one is asked for, and gives
// the end of a heap back when a large one is freed.
inline void give_heap_back() {
  constexpr std::size_t kLarge = 100000;       // and not so large that it gets a mapping of its own
  void* volatile block = std::malloc(kLarge);  // volatile: else nothing is asked for
  std::free(block);
}

// copy(make()), where make() takes megabytes for a moment and its result is small. With glibc a thread has a heap of
// its own: make() runs on a new thread, which frees all and ends once copy() has run here. On this thread's heap a
// single block that lies above the megabytes would keep them. Without a thread both run here. Blocks; costs the start of
// a thread, some 50 us. Throws what the two throw.
template <class Make, class Copy>
std::invoke_result_t<Copy, std::invoke_result_t<Make>&> make_on_own_heap(const Make& make, const Copy& copy) {
  using Made = std::invoke_result_t<Make>;
  std::optional<Made> made;
  std::promise<void> is_made, is_copied;
  std::future<void> has_made = is_made.get_future(), has_copied = is_copied.get_future();
  Result<std::thread> thread = start_thread("tutti-plans", [&] {
    try {
      made.emplace(make());
      is_made.set_value();
    } catch (...) {
      is_made.set_exception(std::current_exception());
    }
    has_copied.wait();
    made.reset();
    give_heap_back();
  });
  if (!thread) {
    Made here = make();
    return copy(here);
  }
  struct End {  // of the thread, also where one of the two throws
    std::promise<void>& is_copied;
    std::thread& thread;
    ~End() {
      is_copied.set_value();
      thread.join();
    }
  } const end{is_copied, *thread};
  has_made.get();
  return copy(*made);
}

}  // namespace tutti
