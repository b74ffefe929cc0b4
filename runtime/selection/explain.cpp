// Candidates, their prices, and the words for what became of them.
#include "runtime/selection/explain.hpp"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "runtime/selection/explain_words.hpp"

namespace tutti {
namespace {

// Settings other than the first are looked at unless that takes so many times as long as the chosen row.
constexpr std::uint64_t kHopeless = 4;

// The first legal setting's price where no walk succeeds tells why.
void find_price(Candidate& candidate, const std::vector<AlgorithmParams>& tried, const Question& q,
                const Setting& setting, std::uint64_t winner_ps) {
  for (const AlgorithmParams& params : tried) {
    if (candidate.price && candidate.price->total_ps / kHopeless > winner_ps) break;
    const auto price = price_call({candidate.row, params, q.bytes, q.hierarchy, setting.is_lowered},
                                  setting.places, setting.model);
    if (!price && candidate.reason.empty()) candidate.reason = "no price: " + price.status().message();
    if (!price || (candidate.price && price->total_ps >= candidate.price->total_ps)) continue;
    candidate.price = *price;
    candidate.params = params;
  }
  if (candidate.price) candidate.reason.clear();
}

std::string why_not(const AlgorithmRow& row, const std::vector<Consideration>& trail,
                    const Selection& chosen) {
  if (chosen.source == "argument") return "the call's argument names another";
  const std::string text = notes(trail, [&](const RuleItem& item) { return item.row == &row; });
  return text.empty() ? "no rule names it" : text;
}

}  // namespace

std::vector<AlgorithmParams> sample_params(const AlgorithmRow& row) {
  std::vector<AlgorithmParams> samples = {default_params(row)};
  for (const ParamRow& param : row.params) {
    std::vector<std::uint32_t> values = {1, 2, 4, 8, 16};
    if (param.name == "segments") values = {1, 4, 16, 64};
    if (param.name == "across") values = {0, 1, 2, 3};
    if (param.name == "leaders") values = {0, 1};
    const std::size_t count = samples.size();
    for (std::size_t i = 0; i < count; ++i) {
      for (const std::uint32_t value : values) {
        AlgorithmParams changed = samples[i];
        changed.*(param.field) = value;
        // Segments of a finished schedule multiply its steps; they are tried with the defaults only.
        if (value < param.min_value || value > param.max_value || (param.is_pass && i > 0)) continue;
        if (std::find(samples.begin(), samples.end(), changed) == samples.end()) samples.push_back(changed);
      }
    }
  }
  return samples;
}

// More than 15 decisions because each fact about a candidate is one.
Result<Explanation> explain(const Selector& selector, const Question& question, std::string_view argument,
                            const Setting& setting) {
  Explanation answer;
  const auto choosing = choose_with_trail(selector, question, argument);
  if (!choosing) return choosing.status();
  const Selection& chosen = choosing->chosen;
  const std::vector<Consideration>& trail = choosing->trail;
  answer.chosen = chosen;
  answer.rule = choosing->rule;
  Candidate winner{chosen.row, chosen.params, std::nullopt, true, true, ""};
  find_price(winner, {chosen.params}, question, setting, 0);
  const std::uint64_t winner_ps = winner.price ? winner.price->total_ps : ~std::uint64_t{0};
  for (const AlgorithmRow& row : catalog()) {
    if (row.collective != question.collective) continue;
    Candidate candidate{&row, default_params(row), std::nullopt, true, false, ""};
    const Status legal = check_legality(row, question.size, question.is_commutative, false,
                                        question.has_equal_counts, question.hierarchy);
    if (!legal) {
      candidate.is_legal = false;
      candidate.reason = legal.message().substr(legal.message().find(": ") + 2);
      answer.candidates.push_back(std::move(candidate));
      continue;
    }
    find_price(candidate, sample_params(row), question, setting, winner_ps);
    const bool is_better =
        candidate.price && winner.price && candidate.price->total_ps < winner.price->total_ps;
    if (&row == chosen.row && !is_better) continue;
    const std::string versus_winner = candidate.price && winner.price
                                          ? versus(candidate.price->total_ps, winner.price->total_ps)
                                          : std::string();
    const std::string rules =
        &row == chosen.row ? "the rule asks for other parameters" : why_not(row, trail, chosen);
    if (!candidate.price) candidate.reason += "; ";
    if (candidate.price && candidate.price->is_estimate)
      candidate.reason += "estimated from its claim, too long to walk; ";
    candidate.reason += versus_winner + rules;
    answer.candidates.push_back(std::move(candidate));
  }
  const std::string no_price = winner.reason;
  winner.reason = describe_source(chosen);
  if (!answer.rule.empty()) winner.reason += fmt::format(" ({})", answer.rule);
  if (!no_price.empty()) winner.reason += fmt::format("; {}", no_price);
  answer.candidates.push_back(std::move(winner));
  const auto rank = [](const Candidate& c) {
    return std::tuple(!c.is_legal, !c.price.has_value(), c.price ? c.price->total_ps : 0, !c.is_chosen);
  };
  std::stable_sort(answer.candidates.begin(), answer.candidates.end(),
                   [&](const Candidate& a, const Candidate& b) { return rank(a) < rank(b); });
  return answer;
}

}  // namespace tutti
