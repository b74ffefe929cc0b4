// Rules of other libraries as a tuning file: Open MPI's rule files for coll/tuned, oneCCL's CCL_<COLLECTIVE>
// variables, the table of NCCL's example tuner. Pure functions of texts; knows no file.
// An algorithm without a counterpart here is listed with the reason and never guessed. Where it would have
// decided, the choice is left to the default rules ("auto"), so that no later rule takes its place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/selection/tuning.hpp"

namespace tutti::tool {

enum class ImportForm : std::uint8_t { openmpi, ccl, nccl };
std::string_view to_string(ImportForm form);
std::optional<ImportForm> parse_import_form(std::string_view text);

// Something that the tuning file does not say, or says otherwise.
struct ImportRemark {
  std::string where;  // "line 14", or a path in JSON
  std::string what, why;
};

struct Import {
  ImportForm form = ImportForm::openmpi;
  Tuning tuning;  // without fingerprint and origin
  std::uint32_t rule_count = 0;
  std::vector<ImportRemark> remarks;
};

// `form` none: found out from the text. Errors: invalid_argument with line and column where the text is not
// of that form.
Result<Import> import_rules(std::string_view text, std::optional<ImportForm> form);

namespace detail {

// The output of the readers of all forms.
class ImportWriter {
 public:
  explicit ImportWriter(ImportForm form) { import_.form = form; }

  // Appends one rule for groups of that reach (nullopt: both, each in its own list). `algorithm`: a row's
  // name with parameters; empty: the choice is left to the default rules. An end that is below its start is
  // no rule. Segments where the row has them: 0 bytes is one segment, nullopt says nothing.
  struct Rule {
    Collective collective = Collective::allreduce;
    std::optional<Reach> reach;
    std::string algorithm;
    std::optional<std::uint64_t> segment_bytes;
    RuleCondition condition;
  };
  void add(const Rule& rule, const std::string& where);
  void remark(std::string where, std::string what, std::string why) {
    import_.remarks.push_back({std::move(where), std::move(what), std::move(why)});
  }
  // First what was added last.
  void reverse(Collective collective);
  Import finish();

 private:
  Import import_;
};

Result<Import> import_openmpi(std::string_view text);
Result<Import> import_ccl(std::string_view text);
Result<Import> import_nccl(std::string_view text);

inline std::string line_text(std::size_t line) { return "line " + std::to_string(line); }
std::optional<std::uint64_t> parse_digits(std::string_view text);

}  // namespace detail
}  // namespace tutti::tool
