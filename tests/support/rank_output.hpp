// How programs that tests start as ranks say what happened: a line at a time, which is there even if the rank
// is killed next. Knows no call.
#pragma once

#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include "tutti/tutti.hpp"

namespace tutti::test {

inline void print(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

// The error that `body` throws, if it throws one.
inline std::optional<Error> error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

}  // namespace tutti::test
