// The rule grammar with its error columns, the precedence of rules, and legality. Knows no transport and runs
// no collective.
#include "tests/selection/selection_support.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "runtime/selection/impi_numbers.hpp"
#include "runtime/selection/rules.hpp"

namespace tutti {
using namespace test;
namespace {

constexpr std::uint64_t kMaxBytes = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint32_t kMaxSize = std::numeric_limits<std::uint32_t>::max();

RuleList rules_of(Collective collective, const std::string& text) {
  auto rules = parse_rules(collective, text);
  INFO(text << ": " << rules.status().to_string());
  REQUIRE(rules.is_ok());
  return *rules;
}

// Name of the algorithm that the first matching item asks for; "auto" or "none".
std::string pick(const RuleList& rules, std::uint64_t bytes, std::uint32_t size) {
  const RuleItem* item = match(rules, bytes, size);
  if (item == nullptr) return "none";
  return std::string(item->row == nullptr ? "auto" : item->row->name);
}

}  // namespace

TEST_CASE("an algorithm is named or numbered", "[selection]") {
  const auto c = Collective::allreduce;
  CHECK(pick(rules_of(c, "ring"), 1, 2) == "ring");
  CHECK(pick(rules_of(c, "8"), 1, 2) == "ring");
  CHECK(pick(rules_of(c, "1"), 1, 2) == "recursive_doubling");
  CHECK(pick(rules_of(c, "0"), 1, 2) == "auto");
  CHECK(pick(rules_of(c, "auto"), 1, 2) == "auto");
  CHECK(pick(rules_of(Collective::alltoall, "3"), 1, 2) == "pairwise");
  CHECK(algorithm_of_number(c, "8") == "ring");
  CHECK(algorithm_of_number(c, "99").empty());
  CHECK(algorithm_of_number(c, "8x").empty());
  CHECK(algorithm_of_number(c, "99999999999999999999").empty());
}

TEST_CASE("parameters override the row's defaults", "[selection]") {
  const RuleList rules = rules_of(Collective::allreduce,
                                  "recursive_multiplying(radix=8);ring(segment=256k);ring( segments = 4 )");
  CHECK(rules[0].params.radix == 8);
  CHECK(rules[1].segment_bytes == 256U << 10U);
  CHECK(rules[1].params == default_params(*find_algorithm(Collective::allreduce, "ring")));
  CHECK(rules[2].params.segments == 4);
  CHECK(rules[2].segment_bytes == 0);
  const RuleList two = rules_of(Collective::allgather, "pat(aggregate=4,segments=2)");
  CHECK(two[0].params.aggregate == 4);
  CHECK(two[0].params.segments == 2);
}

TEST_CASE("the former parameter columns is read as leaders, and printed as leaders", "[selection]") {
  for (const char* text : {"hierarchical(columns=2,across=1)", "hierarchical(leaders=2,across=1)"}) {
    const RuleList rules = rules_of(Collective::allreduce, text);
    CHECK(rules[0].params.leaders == 2);
    CHECK(to_text(rules[0]) == "hierarchical(leaders=2,across=1)");
    const auto argument = parse_argument(Collective::allreduce, text);  // also of a row in a CSV map
    REQUIRE(argument.is_ok());
    CHECK(argument->params == rules[0].params);
  }
  CHECK_FALSE(parse_rules(Collective::allreduce, "ring(columns=2)").is_ok());
}

TEST_CASE("conditions: inclusive bounds, open ends, suffixes, group sizes", "[selection]") {
  struct Expected {
    const char* text;
    RuleCondition condition;
  };
  const Expected table[] = {
      {"ring:7", {7, 7, 0, kMaxSize}},
      {"ring:4k", {4096, 4096, 0, kMaxSize}},
      {"ring:4k-64K", {4096, 65536, 0, kMaxSize}},
      {"ring:-1m", {0, 1U << 20U, 0, kMaxSize}},
      {"ring:2g-", {2ULL << 30U, kMaxBytes, 0, kMaxSize}},
      {"ring:0-0", {0, 0, 0, kMaxSize}},
      {"ring:1-@8", {1, kMaxBytes, 8, 8}},
      {"ring:-4@2-8", {0, 4, 2, 8}},
      {"ring:3@-8", {3, 3, 0, 8}},
      {"ring:3@8-", {3, 3, 8, kMaxSize}},
      {"ring:18446744073709551615", {kMaxBytes, kMaxBytes, 0, kMaxSize}},
      {"ring:4k- @ 4", {4096, kMaxBytes, 4, 4}},
  };
  for (const Expected& row : table) {
    const RuleList rules = rules_of(Collective::allreduce, row.text);
    INFO(row.text);
    REQUIRE(rules.size() == 1);
    REQUIRE(rules[0].conditions.size() == 1);
    CHECK(rules[0].conditions[0] == row.condition);
  }

  const RuleList rules = rules_of(Collective::allreduce, "ring:4k-8k@4-8");
  CHECK(pick(rules, 4095, 4) == "none");
  CHECK(pick(rules, 4096, 4) == "ring");
  CHECK(pick(rules, 8192, 8) == "ring");
  CHECK(pick(rules, 8193, 8) == "none");
  CHECK(pick(rules, 4096, 3) == "none");
  CHECK(pick(rules, 4096, 9) == "none");
}

TEST_CASE("any of several conditions matches; the first matching item wins; a bare item is the rest",
          "[selection]") {
  const RuleList rules =
      rules_of(Collective::allreduce, "one_shot:-1k@-4,5k,1m-@2;two_shot:-8k;auto:9k;ring;census");
  CHECK(pick(rules, 1024, 4) == "one_shot");
  CHECK(pick(rules, 1024, 5) == "two_shot");
  CHECK(pick(rules, 5120, 64) == "one_shot");
  CHECK(pick(rules, 1U << 21U, 2) == "one_shot");
  CHECK(pick(rules, 1U << 21U, 3) == "ring");
  CHECK(pick(rules, 8192, 64) == "two_shot");
  CHECK(pick(rules, 8193, 64) == "ring");
  CHECK(pick(rules, 9216, 64) == "auto");
}

TEST_CASE("spaces between words change nothing", "[selection]") {
  const RuleList tight = rules_of(Collective::allgather, "pat(aggregate=4,segments=2):-4k@2-8,64k-;ring");
  const RuleList wide =
      rules_of(Collective::allgather, "  pat ( aggregate = 4 , segments\t= 2 ) : -4k @ 2-8 , 64k- ;\tring  ");
  REQUIRE(tight.size() == wide.size());
  for (std::size_t i = 0; i < tight.size(); ++i) {
    CHECK(tight[i].row == wide[i].row);
    CHECK(tight[i].params == wide[i].params);
    CHECK(tight[i].conditions == wide[i].conditions);
  }
  CHECK(tight[1].column == 42);
  CHECK(wide[1].column == 61);
}

TEST_CASE("what is malformed is pointed at, with what would be right there", "[selection]") {
  struct Bad {
    const char* text;
    std::uint32_t column;
    const char* expected;
  };
  // All for allgather, whose `pat` has two parameters and whose `ring` has one.
  const Bad table[] = {
      {"", 1, "an algorithm of allgather: "},
      {"   ", 4, "an algorithm of allgather: "},
      {"rnig", 1, "ring, recursive_doubling"},
      {"Ring", 1, "an algorithm of allgather: "},
      {"99", 1, "a number of I_MPI_ADJUST"},
      {"00", 1, "an algorithm of allgather: "},
      {"-1", 1, "an algorithm of allgather: "},
      {"99999999999999999999", 1, "an algorithm of allgather: "},
      {"two_shot", 1, "an algorithm of allgather: "},
      {";", 1, "an algorithm of allgather: "},
      {"ring;", 6, "an algorithm of allgather: "},
      {"ring;;ring", 6, "an algorithm of allgather: "},
      {"ring ring", 6, "';' between items"},
      {"ring,bruck", 5, "';' between items"},
      {"ring:4k;bogus:8k", 9, "an algorithm of allgather: "},
      {"\xC3\xA9", 1, "an algorithm of allgather: "},
      {"ring()", 6, "a parameter of ring: segments (1-256) segment (bytes)"},
      {"ring(", 6, "a parameter of ring"},
      {"ring(radix=2)", 6, "a parameter of ring"},
      {"direct(segments=2,)", 19, "a parameter of direct"},
      {"auto(segments=2)", 6, "no parameters after an automatic choice"},
      {"recursive_doubling(x=1)", 20, ""},
      {"ring(segments)", 14, "'=' after segments"},
      {"ring(segments:4)", 14, "'=' after segments"},
      {"ring(segments=)", 15, "a number"},
      {"ring(segments=four)", 15, "a number"},
      {"ring(segments=-4)", 15, "a number"},
      {"ring(segments=0)", 15, "segments from 1 to 256"},
      {"ring(segments=257)", 15, "segments from 1 to 256"},
      {"ring(segments=4k)", 16, "',' and another parameter, or ')'"},
      {"ring(segments=99999999999)", 15, "a smaller number"},
      {"ring(segment=0)", 14, "a segment size of at least 1 byte"},
      {"ring(segment=4q)", 15, "',' and another parameter, or ')'"},
      {"ring(segments=4", 16, "',' and another parameter, or ')'"},
      {"ring(segments=4;ring", 16, "',' and another parameter, or ')'"},
      {"ring:", 6, "a message size such as 4k, 4k-64k, -4k or 64k-"},
      {"ring:k", 6, "a message size such as"},
      {"ring:4x", 7, "';' between items"},
      {"ring:4kb", 8, "';' between items"},
      {"ring:4k,", 9, "a message size such as"},
      {"ring:4k:8k", 8, "';' between items"},
      {"ring:-", 7, "a message size after '-'"},
      {"ring:--4", 7, "a message size after '-'"},
      {"ring:4 - 8", 8, "';' between items"},
      {"ring:8k-4k", 6, "a range whose end is not below its start, not 8192-4096"},
      {"ring:18446744073709551616", 6, "a smaller number"},
      {"ring:17179869184g", 6, "a smaller number"},
      {"ring:@4", 6, "a message size such as"},
      {"ring:4k@", 9, "a number of ranks such as"},
      {"ring:4k@x", 9, "a number of ranks such as"},
      {"ring:4k@8-2", 9, "a range whose end is not below its start, not 8-2"},
      {"ring:4k@4k", 10, "';' between items"},
      {"ring:4k@4294967296", 9, "a smaller number"},
      {"ring:4k@4@4", 10, "';' between items"},
      {"ring\n", 5, "';' between items"},
  };
  for (const Bad& bad : table) {
    const auto rules = parse_rules(Collective::allgather, bad.text);
    INFO("\"" << bad.text << "\": " << rules.status().message());
    REQUIRE(!rules.is_ok());
    CHECK(rules.status().code() == StatusCode::invalid_argument);
    const std::string& message = rules.status().message();
    CHECK(message.rfind("column " + std::to_string(bad.column) + ": ", 0) == 0);
    CHECK(message.find(bad.expected) != std::string::npos);
    CHECK(message.find(std::string("\"") + bad.text + "\"") != std::string::npos);
  }
}

TEST_CASE("a call's argument is one item without conditions", "[selection]") {
  const auto item = parse_argument(Collective::allreduce, " ring(segments=4) ");
  REQUIRE(item.is_ok());
  CHECK(item->row->name == "ring");
  CHECK(item->params.segments == 4);
  for (const char* text : {"", "ring:4k", "ring;ring", "ring ring", "bogus", "ring(segments=4"}) {
    INFO(text);
    CHECK(!parse_argument(Collective::allreduce, text).is_ok());
  }
}

TEST_CASE("every number of Intel MPI names an algorithm of the catalogue", "[selection]") {
  REQUIRE(impi_numbers().size() > 40);
  for (const ImpiNumber& number : impi_numbers()) {
    INFO(to_string(number.collective) << " " << number.number << " " << number.algorithm);
    CHECK(find_algorithm(number.collective, number.algorithm) != nullptr);
    CHECK(algorithm_of_number(number.collective, std::to_string(number.number)) == number.algorithm);
    const RuleList rules = rules_of(number.collective, std::to_string(number.number));
    CHECK(pick(rules, 1, 2) == number.algorithm);
    CHECK(!number.intel_name.empty());
  }
}

TEST_CASE("an argument goes before a variable, an earlier variable before a later, any before the defaults",
          "[selection]") {
  const Selector selector = selector_of({{Collective::allreduce, "TUTTI_ADJUST_ALLREDUCE", "ring:1k-;auto"},
                                         {Collective::allreduce, "I_MPI_ADJUST_ALLREDUCE", "1:-2k;2:-64k"},
                                         {Collective::broadcast, "TUTTI_ADJUST_BROADCAST", "chain"}});
  const Question large = ask(Collective::allreduce, 4096, 4), small = ask(Collective::allreduce, 512, 4);

  auto chosen = selector.choose(large, "census");
  REQUIRE(chosen.is_ok());
  CHECK(chosen->row->name == "census");
  CHECK(chosen->is_forced);
  CHECK(chosen->source == "argument");
  CHECK(chosen->item == 0);

  // An automatic argument is no argument.
  for (const char* argument : {"", "auto", "0"}) {
    chosen = selector.choose(large, argument);
    REQUIRE(chosen.is_ok());
    CHECK(chosen->row->name == "ring");
    CHECK(chosen->is_forced);
    CHECK(chosen->source == "TUTTI_ADJUST_ALLREDUCE");
    CHECK(chosen->item == 1);
  }

  // The first variable says auto, the second knows.
  chosen = selector.choose(small);
  REQUIRE(chosen.is_ok());
  CHECK(chosen->row->name == "recursive_doubling");
  CHECK(chosen->source == "I_MPI_ADJUST_ALLREDUCE");

  // No variable of the collective says anything.
  const Question other = ask(Collective::allgather, 512, 4);
  chosen = selector.choose(other);
  REQUIRE(chosen.is_ok());
  CHECK(!chosen->is_forced);
  CHECK(chosen->source == "default rules");
  CHECK(chosen->item > 0);

  // A variable whose items do not match leaves the choice to the defaults, too.
  const Selector narrow = selector_of({{Collective::allreduce, "V", "ring:1k@3"}});
  chosen = narrow.choose(large);
  REQUIRE(chosen.is_ok());
  CHECK(chosen->source == "default rules");
}

TEST_CASE(
    "what nobody has named an algorithm for may go another way where the buffers of all ranks are shared",
    "[selection]") {
  const Selector selector = selector_of({});
  const auto shared = [&](std::uint64_t bytes, std::uint32_t p) -> std::string {
    const auto chosen = selector.choose(ask(Collective::allreduce, bytes, p));
    REQUIRE(chosen.is_ok());
    if (chosen->shared_row == nullptr) return std::string(chosen->row->name);
    CHECK(chosen->shared_row != chosen->row);
    CHECK(describe_shared(*chosen) == fmt::format(" (shared buffers: {})", chosen->shared_row->name));
    return fmt::format("{} and {}", chosen->row->name, chosen->shared_row->name);
  };
  CHECK(shared(8192, 2) == "one_shot");
  CHECK(shared(8193, 2) == "one_shot and two_shot");
  CHECK(shared(65536, 2) == "one_shot and two_shot");
  CHECK(shared(65537, 2) == "two_shot");
  CHECK(shared(16384, 4) == "one_shot");

  const Question q = ask(Collective::allreduce, 16384, 2);
  CHECK(selector.choose(q, "one_shot")->shared_row == nullptr);
  const Selector named = selector_of({{Collective::allreduce, "V", "one_shot"}});
  CHECK(named.choose(q)->shared_row == nullptr);
  CHECK(describe_shared(*named.choose(q)).empty());
  // A tuning file was measured with buffers that are not.
  RuleText tuned{Collective::allreduce, "tuning.json", "one_shot"};
  tuned.is_advice = true;
  CHECK(selector_of({tuned}).choose(q)->shared_row == find_algorithm(Collective::allreduce, "two_shot"));
  CHECK(selector_of({tuned}).choose(ask(Collective::allreduce, 8192, 2))->shared_row == nullptr);
  Question across = q;
  across.reach = Reach::network;
  CHECK(selector.choose(across)->shared_row == nullptr);
}

TEST_CASE("what is forced is used or refused with the reason", "[selection]") {
  const Selector selector = selector_of({{Collective::allreduce, "TUTTI_ADJUST_ALLREDUCE", "ring"}});
  Question q = ask(Collective::allreduce, 1U << 20U, 4);
  q.is_commutative = false;
  auto chosen = selector.choose(q);
  REQUIRE(!chosen.is_ok());
  CHECK(chosen.status().message().find("TUTTI_ADJUST_ALLREDUCE item 1: ") != std::string::npos);
  CHECK(chosen.status().message().find("commut") != std::string::npos);

  chosen = selector.choose(q, "census");
  REQUIRE(!chosen.is_ok());
  CHECK(chosen.status().message().find("argument") != std::string::npos);
  CHECK(chosen.status().message().find("census") != std::string::npos);
  chosen = selector.choose(q, "two_shot");
  REQUIRE(chosen.is_ok());

  chosen = selector.choose(q, "ring:4k");
  REQUIRE(!chosen.is_ok());
  CHECK(chosen.status().code() == StatusCode::invalid_argument);

  q = ask(Collective::alltoall, 1024, 8);
  q.has_equal_counts = false;
  q.has_known_bytes = false;
  chosen = selector.choose(q, "bruck");
  REQUIRE(!chosen.is_ok());
  CHECK(chosen.status().message().find("equal counts") != std::string::npos);

  const auto bad = Selector::make({{Collective::allreduce, "TUTTI_ADJUST_ALLREDUCE", "ring;rign"}});
  REQUIRE(!bad.is_ok());
  CHECK(bad.status().message().find("TUTTI_ADJUST_ALLREDUCE: column 6: ") != std::string::npos);
}

TEST_CASE("engines of device memory are names of their own, and mean nothing where the memory is the host's",
          "[selection]") {
  const auto c = Collective::allreduce;
  const RuleList rules = rules_of(c, "nccl:64k-;staged:-1k;ring");
  CHECK(rules[0].engine == DeviceEngineKind::nccl);
  CHECK(rules[1].engine == DeviceEngineKind::staged);
  CHECK(to_text(rules[0]) == "nccl:64k-");
  CHECK_THAT(parse_rules(c, "nccl(radix=2)").status().message(), Catch::Matchers::Contains("nccl has none"));

  const Selector selector = selector_of({{c, "TUTTI_ADJUST_ALLREDUCE", "nccl:64k-;staged:-1k;ring"}});
  Question q = ask(c, 1U << 20U, 4);
  CHECK(selector.choose(q)->row->name == "ring");
  CHECK_THAT(selector.choose(q, "staged").status().message(),
             Catch::Matchers::Contains("memory of the host"));
  q.is_device = true;
  CHECK(selector.choose(q)->engine == DeviceEngineKind::nccl);
  CHECK(selector.choose(q)->is_forced);
  CHECK(selector.choose(q, "staged")->engine == DeviceEngineKind::staged);
  CHECK(selector.choose(q, "ring")->row->name == "ring");
  q.bytes = 4096;
  CHECK(selector.choose(q)->row->name == "ring");
  q.bytes = 8;
  CHECK(selector.choose(q)->engine == DeviceEngineKind::staged);
  // What is known of host memory, by experience or by default, is no advice.
  RuleText advice{c, "tuning.json", "ring"};
  advice.is_advice = true;
  CHECK_FALSE(selector_of({advice}).choose(q)->is_made());
  CHECK(selector_of({{c, "TUTTI_ADJUST_ALLREDUCE", "nccl"}}).canonical() !=
        selector_of({{c, "TUTTI_ADJUST_ALLREDUCE", "auto"}}).canonical());
}

TEST_CASE("choosing is pure", "[selection]") {
  const Selector selector = selector_of({{Collective::allreduce, "V", "ring(segment=64k):1m-"}});
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{4096}, std::uint64_t{5} << 20U}) {
    const Question q = ask(Collective::allreduce, bytes, 6);
    const auto first = selector.choose(q);
    (void)selector.choose(ask(Collective::allreduce, bytes * 3 + 1, 9), "two_shot");
    const auto second = selector.choose(q);
    REQUIRE(first.is_ok());
    REQUIRE(second.is_ok());
    CHECK(first->row == second->row);
    CHECK(first->params == second->params);
    CHECK(first->item == second->item);
    CHECK(first->source == second->source);
  }
}

