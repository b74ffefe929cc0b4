// The table and its JSON.
#include "tools/cli/tune/tune_report.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "tools/cli/bench/report.hpp"
#include "tools/cli/json.hpp"

namespace tutti::tool {
namespace {

constexpr double kGood = 1.10;

// The default choice's time over the best one's; 1 where nothing is faster.
double ratio_of(const Point& point) {
  const Entry* best = point.best();
  return best == nullptr ? 1 : 1 / best->standing.ratio;
}

bool is_good(const Point& point) {
  const Entry* best = point.best();
  if (best == nullptr || ratio_of(point) <= kGood) return true;
  return best->standing.is_sure && 1 / (best->standing.ratio * (1 + best->standing.noise)) <= kGood;
}

std::string us_text(double us) { return us < 100 ? fmt::format("{:.2f}", us) : fmt::format("{:.0f}", us); }

double geometric_mean(const std::vector<Verified>& verified) {
  double sum = 0;
  for (const Verified& v : verified) sum += std::log(v.tuned.ratio);
  return std::exp(sum / static_cast<double>(std::max<std::size_t>(1, verified.size())));
}

}  // namespace

DefaultSummary summarise(const CampaignResult& result) {
  DefaultSummary summary;
  for (const Outcome& outcome : result.outcomes) {
    for (const Point& point : outcome.points) {
      ++summary.point_count;
      summary.good_count += is_good(point) ? 1U : 0U;
      if (ratio_of(point) <= summary.worst) continue;
      summary.worst = ratio_of(point);
      summary.worst_point = fmt::format("{} of {}", to_string(outcome.collective), bytes_text(point.bytes));
    }
  }
  return summary;
}

void print_result(const CampaignResult& result) {
  fmt::print("{:<15} {:>10}  {:<34} {:>10}  {:<34} {:>10} {:>6} {:>6}  {}\n", "collective", "size",
             "default choice", "us", "best", "us", "ratio", "noise", "chosen");
  for (const Outcome& outcome : result.outcomes) {
    for (std::size_t i = 0; i < outcome.points.size(); ++i) {
      const Point& point = outcome.points[i];
      const Entry* best = point.best();
      fmt::print("{:<15} {:>10}  {:<34} {:>10}  {:<34} {:>10} {:>6.2f} {:>5.1f}%  {}\n",
                 to_string(outcome.collective), bytes_text(point.bytes), point.default_algorithm,
                 us_text(point.default_us), best == nullptr ? "the same" : best->algorithm,
                 us_text(best == nullptr ? point.default_us : best->standing.us), ratio_of(point),
                 best == nullptr ? 0 : 100 * best->standing.noise,
                 outcome.chosen[i].empty() ? "default" : outcome.chosen[i]);
    }
  }
  const DefaultSummary summary = summarise(result);
  fmt::print(
      "\nThe default choice is within 10 % of the best at {} of {} points ({:.0f} %); worst {:.2f}{}\n",
      summary.good_count, summary.point_count,
      100.0 * static_cast<double>(summary.good_count) /
          static_cast<double>(std::max<std::size_t>(1, summary.point_count)),
      summary.worst, summary.worst_point.empty() ? "" : " (" + summary.worst_point + ")");
}

void print_verified(const std::vector<Verified>& verified) {
  if (verified.empty()) {
    fmt::print("Nothing to verify: no rule was made\n");
    return;
  }
  fmt::print("\n{:<15} {:>10}  {:<34} {:>14} {:>6}\n", "verified", "size", "chosen", "tuned/untuned",
             "noise");
  std::size_t slower = 0;
  for (const Verified& v : verified) {
    slower += v.is_slower() ? 1U : 0U;
    fmt::print("{:<15} {:>10}  {:<34} {:>14.2f} {:>5.1f}%{}\n", to_string(v.collective),
               v.bytes == 0 ? "-" : bytes_text(v.bytes), v.algorithm, v.tuned.ratio, 100 * v.tuned.noise,
               v.is_slower() ? "  slower" : "");
  }
  fmt::print(
      "Tuned takes {:.2f} of the untuned time where there is a rule (geometric mean); slower beyond "
      "noise at {} of {} points\n",
      geometric_mean(verified), slower, verified.size());
}

Json to_json(const CampaignResult& result) {
  Json points = Json::array(), rules = Json::object();
  for (const Outcome& outcome : result.outcomes) {
    for (std::size_t i = 0; i < outcome.points.size(); ++i) {
      const Point& point = outcome.points[i];
      const Entry* best = point.best();
      Json others = Json::array();
      for (const Entry& entry : point.others) {
        others.push_back({{"algorithm", entry.algorithm},
                          {"us", entry.standing.us},
                          {"ratio", entry.standing.ratio},
                          {"noise", entry.standing.noise}});
      }
      points.push_back({{"collective", to_string(outcome.collective)},
                        {"bytes", point.bytes},
                        {"default", point.default_algorithm},
                        {"default_us", point.default_us},
                        {"best", best == nullptr ? point.default_algorithm : best->algorithm},
                        {"best_us", best == nullptr ? point.default_us : best->standing.us},
                        {"ratio", ratio_of(point)},
                        {"chosen", outcome.chosen[i].empty() ? "default" : outcome.chosen[i]},
                        {"others", others}});
    }
    if (!outcome.rules.empty()) rules[std::string(to_string(outcome.collective))] = outcome.rules;
  }
  const DefaultSummary summary = summarise(result);
  return {
      {"points", points},
      {"rules", rules},
      {"default_within_10_percent", static_cast<double>(summary.good_count) /
                                        static_cast<double>(std::max<std::size_t>(1, summary.point_count))},
      {"default_worst", summary.worst}};
}

Json to_json(const std::vector<Verified>& verified) {
  Json rows = Json::array();
  for (const Verified& v : verified) {
    rows.push_back({{"collective", to_string(v.collective)},
                    {"bytes", v.bytes},
                    {"algorithm", v.algorithm},
                    {"ratio", v.tuned.ratio},
                    {"noise", v.tuned.noise},
                    {"is_slower", v.is_slower()}});
  }
  return rows;
}

}  // namespace tutti::tool
