// The walk in virtual time: steps of all ranks in the order of the times at which they can begin.
#include "runtime/selection/cost_walk.hpp"

#include <algorithm>
#include <functional>
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

enum class Term : std::uint8_t { nothing, arrival, occupation, line, shared, fetch, reduce, copy };

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

 private:
  using StepId = std::uint32_t;
  using Line = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, StepId>;  // rank, channel, sequence
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

  void start() {
    out_.assign(ranks_.size(), {});
    in_.assign(ranks_.size(), {});
    cpu_.assign(ranks_.size(), {});
    queue_.resize(ranks_.size());
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
                        : step.verb == Verb::wait ? now
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
      const auto at = static_cast<std::size_t>(level == Level::network ? Shared::nic_out : Shared::memory);
      sent = later(sent, pass(shared_[at][places_.node[from]], start, level, bytes));
      arrived = later(arrived, sent);
      if (level == Level::network) {
        auto& nic = shared_[static_cast<std::size_t>(Shared::nic_in)][places_.node[to]];
        arrived = later(arrived, pass(nic, start, level, bytes));
      }
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

  Instant signal(StepId id, const Instant& now) {
    const std::uint32_t rank = rank_of_[id];
    for (const StepId waiter : waiters_[id]) {
      const Level level = places_.level(rank, rank_of_[waiter]);
      const LinkCost& link = model_.link(level);
      release(waiter, after(now, link.latency_ps + link.message_ps, Term::line, level, 0));
    }
    return now;
  }

  Instant compute(StepId id, const Instant& ready) {
    const std::uint32_t rank = rank_of_[id];
    const Step& step = step_of(id);
    const auto sources = schedule_of(id).sources_of(step);
    Instant now = later(ready, cpu_[rank]);
    const auto reach = [&](const Slice& slice) {
      if (slice.owner == kSelf) return;
      const Level level = places_.level(rank, static_cast<std::uint32_t>(slice.owner));
      const LinkCost& link = model_.link(level);
      const std::uint64_t bytes = bytes_of(id, slice);
      const Instant fetched = after(now, of_kib(bytes, link.kib_ps), Term::fetch, level, bytes);
      if (link.shared_kib_ps != 0) {
        auto& memory = shared_[static_cast<std::size_t>(Shared::memory)][places_.node[rank]];
        now = later(fetched, pass(memory, now, level, bytes));
      } else {
        now = fetched;
      }
    };
    for (const Slice& source : sources) reach(source);
    reach(step.dst);
    const std::uint64_t bytes = bytes_of(id, step.dst);
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
        case Term::line:
          ++level.latencies;
          [[fallthrough]];
        case Term::occupation:
          ++level.messages;
          [[fallthrough]];
        case Term::fetch:
          level.bytes += cause.bytes;
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

  std::vector<Instant> out_, in_, cpu_;  // until when a rank is taken
  enum class Shared : std::uint8_t { nic_out, nic_in, memory };
  std::array<std::vector<Instant>, 3> shared_;  // by node
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
                   const Places& places, const CostModel& model) {
  return CostWalk(ranks, symmetry, bytes, places, model).run();
}

}  // namespace tutti::detail
