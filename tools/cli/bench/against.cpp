// Drives a comparison: for every size each library in turn, several rounds, medians, ratios.
// Knows the line protocol; every library, tutti included, is a process that answers it.
#include "tools/cli/bench/against.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/harness/record.hpp"
#include "bench/peers/peer_main.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/bench/peer_process.hpp"
#include "tools/cli/bench/peer_settings.hpp"
#include "tools/cli/bench/report.hpp"
#include "tools/cli/bench/workload.hpp"
#include "tools/cli/files.hpp"
#include "tools/cli/json.hpp"
#include "tools/cli/run/run.hpp"
#include "tutti/tutti.hpp"

namespace tutti::tool {
namespace {

using bench::Record;
using bench::Shape;
using std::chrono::milliseconds;

constexpr milliseconds kStartLimit{60000};
constexpr milliseconds kAnswerGrace{60000};  // beyond the budget: set-up, verification, a loaded machine

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// The results of the rounds of one library at one size.
class Rounds {
 public:
  void add(const Json& answer) {
    p50_.push_back(answer["p50_us"].number());
    p95_.push_back(answer["p95_us"].number());
    min_.push_back(answer["min_us"].number());
    mean_.push_back(answer["mean_us"].number());
    iteration_count_ += static_cast<int>(answer["iterations"].natural());
    wrong_count_ += answer["wrong"].natural();
    last_ = answer;
  }
  bool is_empty() const { return p50_.empty(); }

  Record record(const BenchOptions& options, const Shape& shape) const {
    Record record;
    record.library = last_["library"].text();
    record.shape = shape;
    record.op = options.op;
    record.in_place = options.in_place;
    record.nodes = std::max(options.nodes.node_count, 1);
    record.neighbours = options.neighbour_count;
    if (options.has_map) record.map = to_string(options.map);
    record.algorithm = last_["algorithm"].text();
    record.transport = last_["transport"].text();
    record.backend = last_["backend"].text();
    record.times = {iteration_count_, median(p50_),
                    median(p95_),     *std::min_element(min_.begin(), min_.end()),
                    median(mean_),    0};
    record.wrong_count = wrong_count_;
    return record;
  }

 private:
  std::vector<double> p50_, p95_, min_, mean_;
  int iteration_count_ = 0;
  std::uint64_t wrong_count_ = 0;
  Json last_;
};

class Comparison {
 public:
  Comparison(const BenchOptions& options, PeerSettings settings, JsonLines json)
      : options_(options),
        settings_(std::move(settings)),
        json_(std::move(json)),
        fits_(options.rank_count <= count_allowed_cpus()),
        bed_(options.nodes.node_count > 0 ? Bed::current() : std::nullopt) {}

  int run() {
    print_heading();
    if (!start_tutti()) return 1;
    return options_.overlap_ms > 0 ? run_beside_arithmetic() : run_sizes();
  }

 private:
  int run_sizes() {
    print_columns();
    const std::vector<Shape> shapes =
        bench::sweep(options_.collective, options_.dtype, options_.rank_count, options_.first_bytes,
                     options_.last_bytes, options_.factor, options_.root);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      if (!compare(shapes[i], i, shapes.size())) return 1;
    }
    print_versions();
    if (ratios_.empty()) return wrong_count_ == 0 ? 0 : 1;
    double log_sum = 0;
    for (const double ratio : ratios_) log_sum += std::log(ratio);
    fmt::print("# geometric mean of the ratios: {:.2f} over {} sizes; lowest {:.2f}\n",
               std::exp(log_sum / static_cast<double>(ratios_.size())), ratios_.size(),
               *std::min_element(ratios_.begin(), ratios_.end()));
    print_relative_times();
    return tell_wrong();
  }

  void print_relative_times() const {
    std::vector<Bar> bars = {{"tutti", 1, "1.00"}};
    for (const std::string& library : libraries_) {
      const auto found = log_ratios_.find(library);
      if (found == log_ratios_.end()) continue;
      const std::vector<double>& logs = found->second;
      const double factor =
          std::exp(std::accumulate(logs.begin(), logs.end(), 0.0) / static_cast<double>(logs.size()));
      bars.push_back({library, factor, fmt::format("{:.2f}", factor)});
    }
    print_bars("time of a call, tutti = 1 (geometric mean over the sizes; shorter is better)", bars);
  }

