// Candidates, their prices, and the words for what became of them.
#include "runtime/selection/explain.hpp"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "runtime/base/peer_limits.hpp"

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

std::string why_of_item(const Consideration& seen) {
  std::string item =
      fmt::format("{} ({})", describe_source(seen.source, seen.number, seen.line), to_text(*seen.item));
  switch (seen.verdict) {
    case Consideration::Verdict::unmatched:
      return item + " is for other sizes";
    case Consideration::Verdict::late:
      return item + " comes later";
    case Consideration::Verdict::elsewhere:
      return item + " is for buffers on GPUs";
    default:
      return item;
  }
}

// The rules' verdict on an item that was not chosen; `is_meant` tells its items.
template <class IsMeant>
std::string notes(const std::vector<Consideration>& trail, IsMeant is_meant) {
  std::string text;
  for (const Consideration& seen : trail) {
    if (is_meant(*seen.item) && seen.verdict != Consideration::Verdict::chosen)
      text += (text.empty() ? "" : "; ") + why_of_item(seen);
  }
  return text;
}

std::string why_not(const AlgorithmRow& row, const std::vector<Consideration>& trail,
                    const Selection& chosen) {
  if (chosen.source == "argument") return "the call's argument names another";
  const std::string text = notes(trail, [&](const RuleItem& item) { return item.row == &row; });
  return text.empty() ? "no rule names it" : text;
}

std::string versus(std::uint64_t own, std::uint64_t other) {
  if (own == other || other == 0) return "predicted as fast; ";
  const bool is_slower = own > other;
  if (own >= 2 * other)
    return fmt::format("predicted to take {}.{} times as long; ", own / other, own % other * 10 / other);
  const std::uint64_t percent = ((is_slower ? own - other : other - own) * 100 + other / 2) / other;
  return fmt::format("predicted {} % {}; ", percent, is_slower ? "slower" : "faster");
}

// What the carriers themselves are not asked for, since nobody runs: why one is not there, or is better used
// only where it is named.
std::string_view absence_of(DeviceCarrier carrier, const Question& q, const DeviceSetting& setting) {
  if (carrier != DeviceCarrier::nccl) return {};
  if (setting.gpus_per_node < setting.places.per_node) return "ranks share a GPU, which NCCL refuses";
  return is_reducing(q.collective) && !nccl_reduces(setting.dtype) ? "NCCL does not reduce this dtype"
                                                                   : std::string_view();
}
std::string_view dislike_of(DeviceCarrier carrier, const DeviceSetting& setting) {
  return reaches_peers(carrier) && setting.gpus_per_node < setting.places.per_node ? kWhyNotOnSharedGpu
                                                                                   : std::string_view();
}

// Whom the call gets. Errors: unsupported, if whom the rule names cannot carry it.
Result<DeviceCarrier> decide(const DeviceExplanation& answer, const DeviceOffers& offers, const Question& q,
                             const DeviceSetting& setting) {
  const Selection& chosen = answer.chosen;
  const auto refusal_of = [&](DeviceCarrier carrier) {
    const auto found = std::find_if(offers.begin(), offers.end(),
                                    [&](const DeviceOffer& offer) { return offer.carrier == carrier; });
    return found->refusal.empty() ? absence_of(carrier, q, setting) : found->refusal;
  };
  const auto named = carrier_named_by(chosen.carrier, chosen.row);
  if (!named) {
    const auto found = std::find_if(offers.begin(), offers.end(), [&](const DeviceOffer& offer) {
      return refusal_of(offer.carrier).empty() && dislike_of(offer.carrier, setting).empty();
    });
    return found->carrier;  // staged carries everything
  }
  const std::string_view refusal = refusal_of(*named);
  // Where there are kernels, a vector that is too long for one shot is refused.
  const bool is_final =
      *named == DeviceCarrier::nccl || (is_kernel(*named) && refusal_of(DeviceCarrier::two_shot).empty());
  if (!refusal.empty() && is_final) {
    return unsupported(fmt::format("{} by {}: {}", to_string(*named), describe_source(chosen), refusal));
  }
  if (refusal.empty() && (*named == DeviceCarrier::nccl || is_kernel(*named))) return *named;
  if (chosen.row != nullptr) {
    const Status legal =
        check_legality(*chosen.row, q.size, q.is_commutative, false, q.has_equal_counts, q.hierarchy);
    if (!legal) return legal.with_context(describe_source(chosen));
  }
  if (refusal.empty()) return *named;
  return DeviceCarrier::staged;
}

