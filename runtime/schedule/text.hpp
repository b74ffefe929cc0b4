// The text form of a schedule: what people read, tests compare and `tutti schedule` prints and takes.
// Knows nothing of what a schedule is for; docs/schedule-text.md is its grammar.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/schedule/schedule.hpp"

namespace tutti {

enum class TextForm : std::uint8_t {
  plain,   // every step on a line of its own, numbered
  rolled,  // repetition as "repeat N ... end" (loop_form.hpp)
};

// Canonical: equal schedules print equally, and parse_schedule() gives back an equal schedule.
std::string print_schedule(const Schedule& schedule, TextForm form = TextForm::plain);
// One schedule, in either form. Errors: invalid_argument, "line 3, column 12: expected ..., found ...". Only
// the form is checked; whether the schedule is right is for verify().
Result<Schedule> parse_schedule(std::string_view text);
// Any number of schedules one after the other, such as those of all ranks.
Result<std::vector<Schedule>> parse_schedules(std::string_view text);

// "output[3]", "input[3+4*2]" (4 atoms from 3, every 2nd), "scratch.1[3]" (slot 1, shape of atom 3),
// "output@2[3]" (of rank 2), "wire output[3]" (its wire copy).
std::string to_text(const Slice& slice);
// "reduce output[3] = scratch.0[3] + output[3] after 4": one step with channel and dependencies.
std::string to_text(const Schedule& schedule, const Step& step);

}  // namespace tutti
