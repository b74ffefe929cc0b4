// The text form of a tuning file: JSON that is read event by event, since only that way it is known in which
// line a rule stands. Knows no file.
#include "runtime/selection/tuning.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/selection/rules.hpp"

namespace tutti {
namespace {

using nlohmann::json;

constexpr std::string_view kAnywhere = " anywhere";

std::string name_of(Collective collective, std::optional<Reach> reach) {
  std::string name(to_string(collective));
  if (!reach) return name + std::string(kAnywhere);
  if (*reach == Reach::network) name += fmt::format(" {}", to_string(Reach::network));
  return name;
}

// Every name of a list of rules, with what it is for.
const std::map<std::string, TuningRules>& known_lists() {
  static const std::map<std::string, TuningRules> kLists = [] {
    std::map<std::string, TuningRules> lists;
    for (int i = 0; i < kCollectiveCount; ++i) {
      const auto collective = static_cast<Collective>(i);
      if (collective == Collective::send_recv) continue;
      for (const auto reach :
           {std::optional<Reach>(Reach::node), std::optional<Reach>(Reach::network), std::optional<Reach>()})
        lists.emplace(name_of(collective, reach), TuningRules{collective, reach, {}});
    }
    return lists;
  }();
  return kLists;
}

// The input of the parser; keeps the position of the parser, which does not report it.
class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;

  Cursor(const char* at, const char** last_read) : at_(at), last_read_(last_read) {}
  const char& operator*() const { return *at_; }
  Cursor& operator++() {
    *last_read_ = ++at_;
    return *this;
  }
  Cursor operator++(int) {
    const Cursor before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Cursor& other) const { return at_ == other.at_; }
  bool operator!=(const Cursor& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** last_read_;
};

class Reader : public json::json_sax_t {
 public:
  Reader(std::string_view text, std::string_view file) : text_(text), file_(file), at_(text.data()) {}

  Result<Tuning> run() {
    const bool is_read =
        json::sax_parse(Cursor(text_.data(), &at_), Cursor(text_.data() + text_.size(), &at_), this);
    if (!status_) return status_;
    if (!is_read) fail_at(offset(), "expected JSON, which has no comments and no comma before ] or }");
    if (status_ && !has_version_) fail_at(0, "\"tutti_tuning\" is missing: this is no tuning file");
    if (!status_) return status_;
    return std::move(tuning_);
  }

  // Events; false ends the reading.
  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("true or false"); }
  bool number_integer(number_integer_t) override { return refuse("a number below zero"); }
  bool number_float(number_float_t, const string_t&) override { return refuse("a fraction"); }
  bool binary(binary_t&) override { return refuse("bytes"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::document && key_ == "tutti_tuning") {
      has_version_ = true;
      if (value == kTuningVersion) return true;
      return fail_at(number_offset(), fmt::format("version {}: this program knows version {} of tuning files",
                                                  value, kTuningVersion));
    }
    if (place_ == Place::model) {
      std::uint64_t* const figure = key_ == "call_ps"         ? &model_->call_ps
                                    : key_ == "reduce_kib_ps" ? &model_->reduce_kib_ps
                                    : key_ == "copy_kib_ps"   ? &model_->copy_kib_ps
                                                              : nullptr;
      if (figure != nullptr) {
        *figure = value;
        return true;
      }
    }
    if (place_ == Place::fusion_setting) return set_fusion(value);
    if (place_ == Place::link) {
      std::uint64_t* const figures[] = {&link_->latency_ps,    &link_->message_ps,  &link_->kib_ps,
                                        &link_->shared_kib_ps, &line_->transfer_ps, &line_->further_ps,
                                        &line_->kib_ps,        &line_->crowd_kib_ps};
      if (figure_count_ == std::size(figures)) return refuse("a ninth figure");
      *figures[figure_count_++] = value;
      return true;
    }
    return refuse("a number");
  }

