// Fuzzes what launchers say: PMI records of both versions, process mappings, stored values, and Slurm's
// lists.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/job/launchers/pmi_text.hpp"
#include "runtime/job/launchers/slurm.hpp"

using namespace tutti::detail;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  static_cast<void>(parse_pmi1(text));
  if (const auto record = parse_pmi2(text)) {
    // Fields are the same after they are written and read again.
    std::vector<std::pair<std::string_view, std::string_view>> fields(record->fields.begin(),
                                                                      record->fields.end());
    const std::string again = write_pmi2(record->command, fields);
    const auto reread = parse_pmi2(std::string_view(again).substr(6));
    if (!reread || reread->command != record->command || reread->fields != record->fields) std::abort();
  }
  const int ranks = data[0];
  if (const auto nodes = parse_process_mapping(text, ranks)) {
    if (nodes->size() != static_cast<std::size_t>(ranks)) std::abort();
    for (const int node : *nodes) {
      if (node < 0) std::abort();
    }
  }
  static_cast<void>(unescape_pmi(text));
  if (const auto host = first_host(text); host && host->size() > text.size()) std::abort();
  if (const auto tasks = tasks_of_node(text, ranks); tasks && *tasks < 0) std::abort();
  if (const auto same = unescape_pmi(escape_pmi(text)); !same || *same != text) std::abort();
  return 0;
}
