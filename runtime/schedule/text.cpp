// Printing of schedules. A step of the plain form is printed as a loop step that does not advance, so both
// forms share one printer.
#include "runtime/schedule/text.hpp"

#include <fmt/format.h>

#include "runtime/schedule/loop_form.hpp"

namespace tutti {

namespace {

// "3", or "3~-1" for a number that goes down by one each turn.
std::string number(std::uint32_t value, std::int64_t advance) {
  return advance == 0 ? fmt::format("{}", value) : fmt::format("{}~{}", value, advance);
}
// An advance modulo something is printed as the smaller of its two signed forms.
std::int64_t shorter(std::uint32_t advance, std::uint32_t modulus) {
  return advance > modulus / 2 ? std::int64_t{advance} - modulus : std::int64_t{advance};
}

std::string slice_text(const LoopSlice& at, std::uint32_t atoms, std::uint32_t size) {
  const Slice& slice = at.slice;
  std::string text = slice.is_wire ? "wire " : "";
  text += slice.buffer == Buffer::input ? "input" : slice.buffer == Buffer::output ? "output" : "scratch";
  if (slice.owner != kSelf)
    text += "@" + number(static_cast<std::uint32_t>(slice.owner), shorter(at.owner_advance, size));
  if (slice.buffer == Buffer::scratch) text += "." + number(slice.slot, at.slot_advance);
  text += "[" + number(slice.first, shorter(at.first_advance, atoms));
  if (slice.count != 1 || slice.stride != 1) text += fmt::format("+{}", slice.count);
  if (slice.stride != 1) text += fmt::format("*{}", slice.stride);
  return text + "]";
}

// The verb and what it works on. Channel, dependencies and fusion are left to the caller.
std::string verb_text(const LoopStep& at, std::uint32_t atoms, std::uint32_t size) {
  const Step& step = at.step;
  const std::string peer = number(step.peer, shorter(at.peer_advance, size));
  const std::string sequence = number(step.sequence, at.sequence_advance);
  std::string sources;
  for (const LoopSlice& source : at.sources)
    sources += (sources.empty() ? "" : " + ") + slice_text(source, atoms, size);
  switch (step.verb) {
    case Verb::send:
      return fmt::format("send {} to {}", sources, peer);
    case Verb::recv:
      return fmt::format("recv {} from {}", slice_text(at.dst, atoms, size), peer);
    case Verb::copy:
    case Verb::reduce:
      return fmt::format("{} {} = {}", to_string(step.verb), slice_text(at.dst, atoms, size), sources);
    case Verb::signal:
      return fmt::format("signal {}", sequence);
    case Verb::wait:
      return fmt::format("wait {} of {}", sequence, peer);
  }
  return {};
}

// In a loop the other steps are named by distance, else by number.
std::string step_text(const LoopStep& at, std::uint32_t atoms, std::uint32_t size, bool in_loop,
                      std::uint32_t index) {
  std::string text = verb_text(at, atoms, size);
  if (at.step.channel != 0) text += fmt::format(" on {}", at.step.channel);
  if (!at.dependencies.empty()) text += " after";
  for (const LoopDependency& d : at.dependencies)
    text += in_loop ? " -" + number(d.back, d.advance) : fmt::format(" {}", index - d.back);
  if (at.fused_ahead != 0)
    text += in_loop ? fmt::format(" fused +{}", at.fused_ahead)
                    : fmt::format(" fused {}", index + at.fused_ahead);
  return text;
}

std::string header_text(const Schedule& s) {
  std::string text = fmt::format("schedule {} rank {} of {}", to_string(s.collective), s.rank, s.size);
  if (s.root != 0) text += fmt::format(" root {}", s.root);
  if (s.in_place) text += " in place";
  if (s.is_staged) text += " staged";
  if (s.hears_from_all) text += " hears all";
  if (s.has_wire_copies) text += " wire copies";
  return text + fmt::format(" blocks {} segments {} slots {} channels {}\n", s.blocks, s.segments,
                            s.scratch_slots, s.channels);
}

}  // namespace

std::string to_text(const Slice& slice) { return slice_text({slice, 0, 0, 0}, 1, 1); }

std::string to_text(const Schedule& schedule, const Step& step) {
  LoopStep at;
  at.step = step;
  at.dst.slice = step.dst;
  for (const Slice& source : schedule.sources_of(step)) at.sources.push_back({source, 0, 0, 0});
  std::string text = verb_text(at, 1, 1);
  if (step.channel != 0) text += fmt::format(" on {}", step.channel);
  const auto dependencies = schedule.dependencies_of(step);
  for (std::size_t i = 0; i < dependencies.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? " after " : " ", dependencies[i]);
  return text;
}

std::string print_schedule(const Schedule& schedule, TextForm form) {
  std::string text = header_text(schedule);
  std::uint32_t index = 0;
  const RolledSchedule rolled = roll(schedule, form == TextForm::rolled);
  for (const Loop& loop : rolled.loops) {
    const bool in_loop = loop.turns > 1;
    if (in_loop) text += fmt::format("repeat {}\n", loop.turns);
    for (const LoopStep& step : loop.body) {
      if (form == TextForm::plain) text += fmt::format("{:>4}: ", index);
      if (form == TextForm::rolled) text += in_loop ? "    " : "  ";
      text += step_text(step, schedule.atoms(), schedule.size, in_loop, index++) + "\n";
    }
    if (!in_loop) continue;
    text += "end\n";
    index += (loop.turns - 1) * static_cast<std::uint32_t>(loop.body.size());
  }
  return text;
}

}  // namespace tutti
