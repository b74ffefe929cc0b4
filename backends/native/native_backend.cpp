// Carrying out a call with the project's own schedules.
#include "backends/native/native_backend.hpp"

#include <array>
#include <optional>
#include <set>
#include <string>

#include <fmt/format.h>

#include "backends/native/signature_table.hpp"
#include "runtime/algorithms/prove.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/own_heap.hpp"
#include "runtime/base/relax.hpp"
#include "runtime/schedule/passes/compress.hpp"
#include "runtime/schedule/passes/fuse.hpp"
#include "runtime/schedule/passes/in_place.hpp"
#include "runtime/schedule/passes/lower.hpp"
#include "runtime/schedule/passes/segment.hpp"
#include "runtime/schedule/passes/share_losses.hpp"
#include "runtime/scheduler/call_contract.hpp"
#include "runtime/scheduler/plan_cache.hpp"
#include "runtime/scheduler/shared_plans.hpp"

namespace tutti {
namespace {

enum PlanFlag : std::uint32_t { in_place_plan = 1, user_op_plan = 2, compressed_plan = 4, feedback_plan = 8 };

bool is_user_op(const Call& call) { return is_reducing(call.collective) && call.op.op == Op::user; }

// From so many ranks on the schedules of all take a megabyte and more.
constexpr std::uint32_t kManyRanks = 16;

Result<LoweredPlans> lower_all(const AlgorithmRow& row, const AlgorithmRow* shared_row,
                               const Instance& instance, std::uint32_t rank, std::uint32_t most_lines,
                               std::size_t staging_bytes) {
  const auto lower = [&](const std::vector<Schedule>& ranks,
                         Sharing sharing) -> std::shared_ptr<const LoweredPlan> {
    auto lowered = lower_for_shared_memory(ranks, sharing);
    if (!lowered || !is_right_in_place(*lowered)) return nullptr;
    auto plan = compile_lowered(*lowered, rank, most_lines);
    // Each slot of its scratch needs at least a line of the staging memory.
    if (!plan || plan->staging_slots * kLineBytes > staging_bytes) return nullptr;
    return std::make_shared<const LoweredPlan>(*std::move(plan));
  };
  LoweredPlans made;
  const std::uint64_t most_steps = most_lowered_steps(instance.size);
  auto ranks = emit_all(row, instance, most_steps);
  if (!ranks) return ranks.status();
  if (ranks->empty()) return made;
  made.staged = lower(*ranks, Sharing::scratch);
  if (made.staged == nullptr) return made;
  if (shared_row != nullptr) {
    Instance shared = instance;
    shared.params = default_params(*shared_row);
    ranks = emit_all(*shared_row, shared, most_steps);
    if (!ranks) return ranks.status();
    if (ranks->empty()) return made;
  }
  // Scratch of a direct plan would have to hold a part of the whole vector.
  made.direct = lower(*ranks, Sharing::buffers);
  if (made.direct != nullptr && made.direct->staging_slots > 0) made.direct = nullptr;
  return made;
}

Result<LoweredPlans> copy_of(const Result<LoweredPlans>& made) {
  if (!made) return made.status();
  LoweredPlans copy;
  if (made->staged != nullptr) copy.staged = std::make_shared<const LoweredPlan>(*made->staged);
  if (made->direct != nullptr) copy.direct = std::make_shared<const LoweredPlan>(*made->direct);
  return copy;
}

}  // namespace

Result<LoweredPlans> make_lowered_plans(const AlgorithmRow& row, const AlgorithmRow* shared_row,
                                        const Instance& instance, std::uint32_t rank,
                                        std::uint32_t most_lines, std::size_t staging_bytes) {
  const auto make = [&] { return lower_all(row, shared_row, instance, rank, most_lines, staging_bytes); };
  return instance.size < kManyRanks ? make() : make_on_own_heap(make, copy_of);
}

BlockKind choose_block_kind(const GroupContext& group, const Call& call, std::size_t vector_bytes,
                            const LoweredPlan& plan) {
  if (vector_bytes >= group.lowered_limits().announce_bytes) return BlockKind::bulk;
  const std::uint64_t blocks = has_rank_blocks(call.collective) ? 1 : plan.shape.blocks;
  constexpr std::size_t kGranule = 64;  // what a block, and a slot, may be longer by
  const std::size_t slot_bytes = call.count * size_of(call.dtype) / blocks + 2 * kGranule;
  const std::size_t staging_bytes = plan.staging_slots * slot_bytes;
  for (const BlockKind kind : {BlockKind::tiny, BlockKind::small}) {
    const ControlBlockShape& shape = group.control_block_shape(kind);
    if (plan.line_count <= shape.lines && staging_bytes <= shape.staging_bytes) return kind;
  }
  return BlockKind::bulk;
}

namespace {

class NativeBackend final : public Backend {
 public:
  NativeBackend(GroupContext& group, const Selector& selector, std::size_t cache_bytes, Hierarchy hierarchy,
                Reach reach, bool shares_cpus, const WireSetting& wire, bool spans_sockets)
      : group_(group),
        selector_(selector),
        hierarchy_(std::move(hierarchy)),
        reach_(reach),
        shares_cpus_(shares_cpus),
        spans_sockets_(spans_sockets),
        wire_(wire),
        plans_(cache_bytes),
        lowered_(cache_bytes),
        table_(cache_bytes),
        can_fuse_(true) {
    for (std::size_t i = 0; i < group.engine().transport_count(); ++i) {
      can_fuse_ = can_fuse_ && group.engine().transport(i).caps().has_in_place_delivery;
    }
    shared_plans_ =
        group.engine().plans().of({group.rank(), group.size(), hierarchy_, can_fuse_, wire_.is_everywhere,
                                   group.control_block_shape(BlockKind::small).lines,
                                   group.control_block_shape(BlockKind::bulk).staging_bytes});
  }