  bool string(string_t& value) override {
    if (place_ == Place::document && key_ == "origin") {
      tuning_.origin = value;
      return true;
    }
    if (place_ == Place::fingerprint) {
      tuning_.fingerprint.emplace_back(key_, value);
      return true;
    }
    if (place_ == Place::list) return add_item(value);
    return refuse("text");
  }

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::top:
        place_ = Place::document;
        break;
      case Place::document:
        if (key_ == "fingerprint") {
          place_ = Place::fingerprint;
        } else if (key_ == "rules") {
          place_ = Place::rules;
        } else if (key_ == "costs") {
          place_ = Place::costs;
        } else if (key_ == "fusion") {
          place_ = Place::fusion;
        } else {
          return refuse("an object");
        }
        break;
      case Place::costs:
        place_ = Place::model;
        model_ = &tuning_.costs[key_];
        break;
      case Place::fusion:
        if (!begin_fusion_setting()) return false;
        break;
      default:
        return refuse("an object");
    }
    keys_.emplace_back();
    return true;
  }

  bool end_object() override {
    keys_.pop_back();
    place_ = place_ == Place::document         ? Place::top
             : place_ == Place::model          ? Place::costs
             : place_ == Place::fusion_setting ? Place::fusion
                                               : Place::document;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::rules) {
      const TuningRules& list = known_lists().at(key_);
      tuning_.rules.push_back(list);
      place_ = Place::list;
      return true;
    }
    if (place_ == Place::model) {
      for (std::size_t level = 0; level < kLevelCount; ++level) {
        if (key_ != to_string(static_cast<Level>(level))) continue;
        link_ = &model_->links[level];
        line_ = &model_->lines[level];
      }
      if (link_ == nullptr) return refuse("a list");
      figure_count_ = 0;
      place_ = Place::link;
      return true;
    }
    return refuse("a list");
  }

  bool end_array() override {
    if (place_ == Place::list) {
      place_ = Place::rules;
      return true;
    }
    if (figure_count_ != 4 && figure_count_ != 8)
      return fail_at(number_offset(), "expected four figures (see LinkCost), or four more (see LineCost)");
    link_ = nullptr;
    place_ = Place::model;
    return true;
  }

  bool key(string_t& name) override {
    const std::string expected = expected_keys(name);
    if (!expected.empty())
      return fail_at(string_offset(), fmt::format("expected {}; found \"{}\"", expected, name));
    if (!keys_.back().insert(name).second)
      return fail_at(string_offset(), fmt::format("\"{}\" was given before", name));
    key_ = name;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& why) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ...": the rest is ours.
    std::string_view text = why.what();
    if (const auto colon = text.find(": "); colon != std::string_view::npos) text.remove_prefix(colon + 2);
    return fail_at(position == 0 ? 0 : position - 1, std::string(text));
  }

 private:
  enum class Place : std::uint8_t {
    top,
    document,
    fingerprint,
    rules,
    list,
    costs,
    model,
    link,
    fusion,
    fusion_setting
  };

  // Empty: the name is right here.
  std::string expected_keys(const std::string& name) const {
    std::vector<std::string> names;
    switch (place_) {
      case Place::document:
        names = {"tutti_tuning", "origin", "fingerprint", "rules", "costs", "fusion"};
        break;
      case Place::rules:
        for (const auto& [list, ignored] : known_lists()) names.push_back(list);
        break;
      case Place::model:
        names = {"call_ps", "reduce_kib_ps", "copy_kib_ps"};
        for (std::size_t level = 0; level < kLevelCount; ++level)
          names.emplace_back(to_string(static_cast<Level>(level)));
        break;
      case Place::fusion_setting:
        names = {"bytes", "cycle_us"};
        break;
      default:
        return {};
    }
    if (std::find(names.begin(), names.end(), name) != names.end()) return {};
    std::string text = "one of";
    for (const std::string& known : names)
      text += fmt::format("{} \"{}\"", &known == names.data() ? "" : ",", known);
    return text;
  }

  bool add_item(const std::string& text) {
    TuningRules& list = tuning_.rules.back();
    const std::size_t start = string_offset();
    const auto rules = parse_rules(list.collective, text);
    if (!rules) {
      // "column 7: expected ...": of the text within the quotes.
      std::string_view message = rules.status().message();
      std::size_t column = 1;
      constexpr std::string_view kColumn = "column ";
      if (message.substr(0, kColumn.size()) == kColumn) {
        const char* const first = message.data() + kColumn.size();
        const char* const end = std::from_chars(first, message.data() + message.size(), column).ptr;
        message.remove_prefix(static_cast<std::size_t>(end - message.data()));
        message.remove_prefix(std::min(message.size(), std::string_view(": ").size()));
      }
      return fail_at(start + column, std::string(message));
    }
    if (rules->size() != 1) return fail_at(start, "expected one rule in each line: no ';' here");
    list.items.push_back({text, line_of(start)});
    return true;
  }

  bool begin_fusion_setting() {
    std::uint32_t rank_count = 0;
    const char* const end = key_.data() + key_.size();
    const auto parsed = std::from_chars(key_.data(), end, rank_count);
    if (parsed.ec != std::errc() || parsed.ptr != end || rank_count == 0)
      return fail_at(number_offset(), fmt::format("\"{}\": expected a number of ranks", key_));
    place_ = Place::fusion_setting;
    fusion_ = &tuning_.fusion[rank_count];
    return true;
  }
  bool set_fusion(std::uint64_t value) {
    const bool is_cycle = key_ == "cycle_us";
    if (is_cycle && value > kMostCycleMicroseconds)
      return fail_at(number_offset(),
                     fmt::format("\"cycle_us\": expected at most {}", kMostCycleMicroseconds));
    (is_cycle ? fusion_->cycle_us : fusion_->bytes) = value;
    return true;
  }

  bool refuse(std::string_view found) {
    static constexpr std::string_view kExpected[] = {"an object",
                                                     "a value that belongs there",
                                                     "text in quotes",
                                                     "a list of rules",
                                                     "a rule in quotes",
                                                     "the figures of a transport",
                                                     "picoseconds",
                                                     "four numbers",
                                                     "the setting of a number of ranks",
                                                     "a number"};
    const bool is_in_document = place_ == Place::document;
    const std::string expected = is_in_document && key_ == "tutti_tuning" ? "a version"
                                 : is_in_document && key_ == "origin"     ? "text in quotes"
                                 : is_in_document                         ? "an object"
                                                  : std::string(kExpected[static_cast<std::size_t>(place_)]);
    const std::string where = key_.empty() ? "" : fmt::format(" of \"{}\"", key_);
    return fail_at(number_offset(), fmt::format("expected {}{}; found {}", expected, where, found));
  }

  // Positions in the text: of the next character; of the last character that was read, which is a sign or the
  // one behind a number; of the start of the last string.
  std::size_t offset() const { return static_cast<std::size_t>(at_ - text_.data()); }
  std::size_t number_offset() const { return offset() == 0 ? 0 : offset() - 1; }
  std::size_t string_offset() const {
    std::size_t at = offset();
    if (at < 2) return 0;
    at -= 2;  // before the closing quote
    for (;; --at) {
      if (text_[at] == '"') {
        std::size_t slashes = 0;
        while (slashes < at && text_[at - slashes - 1] == '\\') ++slashes;
        if (slashes % 2 == 0) return at;
      }
      if (at == 0) return 0;
    }
  }
  std::uint32_t line_of(std::size_t offset) const {
    const auto* const first = text_.data();
    return static_cast<std::uint32_t>(1 + std::count(first, first + std::min(offset, text_.size()), '\n'));
  }

  bool fail_at(std::size_t offset, const std::string& what) {
    offset = std::min(offset, text_.size());
    const std::size_t newline = offset == 0 ? std::string_view::npos : text_.rfind('\n', offset - 1);
    const std::size_t column = newline == std::string_view::npos ? offset + 1 : offset - newline;
    if (status_)
      status_ =
          invalid_argument(fmt::format("{} line {} column {}: {}", file_, line_of(offset), column, what));
    return false;
  }

  std::string_view text_, file_;
  const char* at_;
  Status status_;
  Tuning tuning_;
  bool has_version_ = false;
  Place place_ = Place::top;
  std::string key_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
  CostModel* model_ = nullptr;
  LinkCost* link_ = nullptr;
  LineCost* line_ = nullptr;
  FusionTuning* fusion_ = nullptr;
  std::size_t figure_count_ = 0;
};

