// Proves every row of the catalogue over every group size, root and placement, as emitted, cut into segments
// and lowered for shared memory.
#include "runtime/schedule/check_steps.hpp"
#include "runtime/schedule/passes/fuse.hpp"
#include "runtime/schedule/passes/in_place.hpp"
#include "runtime/schedule/passes/lower.hpp"
#include "runtime/schedule/passes/segment.hpp"
#include "tests/schedule/support.hpp"
#include "tests/support/test_fraction.hpp"

#include <algorithm>
#include <set>

using namespace tutti;
using namespace tutti::test;

namespace {

std::vector<std::uint32_t> sizes() {
  std::vector<std::uint32_t> list;
  for (std::uint32_t p = 1; p <= 40; ++p) list.push_back(p);
  list.insert(list.end(), {63, 64, 65, 100});
  return list;
}

std::vector<std::uint32_t> roots(Collective collective, std::uint32_t p) {
  if (!is_rooted(collective)) return {0};
  std::vector<std::uint32_t> list;
  for (std::uint32_t r = 0; p <= 17 && r < p; ++r) list.push_back(r);
  if (p > 17) list = {0, p / 2, p - 1};
  return list;
}

// The row's parameters at their defaults, and each at its limits and next to its default.
std::vector<AlgorithmParams> choices(const AlgorithmRow& row) {
  std::vector<AlgorithmParams> list = {default_params(row)};
  for (const ParamRow& param : row.params) {
    for (const std::uint32_t value :
         {param.min_value, param.default_value + 1, param.default_value * 2 + 1, param.max_value}) {
      if (value < param.min_value || value > std::min(param.max_value, 64U)) continue;
      AlgorithmParams params = default_params(row);
      params.*param.field = value;
      if (std::find(list.begin(), list.end(), params) == list.end()) list.push_back(params);
    }
  }
  return list;
}

std::string describe(const AlgorithmRow& row, const Instance& i) {
  return std::string(to_string(row.collective)) + " " + std::string(row.name) + " p " +
         std::to_string(i.size) + " root " + std::to_string(i.root) + (i.in_place ? " in place" : "") +
         " radix " + std::to_string(i.params.radix) + " segments " + std::to_string(i.params.segments) +
         " aggregate " + std::to_string(i.params.aggregate) + " leaders " + std::to_string(i.params.leaders) +
         " across " + std::to_string(i.params.across) + " mates " + std::to_string(i.params.mates) +
         (row.legality.needs_hierarchy ? ", " + to_text(i.hierarchy) : "");
}

// Calls `visit` for every legal instance of a row with p in `list`.
template <class Visit>
void for_each_instance_of(const AlgorithmRow& row, const std::vector<std::uint32_t>& list, bool all_params,
                          Visit visit) {
  for (const std::uint32_t p : list) {
    for (const Hierarchy& hierarchy : hierarchies_of(row, p)) {
      for (const std::uint32_t root : roots(row.collective, p)) {
        for (const bool in_place : {false, true}) {
          for (const AlgorithmParams& params : choices(row)) {
            if (!all_params && !(params == default_params(row))) continue;
            const Instance instance{p, root, in_place, params, hierarchy};
            if (is_legal(row, instance)) visit(instance);
          }
        }
      }
    }
  }
}

// The same of every row, or of the selected share under sanitizers.
template <class Visit>
void for_each_instance(const std::vector<std::uint32_t>& list, bool all_params, Visit visit) {
  std::uint64_t number = 0;
  for (const AlgorithmRow& row : catalog()) {
    for_each_instance_of(row, list, all_params, [&](const Instance& instance) {
      if (is_selected(number++)) visit(row, instance);
    });
  }
}

// The message if a transformed schedule is not accepted, or lost what the row promises.
std::string check_variant(const AlgorithmRow& row, const Instance& instance,
                          const std::vector<Schedule>& ranks) {
  const auto sums = verify(ranks, Algebra::multiset);
  if (!sums) return sums.status().message();
  if (!is_reducing(row.collective)) return "";
  if (keeps_rank_order(row, instance)) {
    if (const auto words = verify(ranks, Algebra::word); !words) return words.status().message();
  }
  const auto trees = verify(ranks, Algebra::expression);
  if (!trees) return trees.status().message();
  return row.same_bits && !trees->same_bits ? "the pass lost equal bits" : "";
}

}  // namespace

TEST_CASE("parameters that differ have different numbers, up to their limits") {
  std::vector<ParamRow> fields;  // each with the widest limits of any row
  for (const AlgorithmRow& row : catalog()) {
    for (const ParamRow& param : row.params) {
      const auto known = std::find_if(fields.begin(), fields.end(),
                                      [&](const ParamRow& field) { return field.field == param.field; });
      if (known == fields.end()) {
        fields.push_back(param);
      } else {
        known->min_value = std::min(known->min_value, param.min_value);
        known->max_value = std::max(known->max_value, param.max_value);
      }
    }
  }
  REQUIRE(fields.size() >= 6);
  std::set<std::uint64_t> numbers;
  for (std::uint32_t set = 0; set < 1U << fields.size(); ++set) {
    AlgorithmParams params;
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const bool is_most = (set >> i & 1U) != 0;
      params.*fields[i].field = is_most ? fields[i].max_value : fields[i].min_value;
    }
    CHECK(numbers.insert(pack(params)).second);
  }
}

