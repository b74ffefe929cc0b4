// The walk in virtual time: steps of all ranks in the order of the times at which they can begin. It is
// longer than 500 lines because messages and cache lines share the state of one walk.
#include "runtime/selection/cost_walk.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace tutti::detail {
namespace {

// A point in virtual time, and the last thing that had to happen before it (in the trail of causes).
struct Instant {
  std::uint64_t ps = 0;
  std::uint32_t cause = 0;
};
const Instant& later(const Instant& a, const Instant& b) { return b.ps > a.ps ? b : a; }

enum class Term : std::uint8_t {
  nothing,
  arrival,
  occupation,
  shared,
  transfer,
  further,
  lines,
  crowd,
  reduce,
  copy
};

// As much as a flag line carries beside its flag (FlagLine::kPayloadBytes).
constexpr std::uint64_t kFlagPayloadBytes = 48;
constexpr std::uint64_t kLineBytes = 64;

// One per moment of the walk; the path that decided is read backwards from the last.
struct Cause {
  std::uint32_t before = 0;
  Term term = Term::nothing;
  Level level = Level::cache;
  std::uint64_t bytes = 0;
};

class CostWalk {
 public:
  CostWalk(std::span<const Schedule> ranks, Symmetry symmetry, std::uint64_t bytes, const Places& places,
           const CostModel& model)
      : ranks_(ranks), symmetry_(symmetry), bytes_(bytes), places_(places), model_(model) {}

  Result<Price> run() {
    causes_.push_back({});
    index_steps();
    TUTTI_RETURN_IF_ERROR(match_messages());
    if (!waiters_.empty()) {
      signal_of_.assign(rank_of_.size(), kNone);
      find_holders();
    }
    start();
    while (!ready_.empty() || !leave_.empty()) {
      // At equal times steps first: what is posted now waits behind nothing that starts now.
      if (leave_.empty() || (!ready_.empty() && ready_.top().first <= leave_.top().first)) {
        const StepId id = ready_.top().second;
        ready_.pop();
        issue(id);
      } else {
        const std::uint32_t rank = leave_.top().second;
        leave_.pop();
        leave(rank);
      }
    }
    if (issued_count_ != rank_of_.size()) return invalid_argument("the ranks wait for each other forever");
    return trace();
  }

  // By rank and step.
  std::vector<std::vector<std::uint64_t>> ends() const {
    std::vector<std::vector<std::uint64_t>> by_rank(ranks_.size());
    for (StepId id = 0; id < rank_of_.size(); ++id) by_rank[rank_of_[id]].push_back(end_of_[id]);
    return by_rank;
  }

 private:
  using StepId = std::uint32_t;
  using Line = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, StepId>;  // rank, channel, sequence
  using Data = std::tuple<std::uint32_t, Buffer, std::uint32_t>;  // owner, buffer, slot of scratch or atom
  static constexpr StepId kNone = ~0U;

  const Schedule& schedule_of(StepId id) const { return ranks_[rank_of_[id]]; }
  const Step& step_of(StepId id) const { return schedule_of(id).steps[id - first_step_[rank_of_[id]]]; }
  std::uint64_t bytes_of(StepId id, const Slice& slice) const {
    const Schedule& s = schedule_of(id);
    // Lengths are those of equal blocks: that is what all ranks' schedules have in common.
    const std::uint64_t atoms = s.atoms();
    return bytes_ / atoms * slice.count + bytes_ % atoms * slice.count / atoms;
  }
  void index_steps() {
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      first_step_.push_back(static_cast<StepId>(rank_of_.size()));
      rank_of_.insert(rank_of_.end(), ranks_[r].steps.size(), r);
      channels_ = std::max(channels_, ranks_[r].channels);
    }
    const std::size_t count = rank_of_.size();
    pending_.assign(count, 0);
    start_.assign(count, {});
    next_.assign(count, kNone);
    partner_.assign(count, kNone);
    is_posted_.assign(count, 0);
    dependents_begin_.assign(count + 1, 0);
    std::vector<StepId> last(channels_, kNone);
    for (StepId id = 0; id < count; ++id) {
      const std::uint32_t rank = rank_of_[id];
      if (id == first_step_[rank]) std::fill(last.begin(), last.end(), kNone);
      const Step& step = step_of(id);
      const auto dependencies = ranks_[rank].dependencies_of(step);
      pending_[id] = static_cast<std::uint32_t>(dependencies.size());
      for (const std::uint32_t d : dependencies) ++dependents_begin_[first_step_[rank] + d + 1];
      StepId& before = last[step.channel];
      if (before != kNone) {
        next_[before] = id;
        ++pending_[id];
      }
      before = id;
    }
    for (std::size_t i = 0; i < count; ++i) dependents_begin_[i + 1] += dependents_begin_[i];
    dependents_.resize(dependents_begin_[count]);
    std::vector<std::uint32_t> at(dependents_begin_.begin(), dependents_begin_.end() - 1);
    for (StepId id = 0; id < count; ++id) {
      for (const std::uint32_t d : schedule_of(id).dependencies_of(step_of(id)))
        dependents_[at[first_step_[rank_of_[id]] + d]++] = id;
    }
  }

