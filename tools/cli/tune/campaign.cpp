// Candidates, the share of time of each race, and what the model says is not worth a race.
#include "tools/cli/tune/campaign.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "tools/cli/arguments.hpp"

namespace tutti::tool {
namespace {

// An algorithm is not run if the fitted model predicts that it takes kHopeless times as long as the best one.
// The same holds from kUnlikely on, if it was that slow at the nearest measured size.
constexpr double kHopeless = 4, kUnlikely = 1.3;
constexpr std::size_t kMostRounds = 25;
// Of the budget, what sizes get first; the rest is for crossovers.
constexpr double kFirstShare = 0.85;
constexpr std::uint64_t kSegmentBytes[] = {64 << 10, 256 << 10};

struct Contestant {
  std::string text;
  const AlgorithmRow* row = nullptr;
  AlgorithmParams params;  // at the size in question
  std::optional<Price> price;
};

// Every legal row with the settings worth trying. Segments as bytes: a number of them is right for
// one size only.
std::vector<std::string> texts_of(Collective collective, const Question& group) {
  std::vector<std::string> texts;
  for (const AlgorithmRow& row : catalog()) {
    if (row.collective != collective ||
        !may_run(row, group.size, group.is_commutative, false, group.has_equal_counts, group.hierarchy))
      continue;
    const bool is_segmented = std::any_of(row.params.begin(), row.params.end(),
                                          [](const ParamRow& param) { return param.name == "segments"; });
    for (const AlgorithmParams& params : sample_params(row)) {
      if (params.segments > 1) continue;
      texts.push_back(to_text(row, params));
      for (const std::uint64_t bytes : kSegmentBytes) {
        if (is_segmented) texts.push_back(to_text(row, params, bytes));
      }
    }
  }
  return texts;
}

class Campaign {
 public:
  Campaign(const CampaignPlan& plan, Course& course,
           const std::function<void(double, const std::string&)>& show)
      : plan_(plan), course_(course), show_(show), defaults_(*Selector::make({})), start_(course.now()) {
    for (const auto& [collective, sizes] : plan.sizes) {
      for (const std::uint64_t bytes : sizes) total_weight_ += weight_of(bytes);
    }
  }

  CampaignResult run() {
    CampaignResult result;
    for (const auto& [collective, sizes] : plan_.sizes) result.outcomes.push_back(run(collective, sizes));
    if (!all_samples_.empty()) result.model = fit_model(all_samples_);
    return result;
  }

 private:
  struct Measured {
    std::uint64_t bytes = 0;
    Sample sample;
  };

  double spent() { return course_.now() - start_; }

  Outcome run(Collective collective, const std::vector<std::uint64_t>& sizes) {
    Outcome outcome;
    outcome.collective = collective;
    programs_.clear();
    measured_.clear();
    const std::vector<std::string> texts = texts_of(collective, plan_.group);
    // From far apart first: a model fitted on them knows who is hopeless elsewhere. The largest come last,
    // with what the others have left of their shares.
    std::vector<std::size_t> order;
    for (const std::size_t first : {std::size_t{0}, sizes.size() / 2, sizes.size() * 3 / 4}) {
      if (std::find(order.begin(), order.end(), first) == order.end()) order.push_back(first);
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (std::find(order.begin(), order.end(), i) == order.end()) order.push_back(i);
    }
    for (const std::size_t i : order) {
      const double left = plan_.budget_seconds * kFirstShare - spent();
      const double share = left * weight_of(sizes[i]) / (total_weight_ - weight_done_);
      const bool is_known = outcome.points.size() >= 3;
      add_point(outcome, sizes[i], texts, is_known, share);
      weight_done_ += weight_of(sizes[i]);
    }
    refine(outcome, sizes.size());
    outcome.chosen = choose(outcome.points);
    outcome.rules = make_rules(collective, outcome.points, outcome.chosen, plan_.group.size);
    for (const Measured& m : measured_) all_samples_.push_back(m.sample);
    return outcome;
  }

  // Long calls take longer, so they need more of the time for as many rounds.
  static double weight_of(std::uint64_t bytes) {
    constexpr double kShortBytes = 64 << 10;
    return 1 + std::max(0.0, std::log2(static_cast<double>(bytes) / kShortBytes) / 2);
  }