TEST_CASE("every row is proved for every size, root and placement, and its claims hold") {
  for_each_instance(sizes(), false, [](const AlgorithmRow& row, const Instance& instance) {
    const auto ranks = emit_all(row, instance);
    const Status status = ranks ? prove(row, instance, *ranks) : ranks.status();
    INFO(describe(row, instance) << ": " << status.message());
    REQUIRE(status.is_ok());
  });
}

TEST_CASE("reduce_scatter and scatter that are not in place are right with the output in the input") {
  for_each_instance(sizes(), true, [](const AlgorithmRow& row, const Instance& instance) {
    const bool keeps_input =
        row.collective == Collective::reduce_scatter || row.collective == Collective::scatter;
    if (!keeps_input || instance.in_place) return;
    auto ranks = emit_all(row, instance);
    REQUIRE(ranks.is_ok());
    const std::uint32_t blocks = instance.size;
    for (Schedule& s : *ranks) {
      s = put_input_into_output(s);
      for (const Step& step : s.steps) {
        if (!detail::writes(step.verb) || step.dst.buffer != Buffer::output) continue;
        for (std::uint32_t k = 0; k < step.dst.count; ++k) {
          INFO(describe(row, instance) << ": rank " << s.rank << " of " << blocks);
          REQUIRE(s.atom(step.dst, k) / s.segments == s.rank);  // its own block, and no other
        }
      }
    }
    const std::string wrong = check_variant(row, instance, *ranks);
    INFO(describe(row, instance) << ": " << wrong);
    REQUIRE(wrong.empty());
  });
}

TEST_CASE("rows are proved for other values of their parameters") {
  for_each_instance({1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 27, 33}, true,
                    [](const AlgorithmRow& row, const Instance& instance) {
                      if (row.params.empty()) return;
                      const auto ranks = emit_all(row, instance);
                      const Status status = ranks ? prove(row, instance, *ranks) : ranks.status();
                      INFO(describe(row, instance) << ": " << status.message());
                      REQUIRE(status.is_ok());
                    });
}

TEST_CASE(
    "a row that does not claim equal bits does not have them, one that wants a commutative op needs it") {
  for (const AlgorithmRow& row : catalog()) {
    if (!is_reducing(row.collective)) continue;
    bool differs = false, is_unordered = false, may_be_unordered = false;
    for_each_instance_of(row, {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}, false,
                         [&](const Instance& instance) {
                           if (instance.in_place) return;
                           const auto ranks = emit_all(row, instance);
                           REQUIRE(ranks.is_ok());
                           const auto trees = verify(*ranks, Algebra::expression);
                           REQUIRE(trees.is_ok());
                           differs = differs || !trees->same_bits;
                           is_unordered = is_unordered || !verify(*ranks, Algebra::word);
                           may_be_unordered = may_be_unordered || !keeps_rank_order(row, instance);
                         });
    INFO(to_string(row.collective) << " " << row.name);
    // Where every rank gets a result of its own there is nothing to compare.
    if (row.collective == Collective::allreduce) CHECK(differs == !row.same_bits);
    CHECK(is_unordered == may_be_unordered);
  }
}

TEST_CASE("emission is pure: equal arguments give equal schedules") {
  for_each_instance({1, 4, 7, 16, 33}, true, [](const AlgorithmRow& row, const Instance& instance) {
    const auto once = emit_all(row, instance), again = emit_all(row, instance);
    REQUIRE(once.is_ok());
    REQUIRE(again.is_ok());
    INFO(describe(row, instance));
    REQUIRE(*once == *again);
  });
}

TEST_CASE("every row stays proved when cut into segments and fused") {
  for_each_instance({1, 2, 3, 4, 5, 7, 8, 12, 17}, false,
                    [](const AlgorithmRow& row, const Instance& instance) {
                      const auto ranks = emit_all(row, instance);
                      REQUIRE(ranks.is_ok());
                      for (const auto& [segments, channels] : {std::pair{2U, 1U}, std::pair{5U, 2U}}) {
                        std::vector<Schedule> variant;
                        for (const Schedule& s : *ranks) {
                          auto cut = segment(s, segments, channels);
                          REQUIRE(cut.is_ok());
                          variant.push_back(fuse(*std::move(cut)));
                        }
                        const std::string why = check_variant(row, instance, variant);
                        INFO(describe(row, instance)
                             << ", " << segments << " segments on " << channels << " channels: " << why);
                        REQUIRE(why.empty());
                      }
                    });
}

TEST_CASE("every row stays proved when lowered for shared memory, whole and in segments") {
  for_each_instance(
      {1, 2, 3, 4, 5, 7, 8, 12, 16}, false, [](const AlgorithmRow& row, const Instance& instance) {
        const auto ranks = emit_all(row, instance);
        REQUIRE(ranks.is_ok());
        for (const std::uint32_t segments : {1U, 3U}) {
          std::vector<Schedule> variant;
          for (const Schedule& s : *ranks) {
            auto cut = segment(s, segments, 2);
            REQUIRE(cut.is_ok());
            variant.push_back(*std::move(cut));
          }
          for (const Sharing sharing : {Sharing::buffers, Sharing::scratch}) {
            const auto lowered = lower_for_shared_memory(variant, sharing);
            const std::string why =
                lowered ? check_variant(row, instance, *lowered) : lowered.status().message();
            INFO(describe(row, instance) << ", " << segments << " segments, lowered"
                                         << (sharing == Sharing::scratch ? ", staged: " : ": ") << why);
            REQUIRE(why.empty());
          }
        }
      });
}
