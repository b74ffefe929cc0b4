// The readers of oneCCL's variables and NCCL's table, and what all readers share. Open MPI's files are read
// in import_openmpi.cpp.
#include "tools/cli/tune/import.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <map>
#include <span>

#include <fmt/format.h>

#include "runtime/base/ascii.hpp"

namespace tutti::tool {
namespace detail {

std::optional<std::uint64_t> parse_digits(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

void ImportWriter::add(const Rule& rule, const std::string& where) {
  const RuleCondition& c = rule.condition;
  if (c.min_bytes > c.max_bytes || c.min_size > c.max_size) return;
  RuleItem item;
  if (!rule.algorithm.empty()) {
    const auto parsed = parse_argument(rule.collective, rule.algorithm);
    TUTTI_ASSERT(parsed.is_ok(), "the tables of imports name rows of the catalogue");
    item = *parsed;
    ++import_.rule_count;
  }
  if (item.row != nullptr && rule.segment_bytes) {
    const auto params = item.row->params;
    const auto segments =
        std::find_if(params.begin(), params.end(), [](const ParamRow& p) { return p.name == "segments"; });
    if (segments == params.end()) {
      if (*rule.segment_bytes > 0)
        remark(where, fmt::format("segments of {} bytes", *rule.segment_bytes),
               fmt::format("{} has no segments here: taken without", item.row->name));
    } else if (*rule.segment_bytes > 0) {
      item.segment_bytes = *rule.segment_bytes;
    } else {
      item.params.segments = 1;
    }
  }
  if (!(c == RuleCondition())) item.conditions = {c};
  const std::string text = to_text(item);
  for (const Reach reach : kReaches) {
    if (!rule.reach || *rule.reach == reach)
      import_.tuning.rules_of(rule.collective, reach).items.push_back({text, 0});
  }
}

void ImportWriter::reverse(Collective collective) {
  for (const Reach reach : kReaches) {
    auto& items = import_.tuning.rules_of(collective, reach).items;
    std::reverse(items.begin(), items.end());
  }
}

Import ImportWriter::finish() {
  auto& lists = import_.tuning.rules;
  for (TuningRules& list : lists) {
    // At the end of a list "auto" keeps nothing away.
    while (!list.items.empty() && list.items.back().text.rfind("auto", 0) == 0) list.items.pop_back();
  }
  // One list where both reaches have the same.
  for (TuningRules& list : lists) {
    if (list.reach != Reach::node) continue;
    for (TuningRules& other : lists) {
      if (other.collective != list.collective || other.reach != Reach::network || other.items != list.items)
        continue;
      list.reach.reset();
      other.items.clear();
      break;
    }
  }
  std::erase_if(lists, [](const TuningRules& list) { return list.items.empty(); });
  return std::move(import_);
}

namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r";
  const std::size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

// The counterpart here of another library's algorithm, or the reason why there is none.
struct Counterpart {
  Collective collective;
  std::string_view theirs, ours, why;
};
using C = Collective;

const Counterpart* find_counterpart(std::span<const Counterpart> table, Collective collective,
                                    std::string_view theirs) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Counterpart& row) {
    return row.collective == collective && row.theirs == theirs;
  });
  return found == table.end() ? nullptr : &*found;
}

constexpr std::string_view kNoCounterpart = "no row of ours sends the same messages";
constexpr std::string_view kGpu = "needs hardware of GPUs or switches";

// -- oneCCL -------------------------------------------------------------------------------------------------

