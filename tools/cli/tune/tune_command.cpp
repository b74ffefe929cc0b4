// `tutti tune`: measures this job and writes rules; or says how well the cost model chooses where others have
// measured (--evaluate). Knows no model and no measurement itself.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "runtime/base/config.hpp"
#include "runtime/job/launchers/launch.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/json.hpp"
#include "tools/cli/tune/evaluate.hpp"
#include "tools/cli/tune/import_command.hpp"
#include "tools/cli/tune/tune_job.hpp"
#include "tutti/tutti.hpp"

namespace tutti::tool {
namespace {

// A choice as good as the best, as far as medians tell.
constexpr double kAsGoodRegret = 1.02;

// Of several points: geometric means of time / best candidate's time.
struct Summary {
  std::uint32_t points = 0, wins = 0, default_points = 0, default_wins = 0;
  double log_regret = 0, worst = 1, log_default = 0, log_choice_where_default = 0;

  void add(const Verdict& v) {
    const double regret = v.chosen_us / v.best_us;
    ++points;
    wins += regret <= kAsGoodRegret ? 1U : 0U;
    log_regret += std::log(regret);
    worst = std::max(worst, regret);
    if (v.default_us <= 0) return;
    ++default_points;
    default_wins += v.default_us / v.best_us <= kAsGoodRegret ? 1U : 0U;
    log_default += std::log(v.default_us / v.best_us);
    log_choice_where_default += std::log(regret);
  }
  double regret() const { return std::exp(log_regret / std::max(points, 1U)); }
  double default_regret() const { return std::exp(log_default / std::max(default_points, 1U)); }
  // The choice's time over the default's, where both are known.
  double versus_default() const {
    return std::exp((log_choice_where_default - log_default) / std::max(default_points, 1U));
  }
};

using SummaryMap = std::map<std::string, Summary>;

std::string job_text(const Job& job) {
  return fmt::format("{} {}x{}", job.collective, job.nodes, job.ranks_per_node);
}

void print_summaries(std::string_view title, const SummaryMap& summaries) {
  fmt::print("{:<34} {:>7} {:>8} {:>8} {:>9} | {:>8} {:>9} {:>12}\n", title, "points", "regret", "worst",
             "winners", "default", "winners", "choice/def.");
  for (const auto& [name, s] : summaries) {
    fmt::print("{:<34} {:>7} {:>8.3f} {:>8.2f} {:>7.0f} % |", name, s.points, s.regret(), s.worst,
               100.0 * s.wins / s.points);
    if (s.default_points > 0)
      fmt::print(" {:>8.3f} {:>7.0f} % {:>12.3f}", s.default_regret(),
                 100.0 * s.default_wins / s.default_points, s.versus_default());
    fmt::print("\n");
  }
  fmt::print("\n");
}

void print_text(const Evaluation& evaluation) {
  SummaryMap systems, collectives;
  const Job* shown = nullptr;
  for (const Verdict& v : evaluation.verdicts) {
    if (shown == nullptr || *shown != v.job) {
      const auto report = std::find_if(evaluation.jobs.begin(), evaluation.jobs.end(),
                                       [&](const JobReport& r) { return r.job == v.job; });
      fmt::print("{}{} {} ({}), fitted on {} and {}\n", shown == nullptr ? "" : "\n", v.job.system,
                 job_text(v.job), v.job.name, report->fitted[0], report->fitted[1]);
      for (const std::string& skipped : report->skipped) fmt::print("  no price for {}\n", skipped);
      fmt::print("  {:>10} {:<28} {:>11} {:>11} {:>11} {:>7} {:>8}  {}\n", "bytes", "chosen", "predicted",
                 "measured", "best", "regret", "default", "best candidate");
      shown = &v.job;
    }
    fmt::print("  {:>10} {:<28} {:>11.1f} {:>11.1f} {:>11.1f} {:>7.2f} {:>8}  {}\n", v.bytes, v.chosen,
               v.predicted_us, v.chosen_us, v.best_us, v.chosen_us / v.best_us,
               v.default_us > 0 ? fmt::format("{:.2f}", v.default_us / v.best_us) : "-",
               v.chosen == v.best ? "" : v.best);
    systems[v.job.system].add(v);
    collectives[v.job.system + " " + job_text(v.job)].add(v);
  }
  fmt::print(
      "\nRegret: the chosen algorithm's median over the best candidate's, geometric mean. "
      "Winners: within 2 % of the best.\n"
      "Default: the same for the library's own choice, where measured; "
      "choice/def.: our choice's time over it.\n\n");
  print_summaries("system, collective, nodes x ranks", collectives);
  print_summaries("system", systems);
}

Json to_json(const Summary& s) {
  Json out = {{"points", s.points},
              {"regret", s.regret()},
              {"worst", s.worst},
              {"winner_accuracy", static_cast<double>(s.wins) / s.points},
              {"default_points", s.default_points}};
  if (s.default_points > 0) {
    out["default_regret"] = s.default_regret();
    out["default_winner_accuracy"] = static_cast<double>(s.default_wins) / s.default_points;
    out["choice_over_default"] = s.versus_default();
  }
  return out;
}

Json to_json(const Evaluation& evaluation) {
  Json points = Json::array(), jobs = Json::array();
  std::map<std::string, Summary> systems;
  std::map<std::string, std::map<std::string, Summary>> collectives;
  for (const Verdict& v : evaluation.verdicts) {
    points.push_back({{"system", v.job.system},
                      {"collective", to_string(v.collective)},
                      {"job", v.job.name},
                      {"nodes", v.job.nodes},
                      {"ranks_per_node", v.job.ranks_per_node},
                      {"bytes", v.bytes},
                      {"candidates", v.candidates},
                      {"chosen", v.chosen},
                      {"algorithm", v.chosen_algorithm},
                      {"best", v.best},
                      {"predicted_us", v.predicted_us},
                      {"chosen_us", v.chosen_us},
                      {"best_us", v.best_us},
                      {"regret", v.chosen_us / v.best_us},
                      {"default_us", v.default_us > 0 ? Json(v.default_us) : Json(nullptr)}});
    systems[v.job.system].add(v);
    collectives[v.job.system][std::string(to_string(v.collective))].add(v);
  }
  for (const JobReport& r : evaluation.jobs) {
    jobs.push_back({{"system", r.job.system},
                    {"collective", r.job.collective},
                    {"job", r.job.name},
                    {"nodes", r.job.nodes},
                    {"ranks_per_node", r.job.ranks_per_node},
                    {"fitted", std::vector{r.fitted[0], r.fitted[1]}},
                    {"skipped", r.skipped}});
  }
  Json out_systems = Json::object();
  for (const auto& [name, summary] : systems) {
    Json entry = to_json(summary);
    for (const auto& [collective, of_it] : collectives[name])
      entry["collectives"][collective] = to_json(of_it);
    out_systems[name] = std::move(entry);
  }
  return {{"systems", out_systems}, {"jobs", jobs}, {"points", points}};
}

// Words as they were given, before they are checked.
struct Words {
  std::string collectives, sizes = "4-16m", budget = "3m", mode = "auto";
};

Status take_collectives(std::string_view text, TuneOptions& options) {
  while (!text.empty()) {
    const std::string_view name = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), name.size() + 1));
    const auto collective = parse_collective(name);
    if (!collective || *collective == Collective::send_recv) return select_rows(name, "").status();
    options.collectives.push_back(*collective);
  }
  return {};
}