std::string quoted(const std::string& text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string to_text(const LinkCost& link, const LineCost& line) {
  std::string text =
      fmt::format("{}, {}, {}, {}", link.latency_ps, link.message_ps, link.kib_ps, link.shared_kib_ps);
  if (line != LineCost())
    text +=
        fmt::format(", {}, {}, {}, {}", line.transfer_ps, line.further_ps, line.kib_ps, line.crowd_kib_ps);
  return "[" + text + "]";
}

// `{` or `[`, a line for each entry, and the end.
std::string block(char open, const std::vector<std::string>& entries, std::string_view indent) {
  std::string text(1, open);
  for (const std::string& entry : entries)
    text += fmt::format("{}\n{}  {}", &entry == entries.data() ? "" : ",", indent, entry);
  return text + fmt::format("\n{}{}", indent, open == '{' ? '}' : ']');
}

}  // namespace

std::string describe_difference(const Fingerprint& there, const Fingerprint& here) {
  for (const auto& [name, value] : there) {
    for (const auto& [other_name, other_value] : here) {
      if (name == other_name && value != other_value)
        return fmt::format("it is for {} \"{}\", and here it is \"{}\"", name, value, other_value);
    }
  }
  return {};
}

TuningRules& Tuning::rules_of(Collective collective, std::optional<Reach> reach) {
  for (TuningRules& list : rules) {
    if (list.collective == collective && list.reach == reach) return list;
  }
  return rules.emplace_back(TuningRules{collective, reach, {}});
}

