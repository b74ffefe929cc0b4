// See timeline_text.hpp.
#include "runtime/training/timeline_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/trace_file.hpp"

namespace tutti {
namespace {

// Rows of tensors lie below those of TUTTI_TRACE, whose files have a process for each rank, too.
constexpr std::uint32_t kFirstThread = 1000;

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return result;
}

// As Horovod has it.
std::string name_of(Collective collective) {
  return collective == Collective::reduce_scatter ? "REDUCESCATTER" : upper(to_string(collective));
}

std::string name_of(TensorPhase phase, Collective collective) {
  switch (phase) {
    case TensorPhase::negotiating:
      return "NEGOTIATE_" + name_of(collective);
    case TensorPhase::queued:
      return "QUEUE";
    case TensorPhase::copying_in:
      return "MEMCPY_IN_FUSION_BUFFER";
    case TensorPhase::allocating:
      return "ALLOCATE_OUTPUT";
    case TensorPhase::moving:
      return "TUTTI_" + name_of(collective);
    case TensorPhase::copying_out:
      return "MEMCPY_OUT_FUSION_BUFFER";
    case TensorPhase::done:
      break;
  }
  return "";
}

std::chrono::nanoseconds since_epoch(SteadyClock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch());
}

std::string with_arguments(std::string_view arguments) {
  return arguments.empty() ? "" : fmt::format(R"(,"args":{{{}}})", arguments);
}

}  // namespace

TimelineText::TimelineText(TimelineForm form, SteadyClock::time_point start, Sink sink)
    : form_(form),
      start_(start),
      offset_(form == TimelineForm::horovod ? -since_epoch(start) : trace_epoch_offset()),
      sink_(std::move(sink)) {
  if (form_ == TimelineForm::ranks) {
    sink_(R"({"ph":"M","name":"timeline","pid":0,"args":{"form":"ranks"}})");
    return;
  }
  const auto age = std::chrono::duration_cast<std::chrono::microseconds>(SteadyClock::now() - start);
  const auto wall = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  sink_(fmt::format(
      R"({{"ph":"M","name":"process_name","pid":0,"args":{{"start_time_since_epoch_in_micros":{}}}}})",
      (wall - age).count()));
}

std::string TimelineText::timestamp(SteadyClock::time_point time) const {
  return in_microseconds(since_epoch(std::max(time, start_)) + offset_);
}

// No earlier than the track's last one.
std::string TimelineText::timestamp_of(Track& track, SteadyClock::time_point time) const {
  track.latest = std::max(track.latest, time);
  return timestamp(track.latest);
}

void TimelineText::name_process(std::uint32_t process, std::string_view name) {
  sink_(fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})", process,
                    quote_json(name)));
  sink_(fmt::format(R"({{"ph":"M","name":"process_sort_index","pid":{0},"args":{{"sort_index":{0}}}}})",
                    process));
}

TimelineText::Tensor& TimelineText::tensor_of(std::uint32_t queue, const std::string& name) {
  const auto [found, is_new] = tensors_.try_emplace({queue, name});
  Tensor& tensor = found->second;
  if (!is_new) return tensor;
  tensor.number = static_cast<std::uint32_t>(tensors_.size());
  tensor.track.process = tensor.number;
  if (form_ == TimelineForm::horovod) name_process(tensor.number, name);
  return tensor;
}

// Of form ranks.
TimelineText::Track& TimelineText::track_of(Tensor& tensor, const TensorEvent& event) {
  const auto [found, is_new] = tensor.ranks.try_emplace(event.rank);
  Track& track = found->second;
  if (!is_new) return track;
  track.process = event.rank;
  track.thread = kFirstThread + tensor.number;
  if (event.rank >= is_rank_named_.size()) is_rank_named_.resize(event.rank + 1);
  if (!is_rank_named_[event.rank]) name_process(event.rank, fmt::format("rank {}", event.rank));
  is_rank_named_[event.rank] = true;
  sink_(fmt::format(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})",
                    track.process, track.thread, quote_json(event.tensor)));
  return track;
}

void TimelineText::begin(Track& track, std::string_view name, SteadyClock::time_point time,
                         std::string_view arguments) {
  ++track.depth;
  sink_(fmt::format(R"({{"ph":"B","name":"{}","ts":{},"pid":{},"tid":{}{}}})", name,
                    timestamp_of(track, time), track.process, track.thread, with_arguments(arguments)));
}

