// The rules of fusion in one place (FusionRules), used to set marks and to check them.
#include "runtime/schedule/passes/fuse.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/schedule/check_steps.hpp"

namespace tutti {

namespace {

using detail::location;

class FusionRules {
 public:
  explicit FusionRules(const Schedule& s) : s_(s), wanted_(s), order_(s) {
    // Program order says what must be ordered, whatever dependencies an earlier pass has dropped.
    infer_dependencies(wanted_);
    find_next_in_channel();
    find_readers();
  }

  // Status::ok or the reason; `head` is the first step of the chain that `first` ends.
  Status allow(std::uint32_t head, std::uint32_t first, std::uint32_t second) {
    if (second <= first || second >= s_.steps.size()) return refuse("the second step is not a later one");
    const Verb verb = s_.steps[first].verb, next = s_.steps[second].verb;
    if (s_.steps[first].channel != s_.steps[second].channel) return refuse("they run on different channels");
    if (verb == Verb::recv && next == Verb::reduce) return allow_arrival(first, second);
    if (verb != Verb::copy && verb != Verb::reduce)
      return refuse("only recv, copy and reduce start a fusion");
    if (next_[first] != second) return refuse("another step of the channel lies between them");
    if (next != Verb::send && next != Verb::copy) return refuse("only send, copy and reduce end a fusion");
    return allow_result(head, first, second);
  }
  std::uint32_t next_in_channel(std::uint32_t step) const { return next_[step]; }
  // The only step that reads what `step` writes, or kNotFused.
  std::uint32_t only_reader(std::uint32_t step) const { return reader_[step]; }

 private:
  static constexpr std::uint32_t kSeveral = ~0U - 1;
  static Status refuse(const char* why) { return internal_error(why); }

  void find_next_in_channel() {
    next_.assign(s_.steps.size(), kNotFused);
    std::vector<std::uint32_t> last(s_.channels, kNotFused);
    for (std::uint32_t i = 0; i < s_.steps.size(); ++i) {
      std::uint32_t& before = last[s_.steps[i].channel];
      if (before != kNotFused) next_[before] = i;
      before = i;
    }
  }

  void find_readers() {
    reader_.assign(s_.steps.size(), kNotFused);
    std::vector<std::uint32_t> writer(detail::location_count(s_), kNotFused);
    for (std::uint32_t i = 0; i < s_.steps.size(); ++i) {
      const Step& step = s_.steps[i];
      for (const Slice& source : s_.sources_of(step)) {
        if (source.owner != kSelf) continue;
        for (std::uint32_t k = 0; k < source.count; ++k) {
          const std::uint32_t from = writer[location(s_, source, k)];
          if (from != kNotFused)
            reader_[from] = reader_[from] == kNotFused || reader_[from] == i ? i : kSeveral;
        }
      }
      if (!detail::writes(step.verb) || step.dst.owner != kSelf) continue;
      for (std::uint32_t k = 0; k < step.dst.count; ++k) writer[location(s_, step.dst, k)] = i;
    }
  }

  // Linear in both: slices of hundreds of blocks are compared with hundreds of others.
  bool overlap(const Slice& a, const Slice& b) {
    if (a.owner != b.owner) return false;
    ++comparison_;
    for (std::uint32_t i = 0; i < a.count; ++i) {
      const std::uint32_t at = location(s_, a, i);
      if (at >= seen_at_.size()) seen_at_.resize(at + 1, 0);  // another owner may have more scratch
      seen_at_[at] = comparison_;
    }
    for (std::uint32_t k = 0; k < b.count; ++k) {
      const std::uint32_t at = location(s_, b, k);
      if (at < seen_at_.size() && seen_at_[at] == comparison_) return true;
    }
    return false;
  }

