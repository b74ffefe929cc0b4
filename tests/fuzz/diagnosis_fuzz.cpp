// Fuzz target: any bytes are either refused as a message about stalled operations, or are what encoding
// gives. Histories that are taken can be compared.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string_view>

#include "runtime/group/diagnosis_frame.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto message = tutti::decode_diagnosis(bytes);
  if (!message) return 0;
  if (tutti::encode_diagnosis(*message) != bytes) std::abort();
  if (const auto* const report = std::get_if<tutti::StallReport>(&*message)) {
    std::map<int, tutti::CallHistory> histories{{0, report->calls}, {3, report->calls}};
    tutti::CallDifference difference;
    if (tutti::find_difference(histories, &difference)) std::abort();
    if (report->calls.empty()) return 0;
    ++histories[3].front().digest;
    if (!tutti::find_difference(histories, &difference) || difference.text.empty()) std::abort();
  }
  return 0;
}
