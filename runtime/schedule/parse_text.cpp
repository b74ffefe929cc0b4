// The parser of the text form: recursive descent over one line at a time. Every mistake names line, column
// and what would have been right. Bounded in time and memory for any input: lines are read once, and unroll()
// limits what loops expand to.
#include <algorithm>
#include <charconv>
#include <limits>

#include <fmt/format.h>

#include "runtime/schedule/loop_form.hpp"
#include "runtime/schedule/text.hpp"

namespace tutti {

namespace {

constexpr std::uint32_t kMaxNumber = std::numeric_limits<std::uint32_t>::max();

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<std::vector<Schedule>> run() {
    while (next_line()) {
      if (is_word("schedule")) {
        if (!finish_schedule()) return status_;
        parse_header();
      } else if (!has_header_) {
        expected("'schedule'");
      } else {
        parse_body_line();
      }
      if (status_ && !at_end()) expected("the end of the line");
      if (!status_) return status_;
    }
    if (!finish_schedule()) return status_;
    return std::move(schedules_);
  }

 private:
  // ---- characters -----------------------------------------------------------------------------------------
  bool next_line() {
    while (offset_ < text_.size()) {
      const std::size_t end = std::min(text_.find('\n', offset_), text_.size());
      line_ = text_.substr(offset_, end - offset_);
      line_ = line_.substr(0, line_.find('#'));
      offset_ = end + 1;
      ++line_number_;
      at_ = 0;
      skip_space();
      if (!at_end()) return true;
    }
    return false;
  }
  void skip_space() {
    while (at_ < line_.size() && (line_[at_] == ' ' || line_[at_] == '\t' || line_[at_] == '\r')) ++at_;
  }
  bool at_end() const { return at_ >= line_.size(); }
  bool at_digit() const { return !at_end() && line_[at_] >= '0' && line_[at_] <= '9'; }

  std::string_view word() const {
    std::size_t end = at_;
    while (end < line_.size() && ((line_[end] >= 'a' && line_[end] <= 'z') || line_[end] == '_')) ++end;
    return line_.substr(at_, end - at_);
  }
  // Takes the word or sign if it is next.
  bool is_word(std::string_view wanted) {
    if (word() != wanted) return false;
    at_ += wanted.size();
    skip_space();
    return true;
  }
  bool is_sign(char wanted) {
    if (at_end() || line_[at_] != wanted) return false;
    ++at_;
    skip_space();
    return true;
  }

  void expected(std::string_view what) {
    if (!status_) return;
    std::string found = at_end() ? "the end of the line" : std::string(word());
    if (found.empty()) found = std::string(1, line_[at_]);
    for (char& c : found)
      if (c < ' ' || c > '~') c = '?';
    status_ = invalid_argument(
        fmt::format("line {}, column {}: expected {}, found '{}'", line_number_, at_ + 1, what, found));
  }
  void need_word(std::string_view wanted) {
    if (status_ && !is_word(wanted)) expected(fmt::format("'{}'", wanted));
  }
  void need_sign(char wanted) {
    if (status_ && !is_sign(wanted)) expected(fmt::format("'{}'", wanted));
  }
  std::uint32_t need_number(std::string_view what, std::uint32_t least = 0, std::uint32_t most = kMaxNumber) {
    if (!status_) return least;  // behind a mistake the values only have to be harmless
    std::uint32_t value = 0;
    const char* const begin = line_.data() + at_;
    const auto [end, error] = std::from_chars(begin, line_.data() + line_.size(), value);
    if (!at_digit() || error != std::errc() || value < least || value > most) {
      const bool is_bounded = least > 0 || most < kMaxNumber;
      expected(is_bounded ? fmt::format("{} ({}-{})", what, least, most) : std::string(what));
      return least;
    }
    at_ += static_cast<std::size_t>(end - begin);
    skip_space();
    return value;
  }
  // "~-3": what a number advances by each turn; 0 where there is none.
  std::int64_t advance() {
    if (!status_ || !is_sign('~')) return 0;
    if (turns_ == 0) {
      expected("a number that stays the same: this step is in no loop");
      return 0;
    }
    const bool is_negative = is_sign('-');
    const std::int64_t by = need_number("by how much it advances");
    return is_negative ? -by : by;
  }
  std::uint32_t advance_modulo(std::uint32_t modulus) {
    const std::int64_t by = advance();
    if (modulus == 0) return 0;  // the header was refused and gave no grid
    const std::int64_t rest = by % std::int64_t{modulus};
    return static_cast<std::uint32_t>(rest < 0 ? rest + modulus : rest);
  }

