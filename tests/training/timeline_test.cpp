// Timelines of named tensors: JSON that viewers take, with the phases of each tensor, in both forms.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>
#include <nlohmann/json.hpp>

#include "runtime/training/timeline.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/thread_ranks.hpp"
#include "tutti/tensors.hpp"

using namespace tutti;
using namespace std::chrono_literals;
using nlohmann::json;

namespace {

// A folder that goes when the test does.
struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("tutti_timeline_" + std::to_string(::getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string operator/(const std::string& name) const { return (path / name).string(); }
};

json read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return json::parse(text.str(), nullptr, false);
}

// A span, or an event without duration.
struct Span {
  std::string name;
  double begin = 0, end = -1;  // end < begin: it lasts
  json arguments;
};

// By the name of their process, then that of their thread. Spans of a track must be nested, and in order.
std::map<std::pair<std::string, std::string>, std::vector<Span>> spans_of(const json& events) {
  std::map<json, std::string> processes;
  std::map<std::pair<json, json>, std::string> threads;
  for (const json& event : events) {
    if (event["ph"] != "M" || !event["args"].contains("name")) continue;
    if (event["name"] == "process_name") processes[event["pid"]] = event["args"]["name"];
    if (event["name"] == "thread_name") threads[{event["pid"], event["tid"]}] = event["args"]["name"];
  }
  std::map<std::pair<std::string, std::string>, std::vector<Span>> spans;
  std::map<std::pair<json, json>, std::vector<std::size_t>> open;
  for (const json& event : events) {
    if (event["ph"] != "B" && event["ph"] != "E" && event["ph"] != "X") continue;
    const std::pair<json, json> track{event["pid"], event["tid"]};
    auto& list = spans[{processes[event["pid"]], threads[track]}];
    if (event["ph"] == "X") list.push_back({event["name"], event["ts"], event["ts"], {}});
    if (event["ph"] == "B") {
      open[track].push_back(list.size());
      list.push_back({event["name"], event["ts"], -1, event.value("args", json())});
    }
    if (event["ph"] == "E") {
      if (open[track].empty()) throw std::runtime_error("a span ends that did not begin");
      Span& span = list[open[track].back()];
      span.end = event["ts"];
      if (event.contains("args")) span.arguments.update(event["args"]);
      if (span.end < span.begin) throw std::runtime_error(span.name + " ends before it begins");
      open[track].pop_back();
    }
  }
  return spans;
}

std::vector<Span> named(const std::vector<Span>& spans, const std::string& name) {
  std::vector<Span> found;
  for (const Span& span : spans)
    if (span.name == name) found.push_back(span);
  return found;
}

Work reduce(const TensorQueue& queue, const std::string& name, std::vector<float>& values) {
  const std::uint64_t shape[] = {values.size()};
  return queue.submit(name, {.input = values.data(), .output = values.data(), .shape = shape});
}

// Two small tensors, which share an operation, a long one, and an allgather; `steps` times.
void train(const CommGroup& group, const TensorQueue& queue, int steps) {
  std::vector<float> a(3), b(5), big(100000);
  std::vector<int> mine(2), all(2 * static_cast<std::size_t>(group.size()));
  const std::uint64_t shape[] = {2};
  for (int step = 0; step < steps; ++step) {
    const Work works[] = {reduce(queue, "a", a), reduce(queue, "b", b), reduce(queue, "big", big)};
    TensorCall gather{
        .collective = Collective::allgather, .input = mine.data(), .dtype = Dtype::i32, .shape = shape};
    gather.allocate = [&](std::span<const std::uint64_t>) { return all.data(); };
    queue.submit("g", gather).wait();
    wait_all(works);
  }
}

TensorEvent at(std::string tensor, TensorPhase phase, std::uint32_t rank, int milliseconds) {
  return {std::move(tensor),
          Collective::allreduce,
          phase,
          rank,
          SteadyClock::time_point(std::chrono::milliseconds(milliseconds)),
          {}};
}

json text_of(TimelineForm form, const std::vector<TensorEvent>& events, int end) {
  json list = json::array();
  TimelineText text(form, SteadyClock::time_point(),
                    [&](std::string_view line) { list.push_back(json::parse(line)); });
  for (const TensorEvent& event : events) text.add(0, event);
  text.end(SteadyClock::time_point(std::chrono::milliseconds(end)));
  return list;
}

}  // namespace

