// Borrow, place or pull: decided per message from what the schedules do with its two ends.
// The global order is by rounds: messages of round d, then the local steps that needed them, then round d
// + 1. Dependencies never point forward in it, so whoever keeps to it cannot deadlock.
#include "runtime/schedule/passes/lower_events.hpp"

#include <algorithm>
#include <tuple>

#include "runtime/schedule/check_steps.hpp"
#include "runtime/schedule/symbolic_run.hpp"

namespace tutti::detail {

namespace {

constexpr std::uint32_t kNobody = ~0U;
constexpr std::uint32_t kNever = ~0U;

// How the steps of one rank depend on each other through memory.
struct Uses {
  std::vector<std::vector<std::uint32_t>> readers;  // by recv: the steps that read what it wrote
  std::vector<std::uint32_t> next_write;  // by send: round in which a location it reads is written next
  std::vector<std::uint32_t> producer;    // by send: the local step that wrote exactly its slice
};

class EventMaker {
 public:
  EventMaker(std::span<const Schedule> ranks, const SymbolicRun& run, bool may_place)
      : ranks_(ranks), run_(run), may_place_(may_place) {
    for (const Schedule& s : ranks) uses_.push_back(find_uses(s));
    for (const Schedule& s : ranks) borrowed_.emplace_back(s.steps.size(), false);
    for (const Schedule& s : ranks) decide_borrows(s);
  }

  std::vector<LoweredEvent> run() {
    using Key = std::tuple<std::uint32_t, bool, std::uint32_t, std::uint32_t>;  // round, is local, step, rank
    std::vector<Key> order;
    for (const Schedule& s : ranks_) {
      for (std::uint32_t i = 0; i < s.steps.size(); ++i) {
        const Verb verb = s.steps[i].verb;
        if (verb == Verb::send || borrowed_[s.rank][i]) continue;
        order.emplace_back(run_.depth(s.rank, i), verb != Verb::recv, i, s.rank);
      }
    }
    std::sort(order.begin(), order.end());
    std::vector<LoweredEvent> events;
    events.reserve(order.size());
    for (const auto& [round, is_local, step, rank] : order)
      events.push_back(is_local ? local_event(ranks_[rank], step) : message_event(ranks_[rank], step));
    return events;
  }

 private:
  Uses find_uses(const Schedule& s) const {
    Uses uses{std::vector<std::vector<std::uint32_t>>(s.steps.size()),
              std::vector<std::uint32_t>(s.steps.size(), kNever),
              std::vector<std::uint32_t>(s.steps.size(), kNobody)};
    std::vector<std::uint32_t> writer(location_count(s), kNobody);
    for (std::uint32_t i = 0; i < s.steps.size(); ++i) {
      const Step& step = s.steps[i];
      for (const Slice& source : s.sources_of(step)) {
        std::uint32_t from = kNobody;
        for (std::uint32_t k = 0; k < source.count; ++k) {
          from = writer[location(s, source, k)];
          if (from != kNobody && (uses.readers[from].empty() || uses.readers[from].back() != i))
            uses.readers[from].push_back(i);
        }
        const bool is_local = from != kNobody && !is_message(s.steps[from].verb);
        if (is_local && s.steps[from].dst == source) uses.producer[i] = from;
      }
      if (!writes(step.verb)) continue;
      for (std::uint32_t k = 0; k < step.dst.count; ++k) writer[location(s, step.dst, k)] = i;
    }
    find_next_writes(s, uses.next_write);
    return uses;
  }

  // By send: the round in which a location that it reads is written next.
  void find_next_writes(const Schedule& s, std::vector<std::uint32_t>& next_write) const {
    std::vector<std::uint32_t> next(location_count(s), kNever);  // round of the next write, seen from the end
    for (auto i = static_cast<std::uint32_t>(s.steps.size()); i-- > 0;) {
      const Step& step = s.steps[i];
      if (step.verb == Verb::send) {
        const Slice& source = s.sources_of(step)[0];
        for (std::uint32_t k = 0; k < source.count; ++k)
          next_write[i] = std::min(next_write[i], next[location(s, source, k)]);
      }
      if (!writes(step.verb)) continue;
      for (std::uint32_t k = 0; k < step.dst.count; ++k)
        next[location(s, step.dst, k)] = run_.depth(s.rank, i);
    }
  }

  // A source inside of the destination of a recv, as a slice of the sent one; false if it is not inside.
  bool map_to_sender(const Schedule& s, const Slice& source, const Step& recv, const Slice& sent,
                     Slice& found) const {
    const std::uint32_t offset = source.slot - recv.dst.slot;
    if (source.buffer != Buffer::scratch || offset >= recv.dst.count ||
        source.count > recv.dst.count - offset)
      return false;
    found = sent;
    found.first = s.atom(sent, offset);
    found.count = source.count;
    if (found.count == 1) found.stride = 1;
    found.slot = sent.buffer == Buffer::scratch ? sent.slot + offset : 0;
    found.owner = static_cast<std::int32_t>(recv.peer);
    return true;
  }