  // First in, first out per (sender, receiver, channel); sequences of a line are numbered through.
  Status match_messages() {
    struct End {
      std::uint32_t from, to, distance, channel;  // from and to: who stands for them
      StepId id;
      auto edge() const { return std::tuple(from, to, distance, channel); }
    };
    const auto stand_ins = static_cast<std::uint32_t>(ranks_.size());
    const auto far = [&](std::uint32_t from, std::uint32_t to) {
      return displacement(symmetry_, from, to, places_.size());
    };
    std::vector<End> sends, recvs;
    std::vector<Line> lines;
    for (StepId id = 0; id < rank_of_.size(); ++id) {
      const Step& step = step_of(id);
      const std::uint32_t rank = rank_of_[id], peer = step.peer % stand_ins;
      if (step.verb == Verb::send) sends.push_back({rank, peer, far(rank, step.peer), step.channel, id});
      if (step.verb == Verb::recv) recvs.push_back({peer, rank, far(step.peer, rank), step.channel, id});
      if (step.verb == Verb::signal) lines.emplace_back(rank, step.channel, step.sequence, id);
    }
    const auto less = [](const End& a, const End& b) {
      return std::tuple(a.edge(), a.id) < std::tuple(b.edge(), b.id);
    };
    std::sort(sends.begin(), sends.end(), less);
    std::sort(recvs.begin(), recvs.end(), less);
    const auto is_edge = [](const End& a, const End& b) { return a.edge() == b.edge(); };
    if (!std::equal(sends.begin(), sends.end(), recvs.begin(), recvs.end(), is_edge))
      return invalid_argument("messages without a partner");
    for (std::size_t i = 0; i < sends.size(); ++i) {
      partner_[sends[i].id] = recvs[i].id;
      partner_[recvs[i].id] = sends[i].id;
    }
    return lines.empty() ? Status() : match_lines(std::move(lines));
  }

  // A wait depends on the signal that it waits for, of another rank: it becomes one more of its
  // dependents.
  Status match_lines(std::vector<Line> lines) {
    std::sort(lines.begin(), lines.end());
    waiters_.resize(rank_of_.size());
    for (StepId id = 0; id < rank_of_.size(); ++id) {
      const Step& step = step_of(id);
      if (step.verb != Verb::wait) continue;
      const auto wanted = std::tuple(step.peer, std::uint32_t{step.channel}, step.sequence, StepId{0});
      const auto found = std::lower_bound(lines.begin(), lines.end(), wanted);
      if (found == lines.end() || std::get<0>(*found) != step.peer || std::get<1>(*found) != step.channel ||
          std::get<2>(*found) != step.sequence)
        return invalid_argument("a wait of what nobody signals");
      waiters_[std::get<3>(*found)].push_back(id);
      ++pending_[id];
    }
    return {};
  }

  Data data_of(std::uint32_t rank, const Slice& slice) const {
    const std::uint32_t owner = slice.owner == kSelf ? rank : static_cast<std::uint32_t>(slice.owner);
    return {owner, slice.buffer, slice.buffer == Buffer::scratch ? slice.slot : slice.first};
  }