constexpr std::string_view kDirect = "is the choice of the MPI below";
constexpr std::string_view kTopo = "looks at GPUs and at a topology in its own way";
constexpr Counterpart kCcl[] = {
    {C::allreduce, "direct", "", kDirect},
    {C::allreduce, "rabenseifner", "rabenseifner", ""},
    {C::allreduce, "nreduce", "two_shot", ""},
    {C::allreduce, "ring", "ring", ""},
    {C::allreduce, "ring_rma", "", kNoCounterpart},
    {C::allreduce, "double_tree", "double_binary_tree", ""},
    {C::allreduce, "recursive_doubling", "recursive_doubling", ""},
    {C::allreduce, "2d", "", kNoCounterpart},
    {C::allreduce, "topo", "", kTopo},
    {C::allgather, "direct", "", kDirect},
    {C::allgather, "naive", "direct", ""},
    {C::allgather, "ring", "ring", ""},
    {C::allgather, "flat", "direct", ""},
    {C::allgather, "multi_bcast", "", kNoCounterpart},
    {C::allgather, "topo", "", kTopo},
    {C::alltoall, "direct", "", kDirect},
    {C::alltoall, "naive", "linear", ""},
    {C::alltoall, "scatter", "", kNoCounterpart},
    {C::alltoall, "topo", "", kTopo},
    {C::barrier, "direct", "", kDirect},
    {C::barrier, "ring", "", kNoCounterpart},
    {C::broadcast, "direct", "", kDirect},
    {C::broadcast, "ring", "scatter_allgather", ""},
    {C::broadcast, "double_tree", "double_binary_tree", ""},
    {C::broadcast, "naive", "linear", ""},
    {C::broadcast, "topo", "", kTopo},
    {C::reduce, "direct", "", kDirect},
    {C::reduce, "rabenseifner", "rabenseifner", ""},
    {C::reduce, "ring", "", kNoCounterpart},
    {C::reduce, "tree", "binomial", ""},
    {C::reduce, "double_tree", "double_binary_tree", ""},
    {C::reduce, "topo", "", kTopo},
    {C::reduce_scatter, "direct", "", kDirect},
    {C::reduce_scatter, "naive", "", kNoCounterpart},
    {C::reduce_scatter, "ring", "ring", ""},
    {C::reduce_scatter, "topo", "", kTopo},
};

struct CclVariable {
  std::string_view name;
  Collective collective;
  bool has_known_bytes;  // is it written down what a size is, and is it the full vector's?
};
constexpr CclVariable kCclVariables[] = {
    {"CCL_ALLREDUCE", C::allreduce, true},
    {"CCL_ALLGATHER", C::allgather, true},
    {"CCL_ALLGATHERV", C::allgather, true},
    {"CCL_ALLTOALL", C::alltoall, false},
    {"CCL_BARRIER", C::barrier, true},
    {"CCL_BCAST", C::broadcast, true},
    {"CCL_BROADCAST", C::broadcast, true},
    {"CCL_REDUCE", C::reduce, true},
    {"CCL_REDUCE_SCATTER", C::reduce_scatter, false},
};

void add_ccl_entry(const CclVariable& variable, std::string_view entry, const std::string& where,
                   ImportWriter& writer) {
  const std::size_t colon = entry.find(':');
  const std::string_view name = trimmed(entry.substr(0, colon));
  const std::string what = fmt::format("{}={}", variable.name, entry);
  ImportWriter::Rule rule;
  rule.collective = variable.collective;
  if (colon != std::string_view::npos) {
    const auto bounds = split(trimmed(entry.substr(colon + 1)), '-');
    const auto low = parse_digits(bounds[0]);
    const auto high = bounds.size() != 2   ? std::nullopt
                      : bounds[1] == "max" ? std::optional(rule.condition.max_bytes)
                                           : parse_digits(bounds[1]);
    if (!low || !high || *low > *high)
      return writer.remark(where, what, "expected bytes as in 0-8192 or 8193-max behind the colon");
    rule.condition.min_bytes = *low;
    rule.condition.max_bytes = *high;
    if (!variable.has_known_bytes && !(rule.condition == RuleCondition()))
      return writer.remark(where, what, "which bytes count in the sizes of this collective is not known");
  }
  const Counterpart* const found = find_counterpart(kCcl, variable.collective, name);
  if (found == nullptr) {
    writer.remark(where, what,
                  fmt::format("'{}' is no algorithm of {} that we know of", name, variable.name));
  } else if (found->ours.empty()) {
    writer.remark(where, what, std::string(found->why));
  }
  rule.algorithm = found == nullptr ? "" : found->ours;
  writer.add(rule, where);
}

}  // namespace