TEST_CASE("the form of Horovod: the phases of rank 0, and when each rank was ready") {
  using enum TensorPhase;
  const auto spans =
      spans_of(text_of(TimelineForm::horovod,
                       {at("t\"", negotiating, 1, 1), at("t\"", negotiating, 0, 3), at("t\"", queued, 0, 4),
                        at("t\"", queued, 1, 5), at("t\"", copying_in, 0, 6), at("t\"", moving, 0, 7),
                        at("t\"", negotiating, 1, 8), at("t\"", copying_out, 0, 9), at("t\"", done, 0, 10),
                        at("t\"", negotiating, 0, 12)},
                       20));
  REQUIRE(spans.size() == 1);
  const auto& track = spans.begin()->first;
  const auto& list = spans.begin()->second;  // no structured binding: clang 14 cannot capture one
  CHECK(track.first == "t\"");
  const auto expect = [&](std::size_t i, const std::string& name, double begin, double end) {
    INFO(i);
    CHECK(list.at(i).name == name);
    CHECK(list.at(i).begin == begin * 1000);
    CHECK(list.at(i).end == end * 1000);
  };
  expect(0, "NEGOTIATE_ALLREDUCE", 1, 4);
  expect(1, "1", 1, 1);
  expect(2, "0", 3, 3);
  expect(3, "ALLREDUCE", 4, 10);
  expect(4, "QUEUE", 4, 6);
  expect(5, "MEMCPY_IN_FUSION_BUFFER", 6, 7);
  expect(6, "TUTTI_ALLREDUCE", 7, 9);
  expect(7, "MEMCPY_OUT_FUSION_BUFFER", 9, 10);
  // Rank 1 was through with the first use before rank 0. The second one lasts to the end.
  expect(8, "NEGOTIATE_ALLREDUCE", 10, 20);
  expect(9, "1", 10, 10);
  expect(10, "0", 12, 12);
  CHECK(list.size() == 11);
}

TEST_CASE("the form by rank: waiting for the last rank is told from negotiating and from moving bytes") {
  using enum TensorPhase;
  auto spans =
      spans_of(text_of(TimelineForm::ranks,
                       {at("t", negotiating, 0, 1), at("t", negotiating, 1, 5), at("t", queued, 0, 6),
                        at("t", moving, 0, 7), at("t", done, 0, 8), at("t", negotiating, 0, 9),
                        at("t", queued, 1, 6), at("t", moving, 1, 7), at("t", done, 1, 9)},
                       20));
  const std::vector<Span>& first = spans[{"rank 0", "t"}];
  const std::vector<Span>& second = spans[{"rank 1", "t"}];
  REQUIRE(named(first, "WAIT_FOR_RANKS").size() == 2);
  const Span waiting = named(first, "WAIT_FOR_RANKS")[0];
  CHECK(waiting.end - waiting.begin == 4000);
  CHECK(waiting.arguments["last_rank"] == 1);
  CHECK(named(first, "NEGOTIATE_ALLREDUCE")[0].end - waiting.end == 1000);
  CHECK(named(first, "TUTTI_ALLREDUCE")[0].end - waiting.begin == 7000);
  const Span late = named(second, "WAIT_FOR_RANKS").at(0);
  CHECK(late.end == late.begin);
  CHECK(late.begin - waiting.begin == 4000);
  CHECK(named(second, "TUTTI_ALLREDUCE").at(0).end - late.begin == 4000);
}

TEST_CASE("a timeline has the phases of each tensor in each step", "[timeline]") {
  const Folder folder;
  const Variables variables{{"TUTTI_TIMELINE", folder / "t.json"}, {"TUTTI_TIMELINE_MARK_CYCLES", "1"}};
  constexpr int kSteps = 5;
  CHECK(with_ranks(3, [&](CommGroup& group) -> Verdict {
          const TensorQueue queue(group);
          train(group, queue, kSteps);
          group.barrier();
          return {};
        }) == "");
  const json events = read(folder / "t.json");
  REQUIRE(events.is_array());
  auto spans = spans_of(events);
  for (const std::string tensor : {"a", "b", "big", "g"}) {
    INFO(tensor);
    const std::vector<Span>& list = spans[{tensor, ""}];
    const std::string name = tensor == "g" ? "ALLGATHER" : "ALLREDUCE";
    const std::vector<Span> negotiations = named(list, "NEGOTIATE_" + name);
    CHECK(negotiations.size() == kSteps);
    CHECK(named(list, name).size() == kSteps);
    CHECK(named(list, "QUEUE").size() == kSteps);
    CHECK(named(list, "TUTTI_" + name).size() == kSteps);
    CHECK(named(list, "ALLOCATE_OUTPUT").size() == (tensor == "g" ? kSteps : 0));
    CHECK(named(list, name)[0].arguments["shape"].get<std::string>() == (tensor == "a"     ? "[3]"
                                                                         : tensor == "b"   ? "[5]"
                                                                         : tensor == "big" ? "[100000]"
                                                                                           : "[]"));
    for (const std::string rank : {"0", "1", "2"}) CHECK(named(list, rank).size() == kSteps);
    for (const Span& span : list) CHECK(span.end >= span.begin);
  }
  CHECK(named(spans[{"big", ""}], "MEMCPY_IN_FUSION_BUFFER").empty());
  const std::vector<Span>& fused = spans[{"a", ""}];
  CHECK(named(fused, "MEMCPY_IN_FUSION_BUFFER").size() == named(fused, "MEMCPY_OUT_FUSION_BUFFER").size());
  std::size_t cycles = 0;
  for (const json& event : events) cycles += event["ph"] == "i" && event["name"] == "CYCLE_START" ? 1 : 0;
  CHECK(cycles > 0);
}