  void print_versions() const {
    for (const auto& [library, version] : versions_) fmt::print("# {}: {}\n", library, version);
  }

  int tell_wrong() const {
    if (wrong_count_ > 0) fmt::print(stderr, "tutti bench: {} wrong elements from tutti\n", wrong_count_);
    return wrong_count_ == 0 ? 0 : 1;
  }

  void print_heading() {
    fmt::print("# tutti {}{}: {} over {} ranks on {}, {} calls{}, {} rounds in turn per {}, median p50\n",
               version(), options_.against.empty() ? "" : " against " + joined(options_.against, ", "),
               to_string(options_.collective), options_.rank_count, where(),
               bench::to_string(options_.loop.mode), options_.in_place ? ", in place" : "",
               options_.round_count, options_.overlap_ms > 0 ? "library" : "size");
    if (!fits_ && options_.loop.mode != bench::Mode::b2b)
      fmt::print(
          "# note: more ranks than CPUs, so these times depend mostly on the system's scheduler; --b2b is "
          "the "
          "fair mode here\n");
    for (const std::string& library : options_.against) {
      const std::string why = settings_.why_unavailable(library);
      if (why.empty()) {
        libraries_.push_back(library);
      } else {
        fmt::print("# {}: not available ({})\n", library, why);
      }
    }
    std::fflush(stdout);
  }

  void print_columns() const {
    fmt::print("{:>10} {:<22} {:>10}", "size", "tutti's algorithm", "tutti us");
    for (const std::string& library : libraries_) fmt::print(" {:>12}", library + " us");
    fmt::print(" {:>9} {:>7} {:>7}  {}\n", "busbw", "ratio", "wrong", "best peer (its setting)");
    std::fflush(stdout);
  }

  bool start_tutti() {
    PeerProcess::Start start;
    if (bed_) {
      start.command = bed_->rank_words(options_.nodes.ranks_per_node);
      start.environment = bed_->job_environment();
    }
    const std::vector<std::string> command = {
        own_path(),
        "bench",
        std::string(to_string(options_.collective)),
        "--serve",
        "--child",
        "--bind",
        options_.binding == Binding::core ? "core" : "none",
        "--alloc",
        options_.allocation == Allocation::tutti_heap ? "tutti" : "malloc"};
    start.command.insert(start.command.end(), command.begin(), command.end());
    if (options_.has_map)
      start.command.insert(start.command.end(), {"--map", std::string(to_string(options_.map))});
    if (!bed_) start.command.insert(start.command.end(), {"-n", std::to_string(options_.rank_count)});
    if (!options_.algorithm.empty())
      start.command.insert(start.command.end(), {"--algorithm", options_.algorithm});
    return start_process("tutti", start) != nullptr;
  }

  std::string where() const {
    if (!bed_) return "one node";
    return fmt::format("{} nodes of this machine{}", options_.nodes.node_count,
                       options_.rate.empty() ? "" : " at " + options_.rate);
  }

  // The values of this run that launchers and programs need.
  PeerSettings::Values launch_values() const {
    PeerSettings::Values values = {{"ranks", std::to_string(options_.rank_count)}};
    if (!bed_) return values;
    const std::string per_node = std::to_string(options_.nodes.ranks_per_node);
    values.insert(values.end(), {{"ranks_per_node", per_node},
                                 {"agent", bed_->program},
                                 {"network", bed_->network},
                                 {"hub", bed_->hub},
                                 {"hosts", joined(bed_->addresses, ",")},
                                 {"namespaces", joined(bed_->namespaces, ",")},
                                 {"slots", joined(bed_->addresses, ":" + per_node + ",") + ":" + per_node}});
    return values;
  }

  // The process for (library, setting), started when it is first needed; null (and said once) if it does not
  // run.
  PeerProcess* start_process(const std::string& key, const PeerProcess::Start& start) {
    const auto found = processes_.find(key);
    if (found != processes_.end()) return found->second ? &*found->second : nullptr;
    auto started = PeerProcess::start(start, kStartLimit);
    if (!started) {
      progress_.clear();
      fmt::print(stderr, "tutti bench: {} does not start: {}\n", key, started.status().message());
      processes_.emplace(key, std::nullopt);
      return nullptr;
    }
    return &*processes_.emplace(key, *std::move(started)).first->second;
  }