Status check(const Words& words, TuneOptions& options) {
  TUTTI_RETURN_IF_ERROR(take_collectives(words.collectives, options).with_context("--collectives"));
  const std::size_t dash = words.sizes.find('-');
  const auto first = bench::parse_bytes(words.sizes.substr(0, dash));
  const auto last = dash == std::string::npos ? first : bench::parse_bytes(words.sizes.substr(dash + 1));
  if (!first || !last || *first == 0 || *last < *first)
    return invalid_argument(fmt::format("--sizes: '{}' is no size or range such as 4-16m", words.sizes));
  options.first_bytes = *first;
  options.last_bytes = *last;
  // "3m" is what people type for minutes.
  const auto budget = parse_duration(words.budget.ends_with('m') ? words.budget + "in" : words.budget);
  if (!budget || budget->count() <= 0)
    return invalid_argument(fmt::format("--budget: '{}' is no time such as 90s or 3m", words.budget));
  options.budget_seconds = std::chrono::duration<double>(*budget).count();
  options.mode = bench::parse_mode(words.mode);
  if (!options.mode && words.mode != "auto")
    return invalid_argument(fmt::format("--mode: '{}' is not auto, fresh, hot or b2b", words.mode));
  if (find_launcher(Environment::of_process()) != "none") return {};
  return invalid_argument(
      "it measures the job that it is started in: tutti run -n 4 tutti tune (or mpirun, srun, ...); times "
      "measured elsewhere: --evaluate FILE.csv --map MAP.csv");
}