TEST_CASE("tensors of a batch, which share an operation, are copied in and out", "[timeline]") {
  const Folder folder;
  const Variables variables{{"TUTTI_TIMELINE", folder / "t.json"}};
  CHECK(with_ranks(2, [&](CommGroup& group) -> Verdict {
          const TensorQueue queue(group);
          std::vector<float> a(3), b(5);
          const std::uint64_t three[] = {3}, five[] = {5};
          TensorCall call{
              .input = a.data(), .output = a.data(), .shape = three, .batch = "both", .batch_size = 2};
          const Work first = queue.submit("a", call);
          call.input = call.output = b.data();
          call.shape = five;
          queue.submit("b", call).wait();
          first.wait();
          group.barrier();
          return {};
        }) == "");
  auto spans = spans_of(read(folder / "t.json"));
  for (const std::string tensor : {"a", "b"}) {
    const std::vector<Span>& list = spans[{tensor, ""}];
    REQUIRE(named(list, "TUTTI_ALLREDUCE").size() == 1);
    CHECK(named(list, "TUTTI_ALLREDUCE")[0].arguments["tensors"] == 2);
    CHECK(named(list, "MEMCPY_IN_FUSION_BUFFER").size() == 1);
    CHECK(named(list, "MEMCPY_OUT_FUSION_BUFFER").size() == 1);
  }
}

TEST_CASE("a timeline by rank has all ranks, and says for whom they waited", "[timeline]") {
  const Folder folder;
  const Variables variables{{"TUTTI_TIMELINE", folder / "t.json"}, {"TUTTI_TIMELINE_FORM", "ranks"}};
  CHECK(with_ranks(3, [&](CommGroup& group) -> Verdict {
          const TensorQueue queue(group);
          train(group, queue, 3);
          std::vector<float> values(4);
          group.barrier();
          // Rank 2 comes once the others are known to have submitted.
          Work work;
          if (group.rank() != 2) work = reduce(queue, "late", values);
          group.barrier();
          if (group.rank() == 2) work = reduce(queue, "late", values);
          work.wait();
          reduce(queue, "after", values).wait();  // carries events of "late"
          reduce(queue, "after", values).wait();  // and this one those of the last completion
          group.barrier();
          return {};
        }) == "");
  auto spans = spans_of(read(folder / "t.json"));
  for (const std::string rank : {"rank 0", "rank 1", "rank 2"}) {
    INFO(rank);
    for (const std::string tensor : {"a", "b", "big", "g"})
      CHECK(named(spans[{rank, tensor}], tensor == "g" ? "TUTTI_ALLGATHER" : "TUTTI_ALLREDUCE").size() == 3);
    const std::vector<Span> waits = named(spans[{rank, "late"}], "WAIT_FOR_RANKS");
    REQUIRE(waits.size() == 1);
    CHECK(waits[0].arguments["last_rank"] == 2);
    const double waited = waits[0].end - waits[0].begin;
    CHECK((rank == "rank 2" ? waited == 0 : waited > 0));
  }
}

