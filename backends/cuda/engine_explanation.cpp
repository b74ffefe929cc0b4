// The survey of engines that an explanation assumes, and the words for each engine.
#include "backends/cuda/engine_explanation.hpp"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "backends/cuda/engine_choice.hpp"
#include "backends/cuda/peer_limits.hpp"
#include "runtime/selection/explain_words.hpp"

namespace tutti {
namespace {

// The engines as they would be on the assumed machine.
class AssumedEngines final : public EngineSurvey {
 public:
  AssumedEngines(const EngineOffers& offers, const Question& question, const Selection& selection,
                 const DeviceSetting& setting)
      : offers_(offers), question_(question), selection_(selection), setting_(setting) {}

  const EngineOffer& offer_of(DeviceEngineKind kind) const {
    return *std::find_if(offers_.begin(), offers_.end(),
                         [&](const EngineOffer& offer) { return offer.kind == kind; });
  }
  // Why the engine is not there or does not take the call; empty: it does.
  std::string_view absence_of(DeviceEngineKind kind) const {
    if (const std::string_view refusal = offer_of(kind).refusal; !refusal.empty()) return refusal;
    if (kind != DeviceEngineKind::nccl) return {};
    if (shares_gpus()) return "ranks share a GPU, which NCCL refuses";
    return is_reducing(question_.collective) && !nccl_reduces(setting_.dtype)
               ? "NCCL does not reduce this dtype"
               : std::string_view();
  }

  // EngineSurvey
  Status refusal_of(DeviceEngineKind kind) override {
    if (const std::string_view absence = absence_of(kind); !absence.empty())
      return unsupported(std::string(absence));
    const bool runs_row = selection_.row != nullptr &&
                          (kind == DeviceEngineKind::ipc_schedule || kind == DeviceEngineKind::staged);
    if (!runs_row) return {};
    const Status legal = check_legality(*selection_.row, question_.size, question_.is_commutative, false,
                                        question_.has_equal_counts, question_.hierarchy);
    return legal ? legal : legal.with_context(describe_source(selection_));
  }
  std::string_view reservation_of(DeviceEngineKind kind) override {
    return reaches_peers(kind) && shares_gpus() ? kWhyNotOnSharedGpu : std::string_view();
  }

 private:
  bool shares_gpus() const { return setting_.gpus_per_node < setting_.layout.per_node; }

  const EngineOffers& offers_;
  const Question& question_;
  const Selection& selection_;
  const DeviceSetting& setting_;
};

// The algorithm of the catalogue that the engine runs; empty: none, or its backend's choice.
std::string algorithm_of(DeviceEngineKind engine, const Selection& selection, const Question& question) {
  if (engine == DeviceEngineKind::nccl) return {};
  if (selection.row != nullptr) return to_text(*selection.row, selection.params);
  if (engine != DeviceEngineKind::ipc_schedule) return {};
  return std::string(ipc_algorithm(question.collective, question.bytes));
}

std::string reason_of_chosen(const TracedChoice& traced) {
  std::string reason = traced.chosen.is_made() ? describe_source(traced.chosen) : "the lowest price";
  if (!traced.rule.empty()) reason += fmt::format(" ({})", traced.rule);
  return reason;
}

// Why another engine was taken, though this one could have been. `versus_chosen` may be empty.
std::string reason_of_other(DeviceEngineKind kind, const TracedChoice& traced, std::string versus_chosen) {
  std::string why = notes(
      traced.trail, [&](const RuleItem& item) { return engine_named_by(item.engine, item.row) == kind; });
  if (why.empty() && traced.chosen.is_made())
    why = traced.chosen.source == "argument" ? "the call's argument names another" : "no rule names it";
  if (why.empty() && !versus_chosen.empty()) versus_chosen.resize(versus_chosen.size() - 2);  // "; "
  return versus_chosen + why;
}

EngineCandidate candidate_of(const EngineOffer& offer, const EngineOffer& winner, const TracedChoice& traced,
                             AssumedEngines& engines) {
  EngineCandidate candidate{offer.kind, std::nullopt, true, offer.kind == winner.kind, ""};
  if (const std::string_view absence = engines.absence_of(offer.kind); !absence.empty()) {
    candidate.is_possible = false;
    candidate.reason = absence;
    return candidate;
  }
  const std::string_view reservation = engines.reservation_of(offer.kind);
  if (reservation.empty()) candidate.price = offer.price;
  if (candidate.is_chosen) {
    candidate.reason = reason_of_chosen(traced);
  } else if (!candidate.price) {
    candidate.reason = fmt::format("{}: only where it is named", reservation);
  } else {
    const bool is_comparable = engines.reservation_of(winner.kind).empty();
    candidate.reason =
        reason_of_other(offer.kind, traced,
                        is_comparable ? versus(offer.price.total_ps, winner.price.total_ps) : std::string());
  }
  return candidate;
}

}  // namespace

Result<DeviceExplanation> explain_device(const Selector& selector, const Question& question,
                                         std::string_view argument, const DeviceSetting& setting) {
  const auto traced = choose_with_trail(selector, question, argument);
  if (!traced) return traced.status();
  const EngineOffers offers = engine_offers(question, setting.layout, setting.model);
  AssumedEngines engines(offers, question, traced->chosen, setting);
  const auto engine = choose_engine(traced->chosen, question, offers, engines);
  if (!engine) return engine.status();
  DeviceExplanation answer;
  answer.chosen = traced->chosen;
  answer.rule = traced->rule;
  answer.engine = *engine;
  answer.algorithm = algorithm_of(*engine, traced->chosen, question);
  for (const EngineOffer& offer : offers)
    answer.candidates.push_back(candidate_of(offer, engines.offer_of(*engine), *traced, engines));
  std::stable_sort(answer.candidates.begin(), answer.candidates.end(),
                   [](const EngineCandidate& a, const EngineCandidate& b) {
                     return std::tuple(!a.is_possible, !a.price) < std::tuple(!b.is_possible, !b.price);
                   });
  return answer;
}

}  // namespace tutti