// The choice, the considerations before it, and the text of the rule's item, if a rule chose.
struct Choosing {
  Selection chosen;
  std::vector<Consideration> trail;
  std::string rule;
};
Result<Choosing> choose(const Selector& selector, const Question& question, std::string_view argument) {
  Choosing made;
  const auto chosen = selector.choose(question, argument, &made.trail);
  if (!chosen) return chosen.status();
  made.chosen = *chosen;
  for (const Consideration& seen : made.trail) {
    if (seen.verdict == Consideration::Verdict::chosen) made.rule = to_text(*seen.item);
  }
  return made;
}

}  // namespace

std::vector<AlgorithmParams> sample_params(const AlgorithmRow& row) {
  std::vector<AlgorithmParams> samples = {default_params(row)};
  for (const ParamRow& param : row.params) {
    std::vector<std::uint32_t> values = {1, 2, 4, 8, 16};
    if (param.name == "segments") values = {1, 4, 16, 64};
    if (param.name == "across") values = {0, 1, 2};
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

Result<Explanation> explain(const Selector& selector, const Question& question, std::string_view argument,
                            const Setting& setting) {
  Explanation answer;
  const auto choosing = choose(selector, question, argument);
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

Result<DeviceExplanation> explain_device(const Selector& selector, const Question& question,
                                         std::string_view argument, const DeviceSetting& setting) {
  DeviceExplanation answer;
  const auto choosing = choose(selector, question, argument);
  if (!choosing) return choosing.status();
  const Selection& chosen = choosing->chosen;
  const std::vector<Consideration>& trail = choosing->trail;
  answer.chosen = chosen;
  answer.rule = choosing->rule;
  const DeviceOffers offers = device_offers(question, setting.places, setting.model);
  const auto carrier = decide(answer, offers, question, setting);
  if (!carrier) return carrier.status();
  answer.carrier = *carrier;
  if (chosen.row != nullptr && *carrier != DeviceCarrier::nccl)
    answer.algorithm = to_text(*chosen.row, chosen.params);
  if (chosen.row == nullptr && *carrier == DeviceCarrier::mapped)
    answer.algorithm = mapped_algorithm(question.collective, question.bytes);
  const auto price_of = [&](const DeviceOffer& offer) {
    return dislike_of(offer.carrier, setting).empty() ? std::optional(offer.price) : std::nullopt;
  };
  const auto winner = std::find_if(offers.begin(), offers.end(),
                                   [&](const DeviceOffer& offer) { return offer.carrier == *carrier; });
  for (const DeviceOffer& offer : offers) {
    DeviceCandidate candidate{offer.carrier, std::nullopt, true, offer.carrier == *carrier, ""};
    std::string_view refusal = offer.refusal;
    if (refusal.empty()) refusal = absence_of(offer.carrier, question, setting);
    if (!refusal.empty()) {
      candidate.is_possible = false;
      candidate.reason = refusal;
      answer.candidates.push_back(std::move(candidate));
      continue;
    }
    candidate.price = price_of(offer);
    const std::string rules = notes(trail, [&](const RuleItem& item) {
      return carrier_named_by(item.carrier, item.row) == offer.carrier;
    });
    if (candidate.is_chosen) {
      candidate.reason = chosen.is_made() ? describe_source(chosen) : "the lowest price";
      if (!answer.rule.empty()) candidate.reason += fmt::format(" ({})", answer.rule);
    } else if (!candidate.price) {
      candidate.reason = fmt::format("{}: only where it is named", dislike_of(offer.carrier, setting));
    } else {
      std::string why = rules;
      if (why.empty() && chosen.is_made())
        why = chosen.source == "argument" ? "the call's argument names another" : "no rule names it";
      if (price_of(*winner)) candidate.reason = versus(offer.price.total_ps, winner->price.total_ps);
      candidate.reason += why;
      if (why.empty()) candidate.reason.resize(candidate.reason.size() - 2);  // "; "
    }
    answer.candidates.push_back(std::move(candidate));
  }
  std::stable_sort(answer.candidates.begin(), answer.candidates.end(),
                   [](const DeviceCandidate& a, const DeviceCandidate& b) {
                     return std::tuple(!a.is_possible, !a.price) < std::tuple(!b.is_possible, !b.price);
                   });
  return answer;
}

}  // namespace tutti