  // Spends the rest of this collective's part of the budget on the crossovers.
  void refine(Outcome& outcome, std::size_t size_count) {
    const double end = plan_.budget_seconds * weight_done_ / total_weight_;
    const double turn = (end - spent()) / static_cast<double>(std::max<std::size_t>(2, size_count / 3));
    while (turn > 0 && spent() + turn <= end) {
      const auto next = find_refinement(outcome.points, choose(outcome.points));
      if (!next) return;
      const std::size_t before = outcome.points.size();
      add_point(outcome, next->bytes, next->algorithms, false, turn);
      if (outcome.points.size() == before) return;
    }
  }

  // The algorithms that may run at this size and differ there from each other and from the default choice;
  // the most hopeful first. `known`: leaves out those that are hopeless by the model and by that point.
  // More than 15 decisions because each reason to leave one out is one.
  std::vector<Contestant> contestants(const Question& asked, const std::vector<std::string>& texts,
                                      const Point* known) {
    const CostModel model = model_at(asked.bytes);
    std::vector<Contestant> all;
    const auto add = [&](const std::string& text) {
      const auto selection = defaults_.choose(asked, text);
      if (!selection) return;
      Contestant made{text, selection->row, selection->params, price_of(asked, *selection, model)};
      const bool is_known = std::any_of(all.begin(), all.end(), [&](const Contestant& other) {
        if (other.row != made.row) return false;
        if (other.params == made.params) return true;
        // Other settings that lead to the same messages: a radix beyond the number of ranks.
        return other.price && made.price && other.price->path == made.price->path &&
               other.params.segments == made.params.segments;
      });
      if (!is_known) all.push_back(std::move(made));
    };
    add("");
    for (const std::string& text : texts) add(text);
    std::stable_sort(all.begin() + 1, all.end(), [](const Contestant& a, const Contestant& b) {
      return a.price && b.price && a.price->total_ps < b.price->total_ps;
    });
    if (known == nullptr || all.size() < 3 || !all[1].price) return all;
    const auto least = static_cast<double>(all[1].price->total_ps);
    const Entry* const best = known->best();
    const double best_ratio = best == nullptr ? 1 : best->standing.ratio;
    const auto is_hopeless = [&](const Contestant& c) {
      if (!c.price) return false;
      const double factor = static_cast<double>(c.price->total_ps) / least;
      const Entry* const seen = known->find(c.text);
      const bool was_slow = seen != nullptr && seen->standing.ratio > kUnlikely * best_ratio;
      return factor > kHopeless || (factor > kUnlikely && was_slow);
    };
    all.erase(std::remove_if(all.begin() + 1, all.end(), is_hopeless), all.end());
    return all;
  }

  // Of the points that were measured the one whose size is nearest, by factors.
  static const Point* nearest(const Outcome& outcome, std::uint64_t bytes) {
    const auto distance = [&](const Point& p) {
      return std::abs(std::log2(static_cast<double>(p.bytes + 1) / static_cast<double>(bytes + 1)));
    };
    const auto found =
        std::min_element(outcome.points.begin(), outcome.points.end(),
                         [&](const Point& a, const Point& b) { return distance(a) < distance(b); });
    return found == outcome.points.end() ? nullptr : &*found;
  }

  CostModel model_at(std::uint64_t bytes) {
    if (measured_.empty()) return plan_.setting.model;
    std::vector<Sample> samples;
    for (const Measured& m : measured_) {
      samples.push_back(m.sample);
      samples.back().weight = weight_at(m.bytes, bytes);
    }
    return fit_model(samples);
  }

  std::optional<Price> price_of(const Question& asked, const Selection& selection, const CostModel& model) {
    const std::string key = to_text(*selection.row, selection.params);
    auto found = programs_.find(key);
    if (found == programs_.end()) {
      auto program = Program::make(
          {selection.row, selection.params, asked.bytes, asked.hierarchy, plan_.setting.is_lowered},
          plan_.setting.places, false);
      found = programs_.emplace(key, program ? std::optional(*std::move(program)) : std::nullopt).first;
    }
    if (!found->second) return std::nullopt;
    auto price = found->second->price(asked.bytes, plan_.setting.places, model);
    return price ? std::optional(*price) : std::nullopt;
  }

