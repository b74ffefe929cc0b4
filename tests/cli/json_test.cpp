// JSON values of the tool: made, printed, read, refused.
#include "tools/cli/json.hpp"

#include <limits>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"

namespace tutti::tool {
namespace {

TEST_CASE("values are printed with sorted keys, whatever they are made of") {
  const std::string text = "text";
  Json value = {{"text", text},
                {"list", std::vector<int>{-1, 2}},
                {"nested", std::vector<std::vector<std::uint32_t>>{{1}, {}}},
                {"flag", true},
                {"nothing", nullptr},
                {"large", std::numeric_limits<std::uint64_t>::max()},
                {"small", std::numeric_limits<std::int64_t>::min()},
                {"real", 0.5}};
  value["empty"] = Json::object();
  value["text"] = "another";
  value["made"]["within"].push_back({{"a", 1}});
  CHECK(value.dump() ==
        R"({"empty":{},"flag":true,"large":18446744073709551615,"list":[-1,2],"made":{"within":[{"a":1}]},)"
        R"("nested":[[1],[]],"nothing":null,"real":0.5,"small":-9223372036854775808,"text":"another"})");
  CHECK(Json({{"a", Json::array()}}).dump(1) == "{\n \"a\": []\n}");
  CHECK(Json("\xff\n").dump() == "\"\xef\xbf\xbd\\n\"");
}

TEST_CASE("text is read, and what is missing or of another kind reads as nothing") {
  const Result<Json> parsed = parse_json(R"( {"b": [1, -2, 2.5, "x", null], "a": {"flag": true}} )");
  REQUIRE(parsed);
  const Json& value = *parsed;
  CHECK(value.size() == 2);
  CHECK(value.key(0) == "a");
  CHECK(value.at(0)["flag"].boolean());
  const Json& list = value["b"];
  CHECK(list.is_array());
  CHECK(list.at(0).natural() == 1);
  CHECK(list.at(1).number() == -2);
  CHECK_FALSE(list.at(1).is_natural());
  CHECK(list.at(2).number() == 2.5);
  CHECK(list.at(3).text() == "x");
  CHECK(list.at(4).is_null());
  CHECK(value["c"]["d"].is_null());
  CHECK(value["b"].text().empty());
  CHECK_FALSE(value.contains("c"));
  CHECK(json_of(value.dump()).dump() == value.dump());
}

TEST_CASE("an error names the place; nesting has a limit") {
  const auto error_of = [](std::string_view text) { return parse_json(text).status().message(); };
  CHECK_THAT(error_of("{\n  \"a\": 1,\n}"), Catch::Matchers::StartsWith("line 3 column 1: this is no JSON"));
  CHECK_THAT(error_of(""), Catch::Matchers::StartsWith("line 1 column 1"));
  CHECK(parse_json(std::string(100, '[') + std::string(100, ']')));
  CHECK_THAT(error_of(std::string(1000000, '[')), Catch::Matchers::Contains("deeper than 100"));
  CHECK(json_of("{").is_null());
}

}  // namespace
}  // namespace tutti::tool