  const BackendCaps& caps() const override { return caps_; }

  Status supports(const Call& call) const override {
    const bool is_message = call.collective == Collective::send_recv;
    const bool is_from_any = is_message && !call.is_send && call.root == kFromAnyRank;
    if ((is_message || is_rooted(call.collective)) && !is_from_any && call.root >= group_.size())
      return invalid_argument(fmt::format("rank {} of a group of {}", call.root, group_.size()));
    return is_reducing(call.collective) ? check_op(call.op, call.dtype) : Status();
  }

  Result<WorkRef> start(const Call& call, const Choice& choice) override {
    if (is_prescaled(call) && call.in_place) return start(as_carried_out(call, group_.rank()), choice);
    if (!CallSignature::is_simple(call) || call.collective == Collective::send_recv)
      return start_special(call, choice);
    const CallSignature signature(call);
    SignatureTable::Entry* entry = table_.find(signature, choice.algorithm);
    if (entry == nullptr) {
      // Nothing that was supported a call ago needs to be asked again.
      TUTTI_RETURN_IF_ERROR(supports(call));
      auto made = make_entry(signature, call, choice.algorithm);
      if (!made) return made.status();
      entry = *made;
    }
    if (CachedCall* const cached = cached_of(*entry); cached != nullptr) {
      WorkRef unfinished;
      if (cached->run(call, choice.completion, &unfinished)) return unfinished;
    }
    return group_.submit(entry->prepared, call, choice.completion);
  }

  CachedCall* cached_call(const Call& call) override {
    if (!CallSignature::is_simple(call) || call.collective == Collective::send_recv) return nullptr;
    SignatureTable::Entry* const entry = table_.find(CallSignature(call), {});
    return entry != nullptr ? cached_of(*entry) : nullptr;
  }

  Result<std::shared_ptr<const LoweredPlans>> lowered_plans(const Call& call,
                                                            std::string_view algorithm) override {
    if (!may_lower(call)) return std::shared_ptr<const LoweredPlans>();
    const auto selection = selector_.choose(question(call), algorithm);
    if (!selection) return selection.status();
    return lowered_plans_of(key_of(call, *selection), call, *selection);
  }

  Result<std::string> explain(const Call& call) const override {
    const auto selection = selector_.choose(question(call));
    if (!selection) return selection.status();
    return fmt::format("{}{}: {}{}", selection->row->name, describe_shared(*selection),
                       describe_source(*selection), describe_wire(call));
  }

