// Carrying out a call with the project's own schedules.
#include "backends/native/native_backend.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/format.h>

#include "runtime/schedule/passes/fuse.hpp"
#include "runtime/schedule/passes/segment.hpp"
#include "runtime/scheduler/plan_cache.hpp"

namespace tutti {
namespace {

enum PlanFlag : std::uint32_t { in_place_plan = 1, send_plan = 2, user_op_plan = 4 };

bool is_in_place(const Call& call) {
  // premul_sum first writes scaled inputs elsewhere, so its plan never reads the caller's output.
  return call.in_place && !(is_reducing(call.collective) && scales_before(call.op.op));
}

bool is_user_op(const Call& call) { return is_reducing(call.collective) && call.op.op == Op::user; }

bool has_segment_pass(const AlgorithmRow& row) {
  return std::any_of(row.params.begin(), row.params.end(),
                     [](const ParamRow& param) { return param.is_pass; });
}

// Bytes of the full vector, as rules and benchmarks count them.
std::uint64_t full_vector_bytes(const Call& call, std::uint32_t size) {
  std::uint64_t count = has_rank_blocks(call.collective) ? call.count * size : call.count;
  if (!call.counts.empty()) count = std::accumulate(call.counts.begin(), call.counts.end(), std::uint64_t{0});
  return count * size_of(call.dtype);
}

// A message to or from a peer, as a schedule of one step. The catalogue has no rows for it: there is nothing
// to choose.
Schedule message_schedule(std::uint32_t rank, std::uint32_t size, std::uint32_t peer, bool is_send) {
  Schedule schedule;
  schedule.collective = Collective::send_recv;
  schedule.rank = rank;
  schedule.size = size;
  Step step;
  step.verb = is_send ? Verb::send : Verb::recv;
  step.peer = peer;
  if (is_send) {
    const Slice source{Buffer::input, 0, 1, 1, 0, kSelf};
    schedule.append(step, {&source, 1}, {});
  } else {
    step.dst = {Buffer::output, 0, 1, 1, 0, kSelf};
    schedule.append(step, {}, {});
  }
  return schedule;
}

class NativeBackend final : public Backend {
 public:
  NativeBackend(GroupContext& group, const Selector& selector, std::size_t cache_bytes)
      : group_(group), selector_(selector), plans_(cache_bytes), can_fuse_(true) {
    for (std::size_t i = 0; i < group.engine().transport_count(); ++i) {
      can_fuse_ = can_fuse_ && group.engine().transport(i).caps().has_in_place_delivery;
    }
  }

  const BackendCaps& caps() const override { return caps_; }

  Status supports(const Call& call) const override {
    const bool has_partner = is_rooted(call.collective) || call.collective == Collective::send_recv;
    if (has_partner && call.root >= group_.size())
      return invalid_argument(fmt::format("rank {} of a group of {}", call.root, group_.size()));
    return is_reducing(call.collective) ? check_op(call.op, call.dtype) : Status();
  }

  Result<WorkRef> start(const Call& call, const Choice& choice) override {
    TUTTI_RETURN_IF_ERROR(supports(call));
    if (call.collective == Collective::send_recv) return start_message(call);
    const bool is_simple = call.counts.empty() && choice.algorithm.empty();
    std::shared_ptr<const Plan> plan;
    if (is_simple && last_.plan != nullptr && last_.is_of(call)) {
      plan = last_.plan;
    } else {
      auto found = plan_for(call, choice);
      if (!found) return found.status();
      plan = *std::move(found);
      if (is_simple)
        last_ = {call.collective, call.op, call.root, call.in_place, call.count * size_of(call.dtype), plan};
    }
    Call bound = call;
    bound.in_place = is_in_place(call);
    return group_.submit(std::move(plan), bound);
  }

  Result<std::string> explain(const Call& call) const override {
    const auto selection = selector_.choose(question(call));
    if (!selection) return selection.status();
    return fmt::format("{}: {}{}", selection->row->name, selection->source,
                       selection->item == 0 ? "" : fmt::format(" item {}", selection->item));
  }

