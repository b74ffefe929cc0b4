// The rank's side of `tutti bench`. Knows groups, rows and the shared page; starts no process.
#include "tools/cli/bench/rank.hpp"
#include "tools/cli/arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/harness/checked_call.hpp"
#include "bench/harness/shared_page.hpp"
#include "bench/peers/peer_main.hpp"
#include "runtime/group/comm_group.hpp"
#include "tools/cli/bench/gpu_memory.hpp"
#include "tools/cli/bench/job.hpp"
#include "tools/cli/bench/report.hpp"
#include "tools/cli/bench/roofline.hpp"
#include "tools/cli/bench/step.hpp"
#include "tools/cli/bench/tutti_library.hpp"
#include "tools/cli/bench/workload.hpp"
#include "tools/cli/files.hpp"
#include "tools/cli/run/run.hpp"
#include "topology/discovery.hpp"

namespace tutti::tool {
namespace {

using bench::Record;
using bench::Request;
using bench::Shape;
using bench::SharedPage;

Request request_of(const BenchOptions& options, const Shape& shape) {
  Request request;
  request.shape = shape;
  request.op = options.op;
  request.in_place = options.in_place;
  request.pages = options.pages;
  request.plan = options.loop;
  request.is_checked = options.is_checked;
  request.then = options.then;
  return request;
}

// How the ranks of this node are kept to the `cpu_count` CPUs that they may use together.
std::string binding_text(const BenchOptions& options, int ranks, int cpu_count) {
  if (options.has_map) return map_text(options.map, discover_this_machine());
  if (options.binding == Binding::core) return cpu_count < ranks ? "bound evenly" : "bound one per CPU";
  return count_allowed_cpus() < cpu_count ? "bound by TUTTI_PIN or who started them" : "not bound";
}

std::string calls_text(const BenchOptions& options) {
  const std::string_view first = to_string(options.collective);
  return options.then ? fmt::format("{} and {}", first, to_string(*options.then)) : std::string(first);
}

void print_header(const BenchOptions& options, const CommGroup& group, int node_count, int cpu_count,
                  const std::string& transport) {
  const bool fits = group.local_size() <= cpu_count;
  std::string placement = fmt::format(
      "{} rank{} on {} CPU{} of a node, {}", group.local_size(), group.local_size() == 1 ? "" : "s",
      cpu_count, cpu_count == 1 ? "" : "s", binding_text(options, group.local_size(), cpu_count));
  if (options.uses_threads) placement += ", threads of one process";
  fmt::print("# tutti {}, {} over {} rank{} on {} node{}, transport {}, {}{}{}{}\n", version(),
             options.is_roofline ? "roofline" : calls_text(options), group.size(),
             group.size() == 1 ? "" : "s", node_count, node_count == 1 ? "" : "s", transport, placement,
             options.is_roofline ? "" : fmt::format(", {} calls", bench::to_string(options.loop.mode)),
             options.in_place ? ", in place" : "",
             options.workload.empty() ? "" : ", workload " + options.workload);
  if (!fits && options.loop.mode != bench::Mode::b2b) {
    fmt::print(
        "# note: more ranks than CPUs, so these times depend mostly on the system's scheduler; --b2b is the "
        "fair "
        "mode here\n");
  }
}

// Reports at rank 0, is silent elsewhere.
class Reporter {
 public:
  Reporter(bool is_active, JsonLines json, double row_seconds)
      : is_active_(is_active), json_(std::move(json)), row_seconds_(row_seconds) {}

