// Completion queues of the C interface. Knows the public C++ interface only; tutti.h has the contracts.
#include "bindings/c/handles.hpp"

using namespace tutti::c;

namespace {

TuttiQueue& queue_of(const char* call, tutti_queue_t queue) {
  check_given(call, "queue", queue);
  return *queue;
}

}  // namespace

tutti_status_t tutti_queue_make(tutti_queue_t* queue) {
  return guarded([&] {
    check_place("queue_make", "queue", queue);
    *queue = new TuttiQueue;
  });
}

tutti_status_t tutti_queue_add(tutti_queue_t queue, tutti_work_t* work, void* context) {
  return guarded([&] {
    TuttiQueue& to = queue_of("queue_add", queue);
    check_place("queue_add", "work", work);
    std::uint64_t tag = 0;
    {
      const std::lock_guard lock(to.mutex);
      tag = to.next_tag++;
      to.added[tag] = {context, *work == nullptr ? nullptr : (*work)->source};
    }
    to.queue.add(*work == nullptr ? tutti::Work() : (*work)->work, tag);
    delete std::exchange(*work, nullptr);
  });
}

tutti_status_t tutti_queue_poll(tutti_queue_t queue, tutti_completion_t* completion, int* is_there) {
  return guarded([&] {
    TuttiQueue& from = queue_of("queue_poll", queue);
    check_place("queue_poll", "completion", completion);
    check_place("queue_poll", "is_there", is_there);
    auto found = from.queue.poll();
    *is_there = found ? 1 : 0;
    if (!found) return;
    TuttiQueue::Added added;
    {
      const std::lock_guard lock(from.mutex);
      const auto at = from.added.find(found->tag);
      added = at->second;
      from.added.erase(at);
    }
    from.message = found->error ? found->error->what() : "";
    completion->context = added.context;
    completion->status = found->error ? static_cast<tutti_status_t>(found->error->code()) : TUTTI_OK;
    completion->peer = found->error ? found->error->peer() : -1;
    completion->source = found->source;
    completion->message = from.message.c_str();
    if (!found->error && added.source != nullptr) *added.source = found->source;
  });
}

void tutti_queue_free(tutti_queue_t* queue) {
  if (queue != nullptr) delete std::exchange(*queue, nullptr);
}
