// Fuzz target: any two texts are refused as traces of ranks, or give events that are JSON objects.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "runtime/base/trace_merge.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t middle = text.find('\0');
  const std::string first(text.substr(0, middle));
  const std::string second(middle == std::string_view::npos ? text : text.substr(middle + 1));
  static_cast<void>(tutti::merge_traces({{"a", first}, {"b", second}}, [](std::string_view event) {
    if (event.size() < 2 || event.front() != '{' || event.back() != '}') std::abort();
  }));
  return 0;
}
