// Open MPI's files of dynamic rules for coll/tuned: the text of versions 1 and 2, and JSON. Knows their
// numbers and names of algorithms, which are those of its documentation.
#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <span>

#include <fmt/format.h>

#include "tools/cli/tune/import.hpp"

#include "tools/cli/json.hpp"

namespace tutti::tool::detail {
namespace {

using C = Collective;
enum Field : std::uint8_t { none = 0, segmented = 1, radix = 2, chains = 4 };  // which fields matter

struct Algorithm {
  std::uint32_t number;
  std::string_view name, ours;  // ours empty: no row sends the same messages
  std::uint8_t fields = none;
};

struct Table {
  std::uint32_t id;
  std::string_view name;
  std::optional<Collective> collective;
  std::span<const Algorithm> algorithms;
};

constexpr Algorithm kAllgather[] = {{1, "linear", ""},
                                    {2, "bruck-k-fanout", "bruck", radix},
                                    {3, "recursive_doubling", "recursive_doubling"},
                                    {4, "ring", "ring"},
                                    {5, "neighbor", ""},
                                    {6, "two_proc", ""},
                                    {7, "sparbit", ""},
                                    {8, "direct-messaging", "direct"}};
constexpr Algorithm kAllreduce[] = {{1, "basic_linear", ""},
                                    {2, "nonoverlapping", "reduce_broadcast"},
                                    {3, "recursive_doubling", "recursive_doubling"},
                                    {4, "ring", "ring"},
                                    {5, "segmented_ring", "ring", segmented},
                                    {6, "rabenseifner", "rabenseifner"},
                                    {7, "allgather_reduce", ""}};
constexpr Algorithm kAlltoall[] = {{1, "linear", "linear"},
                                   {2, "pairwise", "pairwise"},
                                   {3, "modified_bruck", "bruck"},
                                   {4, "linear_sync", ""},
                                   {5, "two_proc", ""}};
constexpr Algorithm kBarrier[] = {{1, "linear", ""},
                                  {2, "double_ring", ""},
                                  {3, "recursive_doubling", "recursive_doubling"},
                                  {4, "bruck", "dissemination"},
                                  {5, "two_proc", ""},
                                  {6, "tree", ""}};
constexpr Algorithm kBroadcast[] = {{1, "basic_linear", "linear"},
                                    {2, "chain", "chain", segmented | chains},
                                    {3, "pipeline", "chain", segmented},
                                    {4, "split_binary_tree", ""},
                                    {5, "binary_tree", ""},
                                    {6, "binomial", "binomial", segmented},
                                    {7, "knomial", "knomial", segmented},
                                    {8, "scatter_allgather", ""},
                                    {9, "scatter_allgather_ring", "scatter_allgather"}};
constexpr Algorithm kScan[] = {{1, "linear", "chain"}, {2, "recursive_doubling", "recursive_doubling"}};
constexpr Algorithm kGather[] = {
    {1, "basic_linear", "linear"}, {2, "binomial", "binomial"}, {3, "linear_sync", ""}};
constexpr Algorithm kReduce[] = {{1, "linear", "linear"},
                                 {2, "chain", "chain", segmented | chains},
                                 {3, "pipeline", "chain", segmented},
                                 {4, "binary", ""},
                                 {5, "binomial", "binomial", segmented},
                                 {6, "in-order_binary", ""},
                                 {7, "rabenseifner", "rabenseifner"},
                                 {8, "knomial", "knomial", segmented}};
constexpr Algorithm kReduceScatter[] = {{1, "non-overlapping", ""},
                                        {2, "recursive_halving", "halving"},
                                        {3, "ring", "ring"},
                                        {4, "butterfly", ""}};
constexpr Algorithm kReduceScatterBlock[] = {{1, "basic_linear", ""},
                                             {2, "recursive_doubling", ""},
                                             {3, "recursive_halving", "halving"},
                                             {4, "butterfly", ""}};
constexpr Algorithm kScatter[] = {
    {1, "basic_linear", "linear"}, {2, "binomial", "binomial"}, {3, "linear_nb", "linear"}};

constexpr Table kTables[] = {{0, "allgather", C::allgather, kAllgather},
                             {1, "allgatherv", {}, {}},
                             {2, "allreduce", C::allreduce, kAllreduce},
                             {3, "alltoall", C::alltoall, kAlltoall},
                             {4, "alltoallv", {}, {}},
                             {5, "alltoallw", {}, {}},
                             {6, "barrier", C::barrier, kBarrier},
                             {7, "bcast", C::broadcast, kBroadcast},
                             {8, "exscan", C::exscan, kScan},
                             {9, "gather", C::gather, kGather},
                             {10, "gatherv", {}, {}},
                             {11, "reduce", C::reduce, kReduce},
                             {12, "reduce_scatter", C::reduce_scatter, kReduceScatter},
                             {13, "reduce_scatter_block", C::reduce_scatter, kReduceScatterBlock},
                             {14, "scan", C::scan, kScan},
                             {15, "scatter", C::scatter, kScatter},
                             {16, "scatterv", {}, {}},
                             {17, "neighbor_allgather", {}, {}},
                             {18, "neighbor_allgatherv", {}, {}},
                             {19, "neighbor_alltoall", {}, {}},
                             {20, "neighbor_alltoallv", {}, {}},
                             {21, "neighbor_alltoallw", {}, {}}};

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint32_t kAnySize = std::numeric_limits<std::uint32_t>::max();

// One rule of theirs, whatever the form.
struct Theirs {
  std::uint64_t number = 0;
  std::string name;  // where the file gives a name rather than a number
  std::uint64_t faninout = 0, segment_bytes = 0;
  RuleCondition condition;
};

class Collector {
 public:
  // False: these rules are for nobody here; it is remarked.
  bool start(const Table& table, const std::string& where) {
    table_ = &table;
    is_wanted_ = table.collective && taken_.insert(*table.collective).second;
    if (!is_wanted_)
      writer_.remark(where, std::string(table.name),
                     table.collective ? "rules of this collective were read before: one here"
                                      : "has no rules of its own here");
    return is_wanted_;
  }