  void add_point(Outcome& outcome, std::uint64_t bytes, const std::vector<std::string>& texts, bool is_pruned,
                 double share) {
    Question asked = plan_.group;
    asked.collective = outcome.collective;
    asked.bytes = bytes;
    const std::vector<Contestant> all =
        contestants(asked, texts, is_pruned ? nearest(outcome, bytes) : nullptr);
    if (all.empty()) return;
    show_(std::min(1.0, spent() / plan_.budget_seconds),
          fmt::format("{} {}, {} algorithms", to_string(asked.collective), bytes, all.size()));
    Race race(all.size());
    run_race(race, asked, all, share);
    if (!race.has_time(0)) return;
    Point point;
    point.bytes = bytes;
    point.default_algorithm = to_text(*all[0].row, all[0].params);
    point.default_us = race.standing(0).us;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!race.has_time(i)) continue;
      const Standing standing = race.standing(i);
      if (i > 0) point.others.push_back({all[i].text, standing});
      if (all[i].price && standing.us > 0) measured_.push_back({bytes, {all[i].price->path, standing.us, 1}});
    }
    const auto place = std::upper_bound(outcome.points.begin(), outcome.points.end(), bytes,
                                        [](std::uint64_t b, const Point& p) { return b < p.bytes; });
    outcome.points.insert(place, std::move(point));
  }

  // Rounds until the order is clear or the share is spent.
  // More than 15 decisions because each way for a contestant to stop is one.
  void run_race(Race& race, const Question& asked, const std::vector<Contestant>& all, double share) {
    const double begin = course_.now();
    constexpr double kRoundsAtOnce = 3;  // with everybody, before it is clear who is left
    const double turn = std::clamp(share / (kRoundsAtOnce * static_cast<double>(all.size())),
                                   plan_.shortest_turn, plan_.longest_turn);
    for (std::size_t round = 0; round < kMostRounds; ++round) {
      // The order of contestants changes from round to round.
      std::vector<std::size_t> order;
      for (std::size_t i = 1; i < all.size(); ++i) {
        if (race.is_running(i)) order.push_back(i);
      }
      if (round % 2 == 1) std::reverse(order.begin(), order.end());
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(round % 2 == 0 ? 0 : order.size() / 2), 0);
      for (const std::size_t i : order) {
        // Time is up with some still waiting for their first turn: the least hopeful ones.
        if (round == 0 && i > 1 && course_.now() - begin > 2 * share) {
          race.withdraw(i);
          continue;
        }
        const auto us = course_.time(asked.collective, asked.bytes, all[i].text, turn);
        if (us) race.add(i, *us);
        if (!us && i == 0) return;
        if (!us) race.withdraw(i);
      }
      race.end_round();
      if (race.is_decided()) return;
      if (course_.now() - begin <= share || round == 0) continue;
      // Late: what is left to find out is whether the leader is really faster than the default choice.
      if (round >= 2) return;
      const std::size_t first = race.leader();
      if (first == 0) return;
      for (std::size_t i = 1; i < all.size(); ++i) {
        if (i != first) race.withdraw(i);
      }
    }
  }

  const CampaignPlan& plan_;
  Course& course_;
  const std::function<void(double, const std::string&)>& show_;
  Selector defaults_;
  double start_ = 0;
  double total_weight_ = 0, weight_done_ = 0;
  std::map<std::string, std::optional<Program>> programs_;  // of the collective under way
  std::vector<Measured> measured_;                          // of it
  std::vector<Sample> all_samples_;
};

}  // namespace

CampaignResult run_campaign(const CampaignPlan& plan, Course& course,
                            const std::function<void(double, const std::string&)>& show) {
  return Campaign(plan, course, show).run();
}

std::vector<Verified> verify_rules(const CampaignPlan& plan, const CampaignResult& result, Course& course,
                                   double budget_seconds) {
  constexpr std::size_t kRounds = 9;
  std::size_t point_count = 0;
  for (const Outcome& outcome : result.outcomes) {
    for (const std::string& chosen : outcome.chosen) point_count += chosen.empty() ? 0U : 1U;
  }
  const double turn =
      std::clamp(budget_seconds / static_cast<double>(2 * kRounds * std::max<std::size_t>(1, point_count)),
                 plan.shortest_turn, plan.longest_turn);
  std::vector<Verified> all;
  for (const Outcome& outcome : result.outcomes) {
    const std::string rules = joined(outcome.rules, ";");
    for (std::size_t i = 0; i < outcome.points.size(); ++i) {
      if (outcome.chosen[i].empty()) continue;
      const std::uint64_t bytes = outcome.points[i].bytes;
      Race race(2);
      for (std::size_t round = 0; round < kRounds; ++round) {
        for (const std::size_t who : {round % 2, (round + 1) % 2}) {
          const auto us = course.time(outcome.collective, bytes, who == 0 ? "" : rules, turn);
          if (us) race.add(who, *us);
        }
      }
      if (race.has_time(0) && race.has_time(1))
        all.push_back({outcome.collective, bytes, outcome.chosen[i], race.standing(1)});
    }
  }
  return all;
}

}  // namespace tutti::tool
