// One rank of a tuning job.
#include "tools/cli/tune/tune_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "runtime/group/comm_group.hpp"
#include "runtime/group/tuning_file.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/bench/job.hpp"
#include "tools/cli/bench/placement.hpp"
#include "tools/cli/bench/report.hpp"
#include "tools/cli/json.hpp"
#include "tools/cli/starting_model.hpp"
#include "tools/cli/tune/campaign.hpp"
#include "tools/cli/tune/field.hpp"
#include "tools/cli/tune/tune_file.hpp"
#include "tools/cli/tune/tune_report.hpp"

namespace tutti::tool {
namespace {

// Of the budget, for comparing tuned with untuned.
constexpr double kVerifyShare = 0.15;
constexpr std::size_t kSizeFactor = 4;

// The placement of the world's ranks, in the form that the campaign asks for.
struct Whereabouts {
  Hierarchy hierarchy;
  Setting setting;
  Reach reach = Reach::node;
  bool shares_cpus = false, spans_sockets = false;
};

Result<Whereabouts> whereabouts_of(const CommGroup& group) {
  const CommGroup::Impl& impl = CommGroup::Impl::of(group, "tune");
  const WorldDomains& domains = impl.world().domains();
  const std::vector<int>& ranks = impl.world_ranks();
  Whereabouts found;
  found.hierarchy = domains.hierarchy_of(ranks);
  found.reach = domains.spans_nodes(ranks) ? Reach::network : Reach::node;
  found.shares_cpus = domains.shares_cpus(ranks);
  found.spans_sockets = domains.spans_sockets(ranks);
  found.setting.places = domains.places_of(ranks);
  const auto start = starting_model(Environment::of_process(), "", found.reach == Reach::network, Dtype::f32,
                                    machine_class_of(impl.world().settings().topology.cpu_model));
  if (!start) return start.status();
  found.setting.model = start->model;
  found.setting.model.cached_reduce_kib_ps = 0;  // the fit knows one price of additions
  found.setting.is_lowered =
      found.reach == Reach::node && start->shares_memory && impl.world().settings().uses_control_blocks;
  return found;
}

CampaignPlan plan_of(const TuneOptions& options, int rank_count) {
  CampaignPlan plan;
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (collective == Collective::send_recv) continue;
    if (!options.collectives.empty() && std::find(options.collectives.begin(), options.collectives.end(),
                                                  collective) == options.collectives.end())
      continue;
    std::vector<std::uint64_t> sizes;
    for (const bench::Shape& shape : bench::sweep(collective, Dtype::f32, rank_count, options.first_bytes,
                                                  options.last_bytes, kSizeFactor))
      sizes.push_back(shape.bytes());
    plan.sizes.emplace_back(collective, std::move(sizes));
  }
  plan.budget_seconds = options.budget_seconds * (options.is_verified ? 1 - kVerifyShare : 1);
  plan.group.size = static_cast<std::uint32_t>(rank_count);
  return plan;
}

[[noreturn]] void throw_status(const Status& status) { throw Error(status.code(), -1, status.message()); }

// Where the rules go: to the file that runs without an option will read, unless one is named.
std::string output_path(const TuneOptions& options, const Environment& environment) {
  if (!options.output.empty()) return options.output;
  const auto named = environment.find("TUTTI_TUNING_FILE");
  if (named && *named != "off" && *named != "auto" && !named->empty()) return std::string(*named);
  const std::string path = default_tuning_path(environment);
  return path.empty() ? "tuning.json" : path;
}

// "tutti tune --budget 3m, 4 ranks, 2026-03-01".
std::string origin_text(const TuneOptions& options, int rank_count) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("{}, {} ranks, {:04}-{:02}-{:02}", options.command, rank_count, parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday);
}

std::size_t count_rules(const CampaignResult& result) {
  std::size_t count = 0;
  for (const Outcome& outcome : result.outcomes) count += outcome.rules.size();
  return count;
}

// The plan for ranks that are placed as `where` says; `fits`: each has a CPU of its own.
CampaignPlan placed_plan(const TuneOptions& options, int rank_count, const Whereabouts& where, bool fits) {
  CampaignPlan plan = plan_of(options, rank_count);
  plan.group.hierarchy = &where.hierarchy;
  plan.group.reach = where.reach;
  plan.group.shares_cpus = where.shares_cpus;
  plan.group.spans_sockets = where.spans_sockets;
  plan.setting = where.setting;
  // Turns must be long where ranks share CPUs: the system lets each of them run for some milliseconds.
  if (!fits) {
    plan.shortest_turn *= 4;
    plan.longest_turn *= 5;
  }
  return plan;
}

