// Shared by the tests of selection: a selector and a question in one line each. Knows no rule.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/selection/selection.hpp"
#include "tests/support/catch.hpp"

namespace tutti::test {

inline Selector selector_of(std::vector<RuleText> texts) {
  auto selector = Selector::make(std::move(texts));
  INFO(selector.status().to_string());
  REQUIRE(selector.is_ok());
  return *std::move(selector);
}

inline Question ask(Collective collective, std::uint64_t bytes, std::uint32_t size) {
  Question q;
  q.collective = collective;
  q.bytes = bytes;
  q.size = size;
  return q;
}

}  // namespace tutti::test