 private:
  Question question(const Call& call) const {
    Question q = question_of(call, group_.size());
    q.hierarchy = &hierarchy_;
    q.reach = reach_;
    q.shares_cpus = shares_cpus_;
    q.spans_sockets = spans_sockets_;
    return q;
  }

  // Calls that the table does not know.
  Result<WorkRef> start_special(const Call& call, const Choice& choice) {
    TUTTI_RETURN_IF_ERROR(supports(call));
    if (call.collective == Collective::send_recv) {
      if (!choice.algorithm.empty())
        return unsupported("algorithm argument: a message of two ranks has none");
      Prepared message;
      message.contract = contract_of(call, group_.contract());
      return group_.submit(message, call, choice.completion);
    }
    Prepared prepared;
    TUTTI_RETURN_IF_ERROR(prepare(call, choice.algorithm, &prepared));
    return group_.submit(prepared, call, choice.completion);
  }

  Result<SignatureTable::Entry*> make_entry(const CallSignature& signature, const Call& call,
                                            std::string_view algorithm) {
    const bool is_kept = algorithm.empty() && table_.has_room();
    SignatureTable::Entry entry = is_kept ? SignatureTable::Entry() : table_.take_spare();
    TUTTI_RETURN_IF_ERROR(prepare(call, algorithm, &entry.prepared));
    if (is_kept) {
      entry.cached = CachedEpoch::make(group_, entry.prepared, call);
      return table_.insert(signature, std::move(entry));
    }
    entry.is_ready = false;
    return table_.put_spare(signature, algorithm, std::move(entry));
  }

  // The cached call of an entry; null where nothing is gained, or not yet: the first operation links control blocks.
  CachedCall* cached_of(SignatureTable::Entry& entry) {
    if (entry.is_ready) return entry.cached.get();
    Prepared& prepared = entry.prepared;
    if (prepared.lowered == nullptr || !group_.has_control_blocks(prepared.kind)) return nullptr;
    prepared.messages = nullptr;  // a way back that is not needed any more
    if (entry.cached != nullptr) entry.cached->resolve();
    entry.is_ready = true;
    return entry.cached.get();
  }

  // Losses of rounding are shared where all ranks form the same values.
  Result<Selection> choose(const Call& call, const Question& asked, std::string_view algorithm) const {
    auto selection = selector_.choose(asked, algorithm);
    const bool needs_same_bits = algorithm.empty() && has_feedback(call);
    if (!selection || !needs_same_bits || selection->row->same_bits) return selection;
    return selector_.choose(asked, "recursive_doubling");
  }

  // Fills in how a call is carried out. The former content of `prepared` is used again.
  Status prepare(const Call& call, std::string_view algorithm, Prepared* prepared) {
    const Question asked = question(call);
    const auto selection = choose(call, asked, algorithm);
    if (!selection) return selection.status();
    if (group_.rank() == 0 && is_log_enabled(LogLevel::info))
      report(asked, describe(*selection) + describe_wire(call));
    if (Trace* const trace = group_.engine().trace())
      prepared->choice = trace->note_choice(describe(*selection) + describe_wire(call));
    prepared->messages = nullptr;
    prepared->vector_bytes = asked.bytes;
    prepared->kernel = is_reducing(call.collective) ? select_kernel(call.op.op, call.dtype) : nullptr;
    prepared->wire = wire_format_of(call);
    const PlanKey key = key_of(call, *selection);
    Call agreed = call;
    agreed.wire_dtype = wire_dtype_of(call);
    prepared->contract = contract_of(agreed, settings_of(*selection, key));
    // Ranks may differ in whether they call in place, and lowering sees the steps of all of them: so one form
    // serves both.
    std::shared_ptr<const LoweredPlans> plans;
    if (may_lower(call)) {
      auto lowered = lowered_plans_of(key, call, *selection);
      if (!lowered) return lowered.status();
      if ((*lowered)->staged != nullptr) plans = *std::move(lowered);
    }
    const bool is_lowered = plans != nullptr;
    prepared->row = group_.row_of(call.collective, asked.bytes, selection->row->name, is_lowered);
    const BlockKind kind =
        is_lowered ? choose_block_kind(group_, call, asked.bytes, *plans->staged) : BlockKind::tiny;
    group_.place(std::move(plans), kind, call, prepared);
    if (is_lowered && group_.has_control_blocks(kind)) return {};
    prepared->messages = plans_.find(key);
    if (prepared->messages != nullptr) return {};
    auto plan = shared_plans_->get<Plan>(key, [&] { return make_plan(call, *selection); });
    if (!plan) return plan.status();
    prepared->messages = keep(plans_, key, *std::move(plan));
    return {};
  }

