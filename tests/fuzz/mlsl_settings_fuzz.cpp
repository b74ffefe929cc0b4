// Fuzzes the values of MLSL's variables and its configuration text. The first byte says which variable the rest is.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/mlsl/settings.hpp"

using namespace tutti::mlsl;

namespace {

constexpr std::array kVariables = {
    "MLSL_LOG_LEVEL",         "MLSL_STATS",          "MLSL_MSG_PRIORITY_THRESHOLD",
    "MLSL_LARGE_MSG_SIZE_MB", "MLSL_DYNAMIC_SERVER", "MLSL_IFACE_NAME"};

void require(bool holds) {
  if (!holds) std::abort();
}

void read(const std::string& chosen, const std::string& text) {
  std::vector<std::string> answers;
  const Settings settings = read_settings(
      [&](const char* name) { return name == chosen ? std::optional(text) : std::nullopt; }, answers);
  require(settings.large_message_chunks >= 1 && settings.large_message_bytes >= 1U << 20);
  require(answers.size() <= 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t kind = data[0] % (kVariables.size() + 1);
  try {
    if (kind < kVariables.size())
      read(kVariables[kind], text);
    else
      require(parse_color(text).value_or(0) >= 0);
  } catch (const std::invalid_argument& error) {
    require(error.what()[0] != '\0');
  }
  return 0;
}
