// Fuzz target: any bytes are either refused by the parser or are schedules that survive every round trip, and
// the verifier answers about them without crashing.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "runtime/schedule/loop_form.hpp"
#include "runtime/schedule/text.hpp"
#include "runtime/schedule/verify.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parsed = tutti::parse_schedules(text);
  if (!parsed) {
    require(!parsed.status().message().empty());
    return 0;
  }
  std::size_t work = 0;
  for (const tutti::Schedule& schedule : *parsed) {
    work += schedule.steps.size() + schedule.atoms() + schedule.scratch_slots;
    if (schedule.steps.size() > 2000) continue;  // printing them again would only cost time
    for (const auto form : {tutti::TextForm::plain, tutti::TextForm::rolled}) {
      const auto again = tutti::parse_schedule(tutti::print_schedule(schedule, form));
      require(again.is_ok() && *again == schedule);
    }
    const auto unrolled = tutti::unroll(tutti::roll(schedule));
    require(unrolled.is_ok() && *unrolled == schedule);
  }
  if (work < 20000 && !parsed->empty()) {
    for (const auto algebra : {tutti::Algebra::multiset, tutti::Algebra::word, tutti::Algebra::expression})
      (void)tutti::verify(*parsed, algebra);
  }
  return 0;
}
