// Tuning files: what is read, which line is named where it is wrong, what fits where, and whose rules win.
// Knows no file.
#include <string>
#include <vector>

#include "runtime/selection/tuning.hpp"
#include "tests/selection/selection_support.hpp"

namespace tutti {
namespace {

using test::ask;
using test::selector_of;

constexpr const char* kExample = R"({
  "tutti_tuning": 1,
  "origin": "by hand, \"2026\"",
  "fingerprint": {
    "cpu": "A",
    "node": "shm"
  },
  "rules": {
    "allreduce": [
      "ring:1m-",
      "recursive_doubling:-4k@4"
    ],
    "allreduce across nodes": ["rabenseifner:8k-"],
    "broadcast anywhere": [
      "chain:64k-"
    ]
  },
  "costs": {
    "shm": {"call_ps": 1, "reduce_kib_ps": 2, "copy_kib_ps": 3,
      "cache": [4, 5, 6, 7], "node": [8, 9, 10, 11, 12, 13, 14, 15], "network": [0, 0, 0, 0]}
  },
  "fusion": {
    "4": {"bytes": 1048576, "cycle_us": 2500},
    "8": {}
  }
}
)";

Tuning read(const std::string& text) {
  auto tuning = parse_tuning(text, "F");
  INFO(tuning.status().to_string());
  REQUIRE(tuning.is_ok());
  return *std::move(tuning);
}

std::string error_of(const std::string& text) {
  const auto tuning = parse_tuning(text, "F");
  REQUIRE(!tuning.is_ok());
  return tuning.status().message();
}

// The example with one part replaced.
std::string with(const std::string& part, const std::string& other) {
  std::string text = kExample;
  const auto at = text.find(part);
  REQUIRE(at != std::string::npos);
  return text.replace(at, part.size(), other);
}

TEST_CASE("a tuning file says what it holds and where", "[tuning]") {
  const Tuning tuning = read(kExample);
  CHECK(tuning.origin == "by hand, \"2026\"");
  CHECK(tuning.fingerprint == Fingerprint{{"cpu", "A"}, {"node", "shm"}});
  REQUIRE(tuning.rules.size() == 3);
  CHECK(tuning.rules[0] == TuningRules{Collective::allreduce,
                                       Reach::node,
                                       {{"ring:1m-", 10}, {"recursive_doubling:-4k@4", 11}}});
  CHECK(tuning.rules[1] == TuningRules{Collective::allreduce, Reach::network, {{"rabenseifner:8k-", 13}}});
  CHECK(tuning.rules[2] == TuningRules{Collective::broadcast, std::nullopt, {{"chain:64k-", 15}}});
  CHECK(tuning.fusion == std::map<std::uint32_t, FusionTuning>{{4, {1048576, 2500}}, {8, {}}});
  REQUIRE(tuning.costs.count("shm") == 1);
  const CostModel& model = tuning.costs.at("shm");
  CHECK(model.call_ps == 1);
  CHECK(model.reduce_kib_ps == 2);
  CHECK(model.copy_kib_ps == 3);
  CHECK(model.link(Level::cache) == LinkCost{4, 5, 6, 7});
  CHECK(model.link(Level::node) == LinkCost{8, 9, 10, 11});
  CHECK(model.line(Level::cache) == LineCost());
  CHECK(model.line(Level::node) == LineCost{12, 13, 14, 15});
}

TEST_CASE("a tuning file with the former parameter columns is read as leaders", "[tuning]") {
  const Tuning tuning = read(with("\"ring:1m-\"", "\"hierarchical(columns=1):1m-\""));
  const auto rules = parse_rules(Collective::allreduce, tuning.rules[0].items[0].text);
  REQUIRE(rules.is_ok());
  CHECK((*rules)[0].params.leaders == 1);
}

TEST_CASE("a written file is read again", "[tuning]") {
  Tuning tuning = read(kExample);
  Tuning again = read(to_text(tuning));
  CHECK(again.rules[0].items[1].line > again.rules[0].items[0].line);
  for (Tuning* one : {&tuning, &again}) {
    for (TuningRules& list : one->rules) {
      for (TuningItem& item : list.items) item.line = 0;
    }
  }
  CHECK(again == tuning);
  CHECK(read(to_text(Tuning())) == Tuning());
  // The text of a file that a person has read: one line for each rule.
  CHECK(to_text(tuning).find("\n      \"ring:1m-\",\n      \"recursive_doubling:-4k@4\"\n    ]") !=
        std::string::npos);
}