  // A row begins, the first one is 1. Its number says how long the rest takes, as far as nothing else does yet.
  void progress(std::size_t row, std::size_t row_count, const std::string& what) {
    if (!is_active_) return;
    std::optional<double> seconds_left;
    if (row == 1) seconds_left = row_seconds_ * static_cast<double>(row_count);
    progress_.show(static_cast<double>(row - 1) / static_cast<double>(row_count),
                   fmt::format("{} ({} of {})", what, row, row_count), seconds_left);
  }
  // Below the table.
  void finish() const {
    if (is_active_) print_bars("bus bandwidth (GB/s)", bars_);
  }
  // The same calls, submitted and waited for at once: how much longer they take, in us, over all rounds.
  void add_submitted(const Record& record, double added_us, double least_us, double most_us) {
    wrong_count_ += record.wrong_count;
    if (!is_active_) return;
    progress_.clear();
    print_table_row(record, "submitted");
    fmt::print("#{:>9} {:+.2f} us, {:+.2f} to {:+.2f} of one round\n", "added", added_us, least_us, most_us);
    std::string object = bench::to_json(record);
    object.pop_back();
    object += fmt::format(
        ", \"calls\": \"submitted\", \"added_us\": {:.6g}, \"least_added_us\": {:.6g}, \"most_added_us\": "
        "{:.6g}}}",
        added_us, least_us, most_us);
    json_.write(object);
  }
  // The forms of one call on GPUs that were measured; null: not.
  void add_on_gpus(const Record* out_of_place, const Record* in_place, const std::string& gpu) {
    for (const Record* record : {out_of_place, in_place}) {
      if (record == nullptr) continue;
      wrong_count_ += record->wrong_count;
      std::string object = bench::to_json(*record);
      object.pop_back();
      object +=
          fmt::format(", \"root\": {}, \"device\": \"cuda\", \"gpu\": {}}}",
                      is_rooted(record->shape.collective) ? record->shape.root : -1, bench::json_quoted(gpu));
      json_.write(object);
    }
    if (!is_active_) return;
    progress_.clear();
    print_gpu_table_row(out_of_place, in_place);
    const Record& record = out_of_place != nullptr ? *out_of_place : *in_place;
    add_bar(record, bytes_text(record.shape.bytes()));
  }
  // `workload` fields are appended where a row stands for tensors of a model.
  void add(const Record& record, const std::string& workload = {}, std::size_t tensor_count = 0,
           std::string_view label = {}) {
    wrong_count_ += record.wrong_count;
    if (!is_active_) return;
    progress_.clear();
    print_table_row(record, label);
    add_bar(record, label.empty() ? bytes_text(record.shape.bytes()) : std::string(label));
    std::string object = bench::to_json(record);
    if (!workload.empty()) {
      object.pop_back();
      object += fmt::format(", \"workload\": {}, \"row\": \"{}\", \"tensors\": {}}}",
                            bench::json_quoted(workload), label.empty() ? "size" : label, tensor_count);
    }
    json_.write(object);
  }
  std::uint64_t wrong_count() const { return wrong_count_; }

 private:
  void add_bar(const Record& record, std::string label) {
    const double busbw = bench::algorithm_bandwidth_gbs(record.shape.bytes(), record.times.p50_us) *
                         bench::bus_factor(record.shape.collective, record.shape.ranks);
    bars_.push_back({std::move(label), busbw, fmt::format("{:.2f}", busbw)});
  }

  bool is_active_;
  JsonLines json_;
  double row_seconds_;
  std::vector<Bar> bars_;
  Progress progress_;
  std::uint64_t wrong_count_ = 0;
};

template <bench::Rendezvous R>
class Rows {
 public:
  // `gpu`: null for calls on host memory. `bounds`: null if no bounds are asked for.
  Rows(const BenchOptions& options, const CommGroup& group, TuttiLibrary& library, const GpuMemory* gpu,
       R& ranks, int node_count, BoundMeter* bounds, Reporter& reporter)
      : options_(options),
        group_(group),
        library_(library),
        gpu_(gpu),
        ranks_(ranks),
        node_count_(node_count),
        bounds_(bounds),
        reporter_(reporter) {}

  void sweep_sizes() {
    const std::vector<Shape> shapes =
        bench::sweep(options_.collective, options_.dtype, group_.size(), options_.first_bytes,
                     options_.last_bytes, options_.factor, options_.root);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      reporter_.progress(i + 1, shapes.size(), bytes_text(shapes[i].bytes()));
      if (gpu_ != nullptr) {
        measure_on_gpus(shapes[i]);
      } else if (options_.has_submitted) {
        compare_submitted(shapes[i]);
      } else {
        reporter_.add(measure(shapes[i]));
      }
    }
  }

  // A row for each distinct size, smallest first, then all gradients of one backward pass in a row.
  void replay(const Workload& workload) {
    std::multiset<std::uint64_t> counts(workload.element_counts.begin(), workload.element_counts.end());
    const std::set<std::uint64_t> distinct(counts.begin(), counts.end());
    std::size_t row = 0;
    for (const std::uint64_t count : distinct) {
      const Shape shape = shape_of(count);
      reporter_.progress(++row, distinct.size() + 1, bytes_text(shape.bytes()));
      reporter_.add(measure(shape), workload.name, counts.count(count));
    }
    reporter_.progress(++row, distinct.size() + 1, "one whole backward sweep");
    reporter_.add(measure_all(workload), workload.name, workload.element_counts.size(), "total");
  }

 private:
  Shape shape_of(std::uint64_t count) const {
    return options_.shape_of(count * size_of(options_.dtype), group_.size());
  }

