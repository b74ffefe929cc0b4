// Reads TUTTI_ADJUST_* and I_MPI_ADJUST_*. See rule_settings.hpp.
#include "runtime/group/rule_settings.hpp"

#include <string_view>

#include "runtime/base/ascii.hpp"
#include "runtime/base/log.hpp"

namespace tutti {
namespace {

std::string variable_of(std::string_view prefix, Collective collective) {
  return std::string(prefix) + to_upper(to_string(collective));
}

// Intel MPI's variables are for another library: one that has no equivalent here causes a warning, not a
// failed start.
void add_intel_rule(const Environment& environment, Collective collective, std::vector<RuleText>& texts) {
  std::string name = variable_of("I_MPI_ADJUST_", collective);
  auto text = environment.find(name);
  if (!text && collective == Collective::broadcast) text = environment.find(name = "I_MPI_ADJUST_BCAST");
  if (!text) return;
  RuleText rule{collective, std::move(name), std::string(*text)};
  const Result<Selector> probe = Selector::make({rule});
  if (probe) {
    texts.push_back(std::move(rule));
  } else {
    log_warn("ignored: {}", probe.status().message());
  }
}

// Warns about variables of Intel MPI without an equivalent here, such as I_MPI_ADJUST_REDUCE_SCATTER_BLOCK.
void warn_of_other_intel_rules(const Environment& environment) {
  constexpr std::string_view kPrefix = "I_MPI_ADJUST_";
  const auto is_known = [&](std::string_view name) {
    if (name == "I_MPI_ADJUST_BCAST") return true;
    for (int i = 0; i < kCollectiveCount; ++i) {
      const auto collective = static_cast<Collective>(i);
      if (collective != Collective::send_recv && name == variable_of(kPrefix, collective)) return true;
    }
    return false;
  };
  std::string ignored;
  for (const auto& [name, value] : environment.values()) {
    if (name.starts_with(kPrefix) && !is_known(name)) ignored += (ignored.empty() ? "" : ", ") + name;
  }
  if (!ignored.empty())
    log_warn("ignored: {}: there is no such collective here; docs/choosing.md lists those of I_MPI_ADJUST",
             ignored);
}

}  // namespace

Result<std::vector<RuleText>> read_rule_settings(const Environment& environment,
                                                 std::vector<std::pair<std::string, std::string>>& contract) {
  std::vector<RuleText> texts;
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (collective == Collective::send_recv) continue;
    const std::string name = variable_of("TUTTI_ADJUST_", collective);
    const auto text = get_text(environment, name);
    if (!text) return text.status();
    contract.emplace_back(name, text->value_or("auto"));
    if (*text) texts.push_back(RuleText{collective, name, **text});
    add_intel_rule(environment, collective, texts);
    if (!texts.empty() && texts.back().collective == collective && texts.back().source != name) {
      contract.emplace_back(variable_of("I_MPI_ADJUST_", collective), texts.back().text);
    }
  }
  warn_of_other_intel_rules(environment);
  return texts;
}

}  // namespace tutti