  // ---- the grammar ----------------------------------------------------------------------------------------
  void parse_header() {
    has_header_ = true;
    header_line_ = line_number_;
    rolled_ = {};
    steps_ = 0;
    Schedule& s = rolled_.header;
    const auto collective = parse_collective(word());
    if (!collective) return expected("a collective (allreduce, broadcast, ...)");
    at_ += word().size();
    skip_space();
    s.collective = *collective;
    need_word("rank");
    s.rank = need_number("a rank", 0, kMaxGrid);
    need_word("of");
    s.size = need_number("the number of ranks", 1, kMaxGrid);
    if (is_word("root")) s.root = need_number("the root", 0, kMaxGrid);
    if (is_word("in")) {
      need_word("place");
      s.in_place = true;
    }
    s.is_staged = is_word("staged");
    if (is_word("hears")) {
      need_word("all");
      s.hears_from_all = true;
    }
    if (is_word("wire")) {
      need_word("copies");
      s.has_wire_copies = true;
    }
    need_word("blocks");
    s.blocks = need_number("the number of blocks", 1, kMaxGrid);
    need_word("segments");
    s.segments = need_number("the number of segments", 1, kMaxGrid / s.blocks);
    need_word("slots");
    s.scratch_slots = need_number("the number of scratch slots", 0, kMaxGrid);
    need_word("channels");
    s.channels = need_number("the number of channels", 1, std::numeric_limits<std::uint16_t>::max());
  }

  void parse_body_line() {
    if (is_word("repeat")) {
      if (turns_ != 0) return expected("a step or 'end': loops do not nest");
      turns_ = need_number("how often", 1, static_cast<std::uint32_t>(kMaxSteps));
      body_.clear();
      return;
    }
    if (is_word("end")) {
      if (turns_ == 0) {
        at_ = 0;
        skip_space();
        return expected("a step, 'repeat' or 'schedule': no loop is open");
      }
      if (body_.empty()) return expected("a step before 'end'");
      steps_ += (turns_ - 1ULL) * body_.size();
      rolled_.loops.push_back({turns_, std::move(body_)});
      body_.clear();
      turns_ = 0;
      return;
    }
    LoopStep step = parse_step();
    if (!status_) return;
    if (steps_++ >= kMaxSteps) return expected(fmt::format("at most {} steps", kMaxSteps));
    if (turns_ != 0) {
      body_.push_back(std::move(step));
    } else {
      rolled_.loops.push_back({1, {}});
      rolled_.loops.back().body.push_back(std::move(step));
    }
  }

  LoopStep parse_step() {
    LoopStep at;
    if (at_digit()) {
      const auto index = static_cast<std::uint32_t>(steps_);
      if (turns_ != 0) expected("a verb: steps of a loop have no number");
      need_number(fmt::format("step number {}", index), index, index);
      need_sign(':');
    }
    parse_verb(at);
    if (is_word("on")) {
      const std::uint32_t last = rolled_.header.channels - 1;
      at.step.channel = static_cast<std::uint16_t>(need_number("a channel", 0, last));
    }
    if (is_word("after")) {
      do at.dependencies.push_back(parse_dependency());
      while (status_ && !at_end() && (at_digit() || line_[at_] == '-'));
    }
    if (status_ && is_word("fused")) at.fused_ahead = parse_fusion();
    return at;
  }

  void parse_verb(LoopStep& at) {
    if (!status_) return;
    Step& step = at.step;
    if (is_word("send")) {
      step.verb = Verb::send;
      at.sources.push_back(parse_slice());
      need_word("to");
      parse_peer(at);
    } else if (is_word("recv")) {
      step.verb = Verb::recv;
      at.dst = parse_slice();
      need_word("from");
      parse_peer(at);
    } else if (word() == "copy" || word() == "reduce") {
      step.verb = is_word("copy") ? Verb::copy : Verb::reduce;
      if (step.verb == Verb::reduce) is_word("reduce");
      at.dst = parse_slice();
      need_sign('=');
      do at.sources.push_back(parse_slice());
      while (status_ && step.verb == Verb::reduce && is_sign('+'));
    } else if (is_word("signal") || is_word("publish")) {  // `publish`, `await`: deprecated names
      step.verb = Verb::signal;
      parse_sequence(at);
    } else if (is_word("wait") || is_word("await")) {
      step.verb = Verb::wait;
      parse_sequence(at);
      need_word("of");
      parse_peer(at);
    } else {
      expected("send, recv, copy, reduce, signal, wait, repeat or end");
    }
  }
  void parse_peer(LoopStep& at) {
    at.step.peer = need_number("a rank", 0, rolled_.header.size - 1);
    at.peer_advance = advance_modulo(rolled_.header.size);
  }
  void parse_sequence(LoopStep& at) {
    at.step.sequence = need_number("the number of a signal", 1);
    at.sequence_advance = advance();
  }