  // The ranks that touch locations of others, and whether flags carry the data: the runtime puts it beside the flag where
  // it is short and every rank both signals and waits.
  void find_holders() {
    std::vector<std::uint8_t> signals(ranks_.size(), 0), waits(ranks_.size(), 0);
    for (StepId id = 0; id < rank_of_.size(); ++id) {
      const std::uint32_t rank = rank_of_[id];
      const Step& step = step_of(id);
      if (step.verb == Verb::signal) signals[rank] = 1;
      if (step.verb == Verb::wait) waits[rank] = 1;
      const auto touch = [&](const Slice& slice) {
        if (slice.owner == kSelf) return;
        Holders& holders = holders_[data_of(rank, slice)];
        ++holders.count;
        holders.farthest =
            std::max(holders.farthest, places_.level(rank, static_cast<std::uint32_t>(slice.owner)));
      };
      for (const Slice& source : schedule_of(id).sources_of(step)) touch(source);
      if (step.verb == Verb::copy || step.verb == Verb::reduce) touch(step.dst);
    }
    const auto is_set = [](std::uint8_t flag) { return flag != 0; };
    flags_carry_data_ = std::all_of(signals.begin(), signals.end(), is_set) &&
                        std::all_of(waits.begin(), waits.end(), is_set);
    flags_.resize(rank_of_.size());
    for (StepId id = 0; id < rank_of_.size(); ++id) {
      for (const StepId waiter : waiters_[id]) {
        signal_of_[waiter] = id;
        flags_[id].farthest = std::max(flags_[id].farthest, places_.level(rank_of_[id], rank_of_[waiter]));
      }
    }
  }

  void start() {
    end_of_.assign(rank_of_.size(), 0);
    stored_.assign(ranks_.size(), {});
    out_.assign(ranks_.size(), {});
    in_.assign(ranks_.size(), {});
    cpu_.assign(ranks_.size(), {});
    queue_.resize(ranks_.size());
    nic_in_.assign(places_.size(), {});
    for (auto& shared : shared_) shared.assign(places_.size(), {});
    for (StepId id = 0; id < rank_of_.size(); ++id) {
      if (pending_[id] == 0) ready_.emplace(0, id);
    }
  }

  void release(StepId id, const Instant& when) {
    start_[id] = later(start_[id], when);
    if (--pending_[id] == 0) ready_.emplace(start_[id].ps, id);
  }
  void issued(StepId id, const Instant& when) {
    ++issued_count_;
    if (next_[id] != kNone) release(next_[id], when);
  }
  void done(StepId id, const Instant& when) {
    end_ = later(end_, when);
    end_of_[id] = when.ps;
    for (std::uint32_t i = dependents_begin_[id]; i < dependents_begin_[id + 1]; ++i)
      release(dependents_[i], when);
  }

  Instant after(const Instant& start, std::uint64_t ps, Term term, Level level, std::uint64_t bytes) {
    causes_.push_back({start.cause, term, level, bytes});
    return {start.ps + ps, static_cast<std::uint32_t>(causes_.size() - 1)};
  }

  void issue(StepId id) {
    const Step& step = step_of(id);
    const Instant now = start_[id];
    if (step.verb == Verb::send || step.verb == Verb::recv) {
      issued(id, now);
      is_posted_[id] = 1;
      if (is_posted_[partner_[id]] != 0) post(step.verb == Verb::send ? id : partner_[id], now);
      return;
    }
    const Instant end = step.verb == Verb::signal ? signal(id, now)
                        : step.verb == Verb::wait ? wait(id, now)
                                                  : compute(id, now);
    issued(id, end);
    done(id, end);
  }

  // A message whose both sides are there waits for the sender's way out. Only when it starts does it take the
  // receiver's way in, so that whoever starts first comes first.
  void post(StepId send, const Instant& now) {
    const std::uint32_t from = rank_of_[send];
    start_[send] = now;
    queue_[from].emplace(now.ps, send);
    if (queue_[from].size() == 1) leave_.emplace(later(now, out_[from]).ps, from);
  }

  void leave(std::uint32_t from) {
    const StepId send = queue_[from].top().second;
    transfer(send, partner_[send]);
    queue_[from].pop();
    if (!queue_[from].empty()) leave_.emplace(out_[from].ps, from);
  }

  void transfer(StepId send, StepId recv) {
    const std::uint32_t from = rank_of_[send], to = rank_of_[recv];
    const Level level = places_.level(from, step_of(send).peer);
    const LinkCost& link = model_.link(level);
    const std::uint64_t bytes = bytes_of(send, schedule_of(send).sources_of(step_of(send))[0]);
    const std::uint64_t takes = link.message_ps + of_kib(bytes, link.kib_ps);
    const Instant start = later(start_[send], out_[from]);
    Instant sent = after(start, takes, Term::occupation, level, bytes);
    Instant arrived = start.ps + link.latency_ps >= in_[to].ps
                          ? after(start, link.latency_ps + takes, Term::arrival, level, bytes)
                          : after(in_[to], takes, Term::occupation, level, bytes);
    if (link.shared_kib_ps != 0) {
      sent = later(sent,
                   pass(shared_[static_cast<std::size_t>(level)][places_.node[from]], start, level, bytes));
      arrived = later(arrived, sent);
      if (level == Level::network)
        arrived = later(arrived, pass(nic_in_[places_.node[to]], start, level, bytes));
    }
    out_[from] = sent;
    in_[to] = arrived;
    done(send, sent);
    done(recv, arrived);
  }