TEST_CASE("of an alltoallv nothing but p matters", "[selection]") {
  const Selector selector = selector_of({{Collective::alltoall, "V", "linear:64k-;pairwise:0-64k@4"}});
  Question q = ask(Collective::alltoall, 1U << 20U, 4);
  q.has_equal_counts = false;
  q.has_known_bytes = false;
  const auto large = selector.choose(q);
  q.bytes = 8;
  const auto small = selector.choose(q);
  REQUIRE(large.is_ok());
  REQUIRE(small.is_ok());
  CHECK(large->row->name == "pairwise");
  CHECK(large->row == small->row);
  CHECK(large->params == small->params);
}

TEST_CASE("the canonical text differs where choices may differ", "[selection]") {
  const char* const different[] = {
      "ring",          "two_shot",      "ring:4k",          "ring:4k-",        "ring:-4k",
      "ring:4k@4",     "ring:4k@4-",    "ring(segments=2)", "ring(segment=2)", "auto",
      "ring;two_shot", "two_shot;ring", "ring:4k,8k",       "ring:4k;ring:8k"};
  std::vector<std::string> texts = {selector_of({}).canonical()};
  for (const char* rules : different) {
    texts.push_back(selector_of({{Collective::allreduce, "V", rules}}).canonical());
    // Of another collective, or from elsewhere.
    if (std::string(rules) == "ring") {
      texts.push_back(selector_of({{Collective::allgather, "V", rules}}).canonical());
      texts.push_back(selector_of({{Collective::allreduce, "W", rules}}).canonical());
    }
  }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      INFO(texts[i] << "\n" << texts[k]);
      CHECK(texts[i] != texts[k]);
    }
  }
  // Two ways of writing one thing are one thing.
  CHECK(selector_of({{Collective::allreduce, "V", "8:4k"}}).canonical() ==
        selector_of({{Collective::allreduce, "V", " ring : 4096 "}}).canonical());
}

