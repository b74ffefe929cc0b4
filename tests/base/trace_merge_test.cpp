// Traces of ranks in one, and their clocks.
#include "runtime/base/trace_merge.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"

using nlohmann::json;
using tutti::TracePart;

namespace {

std::string span(const char* name, int rank, int number, double start, double lasted, int root = 0) {
  return fmt::format(R"({{"ph":"X","cat":"collective","name":"{}","pid":{},"tid":0,"ts":{},"dur":{},)"
                     R"("args":{{"sequence":{},"group":"0a","rank":{},"ranks":2,"root":{}}}}})",
                     name, rank, start, lasted, number, rank, root);
}

TracePart part(const std::vector<std::string>& events) {
  std::string text = "[\n";
  for (const std::string& event : events) text += (text.size() > 2 ? ",\n" : "") + event;
  return {"part", text + "\n]\n"};
}

std::vector<json> merged(const std::vector<TracePart>& parts) {
  std::vector<json> events;
  REQUIRE(tutti::merge_traces(parts, [&](std::string_view event) {
            events.push_back(json::parse(event));
          }).is_ok());
  return events;
}

json find(const std::vector<json>& events, const char* name, int rank, const char* phase = "X") {
  for (const json& event : events) {
    if (event["name"] == name && event["pid"] == rank && event["ph"] == phase) return event;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("a collective waits for the last rank, and moves from then on") {
  const auto events =
      merged({part({span("allreduce", 0, 1, 100, 50)}), part({span("allreduce", 1, 1, 130, 20)})});
  const json waiting = find(events, "waiting", 0), moving = find(events, "moving", 0);
  REQUIRE(waiting.is_object());
  CHECK((waiting["ts"] == 100 && waiting["dur"] == 30));
  CHECK((moving["ts"] == 130 && moving["dur"] == 20));
  CHECK(find(events, "waiting", 1).is_null());
  CHECK(find(events, "moving", 1)["dur"] == 20);
  const json start = find(events, "late", 1, "s"), end = find(events, "late", 0, "f");
  CHECK((start["ts"] == 130 && end["ts"] == 130 && start["id"] == end["id"]));
}

TEST_CASE("a broadcast waits for its root, and its root for nobody") {
  const auto events =
      merged({part({span("broadcast", 0, 1, 100, 50, 1)}), part({span("broadcast", 1, 1, 120, 5, 1)}),
              part({R"({"ph":"i","name":"stalled","pid":2,"ts":7})"})});
  CHECK(find(events, "waiting", 0)["dur"] == 20);
  CHECK(find(events, "waiting", 1).is_null());
  CHECK(find(events, "stalled", 2, "i")["ts"] == 7);
  const auto late =
      merged({part({span("broadcast", 0, 1, 100, 50, 0)}), part({span("broadcast", 1, 1, 120, 5, 0)})});
  CHECK(find(late, "waiting", 1).is_null());
  CHECK(find(late, "waiting", 0).is_null());
}

TEST_CASE("clocks that collectives contradict are moved") {
  std::vector<std::string> here, there;
  for (int i = 1; i <= 5; ++i) {
    here.push_back(span("barrier", 0, i, 1000 * i, 10));
    there.push_back(span("barrier", 1, i, 1000 * i + 400, 10));
  }
  const auto events = merged({part(here), part(there)});
  CHECK(find(events, "barrier", 0)["ts"] == 1000);
  CHECK(find(events, "barrier", 1)["ts"] == 1000);
}

TEST_CASE("a file that is cut off is read up to there; one that is no trace is refused") {
  TracePart cut = part({span("allreduce", 0, 1, 100, 50)});
  cut.text = cut.text.substr(0, cut.text.size() - 3) + ",\n{\"ph\":\"X\",\"na";
  CHECK(merged({cut}).size() == 2);  // the span and its slice
  const auto refused = tutti::merge_traces({{"odd", "[\nnothing\n]\n"}}, [](std::string_view) {});
  CHECK(refused.message() == "'odd' line 2 is no event of a trace");
}