  template <class T>
  std::shared_ptr<const T> keep(PlanCache<T>& cache, const PlanKey& key, std::shared_ptr<const T> plan) {
    bool has_dropped = false;
    auto kept = cache.insert(key, std::move(plan), &has_dropped);
    if (has_dropped) table_.forget_plans();
    return kept;
  }

  static std::string describe(const Selection& selection) {
    return fmt::format("{}{} by {}", to_text(*selection.row, selection.params), describe_shared(selection),
                       describe_source(selection));
  }

  // A line when an algorithm, with its parameters and by that rule, is first used.
  void report(const Question& asked, const std::string& text) {
    if (!reported_.insert(fmt::format("{} {}", to_string(asked.collective), text)).second) return;
    log_info("{} of {} bytes over {} ranks: {}", to_string(asked.collective), asked.bytes, asked.size, text);
  }

  // -- compression ----------------------------------------------------------------------------------------
  // The dtype in which ranks agree to send, if any.
  std::optional<Dtype> wire_dtype_of(const Call& call) const {
    const std::optional<Dtype> asked = call.wire_dtype ? call.wire_dtype : wire_.dtype;
    return asked && is_wire_dtype(*asked) && has_wire_form(call) ? asked : std::nullopt;
  }
  // Memory that ranks share is no wire.
  bool is_compressed(const Call& call) const {
    return wire_dtype_of(call) && group_.size() > 1 && !group_.shares_memory() &&
           (wire_.is_everywhere || reach_ == Reach::network);
  }
  bool has_feedback(const Call& call) const { return call.residual != nullptr && is_compressed(call); }
  WireFormat wire_format_of(const Call& call) const {
    if (!is_compressed(call)) return {};
    const Dtype dtype = *wire_dtype_of(call);
    return {select_conversions(dtype), size_of(dtype)};
  }
  std::string describe_wire(const Call& call) const {
    return is_compressed(call) ? fmt::format(", {} on the wire", to_string(*wire_dtype_of(call))) : "";
  }

  // -- lowered plans --------------------------------------------------------------------------------------

  // Messages carry the other calls. Ranks know uneven counts in part only, and a user's function must not run
  // within a step that others wait for.
  bool may_lower(const Call& call) const {
    return group_.shares_memory() && !has_uneven_blocks(call) && !is_user_op(call);
  }

  // Both forms, made from the schedules of all ranks; empty where this algorithm has none.
  Result<std::shared_ptr<const LoweredPlans>> lowered_plans_of(PlanKey key, const Call& call,
                                                               const Selection& selection) {
    key.flags &= ~std::uint32_t{in_place_plan};
    key.shared_row = selection.shared_row;
    if (auto known = lowered_.find(key)) return known;
    Instance instance;
    instance.size = group_.size();
    instance.root = is_rooted(call.collective) ? call.root : 0;
    instance.params = selection.params;
    instance.hierarchy = hierarchy_;
    auto plans = shared_plans_->get<LoweredPlans>(key, [&] {
      return make_lowered_plans(*selection.row, selection.shared_row, instance, group_.rank(),
                                group_.control_block_shape(BlockKind::small).lines,
                                group_.control_block_shape(BlockKind::bulk).staging_bytes);
    });
    if (!plans) return plans.status();
    return keep(lowered_, key, *std::move(plans));
  }