  // More than 15 decisions because each rule without a counterpart has a reason of its own.
  void add(const Theirs& theirs, const std::string& where) {
    if (!is_wanted_) return;
    const auto found =
        std::find_if(table_->algorithms.begin(), table_->algorithms.end(), [&](const Algorithm& a) {
          return theirs.name.empty() ? a.number == theirs.number : a.name == theirs.name;
        });
    const bool is_automatic = theirs.name.empty() ? theirs.number == 0 : theirs.name == "ignore";
    const bool is_known = found != table_->algorithms.end();
    const std::string shown = theirs.name.empty() && !is_known ? fmt::format("{}", theirs.number)
                              : is_known ? fmt::format("{} ({})", found->number, found->name)
                                         : theirs.name;
    const std::string what = fmt::format("{} {}", table_->name, shown);
    ImportWriter::Rule rule;
    rule.collective = *table_->collective;
    rule.condition = theirs.condition;
    if (is_automatic) {
      // Theirs is left to their fixed rules, ours to our default rules.
    } else if (!is_known) {
      writer_.remark(where, what, "is no algorithm that their documentation lists");
    } else if (found->ours.empty()) {
      writer_.remark(where, what, "no row of ours sends the same messages");
    } else if ((found->fields & chains) != 0 && theirs.faninout > 1) {
      writer_.remark(where, what, fmt::format("there are no {} chains here", theirs.faninout));
    } else {
      rule.algorithm = found->ours;
      if ((found->fields & radix) != 0 && theirs.faninout != 0) {
        if (theirs.faninout >= 2 && theirs.faninout <= 64)
          rule.algorithm += fmt::format("(radix={})", theirs.faninout);
        else
          writer_.remark(where, what, fmt::format("a fan-out of {}: taken with 2", theirs.faninout));
      }
      if ((found->fields & segmented) != 0) rule.segment_bytes = theirs.segment_bytes;
    }
    writer_.add(rule, where);
  }

  void remark(const std::string& where, std::string what, std::string why) {
    if (is_wanted_) writer_.remark(where, std::move(what), std::move(why));
  }
  Import finish() { return writer_.finish(); }

 private:
  ImportWriter writer_{ImportForm::openmpi};
  const Table* table_ = nullptr;
  bool is_wanted_ = false;
  std::set<Collective> taken_;
};

// -- text ---------------------------------------------------------------------------------------------------

class TextReader {
 public:
  explicit TextReader(std::string_view text) : text_(text) {}

  Result<Import> run() {
    constexpr std::string_view kVersion = "rule-file-version-";
    if (text_.substr(0, kVersion.size()) == kVersion) {
      at_ = kVersion.size();
      TUTTI_RETURN_IF_ERROR(read("a version", 2, &version_));
      if (version_ == 0) return fail("version 1 or 2");
    }
    std::uint64_t collectives = 0;
    TUTTI_RETURN_IF_ERROR(read("the number of collectives", std::size(kTables), &collectives));
    for (std::uint64_t i = 0; i < collectives; ++i) TUTTI_RETURN_IF_ERROR(read_collective());
    skip();
    if (at_ < text_.size()) return fail("the end: all collectives that were announced are read");
    return collector_.finish();
  }