TEST_CASE("an error names the file, the line and the column", "[tuning]") {
  struct Wrong {
    const char *part, *other, *place, *words;
  };
  const Wrong wrongs[] = {
      {"\"ring:1m-\"", "\"rign:1m-\"", "F line 10 column 8: ", "an algorithm of allreduce"},
      {"-4k@4", "-4k@x", "F line 11 column 31: ", "a number of ranks"},
      {"\"ring:1m-\"", "\"ring:1m-;two_shot\"", "F line 10 column 7: ", "one rule in each line"},
      {"\"tutti_tuning\": 1", "\"tutti_tuning\": 2", "F line 2 column 20: ", "version 2"},
      {"\"tutti_tuning\": 1,", "", "F line 1 column 1: ", "is missing"},
      {"\"rules\"", "\"rulse\"", "F line 8 column 3: ", "expected one of \"tutti_tuning\""},
      {"\"broadcast anywhere\"", "\"bcast\"", "F line 14 column 5: ", "\"broadcast anywhere\""},
      {"\"cpu\": \"A\"", "\"cpu\": 4", "F line 5 column 13: ", "text in quotes"},
      {"[4, 5, 6, 7]", "[4, 5, 6]", "F line 20 column 24: ", "four figures"},
      {"14, 15]", "14, 15, 16]", "F line 20 column 71: ", "a ninth figure"},
      {"[8, 9, 10,", "[8, -9, 10,", "F line 20 column 44: ", "below zero"},
      {"\"call_ps\": 1,", "\"call_ps\": 1, \"call_ps\": 1,", "F line 19 column 27: ", "was given before"},
      {"\"node\": \"shm\"", "\"node\": \"shm\",", "F line 7 column 3: ", "syntax error"},
  };
  for (const Wrong& wrong : wrongs) {
    const std::string message = error_of(with(wrong.part, wrong.other));
    INFO(message << "\nexpected " << wrong.place << " ... " << wrong.words);
    CHECK(message.rfind(wrong.place, 0) == 0);
    CHECK(message.find(wrong.words) != std::string::npos);
  }
  for (const char* text :
       {"", "{", "[]", "4", "null", "{}", "{\"rules\": []}", "{\"rules\": {\"allreduce\": {}}}",
        "{\"tutti_tuning\": 1} x", "\"\\", "{\"costs\": {\"shm\": [1]}}"})
    CHECK(error_of(text).rfind("F line 1 column ", 0) == 0);
}

TEST_CASE("names in two fingerprints must have equal values", "[tuning]") {
  const Fingerprint here = {{"cpu", "A"}, {"machine", "M"}, {"node", "shm"}};
  CHECK(describe_difference({}, here).empty());
  CHECK(describe_difference(here, here).empty());
  CHECK(describe_difference({{"cpu", "A"}, {"network", "tcp"}}, here).empty());
  CHECK(describe_difference({{"cpu", "A"}, {"node", "tcp"}}, here) ==
        "it is for node \"tcp\", and here it is \"shm\"");
}

TEST_CASE("rules of a file come after those of variables and before the defaults", "[tuning]") {
  const Tuning tuning = read(kExample);
  std::vector<RuleText> texts = {{Collective::allreduce, "TUTTI_ADJUST_ALLREDUCE", "census:2m-4m;auto"}};
  for (RuleText& text : rule_texts(tuning, "/F")) texts.push_back(std::move(text));
  const Selector selector = selector_of(std::move(texts));
  const auto choose = [&](const Question& q) {
    const auto chosen = selector.choose(q);
    REQUIRE(chosen.is_ok());
    return std::string(chosen->row->name) + " by " + describe_source(*chosen);
  };
  Question q = ask(Collective::allreduce, 3U << 20U, 4);
  CHECK(choose(q) == "census by TUTTI_ADJUST_ALLREDUCE item 1");
  q.bytes = 8U << 20U;
  CHECK(choose(q) == "ring by /F line 10");
  // Another reach has other rules, and what they do not say is up to the defaults.
  q.reach = Reach::network;
  CHECK(choose(q) == "rabenseifner by /F line 13");
  q.bytes = 4096;
  CHECK(choose(q).find(" by default rules item ") != std::string::npos);
  q.reach = Reach::node;
  CHECK(choose(q) == "recursive_doubling by /F line 11");
  q = ask(Collective::broadcast, 1U << 20U, 4);
  CHECK(choose(q) == "chain by /F line 15");
  q.reach = Reach::network;
  CHECK(choose(q) == "chain by /F line 15");
}

TEST_CASE("a file's rule that may not run is passed over", "[tuning]") {
  const Selector selector = selector_of(rule_texts(read(kExample), "/F"));
  Question q = ask(Collective::allreduce, 8U << 20U, 4);
  q.is_commutative = false;  // no ring
  std::vector<Consideration> trail;
  const auto chosen = selector.choose(q, {}, &trail);
  REQUIRE(chosen.is_ok());
  CHECK(chosen->source == "default rules");
  CHECK(!chosen->is_forced);
  REQUIRE(!trail.empty());
  CHECK(trail[0].line == 10);
  CHECK(trail[0].verdict == Consideration::Verdict::illegal);
}

}  // namespace
}  // namespace tutti