  // Ranks use a shared resource in sequence.
  Instant pass(Instant& shared, const Instant& start, Level level, std::uint64_t bytes) {
    const std::uint64_t takes = of_kib(bytes, model_.link(level).shared_kib_ps);
    return shared = after(later(shared, start), takes, Term::shared, level, bytes);
  }

  // The store waits in the core's buffer until the farthest rank that holds the line has lost it; the rank goes on.
  Instant signal(StepId id, const Instant& now) {
    Flag& flag = flags_[id];
    Instant& stored = stored_[rank_of_[id]];
    stored =
        after(later(now, stored), model_.line(flag.farthest).transfer_ps, Term::transfer, flag.farthest, 0);
    flag.visible = flag.next_reader = stored;
    for (const StepId waiter : waiters_[id]) release(waiter, stored);
    return now;
  }

  // The level by which a rank pays for a line of another one.
  Level paid_level(Level own, Level farthest) const {
    return model_.far_reader_slows_all ? std::max(own, farthest) : own;
  }

  // The flag's line comes after those that read it before. A rank that waits for several flags in a row has asked for the
  // next one before the last one came.
  Instant wait(StepId id, const Instant& ready) {
    const std::uint32_t rank = rank_of_[id];
    Flag& flag = flags_[signal_of_[id]];
    const Level level = paid_level(places_.level(rank, step_of(id).peer), flag.farthest);
    const LineCost& line = model_.line(level);
    const bool follows_wait = id > first_step_[rank] && step_of(id - 1).verb == Verb::wait;
    const Instant asked = later(follows_wait ? flag.visible : ready, flag.next_reader);
    flag.next_reader = after(asked, line.further_ps, Term::further, level, 0);
    const Instant come = after(asked, line.transfer_ps, Term::transfer, level, 0);
    return follows_wait ? later(come, after(ready, line.further_ps, Term::further, level, 0)) : come;
  }

  // Loads of another rank's lines, of which only the first ones of a step are waited for in full.
  Instant load(std::uint32_t rank, const Slice& slice, std::uint64_t bytes, bool is_first,
               const Instant& now) {
    const Holders& holders = holders_.at(data_of(rank, slice));
    const Level level =
        paid_level(places_.level(rank, static_cast<std::uint32_t>(slice.owner)), holders.farthest);
    const LineCost& line = model_.line(level);
    const std::uint64_t in_row = bytes > kLineBytes ? bytes - kLineBytes : 0;
    const std::uint64_t crowd = in_row * (holders.count - 1);
    Instant end = is_first ? after(now, line.transfer_ps, Term::transfer, level, 0)
                           : after(now, line.further_ps, Term::further, level, 0);
    end = after(end, of_kib(in_row, line.kib_ps), Term::lines, level, in_row);
    end = after(end, of_kib(crowd, line.crowd_kib_ps), Term::crowd, level, crowd);
    if (model_.link(level).shared_kib_ps == 0) return end;
    return later(end, pass(shared_[static_cast<std::size_t>(level)][places_.node[rank]], now, level, bytes));
  }

  Instant compute(StepId id, const Instant& ready) {
    const std::uint32_t rank = rank_of_[id];
    const Step& step = step_of(id);
    const auto sources = schedule_of(id).sources_of(step);
    Instant now = later(ready, cpu_[rank]);
    bool is_first = true;
    for (const Slice& source : sources) {
      const std::uint64_t bytes = bytes_of(id, source);
      const bool is_in_flag =
          flags_carry_data_ && source.buffer == Buffer::scratch && bytes <= kFlagPayloadBytes;
      if (source.owner == kSelf || is_in_flag || bytes == 0) continue;
      now = load(rank, source, bytes, is_first, now);
      is_first = false;
    }
    const std::uint64_t bytes = bytes_of(id, step.dst);
    // Lines in a row that others hold come back before they are written. Of few the core's buffer waits for that.
    const auto held = holders_.find(data_of(rank, step.dst));
    if (held != holders_.end() && bytes > kLineBytes) {
      const Level level = step.dst.owner == kSelf
                              ? held->second.farthest
                              : places_.level(rank, static_cast<std::uint32_t>(step.dst.owner));
      const std::uint64_t in_row = bytes - kLineBytes;
      now = after(now, of_kib(in_row, model_.line(level).kib_ps), Term::lines, level, in_row);
    }
    if (sources.size() > 1) {
      const std::uint64_t added = bytes * (sources.size() - 1);
      now = after(now, of_kib(added, model_.reduce_kib_ps), Term::reduce, Level::cache, added);
    } else if (step.dst.owner == kSelf && (sources.empty() || sources[0].owner == kSelf)) {
      now = after(now, of_kib(bytes, model_.copy_kib_ps), Term::copy, Level::cache, bytes);
    }
    cpu_[rank] = now;
    return now;
  }

