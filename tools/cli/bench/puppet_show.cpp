// Times the calls of one rank whose peers are played ahead by a thread on another CPU.
#include "tools/cli/bench/puppet_show.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/puppet/puppet.hpp"
#include "runtime/base/rank_lists.hpp"
#include "runtime/base/relax.hpp"
#include "runtime/base/thread.hpp"
#include "runtime/group/comm_group.hpp"
#include "runtime/include/tutti/tutti.hpp"
#include "runtime/schedule/passes/lower.hpp"
#include "runtime/selection/selection.hpp"
#include "tools/cli/assumed_domains.hpp"
#include "tools/cli/bench/placement.hpp"
#include "tools/cli/bench/report.hpp"
#include "tools/cli/starting_model.hpp"

namespace tutti::tool {
namespace {

template <class T>
T value_or_throw(Result<T> result) {
  throw_if_error(result.status());
  return *std::move(result);
}

// The thread that plays the peers, and the rendezvous of the timed loop: at its barrier the peers' next parts are
// played. It is of one rank.
class Puppeteer {
 public:
  Puppeteer(bench::Puppet& puppet, const std::vector<int>& cpus) : puppet_(puppet) {
    thread_ = value_or_throw(start_thread("tutti-puppets", [this, &cpus] {
      if (cpus.size() > 1) static_cast<void>(bind_to_core(1, cpus));
      play_on_demand();
    }));
  }
  ~Puppeteer() {
    asked_.store(kEnd, std::memory_order_release);
    thread_.join();
  }
  Puppeteer(const Puppeteer&) = delete;
  Puppeteer& operator=(const Puppeteer&) = delete;

  static int rank_count() { return 1; }
  void barrier() {
    asked_.store(++calls_, std::memory_order_release);
    wait([&] { return played_.load(std::memory_order_acquire) == calls_; });
    throw_if_error(status_);
  }
  static void gather(std::span<const double> mine, std::span<double> all) {
    std::copy(mine.begin(), mine.end(), all.begin());
  }

 private:
  static constexpr std::uint64_t kEnd = ~std::uint64_t{0};

  // The other thread may need this CPU after all.
  template <class IsDone>
  static void wait(const IsDone& is_done) {
    constexpr std::uint32_t kPollsPerYield = 4096;
    for (std::uint32_t polls = 1; !is_done(); ++polls) {
      relax();
      if (polls % kPollsPerYield == 0) ::sched_yield();
    }
  }
  void play_on_demand() {
    for (std::uint64_t call = 1;; ++call) {
      wait([&] { return asked_.load(std::memory_order_acquire) >= call; });
      if (asked_.load(std::memory_order_acquire) == kEnd) return;
      status_ = puppet_.play();
      played_.store(call, std::memory_order_release);
    }
  }

