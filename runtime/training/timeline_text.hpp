// Events of named tensors as lines of the Trace Event Format, in one of two forms. Knows no file and no thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/group/tensor_settings.hpp"
#include "runtime/training/tensor_event.hpp"

namespace tutti {

// horovod: a process of the viewer for each tensor, with the phases of rank 0. NEGOTIATE_ALLREDUCE lasts from the
// first rank's submission until all ranks have submitted; each rank is an event of no duration there.
// ranks: a process for each rank, a row for each tensor. WAIT_FOR_RANKS lasts until the last rank has submitted.
class TimelineText {
 public:
  using Sink = std::function<void(std::string_view json)>;

  TimelineText(TimelineForm form, SteadyClock::time_point start, Sink sink);
  // `queue` tells tensors of equal names apart. Events of one rank and tensor come in their order.
  void add(std::uint32_t queue, const TensorEvent& event);
  void mark(std::string_view name, SteadyClock::time_point time);
  // Ends the phases that last, so that spans are complete.
  void end(SteadyClock::time_point time);

 private:
  struct Submission {
    SteadyClock::time_point time;
    std::uint32_t rank = 0;
  };
  // A sequence of nested spans: of a tensor, or of a tensor on one rank.
  struct Track {
    std::uint32_t process = 0, thread = 0;
    int depth = 0;  // spans that are open
    SteadyClock::time_point
        latest;  // clocks of ranks differ by some microseconds, and spans must not overlap
    bool is_negotiating = false;
    Submission own;   // form ranks: this rank's
    Submission last;  // form ranks: of the ranks that submitted
  };
  struct Tensor {
    std::uint32_t number = 0;
    Track track;                           // form horovod
    std::map<std::uint32_t, Track> ranks;  // form ranks
    Submission last;                       // of the submissions since the tensor was last ready
    std::vector<TensorEvent> early;  // form horovod: submissions of the next use, before this one has ended
  };

  Tensor& tensor_of(std::uint32_t queue, const std::string& name);
  Track& track_of(Tensor& tensor, const TensorEvent& event);
  void add_as_horovod(Tensor& tensor, const TensorEvent& event);
  void add_by_rank(Tensor& tensor, const TensorEvent& event);
  void end_waiting(Track& track, const TensorEvent& event);
  void enter(Track& track, const TensorEvent& event);
  void begin(Track& track, std::string_view name, SteadyClock::time_point time,
             std::string_view arguments = {});
  void end_one(Track& track, SteadyClock::time_point time, std::string_view arguments = {});
  void name_process(std::uint32_t process, std::string_view name);
  std::string timestamp(SteadyClock::time_point time) const;
  std::string timestamp_of(Track& track, SteadyClock::time_point time) const;

  const TimelineForm form_;
  const SteadyClock::time_point start_;
  const std::chrono::nanoseconds offset_;  // from SteadyClock to the times of the file
  const Sink sink_;
  std::map<std::pair<std::uint32_t, std::string>, Tensor> tensors_;
  std::vector<bool> is_rank_named_;
};

}  // namespace tutti
