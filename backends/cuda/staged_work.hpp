// One call that is staged through the host: its pinned memory, the flags by which stream and host wait for
// each other, and its stage. Knows the order of copies; the engine's thread advances it.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "backends/cuda/memory.hpp"
#include "runtime/base/completable_work.hpp"

namespace tutti::cuda {

class StagedWork final : public CompletableWork {
 public:
  // `rank` and `size` of the group whose call it is; nothing is enqueued yet. `algorithm` is for the host's
  // backend.
  StagedWork(const Call& call, std::string_view algorithm, std::uint32_t rank, std::uint32_t size);

  // Takes pinned memory and puts the copies and the wait on the call's stream. Errors: resource_exhausted,
  // with nothing enqueued; what the driver says: the stream may then hold a part, and goes on.
  Status enqueue(PinnedPool& pool);

  // The rest is for the thread that advances it.
  enum class Stage : std::uint8_t { arriving, communicating, leaving, over };
  Stage stage() const { return stage_; }
  // Has the input arrived on the host?
  bool has_arrived() const;
  // Starts the call on the host. A refusal is the call's outcome.
  void start(Backend& host);
  // Polls the flag or the host's call that it waits for; true if its stage has changed.
  bool poll();
  // The group has failed: completes it, whatever its stream does. Its memory stays.
  void fail(const Status& cause);
  Clock::time_point resumed_at() const { return resumed_at_; }  // of stage `leaving`
  // The device does not take the result. It may do so later, so the memory is leaked.
  void give_up();

  // WorkState
  bool test() override { return is_complete(); }
  Status wait(Clock::time_point deadline) override;

 private:
  // Flags that the device writes (arrived, left) and waits for (resumed), in pinned memory.
  struct Signals;
  // A buffer of the call, on both sides.
  struct Copy {
    void* device = nullptr;
    std::byte* host = nullptr;
    std::size_t bytes = 0;
    bool is_loaded = false, is_stored = false;  // to the host before, to the device after
  };

  std::string describe() const;
  // A call without a result, such as a send, releases its stream once the input is on the host.
  bool holds_stream() const { return output_.is_stored && output_.bytes > 0; }
  void plan_copies(std::uint32_t rank, std::uint32_t size);
  Status enqueue_copies(const Driver& table);
  void resume(Status status);
  void leak_memory();

  Call call_;  // its lists are those below
  std::vector<std::uint64_t> counts_, displacements_, output_counts_, output_displacements_;
  std::string algorithm_;
  Copy input_, output_;  // of calls in place, output_ alone
  PinnedBuffer memory_;
  Signals* signals_ = nullptr;
  Stage stage_ = Stage::arriving;
  WorkRef on_host_;
  Status outcome_;  // on the host; of stage `leaving`
  int outcome_source_ = -1;
  Clock::time_point resumed_at_{};
};

}  // namespace tutti::cuda