// A later entry overrides an earlier one where their sizes overlap, and a name without sizes overrides all.
// More than 15 decisions because each form of an entry is one.
Result<Import> import_ccl(std::string_view text) {
  ImportWriter writer(ImportForm::ccl);
  std::map<Collective, std::string> given;
  std::size_t number = 0;
  bool has_variable = false;
  for (const std::string_view line : split(text, '\n')) {
    const std::string where = line_text(++number);
    std::string_view rest = trimmed(line.substr(0, line.find('#')));
    while (!rest.empty()) {
      // Words end at spaces outside of quotes.
      std::size_t end = 0;
      for (char quote = 0; end < rest.size() && (quote != 0 || (rest[end] != ' ' && rest[end] != '\t'));
           ++end) {
        if (quote == 0 && (rest[end] == '"' || rest[end] == '\'')) {
          quote = rest[end];
        } else if (rest[end] == quote) {
          quote = 0;
        }
      }
      const std::string_view word = rest.substr(0, end);
      rest = trimmed(rest.substr(end));
      if (word == "export" || word == "set") continue;
      const std::size_t equals = word.find('=');
      const std::string_view name = word.substr(0, equals);
      if (equals == std::string_view::npos || name.rfind("CCL_", 0) != 0) {
        writer.remark(where, std::string(word), "is no variable of oneCCL");
        continue;
      }
      has_variable = true;
      std::string_view value = word.substr(equals + 1);
      while (!value.empty() && (value.front() == '"' || value.front() == '\'')) value.remove_prefix(1);
      while (!value.empty() && (value.back() == '"' || value.back() == '\'')) value.remove_suffix(1);
      const auto* const variable = std::find_if(std::begin(kCclVariables), std::end(kCclVariables),
                                                [&](const CclVariable& known) { return known.name == name; });
      if (variable == std::end(kCclVariables)) {
        writer.remark(where, std::string(word),
                      name.ends_with("_SCALEOUT") ? "is a part of an algorithm: what runs between nodes"
                                                  : "names no algorithm of a collective that we have");
        continue;
      }
      const auto [known, is_first] = given.emplace(variable->collective, std::string(name));
      if (!is_first) {
        writer.remark(where, std::string(word),
                      fmt::format("{} was read: one collective here", known->second));
        continue;
      }
      for (const std::string_view entry : split(value, ';')) {
        if (!trimmed(entry).empty()) add_ccl_entry(*variable, trimmed(entry), where, writer);
      }
    }
  }
  if (!has_variable)
    return invalid_argument("line 1 column 1: expected variables such as CCL_ALLREDUCE=ring:8193-max");
  for (const auto& [collective, ignored] : given) writer.reverse(collective);
  return writer.finish();
}

// -- NCCL ---------------------------------------------------------------------------------------------------

namespace {

constexpr Counterpart kNccl[] = {
    {C::allreduce, "ring", "ring", ""},      {C::allreduce, "tree", "double_binary_tree", ""},
    {C::broadcast, "ring", "chain", ""},     {C::reduce, "ring", "chain", ""},
    {C::allgather, "ring", "ring", ""},      {C::allgather, "pat", "pat", ""},
    {C::reduce_scatter, "ring", "ring", ""}, {C::reduce_scatter, "pat", "pat", ""},
};

std::optional<Collective> nccl_collective(std::string_view name) {
  if (name == "reducescatter") return C::reduce_scatter;
  for (const Collective known : {C::allreduce, C::broadcast, C::reduce, C::allgather}) {
    if (name == to_string(known)) return known;
  }
  return std::nullopt;
}

// Nullopt: a number; a value: why not.
std::optional<std::string> read_count(std::string_view field, std::string_view what, std::uint32_t most,
                                      std::optional<std::uint32_t>& count) {
  if (field == "-1") return std::nullopt;
  const auto value = parse_digits(field);
  if (!value || *value > most) return fmt::format("'{}' is no {}", field, what);
  count = static_cast<std::uint32_t>(*value);
  return std::nullopt;
}

// Has more than 15 decisions because there is one for each field.
void add_nccl_line(const std::vector<std::string_view>& fields, const std::string& line,
                   const std::string& where, ImportWriter& writer) {
  const auto refuse = [&](std::string why) { writer.remark(where, line, std::move(why)); };
  constexpr std::uint32_t kMost = std::numeric_limits<std::int32_t>::max();
  ImportWriter::Rule rule;
  const auto collective = nccl_collective(fields[0]);
  if (!collective) return refuse(fmt::format("'{}' is no collective of the tuner", fields[0]));
  rule.collective = *collective;
  const auto low = parse_digits(fields[1]), high = parse_digits(fields[2]);
  if (!low || !high || *low > *high) return refuse("expected two sizes in bytes, the smaller one first");
  rule.condition.min_bytes = *low;
  rule.condition.max_bytes = *high;
  std::optional<std::uint32_t> nodes, ranks;
  if (const auto why = read_count(fields[6], "number of nodes", kMost, nodes)) return refuse(*why);
  if (const auto why = read_count(fields[7], "number of ranks", kMost, ranks)) return refuse(*why);
  for (std::size_t i = 8; i < fields.size(); ++i) {
    if (fields[i] != "-1")
      return refuse("pipelined operations and registered buffers are no conditions here");
  }
  if (ranks) rule.condition.min_size = rule.condition.max_size = *ranks;
  if (nodes) rule.reach = *nodes > 1 ? Reach::network : Reach::node;
  if (nodes && *nodes > 1 && !ranks)
    return refuse("the number of nodes is no condition here, and that of ranks is not given");
  const Counterpart* const found = find_counterpart(kNccl, *collective, fields[3]);
  if (found != nullptr) {
    rule.algorithm = found->ours;
    if (nodes && *nodes > 1)
      writer.remark(where, fmt::format("{} nodes", *nodes),
                    fmt::format("taken for {} ranks on any number of nodes above one", *ranks));
  } else if (fields[3] == "-1") {
    refuse("names no algorithm");
  } else {
    refuse(std::string(fields[3] == "ring" || fields[3] == "tree" ? kNoCounterpart : kGpu));
  }
  writer.add(rule, where);
}

}  // namespace