  Price trace() const {
    PathCounts path;
    for (std::uint32_t at = end_.cause; at != 0; at = causes_[at].before) {
      const Cause& cause = causes_[at];
      auto& level = path.levels[static_cast<std::size_t>(cause.level)];
      switch (cause.term) {
        case Term::arrival:
          ++level.latencies;
          [[fallthrough]];
        case Term::occupation:
          ++level.messages;
          level.bytes += cause.bytes;
          break;
        case Term::transfer:
          ++level.line_transfers;
          break;
        case Term::further:
          ++level.further_lines;
          break;
        case Term::lines:
          level.line_bytes += cause.bytes;
          break;
        case Term::crowd:
          level.crowd_bytes += cause.bytes;
          break;
        case Term::shared:
          level.shared_bytes += cause.bytes;
          break;
        case Term::reduce:
          path.reduced_bytes += cause.bytes;
          break;
        case Term::copy:
          path.copied_bytes += cause.bytes;
          break;
        case Term::nothing:
          break;
      }
    }
    return price_path(path, model_);
  }

  std::span<const Schedule> ranks_;
  Symmetry symmetry_;
  std::uint64_t bytes_;
  const Places& places_;
  const CostModel& model_;
  std::uint32_t channels_ = 1;

  std::vector<StepId> first_step_;      // by rank
  std::vector<std::uint32_t> rank_of_;  // by step, as all that follow
  std::vector<std::uint32_t> pending_;
  std::vector<Instant> start_;  // what a step waits for; of a send on its way out, also its receiver
  std::vector<StepId> next_;    // in its channel
  std::vector<StepId> partner_;
  std::vector<std::uint8_t> is_posted_;
  std::vector<std::uint32_t> dependents_begin_;
  std::vector<StepId> dependents_;
  std::vector<std::vector<StepId>> waiters_;  // of a signal
  std::vector<StepId> signal_of_;             // of a wait
  struct Flag {
    Instant visible, next_reader;  // when the next one may fetch it
    Level farthest = Level::core;  // that waits for it
  };
  std::vector<Flag> flags_;  // by signal
  struct Holders {
    std::uint32_t count = 0;  // of reads and writes, beside the owner's
    Level farthest = Level::core;
  };
  std::map<Data, Holders> holders_;
  std::vector<std::uint64_t> end_of_;
  bool flags_carry_data_ = false;

  std::vector<Instant> out_, in_, cpu_;  // until when a rank is taken
  std::vector<Instant> stored_;          // until when stores of a rank are not visible
  // Until when ways are taken that ranks of a node share, by level and node: the NIC, the link between sockets.
  std::array<std::vector<Instant>, kLevelCount> shared_;
  std::vector<Instant> nic_in_;
  std::vector<Cause> causes_;
  Instant end_;
  std::uint64_t issued_count_ = 0;
  // By time, then by number: what is ready at once goes in program order.
  using Entry = std::pair<std::uint64_t, std::uint32_t>;
  using Queue = std::priority_queue<Entry, std::vector<Entry>, std::greater<>>;
  Queue ready_;               // steps that can begin
  Queue leave_;               // ranks whose next message can leave
  std::vector<Queue> queue_;  // of a rank's messages, both sides of which are there
};

}  // namespace

Result<Price> walk(std::span<const Schedule> ranks, Symmetry symmetry, std::uint64_t bytes,
                   const Places& places, const CostModel& model,
                   std::vector<std::vector<std::uint64_t>>* ends) {
  CostWalk walk(ranks, symmetry, bytes, places, model);
  auto price = walk.run();
  if (ends != nullptr && price) *ends = walk.ends();
  return price;
}

}  // namespace tutti::detail
