// Second half of the lowering: puts a signal and a wait between two accesses of different ranks where no
// other edge implies the order of one execution (lower_events.hpp). Vector clocks over the threads (rank,
// channel) tell the implied orders, so fanout and elide need no rule of their own. Every edge points forward
// in that one execution: no deadlock.
#include "runtime/schedule/passes/lower.hpp"

#include <algorithm>
#include <utility>

#include "runtime/schedule/check_steps.hpp"
#include "runtime/schedule/passes/fuse.hpp"
#include "runtime/schedule/passes/in_place.hpp"
#include "runtime/schedule/passes/lower_events.hpp"
#include "runtime/schedule/passes/stage.hpp"
#include "runtime/schedule/verify.hpp"

namespace tutti {

namespace {

using detail::location;
using detail::LoweredEvent;
using Clock = std::vector<std::uint32_t>;

// Step number `position` (from 1) of a thread; position 1 is a mark for "the rank has entered" and no step.
struct Epoch {
  std::uint32_t thread = 0;
  std::uint32_t position = 0;
};

struct Item {
  Step step;
  std::vector<Slice> sources;
  std::vector<Epoch> after;  // steps of other threads of the rank
  Epoch waited_for;          // wait: the item whose signal it waits for
  bool is_signalled = false;
  std::uint32_t order = 0;  // position in the global order
  Clock clock;              // by thread: the steps known to be over when this one is done
};

struct Location {
  Epoch writer;  // position 0: nobody yet
  std::vector<Epoch> readers;
};

class Synchroniser {
 public:
  explicit Synchroniser(std::span<const Schedule> ranks) : ranks_(ranks) {
    std::size_t locations = 0;
    for (const Schedule& s : ranks) {
      channels_ = std::max(channels_, s.channels);
      base_.push_back(locations);
      locations += detail::location_count(s);
    }
    memory_.resize(locations);
    threads_.resize(ranks.size() * channels_);
    for (std::uint32_t t = 0; t < threads_.size(); ++t) {
      threads_[t].push_back({});
      threads_[t][0].clock.assign(threads_.size(), 0);
      threads_[t][0].clock[t] = 1;
      threads_[t][0].order = order_++;
    }
  }

  void add(const LoweredEvent& event) {
    const std::uint32_t thread = event.rank * channels_ + event.channel;
    Item item = begin(thread, event.verb);
    item.step.dst = event.dst;
    item.sources = event.sources;
    std::vector<Epoch> needed;
    for (const Slice& source : event.sources) collect(thread, source, false, needed);
    collect(thread, event.dst, true, needed);
    order_after(thread, needed, item);
    const Epoch here = append(thread, std::move(item));
    for (const Slice& source : event.sources) record(here, source, false);
    record(here, event.dst, true);
  }

  // A rank waits at its end for all who may still use its memory.
  void finish() {
    for (const Schedule& s : ranks_) {
      std::vector<Epoch> needed;
      for (std::uint32_t where = 0; where < detail::location_count(s); ++where) {
        const Location& at = memory_[base_[s.rank] + where];
        if (at.writer.position != 0) needed.push_back(at.writer);
        needed.insert(needed.end(), at.readers.begin(), at.readers.end());
      }
      sort_latest_first(needed);
      for (const Epoch& x : needed) {
        bool is_known = rank_of(x.thread) == s.rank;
        for (std::uint32_t c = 0; c < channels_; ++c) is_known = is_known || knows(s.rank * channels_ + c, x);
        if (!is_known) append_wait(s.rank * channels_ + x.thread % channels_, x);
      }
    }
  }

