// Parsing and matching of rules. Every error points at a column and says what is right there.
#include "runtime/selection/rules.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "runtime/selection/impi_numbers.hpp"

namespace tutti {
namespace {

class Parser {
 public:
  Parser(Collective collective, std::string_view text) : collective_(collective), text_(text) {}

  Result<RuleList> run() {
    RuleList rules;
    do {
      skip_spaces();
      auto item = parse_item();
      if (!item) return item.status();
      rules.push_back(*std::move(item));
      skip_spaces();
    } while (accept(';'));
    if (at_ < text_.size()) return fail("';' between items, ':' before conditions, or the end");
    return rules;
  }

  Result<RuleItem> run_argument() {
    skip_spaces();
    RuleItem item;
    TUTTI_RETURN_IF_ERROR(parse_choice(item));
    skip_spaces();
    if (at_ < text_.size()) return fail("the end: an argument is one item without conditions");
    return item;
  }

 private:
  Result<RuleItem> parse_item() {
    RuleItem item;
    TUTTI_RETURN_IF_ERROR(parse_choice(item));
    skip_spaces();
    if (accept(':')) TUTTI_RETURN_IF_ERROR(parse_conditions(item));
    return item;
  }

  // An algorithm with its parameters.
  Status parse_choice(RuleItem& item) {
    item.column = static_cast<std::uint32_t>(at_ + 1);
    TUTTI_RETURN_IF_ERROR(parse_algorithm(item));
    skip_spaces();
    return accept('(') ? parse_params(item) : Status();
  }

  Status parse_algorithm(RuleItem& item) {
    const std::size_t start = at_;
    const std::string_view word = take_word();
    if (word == "0" || word == "auto") return {};
    for (const DeviceEngineKind engine : {DeviceEngineKind::nccl, DeviceEngineKind::staged}) {
      if (word != to_string(engine)) continue;
      item.engine = engine;
      return {};
    }
    std::string_view name = word;
    if (!word.empty() && std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      name = algorithm_of_number(collective_, word);
    }
    item.row = name.empty() ? nullptr : find_algorithm(collective_, name);
    if (item.row == nullptr) {
      at_ = start;
      return fail(fmt::format("an algorithm of {}: {}", to_string(collective_), list_algorithms()));
    }
    item.params = default_params(*item.row);
    return {};
  }

  Status parse_params(RuleItem& item) {
    do {
      skip_spaces();
      const std::size_t start = at_;
      const std::string_view name = take_word();
      const ParamRow* param = find_param(item, name);
      const bool is_segment = name == "segment" && find_param(item, "segments") != nullptr;
      if (param == nullptr && !is_segment) {
        at_ = start;
        return fail(list_params(item));
      }
      skip_spaces();
      if (!accept('=')) return fail(fmt::format("'=' after {}", name));
      skip_spaces();
      const std::size_t value_start = at_;
      std::uint64_t value = 0;
      TUTTI_RETURN_IF_ERROR(parse_number(is_segment, &value));
      if (is_segment) {
        if (value == 0) return fail_at(value_start, "a segment size of at least 1 byte");
        item.segment_bytes = value;
      } else if (value < param->min_value || value > param->max_value) {
        return fail_at(value_start,
                       fmt::format("{} from {} to {}", name, param->min_value, param->max_value));
      }
      if (!is_segment) item.params.*(param->field) = static_cast<std::uint32_t>(value);
      skip_spaces();
    } while (accept(','));
    if (!accept(')')) return fail("',' and another parameter, or ')'");
    return {};
  }

  Status parse_conditions(RuleItem& item) {
    do {
      skip_spaces();
      RuleCondition condition;
      TUTTI_RETURN_IF_ERROR(parse_range(true, "a message size", &condition.min_bytes, &condition.max_bytes));
      skip_spaces();
      if (accept('@')) {
        skip_spaces();
        std::uint64_t low = 0, high = std::numeric_limits<std::uint32_t>::max();
        TUTTI_RETURN_IF_ERROR(parse_range(false, "a number of ranks", &low, &high));
        condition.min_size = static_cast<std::uint32_t>(low);
        condition.max_size = static_cast<std::uint32_t>(high);
      }
      item.conditions.push_back(condition);
      skip_spaces();
    } while (accept(','));
    return {};
  }

  // n | n-m | -m | n-
  Status parse_range(bool has_suffix, std::string_view what, std::uint64_t* low, std::uint64_t* high) {
    const std::size_t start = at_;
    if (accept('-')) {
      if (!is_digit()) return fail(fmt::format("{} after '-'", what));
      return parse_number(has_suffix, high);
    }
    if (!is_digit()) return fail(fmt::format("{} such as 4k, 4k-64k, -4k or 64k-", what));
    TUTTI_RETURN_IF_ERROR(parse_number(has_suffix, low));
    if (!accept('-')) {
      *high = *low;
      return {};
    }
    if (is_digit()) {
      TUTTI_RETURN_IF_ERROR(parse_number(has_suffix, high));
      if (*high < *low)
        return fail_at(start,
                       fmt::format("a range whose end is not below its start, not {}-{}", *low, *high));
    }
    return {};
  }

  Status parse_number(bool has_suffix, std::uint64_t* value) {
    const std::size_t start = at_;
    const auto limit =
        has_suffix ? std::numeric_limits<std::uint64_t>::max() : std::numeric_limits<std::uint32_t>::max();
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), *value);
    if (error == std::errc::invalid_argument) return fail("a number");
    at_ = static_cast<std::size_t>(end - text_.data());
    std::uint64_t scale = 1;
    if (has_suffix && at_ < text_.size()) {
      const char suffix = static_cast<char>(text_[at_] | 0x20);  // lower case
      if (suffix == 'k' || suffix == 'm' || suffix == 'g') {
        scale = suffix == 'k' ? 1ULL << 10U : suffix == 'm' ? 1ULL << 20U : 1ULL << 30U;
        ++at_;
      }
    }
    if (error == std::errc::result_out_of_range || *value > limit / scale)
      return fail_at(start, "a smaller number");
    *value *= scale;
    return {};
  }

