// Precedence of rules, legality, and segment sizes turned into segment numbers.
#include "runtime/selection/selection.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace tutti {

Question question_of(const Call& call, std::uint32_t size) {
  Question q;
  q.collective = call.collective;
  q.size = size;
  q.bytes = full_vector_bytes(call, size);
  q.is_commutative = !is_reducing(call.collective) || call.op.is_commutative();
  q.has_equal_counts = !has_uneven_blocks(call);
  q.has_known_bytes =
      !call.has_counts_at_root && (call.collective != Collective::alltoall || call.counts.empty());
  return q;
}

namespace {

const ParamRow* find_param(const AlgorithmRow& row, std::string_view name) {
  for (const ParamRow& param : row.params) {
    if (param.name == name) return &param;
  }
  return nullptr;
}

// How many blocks an unsegmented schedule of the row cuts the vector into. A claim may have to build a whole
// pattern for it, so the last answer of each row is kept.
std::uint64_t blocks_of(const AlgorithmRow& row, const AlgorithmParams& params, std::uint32_t size,
                        const Hierarchy* hierarchy) {
  struct Answer {
    std::uint32_t size = 0;
    std::uint64_t blocks = 0;
  };
  constexpr std::size_t kRows = 64;
  thread_local std::array<Answer, kRows> known;
  const auto index = static_cast<std::size_t>(&row - catalog().data());
  AlgorithmParams single = params;
  single.segments = 1;
  const auto claimed = [&] {
    return std::max<std::uint64_t>(1, claim_of(row, size, single, hierarchy).blocks);
  };
  if (index >= kRows || row.legality.needs_hierarchy) return claimed();
  if (known[index].size != size) {
    known[index] = {size, claimed()};
  }
  return known[index].blocks;
}

// Pieces of about `segment_bytes`, counted on the whole vector's blocks (the claim's grid), within the row's
// limits.
std::uint32_t segments_for(const AlgorithmRow& row, const AlgorithmParams& params,
                           std::uint64_t segment_bytes, const Question& q) {
  const ParamRow* param = find_param(row, "segments");
  const std::uint64_t blocks = blocks_of(row, params, q.size, q.hierarchy);
  const auto divide_up = [](std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); };
  const std::uint64_t wanted = divide_up(divide_up(q.bytes, blocks), segment_bytes);
  // Rounded up to a power of two, so that calls of similar length share a plan.
  std::uint64_t rounded = 1;
  while (rounded < wanted && rounded < param->max_value) rounded *= 2;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(rounded, param->min_value, param->max_value));
}

Selection select(const RuleItem& item, const Question& q) {
  Selection s;
  s.engine = item.engine;
  s.row = item.row;
  s.params = item.params;
  if (item.segment_bytes != 0)
    s.params.segments = segments_for(*item.row, item.params, item.segment_bytes, q);
  return s;
}

Status check(const RuleItem& item, const Question& q) {
  // Of calls on GPUs, whoever carries them through the host's memory looks.
  if (item.row == nullptr || q.is_device) return {};
  return check_legality(*item.row, q.size, q.is_commutative, false, q.has_equal_counts, q.hierarchy);
}

bool may_run(const AlgorithmRow& row, const Question& q) {
  return tutti::may_run(row, q.size, q.is_commutative, false, q.has_equal_counts, q.hierarchy);
}

}  // namespace

std::string describe_source(std::string_view source, std::uint32_t item, std::uint32_t line) {
  if (line != 0) return fmt::format("{} line {}", source, line);
  return item == 0 ? std::string(source) : fmt::format("{} item {}", source, item);
}

std::string describe_shared(const Selection& selection) {
  if (selection.shared_row == nullptr) return {};
  return fmt::format(" (shared buffers: {})", selection.shared_row->name);
}

Result<Selector> Selector::make(std::vector<RuleText> texts) {
  Selector selector;
  const auto add = [](Collective collective, std::string name, std::string_view text,
                      Source& target) -> Status {
    auto rules = parse_rules(collective, text);
    if (!rules) return rules.status().with_context(name);
    target.name = std::move(name);
    target.rules = *std::move(rules);
    return {};
  };
  for (RuleText& text : texts) {
    auto& sources = selector.sources_[static_cast<std::size_t>(text.collective)];
    Source& source = sources.emplace_back();
    TUTTI_RETURN_IF_ERROR(add(text.collective, std::move(text.source), text.text, source));
    source.reach = text.reach;
    source.lines = std::move(text.lines);
    source.is_advice = text.is_advice;
  }
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    for (const DefaultSet set : kDefaultSets) {
      Source& target = selector.defaults_[static_cast<std::size_t>(i)][static_cast<std::size_t>(set)];
      target.is_advice = true;
      std::string rules(default_rules(collective, set));
      if (precedes_node(set))
        rules += (rules.empty() ? "" : ";") + std::string(default_rules(collective, DefaultSet::node));
      if (!rules.empty()) TUTTI_RETURN_IF_ERROR(add(collective, "default rules", rules, target));
    }
    if (const std::string_view rules = shared_buffer_rules(collective); !rules.empty())
      TUTTI_RETURN_IF_ERROR(
          add(collective, "shared buffers", rules, selector.shared_[static_cast<std::size_t>(i)]));
  }
  return selector;
}

