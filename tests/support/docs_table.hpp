// Compares a table of a page with the table of the code that it shows; UPDATE_DOCS=1 rewrites it instead.
#pragma once

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/catch.hpp"

namespace tutti {

// The table of the page at `path` begins with the same line as `table`.
inline void check_docs_table(const std::string& path, const std::string& table) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::size_t begin = text.find(table.substr(0, table.find('\n')));
  REQUIRE(begin != std::string::npos);
  std::size_t end = begin;
  while (end < text.size() && text[end] == '|') end = text.find('\n', end) + 1;
  if (std::getenv("UPDATE_DOCS") != nullptr) {
    std::ofstream(path) << text.substr(0, begin) << table << text.substr(end);
    return;
  }
  INFO("run this test with UPDATE_DOCS=1 to write " << path);
  CHECK(text.substr(begin, end - begin) == table);
}

}  // namespace tutti