TEST_CASE("a segment size becomes a number of segments of the blocks", "[selection]") {
  const Selector selector = selector_of({});
  const auto segments = [&](std::uint64_t bytes, std::uint32_t p, const char* argument) {
    const auto chosen = selector.choose(ask(Collective::allreduce, bytes, p), argument);
    REQUIRE(chosen.is_ok());
    return chosen->params.segments;
  };
  // A ring of 4 cuts the vector in 4 blocks.
  CHECK(segments(0, 4, "ring(segment=64k)") == 1);
  CHECK(segments(4 << 16, 4, "ring(segment=64k)") == 1);
  CHECK(segments((4 << 16) + 1, 4, "ring(segment=64k)") == 2);
  CHECK(segments(4 << 20, 4, "ring(segment=64k)") == 16);
  CHECK(segments(3 << 20, 4, "ring(segment=64k)") == 16);                 // 12, rounded up to a power of two
  CHECK(segments(std::uint64_t{1} << 40U, 4, "ring(segment=1)") == 256);  // the row's limit
  CHECK(segments(kMaxBytes, 1, "ring(segment=1)") == 256);
  CHECK(segments(4 << 20, 4, "ring(segments=3)") == 3);
  // A double binary tree works on two vectors of half the length.
  CHECK(segments(1 << 20, 4, "double_binary_tree(segment=64k)") == 8);
}

}  // namespace tutti