 private:
  Question question(const Call& call) const {
    Question q;
    q.collective = call.collective;
    q.size = group_.size();
    q.bytes = full_vector_bytes(call, group_.size());
    q.is_commutative = !is_reducing(call.collective) || call.op.is_commutative();
    q.has_equal_counts = call.counts.empty();
    q.has_known_bytes = call.collective != Collective::alltoall || call.counts.empty();
    return q;
  }

  // What the choice and the plan of a call depend on, for the call that was made last: training repeats
  // itself.
  struct LastCall {
    Collective collective = Collective::barrier;
    ReduceOp op;
    std::uint32_t root = 0;
    bool in_place = false;
    std::uint64_t bytes = 0;
    std::shared_ptr<const Plan> plan;

    bool is_of(const Call& call) const {
      return collective == call.collective && bytes == call.count * size_of(call.dtype) &&
             op.op == call.op.op && op.user == call.op.user && root == call.root && in_place == call.in_place;
    }
  };

  Result<std::shared_ptr<const Plan>> plan_for(const Call& call, const Choice& choice) {
    const auto selection = selector_.choose(question(call), choice.algorithm);
    if (!selection) return selection.status();
    const PlanKey key = key_of(call, *selection);
    std::shared_ptr<const Plan> plan = plans_.find(key);
    if (plan == nullptr) {
      auto made = make_plan(call, *selection);
      if (!made) return made.status();
      plan = plans_.insert(key, *std::move(made));
    }
    return plan;
  }

  static PlanKey key_of(const Call& call, const Selection& s) {
    const AlgorithmParams& p = s.params;
    PlanKey key;
    key.row = s.row;
    // The catalogue's limits fit: radix 64, segments 1024, aggregate 2^20.
    key.params = std::uint64_t{p.radix} | (std::uint64_t{p.segments} << 16U) |
                 (std::uint64_t{p.channels} << 32U) | (std::uint64_t{p.aggregate} << 40U);
    key.root = is_rooted(call.collective) ? call.root : 0;
    key.flags = (is_in_place(call) ? std::uint32_t{in_place_plan} : 0U) |
                (is_user_op(call) ? std::uint32_t{user_op_plan} : 0U);
    return key;
  }

  Result<Plan> make_plan(const Call& call, const Selection& s) const {
    CollectiveSpec spec;
    spec.collective = call.collective;
    spec.root = is_rooted(call.collective) ? call.root : 0;
    spec.in_place = is_in_place(call);
    const GroupView view{group_.rank(), group_.size()};
    auto schedule = s.row->emit(spec, view, s.params);
    if (!schedule) return schedule.status();
    if (s.params.segments > 1 && has_segment_pass(*s.row)) {
      schedule = segment(*schedule, s.params.segments, s.params.channels);
      if (!schedule) return schedule.status();
    }
    // A user's function never runs while the lane is held, as it would in the midst of a receive.
    if (can_fuse_ && !is_user_op(call)) return compile(fuse(*std::move(schedule)));
    return compile(*std::move(schedule));
  }

  Result<WorkRef> start_message(const Call& call) {
    PlanKey key;
    key.root = call.root;
    key.flags = call.is_send ? std::uint32_t{send_plan} : 0U;
    std::shared_ptr<const Plan> plan = plans_.find(key);
    if (plan == nullptr) {
      auto made = compile(message_schedule(group_.rank(), group_.size(), call.root, call.is_send));
      if (!made) return made.status();
      plan = plans_.insert(key, *std::move(made));
    }
    return group_.submit(std::move(plan), call);
  }

  GroupContext& group_;
  const Selector& selector_;
  PlanCache plans_;
  LastCall last_;
  BackendCaps caps_{"native", ""};
  bool can_fuse_;
};

}  // namespace

std::unique_ptr<Backend> make_native_backend(GroupContext& group, const Selector& selector,
                                             std::size_t cache_bytes) {
  return std::make_unique<NativeBackend>(group, selector, cache_bytes);
}

}  // namespace tutti
