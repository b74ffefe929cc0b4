// The trace of a rank's calls: that it is JSON which viewers take, and says what was called, when, and by
// which choice. Through the public interface, with threads as ranks.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>
#include <nlohmann/json.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/thread_ranks.hpp"
#include "tutti/tutti.hpp"

using namespace tutti;
using namespace std::chrono_literals;
using Numbers = std::vector<std::int32_t>;
using nlohmann::json;

namespace {

// A folder that goes when the test does.
struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("tutti_trace_" + std::to_string(::getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string operator/(const std::string& name) const { return (path / name).string(); }
};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<json> spans_of(const json& events, const std::string& name) {
  std::vector<json> spans;
  for (const json& event : events)
    if (event["ph"] == "X" && event["name"] == name) spans.push_back(event);
  return spans;
}

// All ranks' spans, a slice that moves in each collective, and arrows with two ends each.
void check_merged(const json& events, std::size_t allreduces) {
  CHECK(spans_of(events, "allreduce").size() == 3 * allreduces);
  CHECK(spans_of(events, "moving").size() >= 3 * allreduces);
  std::map<int, int> arrows;
  std::size_t waiting = 0;
  for (const json& event : events) {
    if (event["ph"] == "s") ++arrows[event["id"]];
    if (event["ph"] == "f") --arrows[event["id"]];
    waiting += event["name"] == "waiting" ? 1 : 0;
  }
  CHECK(arrows.size() == waiting);
  CHECK(std::all_of(arrows.begin(), arrows.end(), [](const auto& arrow) { return arrow.second == 0; }));
}

}  // namespace

TEST_CASE("a trace says what ran when, and why so", "[trace]") {
  const Folder folder;
  const std::string control_blocks = GENERATE("on", "off");
  const Variables variables{{"TUTTI_TRACE", folder / "run.json"},
                            {"TUTTI_CONTROL_BLOCKS", control_blocks},
                            {"TUTTI_ADJUST_ALLREDUCE", "ring:2k-8k"}};
  const std::vector<std::size_t> counts = {1, 600, 5000, 100000};
  std::vector<std::string> explained(counts.size());
  constexpr int kRepeated = 20;
  CHECK(with_ranks(3, [&](CommGroup& group) -> Verdict {
          for (std::size_t i = 0; i < counts.size(); ++i) {
            Numbers vector(counts[i], 1);
            if (group.rank() == 0)
              explained[i] = group.explain_algorithm(Collective::allreduce, counts[i], Dtype::i32);
            group.allreduce(std::span(vector));
          }
          Numbers same(4, 1);
          for (int i = 0; i < kRepeated; ++i)
            group.broadcast(std::span(same), 2);  // without an operation, in the end
          std::vector<Numbers> many(6, Numbers(3000, 1));
          std::vector<Work> works;
          works.reserve(many.size());
          for (Numbers& vector : many)
            works.push_back(group.ireduce(vector.data(), vector.data(), 3000, Dtype::i32, Op::max, 1));
          for (const Work& work : works) work.wait();
          if (group.rank() == 0) group.send(same.data(), same.size(), Dtype::i32, 1, 7);
          if (group.rank() == 1) group.recv(same.data(), same.size(), Dtype::i32, 0, 7);
          return "";
        }) == "");
  check_merged(json::parse(text_of(folder / "run.json")), counts.size());
  for (int rank = 0; rank < 3; ++rank) {
    const json events = json::parse(text_of(folder / ("run." + std::to_string(rank) + ".json")));
    const std::vector<json> allreduces = spans_of(events, "allreduce");
    REQUIRE(allreduces.size() == counts.size());
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const json& arguments = allreduces[i]["args"];
      CHECK(arguments["bytes"] == counts[i] * sizeof(std::int32_t));
      CHECK(arguments["dtype"] == "i32");
      CHECK(arguments["op"] == "sum");
      CHECK(allreduces[i]["pid"] == rank);
      // "ring: TUTTI_ADJUST_ALLREDUCE item 1" is what the program was told beforehand.
      const std::size_t colon = explained[i].find(": ");
      REQUIRE(colon != std::string::npos);
      const std::string algorithm = arguments["algorithm"];
      INFO(algorithm << " and " << explained[i]);
      CHECK(algorithm.rfind(explained[i].substr(0, colon), 0) == 0);
      CHECK(algorithm.substr(algorithm.find(" by ") + 4) == explained[i].substr(colon + 2));
    }
    CHECK(spans_of(events, "broadcast").size() == kRepeated);
    CHECK(spans_of(events, "broadcast").back()["args"]["root"] == 2);
    CHECK(spans_of(events, "reduce").size() == 6);
    CHECK(spans_of(events, "send").size() == (rank == 0 ? 1 : 0));
    REQUIRE(spans_of(events, "recv").size() == (rank == 1 ? 1 : 0));
    if (rank == 1) CHECK(spans_of(events, "recv")[0]["args"]["tag"] == 7);
    // Spans of a track come one after the other.
    std::map<int, double> ends;
    for (const json& event : events) {
      if (event["ph"] != "X") continue;
      const double start = event["ts"], lasted = event["dur"];
      CHECK(lasted >= 0);
      CHECK(start >= ends[event["tid"]] - 0.01);
      ends[event["tid"]] = start + lasted;
    }
  }
}