 private:
  Status read_collective() {
    std::uint64_t id = 0, sizes = 0;
    TUTTI_RETURN_IF_ERROR(read("the id of a collective", std::size(kTables) - 1, &id));
    collector_.start(kTables[id], line_text(line_));
    TUTTI_RETURN_IF_ERROR(read("the number of communicator sizes", kAnySize, &sizes));
    // A set of rules is for its size and all above it, up to the next; the first also for those below.
    std::uint64_t size = 0;
    std::vector<std::pair<Theirs, std::string>> waiting;
    for (std::uint64_t i = 0; i < sizes; ++i) {
      const std::uint64_t before = size;
      TUTTI_RETURN_IF_ERROR(read("a communicator size", kAnySize, &size));
      if (i > 0 && size <= before) return fail_before(fmt::format("a size above {}", before));
      if (i > 0) flush(waiting, static_cast<std::uint32_t>(size - 1));
      TUTTI_RETURN_IF_ERROR(read_messages(i == 0 ? 0 : static_cast<std::uint32_t>(size), waiting));
    }
    flush(waiting, kAnySize);
    return {};
  }

  Status read_messages(std::uint32_t least_size, std::vector<std::pair<Theirs, std::string>>& rules) {
    std::uint64_t count = 0;
    TUTTI_RETURN_IF_ERROR(read("the number of message sizes", kAnySize, &count));
    for (std::uint64_t i = 0; i < count; ++i) {
      Theirs rule;
      rule.condition.min_size = least_size;
      std::uint64_t& bytes = rule.condition.min_bytes;
      TUTTI_RETURN_IF_ERROR(read("a message size", kNoLimit, &bytes));
      if (i == 0 && bytes != 0) return fail_before("0: the first rule is for messages from 0 bytes on");
      if (i > 0) {
        RuleCondition& last = rules.back().first.condition;
        if (bytes <= last.min_bytes) return fail_before(fmt::format("a size above {}", last.min_bytes));
        last.max_bytes = bytes - 1;
      }
      const std::string where = line_text(line_);
      TUTTI_RETURN_IF_ERROR(read("an algorithm", kNoLimit, &rule.number));
      TUTTI_RETURN_IF_ERROR(read("a fan-out", kNoLimit, &rule.faninout));
      TUTTI_RETURN_IF_ERROR(read("a segment size", kNoLimit, &rule.segment_bytes));
      std::uint64_t requests = 0;
      if (version_ > 1 && has_number_in_line())
        TUTTI_RETURN_IF_ERROR(read("a number of requests", kNoLimit, &requests));
      rules.emplace_back(std::move(rule), where);
    }
    return {};
  }

  void flush(std::vector<std::pair<Theirs, std::string>>& rules, std::uint32_t most_size) {
    for (auto& [rule, where] : rules) {
      rule.condition.max_size = most_size;
      collector_.add(rule, where);
    }
    rules.clear();
  }

  static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  void skip() {
    for (; at_ < text_.size() && (is_space(text_[at_]) || text_[at_] == '#'); ++at_) {
      if (text_[at_] == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
        if (at_ == text_.size()) return;
      }
      if (text_[at_] == '\n') {
        ++line_;
        line_start_ = at_ + 1;
      }
    }
  }
  bool has_number_in_line() const {
    std::size_t at = at_;
    while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\t')) ++at;
    return at < text_.size() && is_digit(text_[at]);
  }
  Status read(std::string_view what, std::uint64_t most, std::uint64_t* value) {
    skip();
    last_ = at_;
    std::size_t end = at_;
    while (end < text_.size() && is_digit(text_[end])) ++end;
    const auto number = parse_digits(text_.substr(at_, end - at_));
    if (!number) return fail(what);
    if (*number > most) return fail(fmt::format("{} of at most {}", what, most));
    at_ = end;
    *value = *number;
    return {};
  }
  Status fail(std::string_view expected) {
    const std::string found = at_ < text_.size() ? fmt::format("'{}'", text_.substr(at_, 12)) : "the end";
    return invalid_argument(fmt::format("line {} column {}: expected {}; found {}", line_,
                                        at_ - line_start_ + 1, expected, found));
  }
  Status fail_before(std::string_view expected) {
    at_ = last_;
    return fail(expected);
  }