  // One turn of one library. False: it has no result at this size.
  bool take_turn(const std::string& library, const Shape& shape, const std::string& more, Rounds& rounds) {
    std::string key = library;
    std::string algorithm;
    PeerProcess* process = nullptr;
    if (library == "tutti") {
      process = &*processes_.at(key);
    } else {
      const auto choice =
          settings_.choose(library, shape, options_.in_place, fits_, options_.nodes.ranks_per_node);
      if (!choice) return complain(library, choice.status().message());
      key += ":" + choice->setting;
      algorithm = choice->algorithm;
      // Where ranks are mapped, a peer's program binds itself, and its launcher does not.
      const bool binds = options_.binding == Binding::core && !options_.has_map;
      PeerProcess::Start start = settings_.start_of(library, choice->setting, fits_, binds, launch_values());
      if (options_.has_map)
        start.environment.emplace_back("TUTTI_BENCH_CPUS",
                                       fmt::format("{}", fmt::join(allowed_cpus_by(options_.map), ",")));
      process = start_process(key, start);
    }
    if (process == nullptr || !process->is_running()) return false;
    const auto answer = process->ask(request_line(shape, algorithm) + more, answer_limit());
    if (!answer) return complain(key, answer.status().message());
    const Result<Json> json = parse_json(*answer);
    if (!json) return complain(key, "malformed answer: " + *answer);
    if (json->contains("error")) return complain(library, (*json)["error"].text());
    rounds.add(*json);
    if (library != "tutti") versions_[library] = (*json)["backend"].text();
    return true;
  }

  bool complain(const std::string& who, const std::string& what) {
    if (said_.insert(who + what).second) {
      progress_.clear();
      fmt::print(stderr, "tutti bench: {}: {}\n", who, what);
    }
    return false;
  }

  // Per library the median time of a backward pass: arithmetic alone, with calls that block in between, and
  // with calls that are submitted.
  int run_beside_arithmetic() {
    const auto workload = load_workload(options_.workload);
    if (!workload) return usage_error("bench", workload.status());
    std::size_t elements = 0;
    for (const std::uint64_t count : workload->element_counts) elements += count;
    const std::size_t call_count = workload->element_counts.size();
    const Shape mean =
        options_.shape_of(elements / call_count * size_of(options_.dtype), options_.rank_count);
    const std::string sweep =
        fmt::format(" counts={} compute_us={:.0f} calls=", fmt::join(workload->element_counts, ","),
                    options_.overlap_ms * 1e3);
    std::vector<std::string> order = {"tutti"};
    order.insert(order.end(), libraries_.begin(), libraries_.end());
    std::map<std::string, std::map<bench::Calls, Rounds>> rounds;
    const auto round_count = static_cast<std::size_t>(options_.round_count);
    const std::size_t turn_count = round_count * order.size() * 3;
    std::size_t turn = 0;
    for (int round = 0; round < options_.round_count; ++round) {
      for (const std::string& library : order) {
        for (const bench::Calls calls :
             {bench::Calls::none, bench::Calls::blocking, bench::Calls::submitted}) {
          show_turn(turn++, turn_count, round_count,
                    fmt::format("round {} of {}: {}, {}", round + 1, options_.round_count, library,
                                to_string(calls)));
          const std::string more = sweep + std::string(to_string(calls));
          if (!take_turn(library, mean, more, rounds[library][calls]) && library == "tutti") return 1;
        }
      }
    }
    progress_.clear();
    const Shape total = options_.shape_of(elements * size_of(options_.dtype), options_.rank_count);
    fmt::print("# {}: {} allreduces of {} in all\n", workload->name, call_count, bytes_text(total.bytes()));
    fmt::print("{:<10} {:>13} {:>12} {:>11} {:>13} {:>11} {:>8} {:>6}\n", "library", "arithmetic ms",
               "blocking ms", "exposed ms", "submitted ms", "exposed ms", "hidden", "wrong");
    for (const std::string& library : order) report_beside_arithmetic(library, rounds[library], total);
    print_versions();
    return tell_wrong();
  }