TEST_CASE("a timeline starts and stops at run time, and shows what is not complete", "[timeline]") {
  const Folder folder;
  CHECK(with_ranks(2, [&](CommGroup& group) -> Verdict {
          const TensorQueue queue(group);
          std::vector<float> values(4);
          reduce(queue, "before", values).wait();
          reduce(queue, "known", values).wait();
          queue.start_timeline(folder / "first.json", true);
          group.barrier();
          reduce(queue, "known", values).wait();
          group.barrier();
          Work work;
          if (group.rank() == 0) work = reduce(queue, "waiting", values);
          if (group.rank() == 0) {
            // Rank 1 has not submitted it: the file says so while it is written.
            std::vector<Span> waiting;
            const auto deadline = SteadyClock::now() + 10s;
            while (waiting.size() < 2 && SteadyClock::now() < deadline) {
              std::this_thread::yield();
              const json now = read(folder / "first.json");
              if (now.is_discarded()) continue;  // it was written meanwhile
              auto spans = spans_of(now);
              waiting = spans[{"waiting", ""}];
            }
            if (waiting.size() != 2 || waiting[0].name != "NEGOTIATE_ALLREDUCE" || waiting[0].end >= 0 ||
                waiting[1].name != "0")
              return "what is under way is not in the file";
          }
          group.barrier();
          if (group.rank() == 1) work = reduce(queue, "waiting", values);
          work.wait();
          queue.stop_timeline();
          group.barrier();
          reduce(queue, "between", values).wait();
          queue.start_timeline(folder / "second.json");
          group.barrier();
          reduce(queue, "in the second", values).wait();
          group.barrier();
          queue.stop_timeline();
          queue.stop_timeline();
          group.barrier();
          return {};
        }) == "");
  auto first = spans_of(read(folder / "first.json"));
  CHECK(named(first[{"known", ""}], "NEGOTIATE_ALLREDUCE").size() == 1);
  CHECK(named(first[{"known", ""}], "1").size() == 1);
  CHECK(named(first[{"waiting", ""}], "TUTTI_ALLREDUCE").size() == 1);
  CHECK(first.count({"before", ""}) == 0);
  CHECK(first.count({"between", ""}) == 0);
  const json events = read(folder / "second.json");
  auto second = spans_of(events);
  CHECK(second.size() == 1);
  CHECK(named(second[{"in the second", ""}], "ALLREDUCE").size() == 1);
  for (const json& event : events) CHECK(event["ph"] != "i");  // no cycles
}

TEST_CASE("queues share the file of the job, and a mismatch ends its tensor there", "[timeline]") {
  const Folder folder;
  const Variables variables{{"TUTTI_TIMELINE", folder / "t.json"}};
  CHECK(with_ranks(2, [&](CommGroup& group) -> Verdict {
          const TensorQueue one(group), other(group);
          std::vector<float> values(4), differing(group.rank() == 0 ? 3U : 4U);
          const Work first = reduce(one, "t", values);
          std::vector<float> more(4);
          reduce(other, "u", more).wait();
          first.wait();
          if (error_of([&] { reduce(one, "w", differing).wait(); }).empty()) return "no mismatch";
          group.barrier();
          return {};
        }) == "");
  auto spans = spans_of(read(folder / "t.json"));
  CHECK(named(spans[{"t", ""}], "ALLREDUCE").size() == 1);
  CHECK(named(spans[{"u", ""}], "ALLREDUCE").size() == 1);
  const std::vector<Span> wrong = spans[{"w", ""}];
  CHECK(named(wrong, "ALLREDUCE").empty());
  REQUIRE(named(wrong, "NEGOTIATE_ALLREDUCE").size() == 1);
  CHECK(named(wrong, "NEGOTIATE_ALLREDUCE")[0].arguments["error"] == "mismatch");
}

TEST_CASE("a timeline that cannot be written is refused, or left out", "[timeline]") {
  const Folder folder;
  std::ofstream(folder / "precious") << "text";
  std::filesystem::create_symlink(folder / "precious", folder / "link.json");
  const Variables variables{{"TUTTI_TIMELINE", folder / "link.json"}};
  CHECK(with_ranks(2, [&](CommGroup& group) -> Verdict {
          const TensorQueue queue(group);
          std::vector<float> values(4, 1);
          reduce(queue, "t", values).wait();
          const std::string error = error_of([&] { queue.start_timeline("/nowhere/at/all.json"); });
          group.barrier();
          if (group.rank() == 0 && error.find("/nowhere/at/all.json") == std::string::npos)
            return "said: " + error;
          // The device takes no byte: the timeline ends, and the tensors do not.
          if (group.rank() == 0 && error_of([&] { queue.start_timeline("/dev/full"); }).empty())
            return "no error";
          group.barrier();
          reduce(queue, "t", values).wait();
          group.barrier();
          return values[0] == 4 ? "" : "wrong sum";
        }) == "");
  CHECK(read(folder / "precious").is_discarded());
}

TEST_CASE("events that come faster than they are written are dropped, and counted") {
  const Folder folder;
  std::uint64_t added = 0;
  {
    auto timeline = Timeline::open(folder / "t.json", TimelineForm::horovod);
    REQUIRE(timeline);
    const std::uint32_t queue = (*timeline)->add_queue();
    // All of them before the thread's first write, on a machine that is fast enough; dropped or written elsewhere.
    for (; added < 3 * Timeline::kMostEvents; ++added)
      (*timeline)->add(queue, at("t", TensorPhase::negotiating, 0, static_cast<int>(added)));
  }
  std::uint64_t written = 0, dropped = 0;
  for (const json& event : read(folder / "t.json")) {
    written += event["ph"] == "X" ? 1 : 0;
    if (event["ph"] == "i") dropped += std::stoull(event["name"].get<std::string>());
  }
  CHECK(written + dropped == added);
}