  const Slice& sent_slice(const Schedule& receiver, std::uint32_t recv) const {
    const Schedule& from = ranks_[receiver.steps[recv].peer];
    return from.sources_of(from.steps[run_.partner_step(receiver.rank, recv)])[0];
  }

  void decide_borrows(const Schedule& s) {
    for (std::uint32_t i = 0; i < s.steps.size(); ++i) {
      const Step& recv = s.steps[i];
      if (recv.verb != Verb::recv || recv.dst.buffer != Buffer::scratch) continue;
      // The sender must not write there before the round after the last reader. Otherwise reader and writer
      // would alternate, where a copy lets them run at once.
      const std::uint32_t next_write = uses_[recv.peer].next_write[run_.partner_step(s.rank, i)];
      borrowed_[s.rank][i] = std::all_of(
          uses_[s.rank].readers[i].begin(), uses_[s.rank].readers[i].end(), [&](std::uint32_t reader) {
            return !is_message(s.steps[reader].verb) && run_.depth(s.rank, reader) < next_write &&
                   reads_whole_parts(s, reader, i);
          });
    }
  }

  // Every source of the reader lies within what the recv wrote or touches nothing of it.
  bool reads_whole_parts(const Schedule& s, std::uint32_t reader, std::uint32_t recv) const {
    const Slice& dst = s.steps[recv].dst;
    for (const Slice& source : s.sources_of(s.steps[reader])) {
      Slice found;
      const bool apart = source.buffer != Buffer::scratch || source.slot + source.count <= dst.slot ||
                         dst.slot + dst.count <= source.slot;
      if (!apart && !map_to_sender(s, source, s.steps[recv], sent_slice(s, recv), found)) return false;
    }
    return true;
  }

  LoweredEvent local_event(const Schedule& s, std::uint32_t number) const {
    const Step& step = s.steps[number];
    LoweredEvent event{s.rank, step.verb, step.channel, step.dst, {}};
    for (Slice source : s.sources_of(step)) {
      if (source.buffer == Buffer::scratch) {
        for (const std::uint32_t d : s.dependencies_of(step)) {
          Slice found;
          // The dependency that wrote this source is its last writer; writers of other slots do not map.
          if (borrowed_[s.rank][d] && is_writer_of(s, d, number) &&
              map_to_sender(s, source, s.steps[d], sent_slice(s, d), found)) {
            source = found;
            break;
          }
        }
      }
      event.sources.push_back(source);
    }
    return event;
  }
  bool is_writer_of(const Schedule& s, std::uint32_t recv, std::uint32_t reader) const {
    const auto& readers = uses_[s.rank].readers[recv];
    return std::find(readers.begin(), readers.end(), reader) != readers.end();
  }

  LoweredEvent message_event(const Schedule& s, std::uint32_t recv) const {
    const Step& step = s.steps[recv];
    const Schedule& from = ranks_[step.peer];
    const std::uint32_t send = run_.partner_step(s.rank, recv);
    Slice source = sent_slice(s, recv), dst = step.dst;
    // Place what was computed in the round before: it is in the sender's cache, and one pass can store it to
    // all who get it.
    const std::uint32_t producer = uses_[from.rank].producer[send];
    const bool is_placed = may_place_ && producer != kNobody && dst.buffer == Buffer::output &&
                           run_.depth(from.rank, producer) + 1 == run_.depth(s.rank, recv);
    if (is_placed) {
      dst.owner = static_cast<std::int32_t>(s.rank);
    } else {
      source.owner = static_cast<std::int32_t>(from.rank);
    }
    return {is_placed ? from.rank : s.rank, Verb::copy, step.channel, dst, {source}};
  }

  std::span<const Schedule> ranks_;
  const SymbolicRun& run_;
  bool may_place_;
  std::vector<Uses> uses_;
  std::vector<std::vector<bool>> borrowed_;
};

}  // namespace

Result<std::vector<LoweredEvent>> lower_to_events(std::span<const Schedule> given, bool may_place) {
  TUTTI_RETURN_IF_ERROR(check_structure(given));
  std::vector<Schedule> ranks(given.begin(), given.end());
  for (Schedule& s : ranks) {
    if (is_lowered(s)) return invalid_argument("the schedules are lowered already");
    TUTTI_RETURN_IF_ERROR(check_local_order(s));
    infer_dependencies(s);  // in full: rounds and borrowing are read off them
  }
  SymbolicRun run(ranks, Algebra::expression);
  TUTTI_RETURN_IF_ERROR(run.run());
  return EventMaker(ranks, run, may_place).run();
}

}  // namespace tutti::detail