// In order of precedence: the users', then the default.
const Selector::Source* Selector::find_source(const Question& question, std::size_t i) const {
  const auto collective = static_cast<std::size_t>(question.collective);
  if (i < sources_[collective].size()) {
    const Source& source = sources_[collective][i];
    return !source.reach || *source.reach == question.reach ? &source : nullptr;
  }
  const DefaultSet set = question.default_set();
  return &defaults_[collective][static_cast<std::size_t>(set)];
}

void Selector::choose_shared(const Question& question, Selection* chosen) const {
  const RuleList& rules = shared_[static_cast<std::size_t>(question.collective)].rules;
  const RuleItem* const item = match(rules, question.bytes, question.size);
  if (item != nullptr && item->row != chosen->row && may_run(*item->row, question))
    chosen->shared_row = item->row;
}

namespace {

// The choice of a call's argument; an empty one where the argument leaves it open.
Result<Selection> choose_by_argument(const Question& q, std::string_view argument) {
  const auto item = parse_argument(q.collective, argument);
  if (!item) return item.status().with_context("algorithm argument");
  if (item->engine && !q.is_device) {
    return unsupported(fmt::format(
        "algorithm argument: {} carries buffers on GPUs only; these are in the memory of the host",
        to_string(*item->engine)));
  }
  if (!item->is_choice()) return Selection();
  if (Status legal = check(*item, q); !legal) return legal.with_context("algorithm argument");
  Selection chosen = select(*item, q);
  chosen.is_forced = true;
  chosen.source = "argument";
  return chosen;
}

}  // namespace

// Has more than 15 decisions because there is one for each verdict on an item.
Result<Selection> Selector::choose(const Question& question, std::string_view argument,
                                   std::vector<Consideration>* trail) const {
  Question q = question;
  if (!q.has_known_bytes) q.bytes = 0;  // ranks do not share the size: nothing may depend on it
  if (!argument.empty()) {
    auto named = choose_by_argument(q, argument);
    if (!named || named->is_made()) return named;
  }
  using Verdict = Consideration::Verdict;
  Selection chosen;
  const std::size_t user_sources = sources_[static_cast<std::size_t>(q.collective)].size();
  for (std::size_t i = 0; i <= user_sources; ++i) {
    const Source* const found = find_source(q, i);
    if (found == nullptr) continue;
    const Source& source = *found;
    if (q.is_device && source.is_advice) continue;
    bool is_over = chosen.is_made();  // nothing of this source can be chosen any more
    for (const RuleItem& item : source.rules) {
      const auto number = static_cast<std::uint32_t>(&item - source.rules.data()) + 1;
      const std::uint32_t line = source.line_of(number - 1);
      const auto note = [&](Verdict verdict) {
        if (trail != nullptr) trail->push_back({source.name, number, line, &item, verdict});
      };
      if (is_over || !match_item(item, q.bytes, q.size)) {
        note(is_over ? Verdict::late : Verdict::unmatched);
      } else if (item.engine && !q.is_device) {
        note(Verdict::elsewhere);
      } else if (!item.is_choice()) {
        note(Verdict::automatic);
        is_over = true;
      } else if (source.is_advice && !may_run(*item.row, q)) {
        // Every call may pass over many items, so no text is made of the reason.
        note(Verdict::illegal);
      } else {
        if (Status legal = check(item, q); !legal) {
          note(Verdict::illegal);
          return legal.with_context(describe_source(source.name, number, line));
        }
        note(Verdict::chosen);
        chosen = select(item, q);
        chosen.is_forced = !source.is_advice;
        chosen.source = source.name;
        chosen.item = number;
        chosen.line = line;
        if (source.is_advice && q.reach == Reach::node) choose_shared(q, &chosen);
        is_over = true;
      }
      if (is_over && trail == nullptr) break;
    }
    if (chosen.is_made() && trail == nullptr) break;
  }
  if (chosen.is_made() || q.is_device) return chosen;
  return unsupported(
      fmt::format("no algorithm for {} over {} ranks of {} bytes", to_string(q.collective), q.size, q.bytes));
}

std::string Selector::canonical() const {
  std::string text;
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto at = static_cast<std::size_t>(i);
    std::vector<const Source*> sources;
    for (const Source& source : sources_[at]) sources.push_back(&source);
    for (const Source& source : defaults_[at]) sources.push_back(&source);
    if (!shared_[at].rules.empty()) sources.push_back(&shared_[at]);
    for (const Source* const one : sources) {
      const Source& source = *one;
      text += fmt::format("{}={}", to_string(static_cast<Collective>(i)), source.name);
      if (source.reach) text += fmt::format(" {}", to_string(*source.reach));
      text += ';';
      for (const RuleItem& item : source.rules) {
        text += fmt::format("{}:{}:{}:{}:{}:{}",
                            item.row != nullptr ? item.row->name
                            : item.engine       ? to_string(*item.engine)
                                                : "auto",
                            item.params.radix, item.params.segments, item.params.channels,
                            item.params.aggregate, item.segment_bytes);
        if (item.row != nullptr && item.row->legality.needs_hierarchy)
          text += fmt::format(":{}:{}:{}", item.params.leaders, item.params.across, item.params.mates);
        for (const RuleCondition& c : item.conditions) {
          text += fmt::format(",{}-{}@{}-{}", c.min_bytes, c.max_bytes, c.min_size, c.max_size);
        }
        text += ';';
      }
    }
  }
  return text;
}

}  // namespace tutti
