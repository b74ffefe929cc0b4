// Names first, then prices, and the fallback to staging.
#include "backends/cuda/engine_choice.hpp"

#include <fmt/format.h>

namespace tutti {

std::optional<DeviceEngineKind> engine_named_by(std::optional<DeviceEngineKind> engine,
                                                const AlgorithmRow* row) {
  if (engine) return engine;
  if (row == nullptr) return std::nullopt;
  for (const DeviceEngineKind kernel : {DeviceEngineKind::one_shot, DeviceEngineKind::two_shot}) {
    if (row->collective == Collective::allreduce && row->name == to_string(kernel)) return kernel;
  }
  return DeviceEngineKind::ipc_schedule;
}

namespace {

Result<DeviceEngineKind> choose_by_price(const EngineOffers& offers, EngineSurvey& survey) {
  Status refusal = internal_error("staging is offered for every call");
  for (const EngineOffer& offer : offers) {
    if (!offer.refusal.empty() || !survey.reservation_of(offer.kind).empty()) continue;
    refusal = survey.refusal_of(offer.kind);
    if (refusal) return offer.kind;
  }
  return refusal;
}

}  // namespace

Result<DeviceEngineKind> choose_engine(const Selection& selection, const Question& question,
                                       const EngineOffers& offers, EngineSurvey& survey) {
  auto named = engine_named_by(selection.engine, selection.row);
  // A receive from any source may meet each send, and one with a tag each of its tag: by default one engine
  // has them all.
  if (!named && question.collective == Collective::send_recv) named = DeviceEngineKind::staged;
  if (!named) return choose_by_price(offers, survey);
  const Status refusal = survey.refusal_of(*named);
  if (refusal) return *named;
  // A vector that is too long for one shot is refused, unless there are no kernels at all.
  const bool is_final = selection.row == nullptr || (named == DeviceEngineKind::one_shot &&
                                                     survey.refusal_of(DeviceEngineKind::two_shot));
  if (is_final)
    return refusal.with_context(fmt::format("{} by {}", to_string(*named), describe_source(selection)));
  const Status staged_refusal = survey.refusal_of(DeviceEngineKind::staged);
  if (!staged_refusal) return staged_refusal;
  return DeviceEngineKind::staged;
}

}  // namespace tutti