  void report_beside_arithmetic(const std::string& library, const std::map<bench::Calls, Rounds>& rounds,
                                const Shape& shape) {
    if (std::any_of(rounds.begin(), rounds.end(), [](const auto& one) { return one.second.is_empty(); }))
      return;
    const double alone_us = rounds.at(bench::Calls::none).record(options_, shape).times.p50_us;
    std::array<double, 2> total_ms{}, exposed_ms{};
    std::uint64_t wrong = 0;
    for (const bench::Calls calls : {bench::Calls::blocking, bench::Calls::submitted}) {
      Record record = rounds.at(calls).record(options_, shape);
      const auto at = static_cast<std::size_t>(calls);
      total_ms[at] = record.times.p50_us / 1e3;
      exposed_ms[at] = (record.times.p50_us - alone_us) / 1e3;
      wrong += record.wrong_count;
      std::string object = bench::to_json(record);
      object.pop_back();
      json_.write(object + fmt::format(", \"workload\": {}, \"calls\": {}, \"arithmetic_us\": {:.6g}, "
                                       "\"exposed_us\": {:.6g}}}",
                                       bench::json_quoted(options_.workload),
                                       bench::json_quoted(to_string(calls)), alone_us, exposed_ms[at] * 1e3));
    }
    // On a disturbed machine the calls may seem to cost nothing.
    const std::string hidden =
        exposed_ms[0] > 0 ? fmt::format("{:.0f} %", 100 * (1 - exposed_ms[1] / exposed_ms[0])) : "-";
    fmt::print("{:<10} {:>13.1f} {:>12.1f} {:>11.1f} {:>13.1f} {:>11.1f} {:>8} {:>6}\n", library,
               alone_us / 1e3, total_ms[0], exposed_ms[0], total_ms[1], exposed_ms[1], hidden, wrong);
    std::fflush(stdout);
    if (library == "tutti") wrong_count_ += wrong;
  }

  // A library's share of the time and of the calls is divided by the rounds.
  std::string request_line(const Shape& shape, const std::string& algorithm) const {
    const bench::LoopPlan& loop = options_.loop;
    const auto share = [this](int count) { return std::max(1, count / options_.round_count); };
    std::string line = fmt::format(
        "run {} {} iters={} min_iters={} warmup={} budget_ms={} mode={} in_place={} dtype={} op={} pages={}",
        to_string(shape.collective), shape.bytes(), share(loop.iteration_count), share(loop.minimum_count),
        std::max(2, loop.warmup_count / options_.round_count),
        std::max(1, static_cast<int>(loop.budget_seconds * 1000 / options_.round_count)),
        bench::to_string(loop.mode), options_.in_place ? 1 : 0, to_string(options_.dtype),
        to_string(options_.op), options_.pages == bench::Pages::huge ? "thp" : "4k");
    if (!algorithm.empty()) line += " algorithm=" + algorithm;
    return line;
  }

  milliseconds answer_limit() const {
    return kAnswerGrace + milliseconds(static_cast<int>(options_.loop.budget_seconds * 1000));
  }

  // How far a turn is that begins. The first one knows the budgets alone.
  void show_turn(std::size_t turn, std::size_t turn_count, std::size_t turns_of_budget,
                 const std::string& what) {
    std::optional<double> seconds_left;
    if (turn == 0)
      seconds_left = options_.loop.budget_seconds * static_cast<double>(turn_count) /
                     static_cast<double>(turns_of_budget);
    progress_.show(static_cast<double>(turn) / static_cast<double>(turn_count), what, seconds_left);
  }

  // All rounds at one size, and its row. False: tutti itself gave no result.
  bool compare(const Shape& shape, std::size_t row, std::size_t row_count) {
    std::map<std::string, Rounds> rounds;
    std::vector<std::string> order = {"tutti"};
    order.insert(order.end(), libraries_.begin(), libraries_.end());
    const auto rounds_of_row = static_cast<std::size_t>(options_.round_count);
    std::size_t turn = row * rounds_of_row * order.size();
    for (int round = 0; round < options_.round_count; ++round) {
      for (const std::string& library : order) {
        show_turn(turn++, row_count * rounds_of_row * order.size(), rounds_of_row,
                  fmt::format("{}, round {} of {}: {}", bytes_text(shape.bytes()), round + 1,
                              options_.round_count, library));
        const bool has_result = take_turn(library, shape, {}, rounds[library]);
        if (!has_result && library == "tutti") return false;
      }
    }
    progress_.clear();
    report(shape, rounds);
    return true;
  }

