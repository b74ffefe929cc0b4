// Events of one rank's tensors on their way to the timeline of rank 0. Knows no negotiation and no message.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/training/tensor_request.hpp"
#include "runtime/training/timeline.hpp"

namespace tutti {

// All ranks follow rank 0: it contributes flags to each cycle, and what all ranks have read of them is in effect.
class TensorTiming {
 public:
  enum class Detail : std::uint8_t { none, submissions, phases };
  // Flags of a cycle.
  static constexpr std::uint64_t kIsOn = 8, kHasPhases = 16, kAlignsClocks = 32;

  explicit TensorTiming(std::uint32_t rank) : rank_(rank) {}

  // Rank 0: in effect from the next cycle on. Null: no timeline. Returns the one before, whose end waits for its
  // file; let that be once this is_settled().
  std::shared_ptr<Timeline> write_to(std::shared_ptr<Timeline> timeline, bool marks_cycles);
  // By the queue's thread, in each cycle: of rank 0, and as all ranks have read them.
  std::uint64_t flags();
  // True in the cycle in which the timeline begins.
  bool follow(std::uint64_t flags);
  // Completes the file; events of operations that end later are not in it.
  void end();
  bool is_on() const { return detail_.load(std::memory_order_relaxed) != Detail::none; }
  // Whether follow() has put the last write_to() into effect.
  bool is_settled() const;

  // By any thread; costs one load without a timeline. `response`: of the tensor.
  void note(const TensorResponse& response, TensorPhase phase, std::string arguments = {}) {
    if (has_phases()) add(make(response.name, response.signature.collective, phase, std::move(arguments)));
  }
  void note_end(const TensorResponse& response, bool is_right);
  // Whether note() has an effect here.
  bool has_phases() const {
    const Detail detail = detail_.load(std::memory_order_relaxed);
    return detail == Detail::phases || (detail != Detail::none && rank_ == 0);
  }
  void note_submission(const std::string& name, Collective collective, SteadyClock::time_point time);
  // This rank's events since the last call, which go to rank 0. At most kMostEvents; later ones are dropped.
  std::vector<TensorEvent> take_events();
  // Rank 0: events of all ranks of a cycle, before the tensors that are ready in it.
  void accept(std::vector<TensorEvent> events);

  // The clock of rank 0 here.
  SteadyClock::time_point now() const { return SteadyClock::now() + offset(); }
  std::chrono::nanoseconds offset() const {
    return std::chrono::nanoseconds(offset_.load(std::memory_order_relaxed));
  }
  void set_offset(std::chrono::nanoseconds offset) {
    offset_.store(offset.count(), std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t kMostEvents = 65536;
  TensorEvent make(const std::string& name, Collective collective, TensorPhase phase,
                   std::string arguments) const;
  void add(TensorEvent event);

  const std::uint32_t rank_;
  std::atomic<Detail> detail_{Detail::none};
  std::atomic<std::chrono::nanoseconds::rep> offset_{0};

  mutable std::mutex mutex_;
  std::vector<TensorEvent> events_;  // to be sent; guarded by mutex_, as what follows
  std::shared_ptr<Timeline> wanted_, timeline_;
  bool wants_cycles_ = false, marks_cycles_ = false;
  std::uint32_t queue_number_ = 0;
  SteadyClock::time_point next_alignment_;
};

// Members of a JSON object about a tensor.
std::string describe_arguments(const TensorSignature& signature);

}  // namespace tutti
