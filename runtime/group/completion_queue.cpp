// CompletionQueue: hands completions to the thread that polls. Knows no transport and no algorithm.
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "tutti/work.hpp"

namespace tutti {

struct CompletionQueue::State {
  struct Entry {
    Work work;
    std::uint64_t tag = 0;
    std::optional<Error> error;
  };
  std::mutex mutex;
  std::map<std::uint64_t, Entry> entries;  // by the order in which they were added
  std::deque<std::uint64_t> complete;      // numbers of entries
  std::uint64_t next_number = 0;
  std::uint64_t driven = 0;  // number of the entry that poll() has driven last
};

CompletionQueue::CompletionQueue() : state_(std::make_shared<State>()) {}

CompletionQueue::~CompletionQueue() {
  // Callbacks hold the state, so the state must not hold their operations.
  std::map<std::uint64_t, State::Entry> dropped;
  const std::lock_guard lock(state_->mutex);
  dropped.swap(state_->entries);
}

void CompletionQueue::add(const Work& work, std::uint64_t tag) {
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(state_->mutex);
    number = state_->next_number++;
    state_->entries[number] = {work, tag, std::nullopt};
  }
  work.on_complete([state = state_, number](const Error* error) {
    const std::lock_guard lock(state->mutex);
    const auto found = state->entries.find(number);
    if (found == state->entries.end()) return;  // the queue has ended
    if (error != nullptr) found->second.error.emplace(*error);
    state->complete.push_back(number);
  });
}

std::optional<CompletionQueue::Completion> CompletionQueue::poll() {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  if (state.complete.empty() && !state.entries.empty()) {
    // One entry makes progress for all of its world; in turn, since entries may be of several worlds.
    auto next = state.entries.upper_bound(state.driven);
    if (next == state.entries.end()) next = state.entries.begin();
    state.driven = next->first;
    const Work work = next->second.work;
    lock.unlock();
    work.test();
    lock.lock();
  }
  if (state.complete.empty()) return std::nullopt;
  const auto found = state.entries.find(state.complete.front());
  state.complete.pop_front();
  const State::Entry entry = std::move(found->second);
  state.entries.erase(found);
  lock.unlock();  // the last reference to a group may end here
  return Completion{entry.tag, entry.error, entry.work.source()};
}

std::size_t CompletionQueue::size() const {
  const std::lock_guard lock(state_->mutex);
  return state_->entries.size();
}

}  // namespace tutti
