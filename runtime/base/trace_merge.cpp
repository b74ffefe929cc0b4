// See trace_merge.hpp.
#include "runtime/base/trace_merge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "runtime/base/trace_file.hpp"
#include "runtime/base/types.hpp"

namespace tutti {
namespace {

using Event = nlohmann::json;

// One rank's part in a collective; times in microseconds.
struct Span {
  std::size_t part = 0;
  double start = 0, end = 0;
  std::int64_t rank = 0;  // in the group
  Event track;            // pid and tid
};

struct Meeting {
  Collective collective = Collective::barrier;
  std::int64_t root = 0;
  std::size_t size = 0;  // ranks of the group
  std::vector<Span> spans;
};
using MeetingKey = std::pair<std::string, std::uint64_t>;  // group and number

double number_of(const Event& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number() ? found->get<double>() : 0;
}

std::int64_t integer_of(const Event& event, const char* key, std::int64_t otherwise) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number_integer() ? found->get<std::int64_t>() : otherwise;
}

std::string text_of(const Event& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// The events of a file, one a line, between the brackets of an array.
Result<std::vector<Event>> parse_events(const TracePart& part) {
  std::vector<Event> events;
  std::string_view rest = part.text;
  for (std::size_t number = 1; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    const bool is_last = end == rest.size();
    rest.remove_prefix(is_last ? end : end + 1);
    while (!line.empty() && (line.back() == ',' || line.back() == '\r' || line.back() == ' '))
      line.remove_suffix(1);
    if (line.empty() || line == "[" || line == "]") continue;
    Event event = Event::parse(line, nullptr, false);
    if (event.is_object()) {
      events.push_back(std::move(event));
    } else if (!is_last) {
      return invalid_argument(fmt::format("'{}' line {} is no event of a trace", part.path, number));
    }
  }
  return events;
}

class Merger {
 public:
  Status read(const std::vector<TracePart>& parts) {
    for (const TracePart& part : parts) {
      auto events = parse_events(part);
      if (!events) return events.status();
      for (const Event& event : *events) note(event);
      events_.push_back(*std::move(events));
    }
    align();
    return {};
  }

  void write(const std::function<void(std::string_view)>& put) {
    for (std::size_t part = 0; part < events_.size(); ++part) {
      for (Event& event : events_[part]) {
        if (event.contains("ts")) event["ts"] = number_of(event, "ts") + offsets_[part];
        put(event.dump(-1, ' ', true, Event::error_handler_t::replace));
      }
    }
    for (auto& [key, meeting] : meetings_) {
      for (Span& span : meeting.spans) {
        span.start += offsets_[span.part];
        span.end += offsets_[span.part];
      }
      write(meeting, put);
    }
  }

 private:
  void note(const Event& event) {
    if (text_of(event, "ph") != "X" || text_of(event, "cat") != "collective") return;
    const auto collective = parse_collective(text_of(event, "name"));
    const auto arguments = event.find("args");
    if (!collective || arguments == event.end() || !arguments->is_object()) return;
    const std::string group = text_of(*arguments, "group");
    const std::int64_t sequence = integer_of(*arguments, "sequence", -1);
    if (group.empty() || sequence < 0) return;
    Meeting& meeting = meetings_[{group, static_cast<std::uint64_t>(sequence)}];
    meeting.collective = *collective;
    meeting.root = integer_of(*arguments, "root", 0);
    meeting.size = static_cast<std::size_t>(std::max<std::int64_t>(0, integer_of(*arguments, "ranks", 0)));
    Span span;
    span.part = events_.size();
    span.start = number_of(event, "ts");
    span.end = std::max(span.start, span.start + number_of(event, "dur"));
    span.rank = integer_of(*arguments, "rank", 0);
    span.track = {{"pid", event.value("pid", Event(0))}, {"tid", event.value("tid", Event(0))}};
    meeting.spans.push_back(std::move(span));
  }

  // Offsets to the first part's clock. Where all wait for all, none ends on one rank before it began on another.
  void align() {
    constexpr double kFar = std::numeric_limits<double>::infinity();
    std::vector<std::pair<double, double>> bounds(events_.size(), {-kFar, kFar});
    for (const auto& [key, meeting] : meetings_) {
      if (!waits_for_all(meeting.collective)) continue;
      for (const Span& first : meeting.spans) {
        if (first.part != 0) continue;
        for (const Span& other : meeting.spans) {
          auto& [least, most] = bounds[other.part];
          least = std::max(least, first.start - other.end);
          most = std::min(most, first.end - other.start);
        }
      }
    }
    for (std::size_t part = 0; part < events_.size(); ++part) {
      const auto& [least, most] = bounds[part];
      const bool agrees = (least <= 0 && most >= 0) || least > most || least == -kFar;
      offsets_.push_back(agrees || part == 0 ? 0 : least + (most - least) / 2);
    }
  }

  // The rank whose call the others need; null: none in particular.
  static const Span* awaited_in(const Meeting& meeting) {
    const bool is_from_root =
        meeting.collective == Collective::broadcast || meeting.collective == Collective::scatter;
    const Span* found = nullptr;
    for (const Span& span : meeting.spans) {
      if (is_from_root ? span.rank == meeting.root : found == nullptr || span.start > found->start)
        found = &span;
    }
    return found;
  }
  static bool does_wait(const Meeting& meeting, const Span& span) {
    const bool is_to_root =
        meeting.collective == Collective::reduce || meeting.collective == Collective::gather;
    return is_to_root ? span.rank == meeting.root : !is_scan(meeting.collective);
  }
  static bool is_scan(Collective collective) {
    return collective == Collective::scan || collective == Collective::exscan;
  }

  void write(const Meeting& meeting, const std::function<void(std::string_view)>& put) {
    const bool is_whole = meeting.size == 0 || meeting.spans.size() == meeting.size;
    const Span* const awaited = is_whole && meeting.spans.size() > 1 ? awaited_in(meeting) : nullptr;
    for (const Span& span : meeting.spans) {
      double moving = span.start;
      if (awaited != nullptr && awaited != &span && does_wait(meeting, span))
        moving = std::clamp(awaited->start, span.start, span.end);
      if (moving > span.start) put_slice(span, "waiting", span.start, moving, put);
      if (span.end > moving) put_slice(span, "moving", moving, span.end, put);
      if (moving > span.start) put_arrow(*awaited, span, moving, put);
    }
  }
  static void put_slice(const Span& span, const char* name, double start, double end,
                        const std::function<void(std::string_view)>& put) {
    Event event = span.track;
    event.update({{"ph", "X"}, {"cat", "phase"}, {"name", name}, {"ts", start}, {"dur", end - start}});
    put(event.dump());
  }
  void put_arrow(const Span& from, const Span& to, double at,
                 const std::function<void(std::string_view)>& put) {
    ++arrows_;
    Event event = from.track;
    event.update({{"ph", "s"}, {"cat", "late"}, {"name", "late"}, {"id", arrows_}, {"ts", from.start}});
    put(event.dump());
    event = to.track;
    event.update({{"ph", "f"}, {"bp", "e"}, {"cat", "late"}, {"name", "late"}, {"id", arrows_}, {"ts", at}});
    put(event.dump());
  }

  std::vector<std::vector<Event>> events_;  // by part
  std::vector<double> offsets_;
  std::map<MeetingKey, Meeting> meetings_;
  std::uint64_t arrows_ = 0;
};

}  // namespace

Status merge_traces(const std::vector<TracePart>& parts, const std::function<void(std::string_view)>& put) {
  Merger merger;
  TUTTI_RETURN_IF_ERROR(merger.read(parts));
  merger.write(put);
  return {};
}

Status merge_trace_files(const std::vector<std::string>& paths, const std::string& merged) {
  std::vector<TracePart> parts;
  for (const std::string& path : paths) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return invalid_argument(fmt::format("'{}' cannot be read", path));
    parts.push_back({path, {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}});
  }
  auto file = TraceFile::open(merged);
  if (!file) return file.status();
  TUTTI_RETURN_IF_ERROR(merge_traces(parts, [&](std::string_view event) { (*file)->add(event); }));
  return (*file)->write();
}

}  // namespace tutti
