// A timeline of named tensors: a file of rank 0, written by a thread of its own. Knows no group.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/base/trace_file.hpp"
#include "runtime/training/timeline_text.hpp"

namespace tutti {

class Timeline {
 public:
  // Queues of one process that name the same path share the file, whose form is that of the first. Otherwise an
  // existing file is replaced. Errors: invalid_argument with the system's reason; resource_exhausted.
  static Result<std::shared_ptr<Timeline>> open(const std::string& path, TimelineForm form);
  // Writes all events.
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  TimelineForm form() const { return form_; }
  // A number for a queue, which tells its tensors from those of others.
  std::uint32_t add_queue();
  // Any thread; neither waits for the file nor for memory of more than kMostEvents: what comes then is dropped, and
  // the file says so.
  void add(std::uint32_t queue, TensorEvent event);
  void mark_cycle();

  static constexpr std::size_t kMostEvents = 65536;

 private:
  struct Item {
    std::uint32_t queue = 0;
    bool is_cycle = false;
    TensorEvent event;
  };
  Timeline(std::unique_ptr<TraceFile> file, TimelineForm form);
  void add(Item item);
  void run();

  const TimelineForm form_;
  const std::unique_ptr<TraceFile> file_;
  TimelineText text_;  // of the thread

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Item> items_;  // guarded by mutex_, as what follows
  std::uint64_t dropped_ = 0;
  std::uint32_t queue_count_ = 0;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace tutti