// The first line that matches wins; bounds are inclusive; -1 is any. Lines that the plug-in skips are
// skipped.
Result<Import> import_nccl(std::string_view text) {
  constexpr std::size_t kLeastFields = 8, kMostFields = 10;
  ImportWriter writer(ImportForm::nccl);
  std::size_t number = 0, rows = 0;
  for (const std::string_view raw : split(text, '\n')) {
    const std::string where = line_text(++number);
    const std::string_view line = trimmed(raw);
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string_view> fields = split(line, ',');
    for (std::string_view& field : fields) field = trimmed(field);
    if (fields.size() < kLeastFields || fields.size() > kMostFields) {
      writer.remark(where, std::string(line), "expected 8 to 10 fields");
      continue;
    }
    ++rows;
    if (fields[0] == "collective_type" || fields[0] == "colltype") continue;
    add_nccl_line(fields, std::string(line), where, writer);
  }
  if (rows == 0)
    return invalid_argument(
        "line 1 column 1: expected lines such as allreduce,0,65536,tree,ll,2,1,-1 (NCCL's example tuner)");
  writer.remark("every line", "protocol and channels", "are those of GPUs: left out");
  return writer.finish();
}

}  // namespace detail

std::string_view to_string(ImportForm form) {
  constexpr std::string_view kNames[] = {"openmpi", "ccl", "nccl"};
  return kNames[static_cast<std::size_t>(form)];
}

std::optional<ImportForm> parse_import_form(std::string_view text) {
  for (const ImportForm form : {ImportForm::openmpi, ImportForm::ccl, ImportForm::nccl}) {
    if (text == to_string(form)) return form;
  }
  return std::nullopt;
}

namespace {

ImportForm guess_form(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && text[first] == '{';
  if (is_json || text.substr(0, 9) == "rule-file") return ImportForm::openmpi;
  const bool names_nccl = text.find("NCCL_") != std::string_view::npos;
  if (!names_nccl && text.find("CCL_") != std::string_view::npos) return ImportForm::ccl;
  const std::string_view line = text.substr(0, text.find('\n'));
  const bool is_table = text.find("collective_type,") != std::string_view::npos;
  return is_table || std::count(line.begin(), line.end(), ',') >= 7 ? ImportForm::nccl : ImportForm::openmpi;
}

}  // namespace

Result<Import> import_rules(std::string_view text, std::optional<ImportForm> form) {
  switch (form.value_or(guess_form(text))) {
    case ImportForm::ccl:
      return detail::import_ccl(text);
    case ImportForm::nccl:
      return detail::import_nccl(text);
    case ImportForm::openmpi:
      break;
  }
  return detail::import_openmpi(text);
}

}  // namespace tutti::tool