  bench::Puppet& puppet_;
  std::uint64_t calls_ = 0;
  Status status_;  // of the last play, which `played_` publishes
  alignas(kLineBytes) std::atomic<std::uint64_t> asked_{0};
  alignas(kLineBytes) std::atomic<std::uint64_t> played_{0};
  std::thread thread_;
};

// The machine that the ranks are taken to run on.
struct Pretence {
  Selector selector;
  WorldSettings settings;
  const MachineClass* machine = nullptr;
  CostModel model;
};

Pretence make_pretence(const BenchOptions& options, const Environment& environment) {
  Pretence made{value_or_throw(Selector::make({})), value_or_throw(read_settings(environment)), nullptr, {}};
  made.machine = &machine_class_of(made.settings.topology.cpu_model);
  made.model = value_or_throw(starting_model(environment, "", false, options.dtype, *made.machine)).model;
  // Peers are one thread: between them nothing is transferred.
  made.model.line(Level::core) = {};
  made.model.link(Level::core) = {};
  return made;
}

Hierarchy hierarchy_of(const WorldSettings& settings, std::uint32_t ranks) {
  const WorldDomains domains = assume_domains(settings, ranks, ranks, ranks);
  throw_if_error(domains.check());
  return domains.hierarchy_of(first_ranks(ranks));
}

// The model's time for the rank, in microseconds: all enter at once, and lines between peers cost nothing.
double predict_us(const bench::PuppetSetup& setup, const CostModel& model) {
  const auto ranks = value_or_throw(emit_all(*setup.row, setup.instance));
  const auto lowered = value_or_throw(lower_for_shared_memory(ranks, Sharing::scratch));
  Places places;
  places.node.assign(setup.instance.size, 0);
  places.cache = places.numa = places.socket = places.node;
  places.core.assign(setup.instance.size, 1);
  places.core[setup.rank] = 0;
  std::vector<std::vector<std::uint64_t>> ends;
  value_or_throw(price_schedules(lowered, setup.shape.bytes(), places, model, &ends));
  std::uint64_t last_ps = 0;
  for (const std::uint64_t end_ps : ends[setup.rank]) last_ps = std::max(last_ps, end_ps);
  return static_cast<double>(last_ps + model.call_ps) / 1e6;
}

struct Row {
  bench::PuppetSetup setup;
  std::string algorithm;
  bench::Measurement times;
  bench::StepCounts counts;
  double model_us = 0;
  std::size_t wrong_count = 0;
};

Row take_row(const BenchOptions& options, const Pretence& pretence, std::uint32_t ranks, std::size_t bytes,
             const std::vector<int>& cpus) {
  Row row;
  bench::PuppetSetup& setup = row.setup;
  setup.shape = options.shape_of(bytes, static_cast<int>(ranks));
  setup.op = options.op;
  setup.instance.size = ranks;
  setup.instance.root = static_cast<std::uint32_t>(options.root);
  setup.instance.hierarchy = hierarchy_of(pretence.settings, ranks);
  setup.rank = static_cast<std::uint32_t>(options.puppet_rank);
  setup.waiting = pretence.settings.wait_policy(1, 2, false);
  Question question;
  question.collective = options.collective;
  question.bytes = setup.shape.bytes();
  question.size = ranks;
  question.hierarchy = &setup.instance.hierarchy;
  const Selection selection = value_or_throw(pretence.selector.choose(question, options.algorithm));
  setup.row = selection.row;
  setup.instance.params = selection.params;
  row.algorithm = to_text(*selection.row, selection.params);

  const std::unique_ptr<bench::Puppet> puppet = value_or_throw(bench::Puppet::make(setup));
  Puppeteer puppeteer(*puppet, cpus);
  for (std::uint32_t call = 0; call < puppet->priming_calls(); ++call) {
    puppeteer.barrier();
    throw_if_error(puppet->run());
  }
  bench::LoopPlan plan = options.loop;
  plan.mode = bench::Mode::hot;
  row.times = bench::measure(
      plan, puppeteer, [](std::uint64_t) {}, [&] { throw_if_error(puppet->run()); });
  row.wrong_count = puppet->wrong_count();
  row.counts = puppet->counts();
  row.model_us = predict_us(setup, pretence.model);
  return row;
}

void print_row(const Row& row) {
  fmt::print("{:>6} {:>10} {:<28} {:>9.2f} {:>9.2f} {:>9.2f} {:>8} {:>6} {:>7} {:>8} {:>9.2f} {:>6}\n",
             row.setup.shape.ranks, bytes_text(row.setup.shape.bytes()), row.algorithm, row.times.p50_us,
             row.times.p95_us, row.times.min_us, row.counts.signals, row.counts.waits, row.counts.read_lines,
             row.counts.written_lines, row.model_us, row.wrong_count);
  std::fflush(stdout);
}

std::string to_json(const Row& row, const MachineClass& machine) {
  return fmt::format(
      "{{\"puppet\": \"{}\", \"ranks\": {}, \"rank\": {}, \"bytes\": {}, \"dtype\": \"{}\", \"op\": \"{}\", "
      "\"algorithm\": {}, \"iterations\": {}, \"p50_us\": {:.6g}, \"p95_us\": {:.6g}, \"min_us\": {:.6g}, "
      "\"signals\": {}, \"waits\": {}, \"passes\": {}, \"read_lines\": {}, \"written_lines\": {}, "
      "\"model\": {}, \"model_us\": {:.6g}, \"wrong\": {}}}",
      to_string(row.setup.shape.collective), row.setup.shape.ranks, row.setup.rank, row.setup.shape.bytes(),
      to_string(row.setup.shape.dtype),
      is_reducing(row.setup.shape.collective) ? to_string(row.setup.op) : "none",
      bench::json_quoted(row.algorithm), row.times.iteration_count, row.times.p50_us, row.times.p95_us,
      row.times.min_us, row.counts.signals, row.counts.waits, row.counts.passes, row.counts.read_lines,
      row.counts.written_lines, bench::json_quoted(machine.name), row.model_us, row.wrong_count);
}

}  // namespace

int run_puppet_show(const BenchOptions& options, const Environment& environment) {
  const std::vector<int> cpus = allowed_cpus_by(options.map);
  if (cpus.size() < 2)
    throw Error(StatusCode::unsupported, -1,
                "--puppet: takes two CPUs, one for the rank and one for its peers");
  const bool is_bound = options.binding != Binding::none;
  if (is_bound) throw_if_error(bind_to_core(0, cpus));
  JsonLines json = value_or_throw(JsonLines::open(options.json_path));
  const Pretence pretence = make_pretence(options, environment);
  fmt::print("# tutti {}, {}: rank {} alone, its peers played ahead of it on another CPU; model: {}\n",
             version(), to_string(options.collective), options.puppet_rank, pretence.machine->name);
  fmt::print("{:>6} {:>10} {:<28} {:>9} {:>9} {:>9} {:>8} {:>6} {:>7} {:>8} {:>9} {:>6}\n", "ranks", "size",
             "algorithm", "p50 us", "p95 us", "min us", "signals", "waits", "reads", "writes", "model us",
             "wrong");
  std::size_t wrong_count = 0;
  for (const std::uint32_t ranks : options.puppet_ranks) {
    for (const bench::Shape& shape :
         bench::sweep(options.collective, options.dtype, static_cast<int>(ranks), options.first_bytes,
                      options.last_bytes, options.factor, options.root)) {
      const Row row = take_row(options, pretence, ranks, shape.bytes(), is_bound ? cpus : std::vector<int>());
      print_row(row);
      json.write(to_json(row, *pretence.machine));
      wrong_count += row.wrong_count;
    }
  }
  return wrong_count == 0 ? 0 : 1;
}

}  // namespace tutti::tool
