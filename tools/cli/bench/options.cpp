// The command line of `tutti bench`. Knows how words are written, not what a benchmark does.
#include "tools/cli/bench/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "bench/roofline/measure.hpp"
#include "runtime/base/ascii.hpp"
#include "runtime/base/config.hpp"
#include "runtime/base/ops.hpp"
#include "runtime/selection/rules.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/bench/option_words.hpp"

namespace tutti::tool {
namespace {

constexpr std::string_view kSummary =
    "Measures a collective over local ranks or inside a job. Every rank rewrites its input before each timed "
    "call, as\n"
    "training does; the time of a call is the maximum over the ranks. Without a launcher it starts its own "
    "ranks; under\n"
    "`tutti run` or torchrun each process is one rank, and rank 0 reports.";
template <class T>
Status take(std::optional<T> value, std::string_view option, std::string_view text, std::string_view expected,
            T& to) {
  if (!value) return invalid_argument(fmt::format("{}: '{}' is not {}", option, text, expected));
  to = *value;
  return {};
}

Status take_collective(const BenchWords& w, BenchOptions& o) {
  if (o.is_roofline || (o.is_step && w.collective.empty())) return {};
  const auto collective = parse_collective(w.collective);
  if (collective && *collective != Collective::send_recv) {
    o.collective = *collective;
    return {};
  }
  std::string known;
  for (const std::string_view name : kCollectiveNames) {
    if (name != to_string(Collective::send_recv)) known += fmt::format(" {}", name);
  }
  if (w.collective.empty())
    return invalid_argument("name a collective, such as: tutti bench allreduce; there are:" + known +
                            ", and roofline");
  return invalid_argument(
      fmt::format("there is no collective '{}'; there are:{}, and roofline", w.collective, known));
}

Status take_sizes(const BenchWords& w, BenchOptions& o) {
  constexpr std::string_view kSize = "a size such as 4, 64k or 256m";
  TUTTI_RETURN_IF_ERROR(take(bench::parse_bytes(w.first), "-b", w.first, kSize, o.first_bytes));
  TUTTI_RETURN_IF_ERROR(take(bench::parse_bytes(w.last), "-e", w.last, kSize, o.last_bytes));
  TUTTI_RETURN_IF_ERROR(take(bench::parse_bytes(w.factor), "-f", w.factor, "a factor such as 4", o.factor));
  if (o.factor < 2)
    return invalid_argument(fmt::format("-f: expected a factor of at least 2, got '{}'", w.factor));
  if (o.last_bytes < o.first_bytes)
    return invalid_argument(fmt::format("-b {} is more than -e {}", w.first, w.last));
  return {};
}

Status take_op(const BenchWords& w, BenchOptions& o) {
  TUTTI_RETURN_IF_ERROR(take(parse_dtype_synonym(w.dtype), "--dtype", w.dtype,
                             "a data type (`tutti bench --help` lists them)", o.dtype));
  TUTTI_RETURN_IF_ERROR(
      take(parse_op(w.op), "--op", w.op, "an operation (`tutti bench --help` lists them)", o.op));
  if (!is_scalar(o.dtype)) {
    return invalid_argument(
        fmt::format("--dtype {}: the benchmark measures numbers of one part, such as f32", w.dtype));
  }
  if (o.op == Op::user) return invalid_argument("--op: a user-defined operation has no name here");
  if (!is_reducing(o.collective)) return {};
  const std::string_view why = why_illegal(o.op, o.dtype);
  if (!why.empty()) return invalid_argument(fmt::format("--op {} --dtype {}: {}", w.op, w.dtype, why));
  return {};
}

// As tc of iproute2 takes them.
bool is_rate(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0 || digits > 6 || text.substr(0, digits).find_first_not_of('0') == std::string_view::npos)
    return false;
  constexpr std::array kUnits = {"bit", "kbit", "mbit", "gbit"};
  return std::find(kUnits.begin(), kUnits.end(), text.substr(digits)) != kUnits.end();
}

Status take_against(const BenchWords& w, BenchOptions& o) {
  constexpr std::array kKnown = {"openmpi",  "mpich",  "gloo",     "sockets",
                                 "openmpi5", "mpich5", "intelmpi", "oneccl"};
  constexpr std::array kCollectives = {Collective::allreduce, Collective::broadcast,
                                       Collective::allgather, Collective::reduce_scatter,
                                       Collective::alltoall,  Collective::barrier};
  for (std::size_t at = 0; !w.against.empty() && at <= w.against.size();) {
    const std::size_t comma = std::min(w.against.find(',', at), w.against.size());
    o.against.push_back(w.against.substr(at, comma - at));
    if (std::find(kKnown.begin(), kKnown.end(), o.against.back()) == kKnown.end()) {
      return invalid_argument(
          fmt::format("--against: '{}' is not one of {}", o.against.back(), fmt::join(kKnown, ", ")));
    }
    at = comma + 1;
  }
  if (!o.against.empty() &&
      std::find(kCollectives.begin(), kCollectives.end(), o.collective) == kCollectives.end()) {
    return invalid_argument(
        fmt::format("--against: {} is not compared; allreduce, broadcast, allgather, reduce_scatter, "
                    "alltoall, barrier are",
                    to_string(o.collective)));
  }
  if (o.round_count < 1)
    return invalid_argument(fmt::format("--rounds: expected at least 1, got {}", o.round_count));
  if (w.nodes.empty()) return {};
  if (o.against.empty()) return invalid_argument("--nodes: only comparisons (--against) make nodes");
  const auto nodes = parse_nodes(w.nodes);
  TUTTI_RETURN_IF_ERROR(
      take(nodes, "--nodes", w.nodes, "a number of nodes such as 2, or 2x4 with ranks", o.nodes));
  if (!o.rate.empty() && !is_rate(o.rate))
    return invalid_argument(
        fmt::format("--rate: expected a rate such as 1gbit or 200mbit, got '{}'", o.rate));
  o.rank_count = o.nodes.node_count * o.nodes.ranks_per_node;
  o.has_rank_count = true;
  return {};
}

// Has more than 15 decisions because there is one for each option.
Status take_modes(const BenchWords& w, BenchOptions& o) {
  if (w.is_b2b) o.loop.mode = bench::Mode::b2b;
  if (w.is_hot) o.loop.mode = bench::Mode::hot;
  if (w.iterations < 0 || o.loop.warmup_count < 0)
    return invalid_argument("--iters, --warmup: expected 0 or more calls");
  // The ranks of a batch start when the system lets them, so batches of a loop must be long.
  constexpr int kMostInLoop = 20000;
  constexpr int kMostNeighbours = 4096;
  if (o.loop.mode == bench::Mode::b2b) o.loop.iteration_count = kMostInLoop;
  // On a GPU the calls of a batch wait in the stream, and the host is out of the way: short ones do.
  if (o.is_on_gpus() && !w.is_hot) {
    o.loop.mode = bench::Mode::b2b;
    o.loop.iteration_count = bench::LoopPlan().iteration_count;
  }
  if (w.iterations > 0) o.loop.iteration_count = o.loop.minimum_count = w.iterations;
  if (!(o.loop.budget_seconds > 0)) return invalid_argument("--budget: must be more than 0 seconds");
  TUTTI_RETURN_IF_ERROR(take(bench::parse_pages(w.pages), "--pages", w.pages, "4k or thp", o.pages));
  if (w.allocation != "malloc" && w.allocation != "tutti")
    return invalid_argument(fmt::format("--alloc: '{}' is not malloc or tutti", w.allocation));
  o.allocation = w.allocation == "tutti" ? Allocation::tutti_heap : Allocation::anonymous;
  if (o.neighbour_count < 0 || o.neighbour_count > kMostNeighbours)
    return invalid_argument(fmt::format("--beside: {} is not a number of processes from 0 to {}",
                                        o.neighbour_count, kMostNeighbours));
  if (w.binding != "auto" && w.binding != "none" && w.binding != "core")
    return invalid_argument(fmt::format("--bind: '{}' is not none, core or auto", w.binding));
  if (!w.map.empty()) {
    const auto map = parse_map_level(w.map);
    if (!map) return invalid_argument(fmt::format("--map: '{}' is not core, llc, numa or socket", w.map));
    if (w.binding == "none") return invalid_argument("--map: binds each rank; leave it or --bind none out");
    o.map = *map;
    o.has_map = true;
    o.binding = Binding::core;
    return {};
  }
  o.binding = w.binding == "auto" ? Binding::automatic : w.binding == "core" ? Binding::core : Binding::none;
  return {};
}

// Fewer measurements exist for calls on GPUs.
Status take_device(const ArgumentParser& app, const BenchWords& w, BenchOptions& o) {
  if (w.device == "host") return {};
  if (w.device != "cuda")
    return invalid_argument(fmt::format("--device: '{}' is not host or cuda", w.device));
  o.device = DeviceKind::cuda;
  if (o.collective == Collective::barrier)
    return invalid_argument("--device cuda: a barrier has no buffers; measure it without --device");
  for (const char* option : {"--workload", "--submitted", "--then", "--roofline", "--alloc", "--pages",
                             "--against", "--plot", "--html"}) {
    if (app.count(option) > 0)
      return invalid_argument(
          fmt::format("{}: of calls on host memory only; leave it or --device cuda out", option));
  }
  return {};
}

// A step consists of allreduces of gradients, in place, in host memory, and is verified.
Status take_step(const ArgumentParser& app, const BenchWords& w, BenchOptions& o) {
  if (!o.is_step) return {};
  if (o.collective != Collective::allreduce) return invalid_argument("--step: measured for allreduce only");
  for (const char* option : {"--overlap", "--algorithm", "--in-place", "--b2b", "--hot", "--roofline",
                             "--against", "--plot", "--html"}) {
    if (app.count(option) > 0)
      return invalid_argument(fmt::format("{}: not of steps; leave it or --step out", option));
  }
  if (o.op == Op::premul_sum)
    return invalid_argument("--op premul_sum: not offered by name, so no step has it");
  const auto compute = parse_duration(w.compute);
  if (!compute) return invalid_argument(fmt::format("--compute: '{}' is no time such as 50ms", w.compute));
  o.compute_us = std::chrono::duration<double, std::micro>(*compute).count();
  return {};
}

// "8,64": the numbers of ranks, each with a rank of that number and a root.
Status take_puppet_ranks(const BenchWords& w, BenchOptions& o) {
  constexpr int kLeastRanks = 3, kMostRanks = 1024;
  const auto [least, most] = std::minmax(o.puppet_rank, o.root);
  for (const std::string_view word : split(w.puppet, ',')) {
    const auto ranks = parse_number<int>(word);
    if (!ranks || *ranks < kLeastRanks || *ranks > kMostRanks)
      return invalid_argument(fmt::format("--puppet: '{}' is not a list of numbers from {} to {}", w.puppet,
                                          kLeastRanks, kMostRanks));
    if (least < 0 || most >= *ranks)
      return invalid_argument(fmt::format("--puppet-rank {}, --root {}: the ranks of --puppet are 0 to {}",
                                          o.puppet_rank, o.root, *ranks - 1));
    o.puppet_ranks.push_back(static_cast<std::uint32_t>(*ranks));
  }
  return {};
}

// One rank among played peers: no job, and nothing but the call itself.
Status take_puppet(const ArgumentParser& app, const BenchWords& w, BenchOptions& o) {
  if (w.puppet.empty() && app.count("--puppet-rank") > 0)
    return invalid_argument("--puppet-rank: needs --puppet");
  if (w.puppet.empty()) return {};
  for (const char* option :
       {"-n", "--threads", "--nodes", "--beside", "--against", "--workload", "--submitted", "--then",
        "--roofline", "--in-place", "--device", "--alloc", "--pages", "--b2b", "--hot", "--plot", "--html"}) {
    if (app.count(option) > 0)
      return invalid_argument(fmt::format("{}: not of played ranks; leave it or --puppet out", option));
  }
  TUTTI_RETURN_IF_ERROR(take_puppet_ranks(w, o));
  if (o.collective == Collective::barrier) return invalid_argument("--puppet: a barrier has no sizes");
  if (app.count("-b") == 0) o.first_bytes = 8;
  if (app.count("-e") == 0) o.last_bytes = o.first_bytes;
  constexpr int kMostCalls = 2000;  // they are short, and so is the time between them
  if (w.iterations == 0) o.loop.iteration_count = kMostCalls;
  return {};
}

// Has more than 15 decisions because there is one for each pair of options that do not fit.
Status check(const ArgumentParser& app, const BenchWords& w, BenchOptions& o) {
  TUTTI_RETURN_IF_ERROR(take_collective(w, o));
  TUTTI_RETURN_IF_ERROR(take_device(app, w, o));
  TUTTI_RETURN_IF_ERROR(take_sizes(w, o));
  TUTTI_RETURN_IF_ERROR(take_op(w, o));
  TUTTI_RETURN_IF_ERROR(take_modes(w, o));
  TUTTI_RETURN_IF_ERROR(take_against(w, o));
  TUTTI_RETURN_IF_ERROR(take_step(app, w, o));
  TUTTI_RETURN_IF_ERROR(take_puppet(app, w, o));
  if (!w.then.empty()) {
    o.then = parse_collective(w.then);
    if (!o.then || *o.then == Collective::barrier || o.collective == Collective::barrier)
      return invalid_argument(
          fmt::format("--then: '{}' after {}; each must be a collective with buffers", w.then, w.collective));
    if (!o.algorithm.empty())
      return invalid_argument("--algorithm: of one collective only; leave it or --then out");
  }
  if (!o.workload.empty() && o.collective == Collective::barrier)
    return invalid_argument("--workload: a barrier has no sizes");
  if (!o.workload.empty() && !o.against.empty() && o.overlap_ms == 0)
    return invalid_argument(
        "--against: with --workload it compares beside arithmetic only; say how much with --overlap");
  if (o.overlap_ms < 0) return invalid_argument("--overlap: must be more than 0 milliseconds");
  if (o.overlap_ms > 0 && o.collective != Collective::allreduce)
    return invalid_argument("--overlap: measured for allreduce only");
  if (o.has_submitted && o.collective != Collective::allreduce)
    return invalid_argument("--submitted: measured for allreduce only");
  // A rule that does not parse is said once, here, and not by every rank.
  if (!o.algorithm.empty()) {
    const auto rules = parse_rules(o.collective, o.algorithm);
    if (!rules) return rules.status().with_context("--algorithm");
  }
  const auto ends_with = [&](std::string_view end) {
    return o.plot_path.size() > end.size() && std::string_view(o.plot_path).ends_with(end);
  };
  if (!o.plot_path.empty() && !ends_with(".png") && !ends_with(".svg"))
    return invalid_argument(fmt::format("--plot: '{}' ends neither in .png nor in .svg", o.plot_path));
  if (!o.html_path.empty() && !o.html_path.ends_with(".html"))
    return invalid_argument(fmt::format("--html: '{}' does not end in .html", o.html_path));
  return {};
}

// The ceilings have other defaults, and most options say something about a call.
Status prepare_roofline(const ArgumentParser& app, BenchWords& w, BenchOptions& o) {
  for (const char* option :
       {"--puppet", "--workload",  "--step",     "--submitted", "--then",  "--dtype",   "--op",
        "--root",   "--algorithm", "--in-place", "--device",    "--check", "--iters",   "--warmup",
        "--b2b",    "--hot",       "--roofline", "--alloc",     "--pages", "--against", "--peers-dir"}) {
    if (app.count(option) > 0)
      return invalid_argument(fmt::format("{}: roofline measures no call, so it has no such option", option));
  }
  o.is_roofline = true;
  const bench::CeilingsPlan plan;
  if (app.count("-b") == 0) w.first = std::to_string(plan.first_bytes);
  if (app.count("-e") == 0) w.last = std::to_string(plan.last_bytes);
  if (app.count("--budget") == 0) o.loop.budget_seconds = plan.budget_seconds;
  if (app.count("--rounds") == 0) o.round_count = plan.round_count;
  return {};
}

// Sizes that vector kernels and lines are happy with.
Status check_roofline(const BenchOptions& o) {
  constexpr std::size_t kStep = 64;
  if (!o.is_roofline || (o.first_bytes % kStep == 0 && o.first_bytes > 0)) return {};
  return invalid_argument(fmt::format("-b: sizes of roofline are multiples of {}", kStep));
}

}  // namespace