  // Where a rank makes many values known one after the other and waits for nothing in between, the last signal
  // serves the waiters of all. It comes later than theirs by local steps only, so every order that a wait gave
  // holds, and nobody waits in a circle who did not before.
  void merge_signals() {
    if (channels_ != 1) return;                               // a step may depend on another thread's wait
    std::vector<std::vector<std::uint32_t>> serving_threads;  // by thread and position: whose signal serves
    for (std::uint32_t t = 0; t < threads_.size(); ++t) {
      std::vector<std::uint32_t> serving(threads_[t].size() + 1);
      for (std::uint32_t first = 1; first <= threads_[t].size();) {
        const std::uint32_t end = end_of_run(t, first);
        std::uint32_t last = 0, count = 0;
        for (std::uint32_t i = first; i < end; ++i) {
          if (!item({t, i}).is_signalled) continue;
          last = i;
          ++count;
        }
        for (std::uint32_t i = first; i < end; ++i) {
          serving[i] = count < kManySignals ? i : last;
          threads_[t][i - 1].is_signalled = threads_[t][i - 1].is_signalled && serving[i] == i;
        }
        first = end;
      }
      serving_threads.push_back(std::move(serving));
    }
    for (std::vector<Item>& items : threads_) {
      for (Item& item : items)
        if (item.step.verb == Verb::wait)
          item.waited_for.position = serving_threads[item.waited_for.thread][item.waited_for.position];
    }
  }

  // Whether the rank knows that every other rank has entered.
  bool hears_from_all(std::uint32_t rank) const {
    for (const Schedule& other : ranks_) {
      bool is_known = other.rank == rank;
      for (std::uint32_t c = 0; c < channels_ * channels_ && !is_known; ++c) {
        const std::uint32_t thread = rank * channels_ + c / channels_;
        is_known = knows(thread, {other.rank * channels_ + c % channels_, 1});
      }
      if (!is_known) return false;
    }
    return true;
  }

  std::vector<Schedule> schedules();

 private:
  // A short message travels in the flag line of a signal of its own. So few signals keep that.
  static constexpr std::uint32_t kManySignals = 16;

  // Behind the items, from `first` on, before the next wait.
  std::uint32_t end_of_run(std::uint32_t thread, std::uint32_t first) const {
    std::uint32_t end = first + 1;
    while (end <= threads_[thread].size() && item({thread, end}).step.verb != Verb::wait) ++end;
    return end;
  }

  std::uint32_t rank_of(std::uint32_t thread) const { return thread / channels_; }
  Clock& clock(std::uint32_t thread) { return threads_[thread].back().clock; }
  bool knows(std::uint32_t thread, const Epoch& x) const {
    return threads_[thread].back().clock[x.thread] >= x.position;
  }
  const Item& item(const Epoch& x) const { return threads_[x.thread][x.position - 1]; }
  Location& at(std::uint32_t thread, const Slice& slice, std::uint32_t k) {
    const std::uint32_t owner = owner_of(thread, slice);
    return memory_[base_[owner] + location(ranks_[owner], slice, k)];
  }
  std::uint32_t owner_of(std::uint32_t thread, const Slice& slice) const {
    return slice.owner == kSelf ? rank_of(thread) : static_cast<std::uint32_t>(slice.owner);
  }

  Item begin(std::uint32_t thread, Verb verb) const {
    Item item;
    item.step.verb = verb;
    item.step.channel = static_cast<std::uint16_t>(thread % channels_);
    return item;
  }
  Epoch append(std::uint32_t thread, Item item) {
    // The clock of the thread moves on with its last item; older items keep theirs for later joins.
    if (item.clock.empty()) item.clock = clock(thread);
    item.order = order_++;
    threads_[thread].push_back(std::move(item));
    const auto position = static_cast<std::uint32_t>(threads_[thread].size());
    clock(thread)[thread] = position;
    return {thread, position};
  }

  // Adds the accesses that this one must follow, unless the thread knows that they are over.
  void collect(std::uint32_t thread, const Slice& slice, bool is_write, std::vector<Epoch>& needed) {
    const std::uint32_t owner = owner_of(thread, slice);
    bool has_entered = owner == rank_of(thread);
    for (std::uint32_t c = 0; c < channels_; ++c)
      has_entered = has_entered || knows(thread, {owner * channels_ + c, 1});
    if (!has_entered) needed.push_back({owner * channels_ + thread % channels_, 1});
    for (std::uint32_t k = 0; k < slice.count; ++k) {
      const Location& here = at(thread, slice, k);
      if (here.writer.position != 0 && !knows(thread, here.writer)) needed.push_back(here.writer);
      if (!is_write) continue;
      for (const Epoch& reader : here.readers)
        if (!knows(thread, reader)) needed.push_back(reader);
    }
  }