TEST_CASE("a trace names failures and stalls, and is there before the end", "[trace]") {
  const Folder folder;
  const Variables variables{{"TUTTI_TRACE", folder / "of%r"}};
  CHECK(with_ranks(2, [&](CommGroup& group) -> Verdict {
          Numbers vector(10, 1);
          group.allreduce(std::span(vector));
          if (group.rank() == 1) {
            std::this_thread::sleep_for(300ms);  // rank 0's next call stalls
            group.abort("enough");
          }
          const std::string error = error_of([&] { group.allreduce(std::span(vector)); });
          if (error.find("enough") == std::string::npos) return "got: " + error;
          if (group.rank() == 1) return "";
          const std::string text = text_of(folder / "of0");  // not closed yet
          const json events = json::parse(text);
          const std::vector<json> calls = spans_of(events, "allreduce");
          if (calls.size() != 2 || !calls[1]["args"].contains("error")) return "calls: " + text;
          const bool is_stall_told = std::any_of(events.begin(), events.end(), [](const json& event) {
            return event["ph"] == "i" && event["name"] == "stalled" &&
                   event["args"]["text"].get<std::string>().find("for rank 1") != std::string::npos;
          });
          return is_stall_told ? "" : "no stall: " + text;
        }) == "");
}

TEST_CASE("a trace that cannot be written is refused at the start", "[trace]") {
  const Variables variables{{"TUTTI_TRACE", "/nowhere/at/all.json"}};
  InitOptions alone;
  alone.unique_id = make_unique_id();
  alone.rank = 0;
  alone.size = 1;
  const std::string error = error_of([&] { init(alone); });
  CHECK(error.find("TUTTI_TRACE") != std::string::npos);
  CHECK(error.find("/nowhere/at/all.json") != std::string::npos);
}

TEST_CASE("a trace does not follow a symbolic link", "[trace]") {
  const Folder folder;
  std::ofstream(folder / "precious") << "text";
  std::filesystem::create_symlink(folder / "precious", folder / "link.json");
  const Variables variables{{"TUTTI_TRACE", folder / "link.json"}};
  InitOptions alone;
  alone.unique_id = make_unique_id();
  alone.rank = 0;
  alone.size = 1;
  const std::string error = error_of([&] { init(alone); });
  CHECK(error.find("TUTTI_TRACE") != std::string::npos);
  CHECK(error.find("it is a symbolic link") != std::string::npos);
  CHECK(text_of(folder / "precious") == "text");
}