std::optional<Dtype> parse_dtype_synonym(std::string_view name) {
  constexpr std::pair<std::string_view, Dtype> kSynonyms[] = {
      {"float", Dtype::f32},     {"float32", Dtype::f32},     {"double", Dtype::f64},
      {"float64", Dtype::f64},   {"half", Dtype::f16},        {"float16", Dtype::f16},
      {"bfloat16", Dtype::bf16}, {"int8", Dtype::i8},         {"uint8", Dtype::u8},
      {"int16", Dtype::i16},     {"uint16", Dtype::u16},      {"int", Dtype::i32},
      {"int32", Dtype::i32},     {"uint32", Dtype::u32},      {"int64", Dtype::i64},
      {"uint64", Dtype::u64},    {"e4m3", Dtype::f8e4m3},     {"fp8_e4m3", Dtype::f8e4m3},
      {"e5m2", Dtype::f8e5m2},   {"fp8_e5m2", Dtype::f8e5m2}, {"boolean", Dtype::boolean}};
  for (const auto& [synonym, dtype] : kSynonyms) {
    if (synonym == name) return dtype;
  }
  return parse_dtype(name);
}

std::optional<BenchOptions> parse_bench_options(int argc, char** argv, int* status) {
  BenchOptions options;
  BenchWords words;
  ArgumentParser app(std::string(kSummary), "tutti bench");
  declare_bench_options(app, options, words);
  if (!app.parse(argc, argv, status)) return std::nullopt;
  options.has_rank_count = app.count("-n") > 0;
  Status checked;
  if (words.collective == "roofline") checked = prepare_roofline(app, words, options);
  if (checked) checked = check(app, words, options);
  if (checked) checked = check_roofline(options);
  if (checked && options.has_rank_count && (options.rank_count < 1 || options.rank_count > 4096))
    checked =
        invalid_argument(fmt::format("-n: {} is not a number of ranks from 1 to 4096", options.rank_count));
  if (!checked) {
    *status = usage_error("bench", checked);
    return std::nullopt;
  }
  return options;
}

}  // namespace tutti::tool