  void record(const Epoch& here, const Slice& slice, bool is_write) {
    for (std::uint32_t k = 0; k < slice.count; ++k) {
      Location& there = at(here.thread, slice, k);
      if (is_write) {
        there.writer = here;
        there.readers.clear();
      } else if (there.readers.empty() || there.readers.back().thread != here.thread) {
        there.readers.push_back(here);
      } else {
        there.readers.back() = here;
      }
    }
  }

  // The latest access often implies the others, so it comes first.
  void sort_latest_first(std::vector<Epoch>& epochs) const {
    std::sort(epochs.begin(), epochs.end(),
              [this](const Epoch& a, const Epoch& b) { return item(a).order > item(b).order; });
  }

  void order_after(std::uint32_t thread, std::vector<Epoch>& needed, Item& next) {
    sort_latest_first(needed);
    Clock known = clock(thread);
    const auto join = [&](const Clock& more) {
      for (std::size_t t = 0; t < known.size(); ++t) known[t] = std::max(known[t], more[t]);
    };
    for (Epoch x : needed) {
      if (known[x.thread] >= x.position) continue;
      if (rank_of(x.thread) != rank_of(thread)) {
        // A wait reads the flag of its own channel; a thread of another channel depends on that wait.
        const std::uint32_t waiting = rank_of(thread) * channels_ + x.thread % channels_;
        x = append_wait(waiting, x);
        if (waiting == thread) {
          join(clock(thread));
          continue;
        }
      }
      next.after.push_back(x);
      join(item(x).clock);
    }
    next.clock = std::move(known);
  }

  // Appends a wait for x. The signal comes after the stores of the same value that follow x, none of which waits.
  Epoch append_wait(std::uint32_t thread, Epoch x) {
    std::vector<Item>& theirs = threads_[x.thread];
    std::uint32_t position = x.position;
    while (position < theirs.size() && !theirs[position - 1].is_signalled &&
           continues_stores(theirs[position - 1], theirs[position]))
      ++position;
    theirs[position - 1].is_signalled = true;
    Item item = begin(thread, Verb::wait);
    item.waited_for = {x.thread, position};
    item.step.peer = rank_of(x.thread);
    item.clock = clock(thread);
    for (std::size_t t = 0; t < item.clock.size(); ++t)
      item.clock[t] = std::max(item.clock[t], theirs[position - 1].clock[t]);
    return append(thread, std::move(item));
  }
  static bool continues_stores(const Item& one, const Item& next) {
    if (next.step.verb != Verb::copy || !next.after.empty() || one.sources.empty()) return false;
    return next.sources[0] == one.step.dst ||
           (one.step.verb == Verb::copy && next.sources[0] == one.sources[0]);
  }