struct JobFacts {
  int rank_count = 0, node_count = 0;
  bench::Mode mode = bench::Mode::fresh;
  std::string path, replaced;  // the tuning file; why its former rules are replaced, or empty
};

void print_outcome(const TuneOptions& options, const CampaignResult& result,
                   const std::vector<Verified>& verified, const JobFacts& job) {
  if (options.is_json) {
    Json answer = to_json(result);
    answer["ranks"] = job.rank_count;
    answer["nodes"] = job.node_count;
    answer["mode"] = bench::to_string(job.mode);
    answer["file"] = job.path;
    if (options.is_verified) answer["verified"] = to_json(verified);
    fmt::print("{}\n", answer.dump(1));
  } else {
    print_result(result);
    if (options.is_verified) print_verified(verified);
    if (!job.replaced.empty()) fmt::print("The rules in the file are replaced: {}\n", job.replaced);
    fmt::print("{} rules for {} ranks are in {}{}\n", count_rules(result), job.rank_count, job.path,
               options.output.empty() ? "" : "; runs use it if TUTTI_TUNING_FILE names it");
  }
}

}  // namespace

int run_tune_job(const TuneOptions& options) {
  // The file that may be there is what is going to be changed, and may be of another machine. (Before there
  // are threads.)
  const std::string path = output_path(options, Environment::of_process());
  ::setenv("TUTTI_TUNING_FILE", "off", 1);
  const std::vector<int> cpus = allowed_cpus_by(MapLevel::core);
  const CommGroup group = init();
  const bool is_first = group.rank() == 0;
  const int node_count = count_nodes(group), cpu_count = count_cpus(group, cpus);
  const bool fits = group.local_size() <= cpu_count;
  const bench::Mode mode = options.mode.value_or(fits ? bench::Mode::fresh : bench::Mode::b2b);
  const auto fingerprint = CommGroup::Impl::of(group, "tune").world().exchange_fingerprint();
  if (!fingerprint) throw_status(fingerprint.status());
  Field field(group, node_count == 1 ? open_page(group) : std::nullopt, mode);
  if (!is_first) {
    field.serve();
    return 0;
  }
  auto where = whereabouts_of(group);
  // Asked before minutes are spent.
  std::string other;
  auto file = read_for_extension(path, *fingerprint, &other);
  std::error_code ignored;  // the next check says it
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  const Status writable = check_writable("-o", path);
  if (!where || !file || !writable) {
    field.stop();
    throw_status(!where ? where.status() : !file ? file.status() : writable);
  }
  const CampaignPlan plan = placed_plan(options, group.size(), *where, fits);
  if (!options.is_json) {
    fmt::print("# tutti {}, tune: {} rank{} on {} node{}, transport {}, {} calls, {:.0f} s\n", version(),
               group.size(), group.size() == 1 ? "" : "s", node_count, node_count == 1 ? "" : "s",
               transports_of(group), bench::to_string(mode), options.budget_seconds);
    std::fflush(stdout);
  }

  Progress progress;
  const double begin = field.now();
  const auto show = [&](double done, const std::string& what) {
    progress.show(done, what, options.budget_seconds - (field.now() - begin));
  };
  const CampaignResult result = run_campaign(plan, field, show);
  std::vector<Verified> verified;
  if (options.is_verified) {
    show(1 - kVerifyShare, "verifying");
    verified = verify_rules(plan, result, field, options.budget_seconds * kVerifyShare);
  }
  progress.clear();
  field.stop();
  add_rules(*file, result,
            {*fingerprint, plan.group.size, plan.group.reach, origin_text(options, group.size())});
  if (Status written = write_tuning(path, *file); !written) throw_status(written);

  print_outcome(options, result, verified, {group.size(), node_count, mode, path, other});
  return std::any_of(verified.begin(), verified.end(), [](const Verified& v) { return v.is_slower(); }) ? 1
                                                                                                        : 0;
}

}  // namespace tutti::tool