  // Both forms of the call that it has: a broadcast is always in place.
  void measure_on_gpus(const Shape& shape) {
    std::array<std::optional<Record>, 2> of;
    for (const bool in_place : {false, true}) {
      if (!in_place && (options_.in_place || shape.collective == Collective::broadcast)) continue;
      Request request = request_of(options_, shape);
      request.in_place = in_place;
      of[in_place] = finished(bench::run_request(library_, ranks_, group_.rank(), request));
    }
    const auto pointer = [](const std::optional<Record>& record) { return record ? &*record : nullptr; };
    reporter_.add_on_gpus(pointer(of[0]), pointer(of[1]), gpu_->description());
  }

  // Calls that block and calls that are submitted, in turn, each first in every other round.
  void compare_submitted(const Shape& shape) {
    const int rounds = std::max(1, options_.round_count);
    std::array<std::vector<Record>, 2> of;
    std::vector<double> added_us;
    for (int round = 0; round < rounds; ++round) {
      for (int turn = 0; turn < 2; ++turn) {
        const bool is_submitted = (round + turn) % 2 != 0;
        Request request = request_of(options_, shape);
        request.plan.budget_seconds /= 2.0 * rounds;
        if (is_submitted) request.calls = bench::Calls::submitted;
        of[is_submitted].push_back(finished(bench::run_request(library_, ranks_, group_.rank(), request)));
      }
      added_us.push_back(of[1].back().times.p50_us - of[0].back().times.p50_us);
    }
    std::sort(added_us.begin(), added_us.end());
    reporter_.add(median_of(of[0]));
    reporter_.add_submitted(median_of(of[1]), added_us[added_us.size() / 2], added_us.front(),
                            added_us.back());
  }

  // The round in the middle by this figure, with what was wrong in any.
  template <class Figure>
  static Record middle_of(std::vector<Record>& rounds, const Figure& figure) {
    std::uint64_t wrong_count = 0;
    for (const Record& record : rounds) wrong_count += record.wrong_count;
    std::sort(rounds.begin(), rounds.end(),
              [&](const Record& a, const Record& b) { return figure(a) < figure(b); });
    Record middle = rounds[rounds.size() / 2];
    middle.wrong_count = wrong_count;
    return middle;
  }
  static Record median_of(std::vector<Record>& rounds) {
    return middle_of(rounds, [](const Record& record) { return record.times.p50_us; });
  }

  Record measure(const Shape& shape) {
    if (bounds_ == nullptr)
      return finished(bench::run_request(library_, ranks_, group_.rank(), request_of(options_, shape)));
    // Ceilings and calls in turns: what the row says are a bound and a time of the same moment.
    std::vector<Record> rounds;
    for (int round = 0; round < options_.round_count; ++round) {
      const bench::Bound bound = bounds_->take(shape);
      Request request = request_of(options_, shape);
      request.plan.budget_seconds /= options_.round_count;
      rounds.push_back(finished(bench::run_request(library_, ranks_, group_.rank(), request)));
      rounds.back().bound_us = bound.us;
      rounds.back().bound = bound.formula;
    }
    Record record = middle_of(rounds, bench::roofline_percent);
    bound_us_[shape.count] = record.bound_us;
    return record;
  }

  // Its calls have had rows of their own.
  Record measure_all(const Workload& workload) {
    Request request = request_of(options_, shape_of(workload.element_counts.front()));
    double bound_us = 0;
    for (const std::uint64_t count : workload.element_counts) {
      request.counts.push_back(shape_of(count).count);
      if (bounds_ != nullptr) bound_us += bound_us_.at(request.counts.back());
    }
    Record record = bench::run_request(library_, ranks_, group_.rank(), request);
    record.bound_us = bound_us;
    record.bound = "sum of the bounds of its calls";
    return finished(std::move(record));
  }

  Record finished(Record record) const {
    record.library.clear();  // named in comparisons only
    record.nodes = node_count_;
    record.neighbours = options_.neighbour_count;
    if (options_.has_map) record.map = to_string(options_.map);
    return record;
  }