  // Ranks that run other schedules of one call could take each other's messages for their own.
  std::uint64_t settings_of(const Selection& s, const PlanKey& key) const {
    const std::uint64_t chosen = extend_digest(extend_digest(group_.contract(), s.row->name), key.params);
    return s.shared_row == nullptr ? chosen : extend_digest(chosen, s.shared_row->name);
  }

  PlanKey key_of(const Call& call, const Selection& s) const {
    PlanKey key;
    key.row = s.row;
    key.params = pack(s.params);
    key.root = is_rooted(call.collective) ? call.root : 0;
    key.flags = (call.in_place ? std::uint32_t{in_place_plan} : 0U) |
                (is_user_op(call) ? std::uint32_t{user_op_plan} : 0U) |
                (is_compressed(call) ? std::uint32_t{compressed_plan} : 0U) |
                (has_feedback(call) ? std::uint32_t{feedback_plan} : 0U);
    return key;
  }

  Result<Plan> make_plan(const Call& call, const Selection& s) const {
    auto schedule = has_feedback(call) ? schedule_with_shares(call, s) : schedule_of(call, s, group_.rank());
    if (!schedule) return schedule.status();
    // A user's function never runs while the progress engine is held, as it would in a receive.
    if (can_fuse_ && !is_user_op(call)) return compile(fuse(*std::move(schedule)));
    return compile(*std::move(schedule));
  }

  Result<Schedule> schedule_with_shares(const Call& call, const Selection& s) const {
    if (!s.row->same_bits)
      return unsupported(
          fmt::format("residual: '{}' gives ranks different bits; choose another algorithm", s.row->name));
    std::vector<Schedule> ranks;
    for (std::uint32_t rank = 0; rank < group_.size(); ++rank) {
      auto schedule = schedule_of(call, s, rank);
      if (!schedule) return schedule.status();
      ranks.push_back(*std::move(schedule));
    }
    return share_losses(ranks, group_.rank());
  }

  // Messages of the rank in a call like this one.
  Result<Schedule> schedule_of(const Call& call, const Selection& s, std::uint32_t rank) const {
    CollectiveSpec spec;
    spec.collective = call.collective;
    spec.root = is_rooted(call.collective) ? call.root : 0;
    // In place these two leave the blocks of other ranks alone.
    const bool keeps_input =
        call.collective == Collective::reduce_scatter || call.collective == Collective::scatter;
    spec.in_place = call.in_place && !keeps_input;
    const GroupView view{rank, group_.size(), 0, 1, nullptr, &hierarchy_};
    auto schedule = s.row->emit(spec, view, s.params);
    if (!schedule) return schedule.status();
    if (call.in_place && keeps_input) schedule = put_input_into_output(*schedule);
    if (s.params.segments > 1 && has_segment_pass(*s.row)) {
      schedule = segment(*schedule, s.params.segments, s.params.channels);
      if (!schedule) return schedule.status();
    }
    if (is_compressed(call)) {
      // Rows of domains send in full within one, others know no domains.
      const bool keeps_domains = s.row->legality.needs_hierarchy && !wire_.is_everywhere;
      return compress(*schedule, keeps_domains ? &hierarchy_ : nullptr);
    }
    return schedule;
  }

  GroupContext& group_;
  const Selector& selector_;
  const Hierarchy hierarchy_;
  const Reach reach_;
  const bool shares_cpus_, spans_sockets_;
  const WireSetting wire_;
  std::shared_ptr<SharedPlans> shared_plans_;
  PlanCache<Plan> plans_;
  PlanCache<LoweredPlans> lowered_;
  SignatureTable table_;
  std::set<std::string> reported_;
  BackendCaps caps_{"native"};
  bool can_fuse_;
};

}  // namespace

std::unique_ptr<Backend> make_native_backend(GroupContext& group, const Selector& selector,
                                             std::size_t cache_bytes, Hierarchy hierarchy, Reach reach,
                                             bool shares_cpus, const WireSetting& wire, bool spans_sockets) {
  return std::make_unique<NativeBackend>(group, selector, cache_bytes, std::move(hierarchy), reach,
                                         shares_cpus, wire, spans_sockets);
}

}  // namespace tutti