  // `columns` is the former name of `leaders`: deprecated, read for one more release.
  const ParamRow* find_param(const RuleItem& item, std::string_view name) const {
    if (item.row == nullptr) return nullptr;
    if (name == "columns") name = "leaders";
    for (const ParamRow& param : item.row->params) {
      if (param.name == name) return &param;
    }
    return nullptr;
  }

  std::string list_params(const RuleItem& item) const {
    if (item.engine) return fmt::format("no parameters: {} has none", to_string(*item.engine));
    if (item.row == nullptr) return "no parameters after an automatic choice";
    if (item.row->params.empty()) return fmt::format("no parameters: {} has none", item.row->name);
    std::string list = fmt::format("a parameter of {}:", item.row->name);
    for (const ParamRow& param : item.row->params) {
      list += fmt::format(" {} ({}-{})", param.name, param.min_value, param.max_value);
      if (param.name == "segments") list += " segment (bytes)";
    }
    return list;
  }

  std::string list_algorithms() const {
    std::string list;
    for (const AlgorithmRow& row : catalog()) {
      if (row.collective == collective_) list += fmt::format("{}{}", list.empty() ? "" : ", ", row.name);
    }
    return list + ", auto, a number of I_MPI_ADJUST, or for memory of GPUs nccl or staged";
  }

  std::string_view take_word() {
    const std::size_t start = at_;
    while (at_ < text_.size() &&
           (is_digit() || text_[at_] == '_' || ((text_[at_] | 0x20) >= 'a' && (text_[at_] | 0x20) <= 'z')))
      ++at_;
    return text_.substr(start, at_ - start);
  }
  bool is_digit() const { return at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; }
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  bool accept(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Status fail(const std::string& expected) const { return fail_at(at_, expected); }
  Status fail_at(std::size_t at, const std::string& expected) const {
    const std::string found =
        at < text_.size() ? fmt::format("'{}'", text_.substr(at, 12)) : std::string("the end");
    return invalid_argument(
        fmt::format("column {}: expected {}; found {} in \"{}\"", at + 1, expected, found, text_));
  }

  Collective collective_;
  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

Result<RuleList> parse_rules(Collective collective, std::string_view text) {
  return Parser(collective, text).run();
}

Result<RuleItem> parse_argument(Collective collective, std::string_view text) {
  return Parser(collective, text).run_argument();
}

bool match_item(const RuleItem& item, std::uint64_t bytes, std::uint32_t size) {
  return item.conditions.empty() ||
         std::any_of(item.conditions.begin(), item.conditions.end(), [&](const RuleCondition& c) {
           return bytes >= c.min_bytes && bytes <= c.max_bytes && size >= c.min_size && size <= c.max_size;
         });
}

const RuleItem* match(const RuleList& rules, std::uint64_t bytes, std::uint32_t size) {
  const auto found = std::find_if(rules.begin(), rules.end(),
                                  [&](const RuleItem& item) { return match_item(item, bytes, size); });
  return found == rules.end() ? nullptr : &*found;
}

namespace {

std::string size_text(std::uint64_t n) {
  if (n == 0) return "0";
  if (n % (1ULL << 30U) == 0) return fmt::format("{}g", n >> 30U);
  if (n % (1ULL << 20U) == 0) return fmt::format("{}m", n >> 20U);
  return n % 1024 == 0 ? fmt::format("{}k", n >> 10U) : fmt::format("{}", n);
}

template <class Number, class Text>
std::string range_text(Number low, Number high, const Text& text) {
  if (low == high) return text(low);
  const bool is_open = high == std::numeric_limits<Number>::max();
  // A range without an end needs its start; one from 0 does not.
  return fmt::format("{}-{}", low == 0 && !is_open ? "" : text(low), is_open ? "" : text(high));
}

}  // namespace

std::string to_text(const AlgorithmRow& row, const AlgorithmParams& params, std::uint64_t segment_bytes) {
  std::string list;
  const auto add = [&](std::string_view name, const std::string& value) {
    list += fmt::format("{}{}={}", list.empty() ? "" : ",", name, value);
  };
  for (const ParamRow& param : row.params) {
    const bool is_by_size = segment_bytes != 0 && param.name == "segments";
    if (is_by_size) add("segment", size_text(segment_bytes));
    if (!is_by_size && params.*(param.field) != param.default_value)
      add(param.name, fmt::format("{}", params.*(param.field)));
  }
  return list.empty() ? std::string(row.name) : fmt::format("{}({})", row.name, list);
}

std::string to_text(const RuleItem& item) {
  std::string text(item.engine ? to_string(*item.engine) : "auto");
  if (item.row != nullptr) text = to_text(*item.row, item.params, item.segment_bytes);
  for (const RuleCondition& c : item.conditions) {
    text += &c == item.conditions.data() ? ':' : ',';
    text += range_text(c.min_bytes, c.max_bytes, size_text);
    if (c.min_size != 0 || c.max_size != std::numeric_limits<std::uint32_t>::max()) {
      text += '@';
      text += range_text(c.min_size, c.max_size, [](std::uint32_t n) { return fmt::format("{}", n); });
    }
  }
  return text;
}

}  // namespace tutti