  // For the bars.
  void keep_ratios(const Record& own, const std::vector<Record>& peers) {
    for (const Record& peer : peers) {
      if (peer.wrong_count == 0 && own.times.p50_us > 0 && peer.times.p50_us > 0)
        log_ratios_[peer.library].push_back(std::log(peer.times.p50_us / own.times.p50_us));
    }
  }

  void report(const Shape& shape, const std::map<std::string, Rounds>& rounds) {
    Record own = rounds.at("tutti").record(options_, shape);
    std::vector<Record> peers;
    for (const std::string& library : libraries_) {
      if (!rounds.at(library).is_empty()) peers.push_back(rounds.at(library).record(options_, shape));
    }
    // A peer whose result is wrong is not faster, and a floor is no peer.
    const Record* best = nullptr;
    for (const Record& peer : peers) {
      if (peer.wrong_count == 0 && !settings_.is_floor(peer.library) &&
          (best == nullptr || peer.times.p50_us < best->times.p50_us))
        best = &peer;
    }
    if (best != nullptr && own.times.p50_us > 0) {
      own.best_peer = best->library;
      own.ratio = best->times.p50_us / own.times.p50_us;
      ratios_.push_back(own.ratio);
    }
    keep_ratios(own, peers);
    wrong_count_ += own.wrong_count;
    json_.write(bench::to_json(own));
    for (const Record& peer : peers) json_.write(bench::to_json(peer));

    const double busbw = bench::algorithm_bandwidth_gbs(shape.bytes(), own.times.p50_us) *
                         bench::bus_factor(shape.collective, shape.ranks);
    fmt::print("{:>10} {:<22} {:>10.2f}", bytes_text(shape.bytes()), own.algorithm, own.times.p50_us);
    for (const std::string& library : libraries_) {
      const auto peer =
          std::find_if(peers.begin(), peers.end(), [&](const Record& r) { return r.library == library; });
      fmt::print(" {:>12}", peer == peers.end()     ? "-"
                            : peer->wrong_count > 0 ? "wrong"
                                                    : fmt::format("{:.2f}", peer->times.p50_us));
    }
    fmt::print(" {:>9.3f} {:>7} {:>7}  {}\n", busbw, best == nullptr ? "-" : fmt::format("{:.2f}", own.ratio),
               own.wrong_count,
               best == nullptr ? "-" : fmt::format("{} ({})", best->library, best->algorithm));
    std::fflush(stdout);
  }

  const BenchOptions& options_;
  PeerSettings settings_;
  JsonLines json_;
  bool fits_;
  std::optional<Bed> bed_;              // where the ranks are; none: on this node
  std::vector<std::string> libraries_;  // those that can be measured
  std::map<std::string, std::optional<PeerProcess>> processes_;
  std::map<std::string, std::string> versions_;  // of the peers that answered, as they name them
  std::set<std::string> said_;
  std::vector<double> ratios_;
  std::map<std::string, std::vector<double>> log_ratios_;  // of each library's time to ours, by size
  std::uint64_t wrong_count_ = 0;
  Progress progress_;
};

}  // namespace

int run_comparison(const BenchOptions& options) {
  std::string folder = options.peers_path;
  if (folder.empty()) {
    const auto found = find_data_file("../bench/peers/settings.json", "peers/settings.json");
    if (!found)
      return usage_error(
          "bench", invalid_argument("--against: the peers' programs are not in this package; a build of the "
                                    "sources has them (tools/quickstart --build), and --peers-dir names "
                                    "their folder there: build/bench/peers"));
    folder = found->substr(0, found->find_last_of('/'));
  }
  auto settings = PeerSettings::load(folder, options.nodes.node_count > 0);
  if (!settings) return usage_error("bench", settings.status().with_context("--against"));
  auto json = JsonLines::open(options.json_path);
  if (!json) return usage_error("bench", json.status());
  return Comparison(options, *std::move(settings), *std::move(json)).run();
}

}  // namespace tutti::tool
