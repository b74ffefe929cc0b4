// Fuzz target: any bytes are refused as a configuration file of horovodrun with the line, or read the same again
// after being written out.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tools/cli/run/horovod_config.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

std::string quote(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto settings = tutti::parse_horovod_config({reinterpret_cast<const char*>(data), size});
  if (!settings) {
    require(settings.status().message().starts_with("line "));
    return 0;
  }
  std::string text, section;
  for (const tutti::HorovodSetting& setting : *settings) {
    const std::size_t dot = setting.key.find('.');
    const std::string own = dot == std::string::npos ? "" : setting.key.substr(0, dot);
    if (own != section && !own.empty()) text += own + ":\n";
    section = own;
    text += (own.empty() ? "" : "  ") + setting.key.substr(own.empty() ? 0 : dot + 1) + ": " +
            quote(setting.value) + "\n";
  }
  const auto again = tutti::parse_horovod_config(text);
  require(again.is_ok() && again->size() == settings->size());
  for (std::size_t i = 0; i < settings->size(); ++i)
    require((*again)[i].key == (*settings)[i].key && (*again)[i].value == (*settings)[i].value);
  return 0;
}
