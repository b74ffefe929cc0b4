// See timeline.hpp.
#include "runtime/training/timeline.hpp"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "runtime/base/fork_guard.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/thread.hpp"

namespace tutti {
namespace {

// Between two writes; a killed process loses so much.
constexpr std::chrono::milliseconds kBetweenWrites{20};

struct OpenTimelines {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Timeline>> by_path;
};

}  // namespace

Result<std::shared_ptr<Timeline>> Timeline::open(const std::string& path, TimelineForm form) {
  auto& [mutex, by_path] = detail::of_process<OpenTimelines>();
  const std::lock_guard lock(mutex);
  if (std::shared_ptr<Timeline> known = by_path[path].lock()) return known;
  auto file = TraceFile::open(path);
  if (!file) return file.status();
  std::shared_ptr<Timeline> timeline(new Timeline(*std::move(file), form));
  TUTTI_RETURN_IF_ERROR(timeline->file_->write());  // complete from the start
  Result<std::thread> thread = start_thread("tutti-timeline", [self = timeline.get()] { self->run(); });
  if (!thread) return thread.status();
  timeline->thread_ = *std::move(thread);
  by_path[path] = timeline;
  return timeline;
}

Timeline::Timeline(std::unique_ptr<TraceFile> file, TimelineForm form)
    : form_(form),
      file_(std::move(file)),
      text_(form, SteadyClock::now(), [this](std::string_view json) { file_->add(json); }) {}

Timeline::~Timeline() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::uint32_t Timeline::add_queue() {
  const std::lock_guard lock(mutex_);
  return queue_count_++;
}

void Timeline::add(std::uint32_t queue, TensorEvent event) { add({queue, false, std::move(event)}); }

void Timeline::mark_cycle() {
  Item item;
  item.is_cycle = true;
  item.event.time = SteadyClock::now();
  add(std::move(item));
}

void Timeline::add(Item item) {
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    if (items_.size() >= kMostEvents) {
      ++dropped_;
      return;
    }
    is_first = items_.empty();
    items_.push_back(std::move(item));
  }
  if (is_first) changed_.notify_all();
}

void Timeline::run() {
  for (bool is_last = false; !is_last;) {
    std::vector<Item> items;
    std::uint64_t dropped = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return is_ending_ || !items_.empty(); });
      // Later events share the write.
      changed_.wait_for(lock, kBetweenWrites, [this] { return is_ending_; });
      is_last = is_ending_;
      items.swap(items_);
      dropped = std::exchange(dropped_, 0);
    }
    for (const Item& item : items) {
      if (item.is_cycle) {
        text_.mark("CYCLE_START", item.event.time);
      } else {
        text_.add(item.queue, item.event);
      }
    }
    if (dropped > 0) text_.mark(fmt::format("{} events were dropped", dropped), SteadyClock::now());
    if (is_last) text_.end(SteadyClock::now());
    if (const Status status = file_->write(); !status)
      log_warn("the timeline ends here: {}", status.message());
  }
}

}  // namespace tutti
