// Headers that most sources of the core include; compiled once where -Dprecompiled=true. Sources do not rely on it:
// each includes its own headers. Holds no header of ours, so that an edit never rebuilds everything.
// A guard, because compilers warn of #pragma once in a header that is compiled by itself.
#ifndef TUTTI_PRECOMPILED_CORE
#define TUTTI_PRECOMPILED_CORE

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#endif  // TUTTI_PRECOMPILED_CORE