int measure(const TuneOptions& options) {
  try {
    return run_tune_job(options);
  } catch (const Error& error) {
    fmt::print(stderr, "tutti tune: {}\n", error.what());
    return error.code() == StatusCode::invalid_argument ? 2 : 1;
  }
}

// tutti tune --evaluate
int judge_model(const std::vector<std::string>& files, const std::string& map_path, bool is_json) {
  if (files.empty() || map_path.empty())
    return usage_error("tune", invalid_argument("name measured times and what their names mean: --evaluate "
                                                "FILE.csv --map MAP.csv"));
  const auto map = read_alias_map(map_path);
  if (!map) return usage_error("tune", map.status().with_context("--map"));
  Measurements measured;
  for (const std::string& file : files) {
    auto read = read_measurements(file);
    if (!read) return usage_error("tune", read.status().with_context("--evaluate"));
    measured.merge(*read);
  }
  const auto evaluation = evaluate(measured, *map);
  if (!evaluation) return usage_error("tune", evaluation.status());
  if (is_json) {
    fmt::print("{}\n", to_json(*evaluation).dump(1));
  } else {
    print_text(*evaluation);
  }
  return 0;
}

}  // namespace

int tune_command(int argc, char** argv) {
  if (is_import(argc, argv)) return import_command(argc, argv);
  std::vector<std::string> files;
  std::string map_path;
  bool is_json = false;
  TuneOptions options;
  Words words;
  ArgumentParser app(
      "Measures the algorithms of each collective in the job that it is started in (tutti run, mpirun, srun, "
      "...) and writes\n"
      "rules for where another one than the default choice is faster by more than the noise. With --evaluate "
      "it starts\n"
      "nothing: it judges the cost model on times that were measured elsewhere.",
      "tutti tune");
  app.footer(
      "Examples:\n"
      "  tutti run -n 4 tutti tune --budget 3m\n"
      "  tutti run -n 4 tutti tune --collectives allreduce,allgather --sizes 1k-64m --verify -o tuning.json\n"
      "  tutti tune --evaluate times.csv --map docs/data/pico_map.csv\n"
      "\n"
      "tutti tune --import FILE|TEXT makes a tuning file of rules for Open MPI, oneCCL or NCCL: see "
      "tutti tune --import=- --help.\n"
      "\n"
      "Exit status: 0; 1 if --verify found a rule that makes calls slower, or a rank failed; 2 after wrong "
      "arguments.");
  app.add_option("--collectives", words.collectives, "allreduce,broadcast,... (default: all)");
  app.add_option("--sizes", words.sizes, "bytes of the full vector, each four times the last one")
      .show_default();
  app.add_option("--budget", words.budget, "time for everything: 90s, 3m").show_default();
  app.add_option("--mode", words.mode,
                 "what a time is: of a call from a common start, inputs rewritten before (fresh) or not "
                 "(hot), or of back-to-back\n"
                 "calls (b2b); auto: b2b if ranks outnumber CPUs, else fresh")
      .show_default();
  app.add_option("-o,--output", options.output, "the tuning file to write or to extend");
  app.add_flag("--verify", options.is_verified, "measure the rules against the default choices afterwards");
  app.add_option(
      "--evaluate", files,
      "CSV with columns system, collective, nnodes, tasks_per_node, algo, elements_int32, median_us "
      "(and lib, timestamp, test_id); may be given several times");
  app.add_option("--map", map_path,
                 "CSV with columns collective, algo, algorithm: which of our algorithms a name means");
  app.add_flag("--json", is_json, "the same for programs");
  int status = 0;
  if (!app.parse(argc, argv, &status)) return status;
  if (files.empty() && map_path.empty()) {
    if (Status checked = check(words, options); !checked) return usage_error("tune", checked);
    options.is_json = is_json;
    options.command = "tutti";
    for (int i = 0; i < argc; ++i) options.command += std::string(" ") + argv[i];
    return measure(options);
  }
  return judge_model(files, map_path, is_json);
}

}  // namespace tutti::tool