  LoopSlice parse_slice() {
    LoopSlice at;
    if (!status_) return at;
    const Schedule& s = rolled_.header;
    at.slice.is_wire = is_word("wire");
    if (is_word("input")) {
      at.slice.buffer = Buffer::input;
    } else if (is_word("scratch")) {
      at.slice.buffer = Buffer::scratch;
    } else if (!is_word("output")) {
      expected(
          "a slice: input[...], output[...] or scratch.SLOT[...], after 'wire' where its wire copy is meant");
      return at;
    }
    if (is_sign('@')) {
      at.slice.owner = static_cast<std::int32_t>(need_number("a rank", 0, s.size - 1));
      at.owner_advance = advance_modulo(s.size);
    }
    if (at.slice.buffer == Buffer::scratch) {
      need_sign('.');
      const std::uint32_t slots = at.slice.owner == kSelf ? s.scratch_slots : kMaxGrid;
      if (slots == 0) expected("no scratch: the schedule has 0 slots");
      if (status_) at.slice.slot = need_number("a scratch slot", 0, slots - 1);
      at.slot_advance = advance();
    }
    need_sign('[');
    at.slice.first = need_number("an atom", 0, s.atoms() - 1);
    at.first_advance = advance_modulo(s.atoms());
    if (status_ && is_sign('+')) {
      at.slice.count = need_number("the number of atoms", 1, s.atoms());
      if (status_ && is_sign('*')) at.slice.stride = need_number("a stride");
    }
    need_sign(']');
    return at;
  }

  // "3", the number of an earlier step, or "-3", the third step before this one; as a distance.
  LoopDependency parse_dependency() {
    LoopDependency d;
    if (is_sign('-')) {
      d.back = need_number("how many steps before", 1);
      d.advance = advance();
    } else if (turns_ != 0) {
      expected("'-' and a distance: steps of a loop have no number");
    } else if (steps_ == 0) {
      expected("no dependency: this is the first step");
    } else {
      const auto index = static_cast<std::uint32_t>(steps_);
      d.back = index - need_number("an earlier step", 0, index - 1);
    }
    return d;
  }
  std::uint32_t parse_fusion() {
    if (is_sign('+')) return need_number("how many steps further", 1, static_cast<std::uint32_t>(kMaxSteps));
    const auto index = static_cast<std::uint32_t>(steps_);
    return need_number("a later step or '+' and a distance", index + 1,
                       index + static_cast<std::uint32_t>(kMaxSteps)) -
           index;
  }

  bool finish_schedule() {
    if (status_ && turns_ != 0) {
      status_ = invalid_argument(fmt::format("line {}: 'end' is missing", line_number_));
    }
    if (!status_ || !has_header_) return status_.is_ok();
    auto schedule = unroll(rolled_);
    if (!schedule) {
      status_ = schedule.status().with_context(fmt::format("schedule of line {}", header_line_));
      return false;
    }
    total_steps_ += schedule->steps.size();
    if (total_steps_ > 4 * kMaxSteps) {
      status_ =
          invalid_argument(fmt::format("line {}: more than {} steps in all", line_number_, 4 * kMaxSteps));
      return false;
    }
    schedules_.push_back(*std::move(schedule));
    return true;
  }

  std::string_view text_, line_;
  std::size_t offset_ = 0, at_ = 0, line_number_ = 0, header_line_ = 0;
  Status status_;
  std::vector<Schedule> schedules_;
  std::uint64_t total_steps_ = 0;
  bool has_header_ = false;
  RolledSchedule rolled_;       // the schedule being read
  std::uint64_t steps_ = 0;     // its steps so far, unrolled but for the open loop
  std::uint32_t turns_ = 0;     // of the open loop; 0: none is open
  std::vector<LoopStep> body_;  // of the open loop
};

}  // namespace

Result<std::vector<Schedule>> parse_schedules(std::string_view text) { return Parser(text).run(); }

Result<Schedule> parse_schedule(std::string_view text) {
  auto all = parse_schedules(text);
  if (!all) return all.status();
  if (all->size() != 1) return invalid_argument(fmt::format("expected one schedule, found {}", all->size()));
  return std::move(all->front());
}

}  // namespace tutti