void TimelineText::end_one(Track& track, SteadyClock::time_point time, std::string_view arguments) {
  if (track.depth == 0) return;
  --track.depth;
  sink_(fmt::format(R"({{"ph":"E","ts":{},"pid":{},"tid":{}{}}})", timestamp_of(track, time), track.process,
                    track.thread, with_arguments(arguments)));
}

void TimelineText::add(std::uint32_t queue, const TensorEvent& event) {
  Tensor& tensor = tensor_of(queue, event.tensor);
  if (form_ == TimelineForm::horovod) {
    add_as_horovod(tensor, event);
  } else {
    add_by_rank(tensor, event);
  }
}

void TimelineText::add_as_horovod(Tensor& tensor, const TensorEvent& event) {
  Track& track = tensor.track;
  if (event.phase == TensorPhase::negotiating) {
    if (track.depth > 0 && !track.is_negotiating) {
      tensor.early.push_back(event);
      return;
    }
    if (!track.is_negotiating) begin(track, name_of(event.phase, event.collective), event.time);
    track.is_negotiating = true;
    sink_(fmt::format(R"({{"ph":"X","name":"{}","ts":{},"dur":0,"pid":{},"tid":0}})", event.rank,
                      timestamp(event.time), track.process));
    return;
  }
  if (event.rank != 0) return;
  enter(track, event);
  if (event.phase != TensorPhase::done) return;
  for (TensorEvent& submission : std::exchange(tensor.early, {})) {
    submission.time = std::max(submission.time, event.time);
    add_as_horovod(tensor, submission);
  }
}

// A phase of an operation; the operation is a span around its phases.
void TimelineText::enter(Track& track, const TensorEvent& event) {
  if (event.phase == TensorPhase::done) {
    while (track.depth > 1) end_one(track, event.time);
    end_one(track, event.time, event.arguments);
    track.is_negotiating = false;
    return;
  }
  if (event.phase == TensorPhase::queued) {
    while (track.depth > 0) end_one(track, event.time);
    track.is_negotiating = false;
    begin(track, name_of(event.collective), event.time);
  } else {
    while (track.depth > 1) end_one(track, event.time);
  }
  begin(track, name_of(event.phase, event.collective), event.time, event.arguments);
}

void TimelineText::add_by_rank(Tensor& tensor, const TensorEvent& event) {
  Track& track = track_of(tensor, event);
  if (event.phase == TensorPhase::negotiating) {
    while (track.depth > 0) end_one(track, event.time);
    track.is_negotiating = true;
    track.own = track.last = {event.time, event.rank};
    if (tensor.last.time < event.time) tensor.last = track.own;
    begin(track, "WAIT_FOR_RANKS", event.time);
    return;
  }
  if (event.rank == 0 && event.phase == TensorPhase::queued) {
    // All submissions of this use are here, and none of the next one.
    for (auto& [rank, other] : tensor.ranks)
      other.last = std::max(other.own, tensor.last, [](auto& a, auto& b) { return a.time < b.time; });
    tensor.last = {};
  }
  if (track.is_negotiating) end_waiting(track, event);
  enter(track, event);
}

// The last rank's submission parts the time that a rank waited from the time that the negotiation took.
void TimelineText::end_waiting(Track& track, const TensorEvent& event) {
  const SteadyClock::time_point last =
      std::clamp(track.last.time, track.own.time, std::max(event.time, track.own.time));
  end_one(track, last, fmt::format(R"("last_rank":{})", track.last.rank));
  begin(track, name_of(TensorPhase::negotiating, event.collective), last);
  track.is_negotiating = false;
}

void TimelineText::mark(std::string_view name, SteadyClock::time_point time) {
  sink_(fmt::format(R"({{"ph":"i","name":{},"ts":{},"s":"g","pid":0}})", quote_json(name), timestamp(time)));
}

void TimelineText::end(SteadyClock::time_point time) {
  for (auto& [key, tensor] : tensors_) {
    while (tensor.track.depth > 0) end_one(tensor.track, time);
    for (auto& [rank, track] : tensor.ranks) {
      while (track.depth > 0) end_one(track, time);
    }
  }
}

}  // namespace tutti
