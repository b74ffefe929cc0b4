// Spans become lines of the Trace Event Format.
#include "runtime/base/trace.hpp"

#include <fmt/format.h>

#include "runtime/base/log.hpp"
#include "runtime/base/rank_path.hpp"

namespace tutti {
namespace {

constexpr std::size_t kMostSpans = 4096;  // that wait to be written
constexpr std::chrono::milliseconds kLongestWait{100};

std::string_view name_of(const Call& call) {
  if (call.collective != Collective::send_recv) return to_string(call.collective);
  return call.is_send ? "send" : "recv";
}

}  // namespace

Result<std::unique_ptr<Trace>> Trace::open(const std::string& path, int rank, int size) {
  auto file = TraceFile::open(path_of_rank(path, rank, size));
  if (!file)
    return invalid_argument(file.status().message() + "; expected the path of a file, %r is the rank");
  return std::unique_ptr<Trace>(new Trace(*std::move(file), rank));
}

Trace::Trace(std::unique_ptr<TraceFile> file, int rank)
    : file_(std::move(file)), rank_(rank), offset_(trace_epoch_offset()), last_flush_(SteadyClock::now()) {
  spans_.reserve(kMostSpans);
  file_->add(
      fmt::format(R"({{"ph":"M","name":"process_name","pid":{0},"args":{{"name":"rank {0}"}}}})", rank_));
  file_->add(fmt::format(R"({{"ph":"M","name":"process_sort_index","pid":{0},"args":{{"sort_index":{0}}}}})",
                         rank_));
  write_spans();
}

Trace::~Trace() { flush(); }

std::uint32_t Trace::note_choice(std::string_view text) {
  const std::lock_guard lock(mutex_);
  const auto known = choice_numbers_.find(text);
  if (known != choice_numbers_.end()) return known->second;
  choices_.push_back(quote_json(text));
  const auto number = static_cast<std::uint32_t>(choices_.size());
  choice_numbers_.emplace(text, number);
  return number;
}

void Trace::add(const Span& span) {
  const std::lock_guard lock(mutex_);
  spans_.push_back(span);
  const bool has_failed = span.status != StatusCode::ok;  // who knows what comes then
  if (has_failed || spans_.size() == kMostSpans || span.ended - last_flush_ >= kLongestWait) write_spans();
}

void Trace::mark(std::string_view name, std::string_view text) {
  const std::lock_guard lock(mutex_);
  file_->add(fmt::format(
      R"({{"ph":"i","s":"p","cat":"mark","name":{},"pid":{},"tid":0,"ts":{},"args":{{"text":{}}}}})",
      quote_json(name), rank_, timestamp(SteadyClock::now()), quote_json(text)));
  write_spans();
}

void Trace::flush() {
  const std::lock_guard lock(mutex_);
  write_spans();
}

void Trace::write_spans() {
  for (const Span& span : spans_) write(span);
  spans_.clear();
  last_flush_ = SteadyClock::now();
  if (const Status status = file_->write(); !status)
    log_warn("TUTTI_TRACE: the trace ends here, {}", status.message());
}

std::string Trace::timestamp(SteadyClock::time_point at) const {
  return in_microseconds(std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()) +
                         offset_);
}

// Viewers want the spans of a track not to overlap: a group has one track per concurrent operation.
std::size_t Trace::track_of(const Span& span) {
  for (std::size_t i = 0; i < tracks_.size(); ++i) {
    if (tracks_[i].context != span.context || tracks_[i].busy_until > span.submitted) continue;
    tracks_[i].busy_until = span.ended;
    return i;
  }
  tracks_.push_back({span.context, span.ended});
  const std::size_t group = group_numbers_.try_emplace(span.context, group_numbers_.size() + 1).first->second;
  file_->add(fmt::format(
      R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"group {}, rank {} of {}"}}}})",
      rank_, tracks_.size() - 1, group, span.rank, span.size));
  return tracks_.size() - 1;
}

void Trace::write(const Span& span) {
  const Call& call = span.call;
  const std::size_t track = track_of(span);
  std::string arguments = fmt::format(R"("bytes":{},"dtype":"{}")", span.bytes, to_string(call.dtype));
  if (is_reducing(call.collective)) arguments += fmt::format(R"(,"op":"{}")", to_string(call.op.op));
  if (is_rooted(call.collective)) arguments += fmt::format(R"(,"root":{})", call.root);
  if (call.collective == Collective::send_recv) {
    if (call.root != kFromAnyRank) arguments += fmt::format(R"(,"peer":{})", call.root);
    arguments += fmt::format(R"(,"tag":{})", call.tag);
  } else {
    arguments += fmt::format(R"(,"sequence":{},"group":"{:016x}","rank":{},"ranks":{})", span.sequence,
                             span.context, span.rank, span.size);
  }
  if (span.choice != 0) arguments += fmt::format(R"(,"algorithm":{})", choices_[span.choice - 1]);
  if (span.started - span.submitted > std::chrono::microseconds(1))  // not just prepared
    arguments += fmt::format(R"(,"queued_us":{})", in_microseconds(span.started - span.submitted));
  if (span.status != StatusCode::ok) arguments += fmt::format(R"(,"error":"{}")", to_string(span.status));
  file_->add(
      fmt::format(R"({{"ph":"X","cat":"{}","name":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
                  call.collective == Collective::send_recv ? "message" : "collective", name_of(call), rank_,
                  track, timestamp(span.submitted), in_microseconds(span.ended - span.submitted), arguments));
}

}  // namespace tutti