  std::string_view text_;
  std::size_t at_ = 0, last_ = 0, line_start_ = 0;
  std::size_t line_ = 1;
  std::uint64_t version_ = 1;
  Collector collector_;
};

// -- JSON ---------------------------------------------------------------------------------------------------

// A number or "inf"; `value` stays as it is where the field is missing.
Status read_field(const Json& object, const char* name, const std::string& where, std::uint64_t most,
                  std::uint64_t& value) {
  const Json* const found = object.find(name);
  if (found == nullptr) return {};
  if (found->is_natural()) {
    value = std::min(found->natural(), most);
    return {};
  }
  const std::string& text = found->text();
  if (text != "inf" && text != "Inf" && text != "INF")
    return invalid_argument(fmt::format("{}: expected a number or \"inf\" for \"{}\"", where, name));
  value = most;
  return {};
}

Status read_rule(const Json& object, const std::string& where, const RuleCondition& sizes,
                 Collector& collector) {
  if (!object.is_object()) return invalid_argument(where + ": expected an object");
  Theirs rule;
  rule.condition = sizes;
  TUTTI_RETURN_IF_ERROR(read_field(object, "msg_size_min", where, kNoLimit, rule.condition.min_bytes));
  TUTTI_RETURN_IF_ERROR(read_field(object, "msg_size_max", where, kNoLimit, rule.condition.max_bytes));
  TUTTI_RETURN_IF_ERROR(read_field(object, "faninout", where, kNoLimit, rule.faninout));
  TUTTI_RETURN_IF_ERROR(read_field(object, "seg_size", where, kNoLimit, rule.segment_bytes));
  const Json& algorithm = object["alg"];
  if (!algorithm.text().empty()) {
    rule.name = algorithm.text();
  } else if (algorithm.is_natural()) {
    rule.number = algorithm.natural();
  } else {
    return invalid_argument(where + ": expected \"alg\", a number or a name");
  }
  collector.add(rule, where);
  return {};
}

Status read_set(const Json& set, const std::string& where, Collector& collector) {
  if (!set.is_object()) return invalid_argument(where + ": expected an object");
  std::uint64_t least = 0, most = kAnySize;
  TUTTI_RETURN_IF_ERROR(read_field(set, "comm_size_min", where, kAnySize, least));
  TUTTI_RETURN_IF_ERROR(read_field(set, "comm_size_max", where, kAnySize, most));
  if (set.contains("comm_rank_distribution") && set["comm_rank_distribution"].text() != "any") {
    collector.remark(where, "comm_rank_distribution",
                     "how ranks lie on nodes is no condition here: left out");
    return {};
  }
  RuleCondition sizes;
  sizes.min_size = static_cast<std::uint32_t>(least);
  sizes.max_size = static_cast<std::uint32_t>(most);
  const Json& rules = set["rules"];
  if (!rules.is_array()) return invalid_argument(where + ": expected \"rules\", a list");
  for (std::size_t i = 0; i < rules.size(); ++i)
    TUTTI_RETURN_IF_ERROR(read_rule(rules.at(i), fmt::format("{}.rules[{}]", where, i), sizes, collector));
  return {};
}

Result<Import> import_json(std::string_view text) {
  const Result<Json> parsed = parse_json(text);
  if (!parsed) return parsed.status();
  const Json& document = *parsed;
  if (!document.is_object())
    return invalid_argument("line 1 column 1: expected Open MPI's rules in JSON, and this is no JSON object");
  if (document.contains("rule_file_version") && document["rule_file_version"].number() != 3)
    return invalid_argument("rule_file_version: expected 3");
  if (document.contains("module") && document["module"].text() != "tuned")
    return invalid_argument("module: expected \"tuned\"");
  const Json& collectives = document["collectives"];
  if (!collectives.is_object()) return invalid_argument("collectives: expected an object of lists");
  Collector collector;
  for (std::size_t number = 0; number < collectives.size(); ++number) {
    const std::string& name = collectives.key(number);
    const Json& sets = collectives.at(number);
    const auto* const table =
        std::find_if(std::begin(kTables), std::end(kTables), [&](const Table& t) { return t.name == name; });
    if (table == std::end(kTables)) return invalid_argument(name + ": is no collective of theirs");
    if (!collector.start(*table, name)) continue;
    if (!sets.is_array()) return invalid_argument(name + ": expected a list");
    for (std::size_t i = 0; i < sets.size(); ++i)
      TUTTI_RETURN_IF_ERROR(read_set(sets.at(i), fmt::format("{}[{}]", name, i), collector));
  }
  return collector.finish();
}

}  // namespace

Result<Import> import_openmpi(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '{') return import_json(text);
  return TextReader(text).run();
}

}  // namespace tutti::tool::detail
