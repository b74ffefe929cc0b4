// The walk in virtual time: steps of all ranks in the order of the times at which they can begin.
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
  cached_reduce,
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
  CostWalk(const StepGraph& graph, std::uint64_t bytes, const Places& places, const CostModel& model)
      : graph_(graph), bytes_(bytes), places_(places), model_(model), pending_(graph.waits()) {}

  Result<Price> run() {
    causes_.push_back({});
    if (graph_.has_flags()) find_holders();
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
    if (issued_count_ != graph_.size()) return invalid_argument("the ranks wait for each other forever");
    return trace();
  }

  // By rank and step.
  std::vector<std::vector<std::uint64_t>> ends() const {
    std::vector<std::vector<std::uint64_t>> by_rank(rank_count());
    for (StepId id = 0; id < graph_.size(); ++id) by_rank[graph_.rank_of(id)].push_back(end_of_[id]);
    return by_rank;
  }

 private:
  using StepId = StepGraph::StepId;
  using Data = std::tuple<std::uint32_t, Buffer, std::uint32_t>;  // owner, buffer, slot of scratch or atom

  std::size_t rank_count() const { return graph_.ranks().size(); }
  const Step& step_of(StepId id) const { return graph_.step_of(id); }
  std::uint64_t bytes_of(StepId id, const Slice& slice) const {
    const Schedule& s = graph_.schedule_of(id);
    // Lengths are those of equal blocks: that is what all ranks' schedules have in common.
    const std::uint64_t atoms = s.atoms();
    return bytes_ / atoms * slice.count + bytes_ % atoms * slice.count / atoms;
  }

  Data data_of(std::uint32_t rank, const Slice& slice) const {
    const std::uint32_t owner = slice.owner == kSelf ? rank : static_cast<std::uint32_t>(slice.owner);
    return {owner, slice.buffer, slice.buffer == Buffer::scratch ? slice.slot : slice.first};
  }

  // The ranks that touch locations of others, and whether flags carry the data: the runtime puts it beside the flag where
  // it is short and every rank both signals and waits.
  void find_holders() {
    std::vector<std::uint8_t> signals(rank_count(), 0), waits(rank_count(), 0);
    for (StepId id = 0; id < graph_.size(); ++id) {
      const std::uint32_t rank = graph_.rank_of(id);
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
      for (const Slice& source : graph_.schedule_of(id).sources_of(step)) touch(source);
      if (step.verb == Verb::copy || step.verb == Verb::reduce) touch(step.dst);
    }
    const auto is_set = [](std::uint8_t flag) { return flag != 0; };
    flags_carry_data_ = std::all_of(signals.begin(), signals.end(), is_set) &&
                        std::all_of(waits.begin(), waits.end(), is_set);
    flags_.resize(graph_.size());
    for (StepId id = 0; id < graph_.size(); ++id) {
      for (const StepId waiter : graph_.waiters_of(id)) {
        flags_[id].farthest =
            std::max(flags_[id].farthest, places_.level(graph_.rank_of(id), graph_.rank_of(waiter)));
      }
    }
  }

  void start() {
    end_of_.assign(graph_.size(), 0);
    start_.assign(graph_.size(), {});
    is_posted_.assign(graph_.size(), 0);
    stored_.assign(rank_count(), {});
    out_.assign(rank_count(), {});
    in_.assign(rank_count(), {});
    cpu_.assign(rank_count(), {});
    queue_.resize(rank_count());
    nic_in_.assign(places_.size(), {});
    for (auto& shared : shared_) shared.assign(places_.size(), {});
    for (StepId id = 0; id < graph_.size(); ++id) {
      if (pending_[id] == 0) ready_.emplace(0, id);
    }
  }

  void release(StepId id, const Instant& when) {
    start_[id] = later(start_[id], when);
    if (--pending_[id] == 0) ready_.emplace(start_[id].ps, id);
  }
  void issued(StepId id, const Instant& when) {
    ++issued_count_;
    if (graph_.next_of(id) != StepGraph::kNone) release(graph_.next_of(id), when);
  }
  void done(StepId id, const Instant& when) {
    end_ = later(end_, when);
    end_of_[id] = when.ps;
    for (const StepId dependent : graph_.dependents_of(id)) release(dependent, when);
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
      if (is_posted_[graph_.partner_of(id)] != 0)
        post(step.verb == Verb::send ? id : graph_.partner_of(id), now);
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
    const std::uint32_t from = graph_.rank_of(send);
    start_[send] = now;
    queue_[from].emplace(now.ps, send);
    if (queue_[from].size() == 1) leave_.emplace(later(now, out_[from]).ps, from);
  }

  void leave(std::uint32_t from) {
    const StepId send = queue_[from].top().second;
    transfer(send, graph_.partner_of(send));
    queue_[from].pop();
    if (!queue_[from].empty()) leave_.emplace(out_[from].ps, from);
  }

  void transfer(StepId send, StepId recv) {
    const std::uint32_t from = graph_.rank_of(send), to = graph_.rank_of(recv);
    const Level level = places_.level(from, step_of(send).peer);
    const LinkCost& link = model_.link(level);
    const std::uint64_t bytes = bytes_of(send, graph_.schedule_of(send).sources_of(step_of(send))[0]);
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
    Instant& stored = stored_[graph_.rank_of(id)];
    stored =
        after(later(now, stored), model_.line(flag.farthest).transfer_ps, Term::transfer, flag.farthest, 0);
    flag.visible = flag.next_reader = stored;
    for (const StepId waiter : graph_.waiters_of(id)) release(waiter, stored);
    return now;
  }

  // The level by which a rank pays for a line of another one.
  Level paid_level(Level own, Level farthest) const {
    return model_.far_reader_slows_all ? std::max(own, farthest) : own;
  }

  // The flag's line comes after those that read it before. A rank that waits for several flags in a row has asked for the
  // next one before the last one came.
  Instant wait(StepId id, const Instant& ready) {
    const std::uint32_t rank = graph_.rank_of(id);
    Flag& flag = flags_[graph_.signal_of(id)];
    const Level level = paid_level(places_.level(rank, step_of(id).peer), flag.farthest);
    const LineCost& line = model_.line(level);
    const bool follows_wait = !graph_.is_first_of_rank(id) && step_of(id - 1).verb == Verb::wait;
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

  Instant add(const Instant& now, std::uint64_t bytes) {
    if (model_.cached_reduce_kib_ps != 0 && bytes <= CostModel::kMostCachedBytes)
      return after(now, of_kib(bytes, model_.cached_reduce_kib_ps), Term::cached_reduce, Level::cache, bytes);
    return after(now, of_kib(bytes, model_.reduce_kib_ps), Term::reduce, Level::cache, bytes);
  }

  Instant compute(StepId id, const Instant& ready) {
    const std::uint32_t rank = graph_.rank_of(id);
    const Step& step = step_of(id);
    const auto sources = graph_.schedule_of(id).sources_of(step);
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
      now = add(now, bytes * (sources.size() - 1));
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
        case Term::cached_reduce:
          path.cached_reduced_bytes += cause.bytes;
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

  const StepGraph& graph_;
  std::uint64_t bytes_;
  const Places& places_;
  const CostModel& model_;

  std::vector<std::uint32_t> pending_;  // by step, as all that follow: how many it still waits for
  std::vector<Instant> start_;          // what a step waits for; of a send on its way out, also its receiver
  std::vector<std::uint8_t> is_posted_;
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
  const auto graph = StepGraph::make(ranks, symmetry, places.size());
  if (!graph) return graph.status();
  CostWalk walk(*graph, bytes, places, model);
  auto price = walk.run();
  if (ends != nullptr && price) *ends = walk.ends();
  return price;
}

}  // namespace tutti::detail