  Status allow_arrival(std::uint32_t recv, std::uint32_t reduce) {
    const Slice& arrived = s_.steps[recv].dst;
    if (arrived.buffer != Buffer::scratch) return refuse("what arrives is kept, not only reduced");
    if (reader_[recv] != reduce) return refuse("another step reads what arrives, too");
    int found = 0;
    for (const Slice& source : s_.sources_of(s_.steps[reduce])) {
      if (source == arrived) {
        ++found;
      } else if (overlap(source, arrived)) {
        return refuse("a source covers only a part of what arrives");
      }
    }
    if (found != 1) return refuse("what arrives is not exactly one source");
    if (overlap(s_.steps[reduce].dst, arrived)) return refuse("the sum replaces what arrives");
    for (const std::uint32_t d : wanted_.dependencies_of(wanted_.steps[reduce])) {
      if (d != recv && !order_.is_complete_before(d, recv))
        return refuse("the reduce waits for a step that may complete after the message has come");
    }
    return {};
  }

  Status allow_result(std::uint32_t head, std::uint32_t first, std::uint32_t second) {
    const Step &one = s_.steps[first], &two = s_.steps[second];
    const Slice& passed = s_.sources_of(two)[0];
    const bool repeats = one.verb == Verb::copy && s_.sources_of(one)[0] == passed;
    if (passed != one.dst && !repeats) return refuse("the second step does not take what the first wrote");
    if (two.verb == Verb::copy) {
      // All sources are loaded before anything is stored, element by element: a store may replace a source at
      // its own place, never at another.
      for (const Slice& source : s_.sources_of(s_.steps[head])) {
        if (source != two.dst && overlap(source, two.dst))
          return refuse("a store hits a source that is still read");
      }
      if (overlap(one.dst, two.dst)) return refuse("both write one place");
    }
    for (const std::uint32_t d : wanted_.dependencies_of(wanted_.steps[second])) {
      if (d < head && !order_.is_complete_before(d, head))
        return refuse("the second step waits for one that the first does not wait for");
    }
    return {};
  }

  const Schedule& s_;
  Schedule wanted_;
  detail::OrderSearch order_;
  std::vector<std::uint32_t> next_, reader_;
  std::vector<std::uint64_t> seen_at_;  // by location: the comparison that found it last
  std::uint64_t comparison_ = 0;
};

// The first step of the chain that each step belongs to.
void extend_chain(std::vector<std::uint32_t>& head, const Schedule& s, std::uint32_t step) {
  const std::uint32_t next = s.steps[step].fused_with;
  if (s.steps[step].verb != Verb::recv) head[next] = head[step];  // an arrival starts no chain of stores
}

std::vector<std::uint32_t> own_heads(const Schedule& s) {
  std::vector<std::uint32_t> head(s.steps.size());
  for (std::uint32_t i = 0; i < head.size(); ++i) head[i] = i;
  return head;
}

}  // namespace

Schedule fuse(Schedule s) {
  for (Step& step : s.steps) step.fused_with = kNotFused;
  FusionRules rules(s);
  std::vector<std::uint32_t> head = own_heads(s);
  for (std::uint32_t i = 0; i < s.steps.size(); ++i) {
    const Verb verb = s.steps[i].verb;
    const std::uint32_t next = verb == Verb::recv ? rules.only_reader(i) : rules.next_in_channel(i);
    if (next >= s.steps.size() || !rules.allow(head[i], i, next)) continue;
    s.steps[i].fused_with = next;
    extend_chain(head, s, i);
  }
  return s;
}

Status check_fusion(const Schedule& s) {
  const auto is_marked = [](const Step& step) { return step.fused_with != kNotFused; };
  if (std::none_of(s.steps.begin(), s.steps.end(), is_marked)) return {};
  FusionRules rules(s);
  std::vector<std::uint32_t> head = own_heads(s);
  for (std::uint32_t i = 0; i < s.steps.size(); ++i) {
    const std::uint32_t next = s.steps[i].fused_with;
    if (next == kNotFused) continue;
    if (const Status why = rules.allow(head[i], i, next); !why)
      return internal_error(fmt::format("{}: fused with step {}, which is not safe: {}",
                                        detail::describe_step(s, i), next, why.message()));
    extend_chain(head, s, i);
  }
  return {};
}

}  // namespace tutti