Result<Tuning> parse_tuning(std::string_view text, std::string_view file) { return Reader(text, file).run(); }

std::string to_text(const Tuning& tuning) {
  std::vector<std::string> document = {fmt::format("\"tutti_tuning\": {}", kTuningVersion),
                                       fmt::format("\"origin\": {}", quoted(tuning.origin))};
  std::vector<std::string> entries;
  for (const auto& [name, value] : tuning.fingerprint)
    entries.push_back(fmt::format("{}: {}", quoted(name), quoted(value)));
  document.push_back("\"fingerprint\": " + block('{', entries, "  "));
  entries.clear();
  for (const TuningRules& list : tuning.rules) {
    std::vector<std::string> items;
    for (const TuningItem& item : list.items) items.push_back(quoted(item.text));
    entries.push_back(
        fmt::format("{}: {}", quoted(name_of(list.collective, list.reach)), block('[', items, "    ")));
  }
  document.push_back("\"rules\": " + block('{', entries, "  "));
  entries.clear();
  for (const auto& [transport, model] : tuning.costs) {
    std::vector<std::string> figures = {fmt::format("\"call_ps\": {}", model.call_ps),
                                        fmt::format("\"reduce_kib_ps\": {}", model.reduce_kib_ps),
                                        fmt::format("\"copy_kib_ps\": {}", model.copy_kib_ps)};
    for (std::size_t level = 0; level < kLevelCount; ++level) {
      if (model.links[level] == LinkCost() && model.lines[level] == LineCost()) continue;
      figures.push_back(fmt::format("\"{}\": {}", to_string(static_cast<Level>(level)),
                                    to_text(model.links[level], model.lines[level])));
    }
    entries.push_back(fmt::format("{}: {}", quoted(transport), block('{', figures, "    ")));
  }
  if (!entries.empty()) document.push_back("\"costs\": " + block('{', entries, "  "));
  entries.clear();
  for (const auto& [rank_count, setting] : tuning.fusion)
    entries.push_back(fmt::format("\"{}\": {{\"bytes\": {}, \"cycle_us\": {}}}", rank_count, setting.bytes,
                                  setting.cycle_us));
  if (!entries.empty()) document.push_back("\"fusion\": " + block('{', entries, "  "));
  return block('{', document, "") + "\n";
}

std::vector<RuleText> rule_texts(const Tuning& tuning, std::string_view file) {
  std::vector<RuleText> texts;
  for (const bool is_for_all : {false, true}) {
    for (const TuningRules& list : tuning.rules) {
      if (list.items.empty() || list.reach.has_value() == is_for_all) continue;
      RuleText text{list.collective, std::string(file), "", list.reach, {}, true};
      for (const TuningItem& item : list.items) {
        text.text += (text.text.empty() ? "" : ";") + item.text;
        text.lines.push_back(item.line);
      }
      texts.push_back(std::move(text));
    }
  }
  return texts;
}

}  // namespace tutti