  const BenchOptions& options_;
  const CommGroup& group_;
  TuttiLibrary& library_;
  const GpuMemory* gpu_;
  R& ranks_;
  int node_count_;
  BoundMeter* bounds_;
  std::map<std::uint64_t, double> bound_us_;  // of the rows so far, by their calls' elements
  Reporter& reporter_;
};

template <bench::Rendezvous R>
void run_rows(const BenchOptions& options, const CommGroup& group, TuttiLibrary& library,
              const GpuMemory* gpu, R& ranks, int node_count, BoundMeter* bounds,
              const std::optional<Workload>& workload, Reporter& reporter) {
  Rows<R> rows(options, group, library, gpu, ranks, node_count, bounds, reporter);
  if (workload) {
    rows.replay(*workload);
  } else {
    rows.sweep_sizes();
  }
}

// Of the largest call that is measured.
std::size_t most_bytes(const BenchOptions& options, const std::optional<Workload>& workload, int ranks) {
  std::size_t bytes = options.last_bytes;
  if (workload)
    bytes = *std::max_element(workload->element_counts.begin(), workload->element_counts.end()) *
            size_of(options.dtype);
  return options.shape_of(bytes, ranks).bytes();
}

TuttiLibrary make_library(const BenchOptions& options, const CommGroup& group, GpuMemory* gpu = nullptr) {
  TuttiLibrary library(group, options.allocation, options.algorithm, gpu);
  library.version = gpu != nullptr ? "cuda" : CommGroup::Impl::of(group, "bench").backend().caps().name;
  library.transport = transports_of(group);
  return library;
}

std::optional<Workload> workload_of(const BenchOptions& options) {
  if (options.workload.empty()) return std::nullopt;
  auto loaded = load_workload(options.workload);
  if (!loaded) throw Error(loaded.status().code(), -1, loaded.status().message());
  return *std::move(loaded);
}

// Rank 0 says it.
int exit_status(bool is_first, std::uint64_t wrong_count) {
  if (!is_first || wrong_count == 0) return 0;
  fmt::print(stderr, "tutti bench: {} wrong elements\n", wrong_count);
  return 1;
}

}  // namespace

// Has more than 15 decisions because each part of the report belongs to a kind of run.
int run_bench_rank(const BenchOptions& options, const CommGroup& group, const std::vector<int>& cpus) {
  const int cpu_count = count_cpus(group, cpus);
  const bool is_first = group.rank() == 0;
  if (options.root >= group.size() || options.root < 0) {
    const Status status =
        invalid_argument(fmt::format("--root {}: the ranks are 0 to {}", options.root, group.size() - 1));
    if (is_first) fmt::print(stderr, "tutti bench: {}\n", status.message());
    return is_first ? 2 : 0;
  }
  const std::optional<Workload> workload = workload_of(options);
  auto json = JsonLines::open(is_first ? options.json_path : "");
  if (!json) throw Error(json.status().code(), -1, json.status().message());

  const int node_count = count_nodes(group);
  std::unique_ptr<GpuMemory> gpu;
  if (options.is_on_gpus()) {
    auto opened = open_gpu(group, options.uses_threads ? group.local_size() : 1);
    if (!opened) throw Error(opened.status().code(), -1, opened.status().message());
    gpu = *std::move(opened);
  }
  TuttiLibrary library = make_library(options, group, gpu.get());
  if (is_first) print_header(options, group, node_count, cpu_count, library.transport);
  std::optional<SharedPage> page = node_count == 1 ? open_page(group) : std::nullopt;
  if ((options.is_roofline || options.has_bounds) && (!page || group.size() > cpu_count))
    throw Error(StatusCode::unsupported, -1,
                "roofline: the ranks must share one node's memory and have a CPU each");
  if (options.is_roofline) {
    const bench::Ceilings ceilings = find_ceilings(options, *page);
    if (is_first) print_ceilings(ceilings);
    if (is_first) write_ceilings(ceilings, *json);
    return 0;
  }
  if (options.is_step) {
    return exit_status(is_first,
                       run_steps(options, group, *workload, page ? &*page : nullptr, node_count, *json));
  }
  std::optional<BoundMeter> bounds;
  if (options.has_bounds) {
    bounds.emplace(options, most_bytes(options, workload, group.size()), *page);
    const bench::Ceilings summary = bounds->take_summary();
    if (is_first) print_ceilings_summary(summary);
  }
  if (is_first && gpu) {
    fmt::print("# buffers on GPUs: rank 0 has {}; each rank the one of its number on the node\n",
               gpu->description());
    print_gpu_table_header();
  } else if (is_first) {
    print_table_header(bounds.has_value());
  }
  Reporter reporter(is_first, *std::move(json), options.loop.budget_seconds);
  if (page) {
    run_rows(options, group, library, gpu.get(), *page, node_count, bounds ? &*bounds : nullptr, workload,
             reporter);
  } else {
    GroupRendezvous ranks(group);
    run_rows(options, group, library, gpu.get(), ranks, node_count, nullptr, workload, reporter);
  }
  reporter.finish();
  return exit_status(is_first, reporter.wrong_count());
}

int serve_bench_rank(const BenchOptions& options, const CommGroup& group) {
  TuttiLibrary library = make_library(options, group);
  std::optional<SharedPage> page = open_page(group);
  if (!page) throw Error(StatusCode::unsupported, -1, "the ranks of a comparison must share memory");
  bench::serve(library, *page);
  return 0;
}

}  // namespace tutti::tool