  std::span<const Schedule> ranks_;
  std::uint32_t channels_ = 1, order_ = 0;
  std::vector<std::size_t> base_;  // by rank, of memory_
  std::vector<Location> memory_;
  std::vector<std::vector<Item>> threads_;
};

// Renumbers the scratch slots that are still used, without gaps; a slice's slots stay neighbours.
void keep_used_slots(std::vector<Schedule>& ranks) {
  std::vector<std::vector<std::uint32_t>> number(ranks.size());  // by owner and old slot
  const auto for_each_slice = [&](const auto& visit) {
    for (Schedule& s : ranks) {
      const auto visit_scratch = [&](Slice& slice) {
        if (slice.buffer == Buffer::scratch)
          visit(slice.owner == kSelf ? s.rank : static_cast<std::uint32_t>(slice.owner), slice);
      };
      for (Slice& source : s.sources) visit_scratch(source);
      for (Step& step : s.steps)
        if (detail::writes(step.verb)) visit_scratch(step.dst);
    }
  };
  for_each_slice([&](std::uint32_t owner, const Slice& slice) {
    number[owner].resize(std::max<std::size_t>(number[owner].size(), slice.slot + slice.count), 0);
    std::fill_n(number[owner].begin() + slice.slot, slice.count, 1U);
  });
  for (Schedule& s : ranks) {
    s.scratch_slots = 0;
    for (std::uint32_t& slot : number[s.rank]) {
      if (slot != 0) slot = s.scratch_slots++;
    }
  }
  for_each_slice([&](std::uint32_t owner, Slice& slice) { slice.slot = number[owner][slice.slot]; });
}

// Numbers signals and steps, and merges the threads of each rank in the global order.
std::vector<Schedule> Synchroniser::schedules() {
  std::vector<std::vector<std::uint32_t>> sequence(threads_.size());  // by item: the sequence that covers it
  for (std::size_t t = 0; t < threads_.size(); ++t) {
    std::uint32_t next = 1;
    for (const Item& item : threads_[t]) sequence[t].push_back(item.is_signalled ? next++ : 0);
  }
  std::vector<Schedule> result;
  for (const Schedule& s : ranks_) {
    Schedule to = s;
    to.steps.clear();
    to.sources.clear();
    to.dependencies.clear();
    to.scratch_slots = 0;
    std::vector<Epoch> order;
    for (std::uint32_t t = s.rank * channels_; t < (s.rank + 1) * channels_; ++t)
      for (std::uint32_t i = 1; i <= threads_[t].size(); ++i) order.push_back({t, i});
    std::sort(order.begin(), order.end(),
              [this](const Epoch& a, const Epoch& b) { return item(a).order < item(b).order; });
    std::vector<std::vector<std::uint32_t>> number(threads_.size());
    std::vector<std::uint32_t> after;
    for (const Epoch& x : order) {
      const Item& it = item(x);
      number[x.thread].push_back(static_cast<std::uint32_t>(to.steps.size()));
      if (x.position > 1) {
        Step step = it.step;
        if (step.verb == Verb::wait)
          step.sequence = sequence[it.waited_for.thread][it.waited_for.position - 1];
        after.clear();
        for (const Epoch& d : it.after) after.push_back(number[d.thread][d.position - 1]);
        std::sort(after.begin(), after.end());
        to.append(step, it.sources, after);
      }
      if (!it.is_signalled) continue;
      Step signal = begin(x.thread, Verb::signal).step;
      signal.sequence = sequence[x.thread][x.position - 1];
      to.append(signal, {}, {});
    }
    result.push_back(std::move(to));
  }
  keep_used_slots(result);
  return result;
}

}  // namespace

Result<std::vector<Schedule>> lower_for_shared_memory(std::span<const Schedule> ranks, Sharing sharing) {
  const bool is_staged = sharing == Sharing::scratch;
  std::vector<Schedule> staged;
  if (is_staged) {
    for (const Schedule& s : ranks) staged.push_back(stage(s));
    ranks = staged;
  }
  auto events = detail::lower_to_events(ranks, !is_staged);
  if (!events) return events.status();
  Synchroniser synchroniser(ranks);
  for (const LoweredEvent& event : *events) synchroniser.add(event);
  if (!is_staged) synchroniser.finish();
  synchroniser.merge_signals();
  std::vector<Schedule> lowered = synchroniser.schedules();
  for (Schedule& s : lowered) {
    s.is_staged = is_staged;
    s.hears_from_all = synchroniser.hears_from_all(s.rank);
    s = fuse(std::move(s));
  }
  return lowered;
}

std::string_view to_string(Sharing sharing) { return sharing == Sharing::scratch ? "staged" : "direct"; }

bool is_right_in_place(std::vector<Schedule> lowered) {
  for (Schedule& s : lowered) s = put_input_into_output(s);
  return verify(lowered, Algebra::multiset).is_ok();
}

}  // namespace tutti
