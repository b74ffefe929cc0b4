// Which world ranks that meet anew have in common: chosen alike by all, from what each tells.
#include "runtime/group/common_world.hpp"
#include "tests/support/catch.hpp"

using namespace tutti;

namespace {

std::string identity(char letter) { return std::string(kWorldIdentityBytes, letter); }

}  // namespace

TEST_CASE("the first world of the first rank that all have, with the ranks of all in it") {
  const auto a = encode_open_worlds({{identity('x'), 4}, {identity('y'), 2}, {identity('z'), 7}});
  const auto b = encode_open_worlds({{identity('z'), 0}, {identity('y'), 3}});
  const auto found = find_common_world({a, b});
  REQUIRE(found);
  CHECK(found->identity == identity('y'));
  CHECK(found->ranks == std::vector<int>{2, 3});
  CHECK(find_common_world({b, a})->identity == identity('z'));
  CHECK(find_common_world({a})->ranks == std::vector<int>{4});
}

TEST_CASE("no world where one rank has none, or two are the same rank, or bytes are malformed") {
  const auto a = encode_open_worlds({{identity('x'), 0}});
  CHECK_FALSE(find_common_world({}));
  CHECK_FALSE(find_common_world({a, ""}));
  CHECK_FALSE(find_common_world({a, a}));
  CHECK_FALSE(find_common_world({a, encode_open_worlds({{identity('y'), 1}})}));
  CHECK_FALSE(find_common_world({a, a.substr(0, a.size() - 1)}));
}

TEST_CASE("what a rank tells comes back, and nothing else does") {
  const std::vector<OpenWorld> worlds{{identity('x'), 0}, {identity('y'), 12}};
  const std::string bytes = encode_open_worlds(worlds);
  CHECK(decode_open_worlds(bytes) == worlds);
  CHECK(decode_open_worlds("") == std::vector<OpenWorld>());
  for (std::size_t length = 1; length < bytes.size(); ++length) {
    const auto decoded = decode_open_worlds(bytes.substr(0, length));
    CHECK((!decoded || decoded->size() == 1));
  }
  CHECK_FALSE(decode_open_worlds(encode_open_worlds({{"short", 0}})));
  CHECK_FALSE(decode_open_worlds(encode_open_worlds({{identity('x'), -1}})));
  CHECK_FALSE(decode_open_worlds(encode_open_worlds(std::vector<OpenWorld>(kMaxOpenWorlds + 1, worlds[0]))));
}
