// Choosing: from a call and the rules a group agreed on to one catalogue row with parameters.
// Pure and in integer arithmetic, so that no two ranks can choose differently; knows no environment, clock,
// transport or topology.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/algorithms/catalog.hpp"
#include "runtime/base/call.hpp"
#include "runtime/base/status.hpp"
#include "runtime/selection/default_rules.hpp"
#include "runtime/selection/rules.hpp"

namespace tutti {

// The inputs of a choice: values that are equal on all ranks of the group.
struct Question {
  Collective collective = Collective::allreduce;
  std::uint64_t bytes = 0;  // of the full vector m (allgather: received; reduce_scatter: contributed;
                            // alltoall: one rank's buffer)
  std::uint32_t size = 1;   // p
  bool is_commutative = true;
  bool has_equal_counts = true;
  // The size of a vector that v-variants of alltoall do not share: chosen by p only (bytes is ignored).
  bool has_known_bytes = true;
  const Hierarchy* hierarchy = nullptr;  // over the ranks of the group; null: flat
  Reach reach = Reach::node;
  bool shares_cpus = false;    // the ranks of its machine outnumber the CPUs
  bool spans_sockets = false;  // known to lie on several sockets
  bool is_device = false;      // the buffers are on GPUs: what is known of the host's memory says nothing

  DefaultSet default_set() const {
    const bool has_clusters = hierarchy != nullptr && hierarchy->clusters() != nullptr;
    return tutti::default_set(reach, shares_cpus, spans_sockets, has_clusters);
  }
};

// Everything of it that a call and the number of ranks say. The group adds its hierarchy, reach and CPUs.
Question question_of(const Call& call, std::uint32_t size);

struct Selection {
  std::optional<DeviceEngineKind> engine;  // named for buffers on GPUs; then there is no row
  const AlgorithmRow* row = nullptr;       // null without an engine: on GPUs the price decides
  AlgorithmParams params;
  // Where the buffers of all ranks are shared, with its defaults; null: `row`.
  const AlgorithmRow* shared_row = nullptr;
  bool is_forced = false;   // by an argument or a user's rule, rather than by advice or the defaults
  std::string_view source;  // "argument", "TUTTI_ADJUST_ALLREDUCE", a file, "default rules"
  std::uint32_t item = 0;   // number of the rule's item that matched, from 1
  std::uint32_t line = 0;   // of the file it stands in; 0: in none
  bool is_made() const { return row != nullptr || engine.has_value(); }
};
// "argument", "TUTTI_ADJUST_ALLREDUCE item 2", "/etc/tuning.json line 14", "default rules item 3".
std::string describe_source(std::string_view source, std::uint32_t item, std::uint32_t line);
inline std::string describe_source(const Selection& s) { return describe_source(s.source, s.item, s.line); }
// " (shared buffers: two_shot)", or nothing where shared_row is null.
std::string describe_shared(const Selection& selection);

// One rule item that a choice came by, for explanations.
struct Consideration {
  enum class Verdict : std::uint8_t {
    unmatched,  // its sizes are others
    automatic,  // leaves the choice to the next source
    elsewhere,  // means buffers on GPUs, and these are not
    illegal,    // may not run here: passed over in advice and the defaults, an error in users' rules
    chosen,
    late,  // an earlier item was chosen, or left the choice to the next source
  };
  std::string_view source;
  std::uint32_t number = 0;  // of the item in its source, from 1
  std::uint32_t line = 0;    // of the file it stands in; 0: in none
  const RuleItem* item = nullptr;
  Verdict verdict = Verdict::unmatched;
};

// A rule string and where it came from.
struct RuleText {
  Collective collective = Collective::allreduce;
  std::string source;  // the variable's name, or the file's
  std::string text;
  std::optional<Reach> reach = std::nullopt;  // of the groups that it is for; nullopt: all
  std::vector<std::uint32_t> lines = {};      // of a file, by item
  // Somebody's experience rather than somebody's will: what may not run is passed over, as in the defaults.
  bool is_advice = false;
};

class Selector {
 public:
  // Parses every text; earlier ones win over later ones of the same collective; the catalogue's defaults come
  // last. Errors: invalid_argument, with the source, the column and what would be right.
  static Result<Selector> make(std::vector<RuleText> texts);

  // The row to use. `argument` (may be empty) is a rule item without conditions that the caller passed for
  // this call. A row named by an argument or a user's rule is used, or the choice fails with the reason. In
  // advice and among the defaults the first legal item wins. On GPUs only arguments and users' rules count;
  // where they leave the choice open, the selection is empty.
  // `trail`, if given, receives every item of every source with its verdict (nothing if an argument decides).
  // Does not allocate otherwise, unless it fails.
  Result<Selection> choose(const Question& question, std::string_view argument = {},
                           std::vector<Consideration>* trail = nullptr) const;

  // One canonical text of everything that influences choices, for the group's contract.
  std::string canonical() const;

 private:
  struct Source {
    std::string name;
    RuleList rules;
    std::optional<Reach> reach;
    std::vector<std::uint32_t> lines;
    bool is_advice = false;
    std::uint32_t line_of(std::size_t i) const { return i < lines.size() ? lines[i] : 0; }
  };
  // Null: it is for other groups.
  const Source* find_source(const Question& question, std::size_t i) const;
  void choose_shared(const Question& question, Selection* chosen) const;

  std::array<std::vector<Source>, kCollectiveCount> sources_;  // by collective, in order of precedence
  std::array<std::array<Source, std::size(kDefaultSets)>, kCollectiveCount> defaults_;  // by set, too
  std::array<Source, kCollectiveCount> shared_;  // shared_buffer_rules(), beside the defaults
};

}  // namespace tutti
