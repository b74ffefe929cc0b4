// The words of explanations.
#include "runtime/selection/explain_words.hpp"

#include <fmt/format.h>

namespace tutti {

Result<TracedChoice> choose_with_trail(const Selector& selector, const Question& question,
                                       std::string_view argument) {
  TracedChoice made;
  const auto chosen = selector.choose(question, argument, &made.trail);
  if (!chosen) return chosen.status();
  made.chosen = *chosen;
  for (const Consideration& seen : made.trail) {
    if (seen.verdict == Consideration::Verdict::chosen) made.rule = to_text(*seen.item);
  }
  return made;
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

std::string versus(std::uint64_t own_ps, std::uint64_t chosen_ps) {
  if (own_ps == chosen_ps || chosen_ps == 0) return "predicted as fast; ";
  const bool is_slower = own_ps > chosen_ps;
  if (own_ps >= 2 * chosen_ps)
    return fmt::format("predicted to take {}.{} times as long; ", own_ps / chosen_ps,
                       own_ps % chosen_ps * 10 / chosen_ps);
  const std::uint64_t percent =
      ((is_slower ? own_ps - chosen_ps : chosen_ps - own_ps) * 100 + chosen_ps / 2) / chosen_ps;
  return fmt::format("predicted {} % {}; ", percent, is_slower ? "slower" : "faster");
}

}  // namespace tutti
