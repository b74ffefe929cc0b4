// Connecting ranks in one thread, and playing those that are puppets. Knows the executor's parts; times nothing.
#include "bench/puppet/puppet.hpp"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "backends/native/native_backend.hpp"
#include "runtime/schedule/passes/lower.hpp"
#include "runtime/scheduler/call_contract.hpp"
#include "transports/memory/inproc/plugin.hpp"

namespace tutti::bench {
namespace {

// Steps of one peer in one epoch.
struct PeerDriver {
  const Prepared& prepared;
  std::uint32_t rank;  // the one that is no puppet
  const std::uintptr_t* origins;
  std::uint64_t epoch, digest;

  static constexpr bool may_go_on() { return true; }
  FlagLine& line_at(const ResolvedStep& step) const {
    return *reinterpret_cast<FlagLine*>(step.at.in(origins));
  }
  void signal(const ResolvedStep& step) const {
    line_at(step).signal(epoch, digest);
    prepared.lowered->control_blocks().wake_sleepers();
  }
  bool work(const ResolvedStep& step) const {
    ResolvedCall& resolved = *prepared.lowered;
    if (step.is_plain) {
      run_plain(resolved.whole(), origins, step, prepared.kernel);
      return true;
    }
    PassSettings settings;
    settings.epoch = &resolved.whole();
    settings.origins = origins;
    settings.kernel = prepared.kernel;
    settings.stores = &resolved.control_blocks().stores();
    settings.limits = &resolved.limits();
    settings.element_bytes = resolved.element_bytes();
    std::size_t offset = 0;
    return run_pass(stores_of(step), settings, &offset);
  }
  // The rank's line is read, as a peer would: so the rank's next store has to get it back.
  bool wait(const ResolvedStep& step) const {
    return line_at(step).is_of(epoch, digest) || step.peer == rank;
  }
};

}  // namespace

struct Puppet::Member {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<GroupContext> group;
  std::vector<unsigned char> input, output;
  Call call;
  Prepared prepared;
  // Of the epoch that is played.
  std::array<std::uintptr_t, ResolvedPlace::peer_buffers> origins{};
  std::uint32_t control_slot = 0;
  std::uint64_t epoch = 0, digest = 0;
  const ResolvedStep* next = nullptr;  // null: it has ended

  const ResolvedStep* end() const {
    const ResolvedEpoch& resolved = prepared.lowered->whole();
    return resolved.steps.data() + resolved.steps.size();
  }
  void begin_epoch() {
    ControlBlocks& blocks = prepared.lowered->control_blocks();
    const std::uint32_t sequence = group->next_sequence();
    control_slot = GroupContext::control_slot(prepared.slots.of(sequence));
    digest = group->digest_with(prepared.contract);
    group->remember(sequence, digest, prepared.contract, {record::Phase::complete, false, prepared.row});
    epoch = blocks.next_epoch(control_slot);
    prepared.lowered->set_origins(origins.data(), blocks.area(control_slot, epoch), epoch,
                                  prepared.lowered->whole(),
                                  lowered_buffers(call, prepared.lowered->shape()));
    next = prepared.lowered->whole().steps.data();
  }
  // Goes on until it waits for another peer. True: it has come further.
  bool go_on(std::uint32_t rank) {
    PeerDriver driver{prepared, rank, origins.data(), epoch, digest};
    const ResolvedStep* const stopped = run_steps(prepared.lowered->whole(), next, driver);
    const bool has_moved = stopped != std::exchange(next, stopped);
    if (next != end()) return has_moved;
    prepared.lowered->control_blocks().end_epoch(control_slot, prepared.lowered->shape().hears_from_all,
                                                 prepared.lowered->readers());
    next = nullptr;
    return true;
  }
};

Puppet::Puppet(const PuppetSetup& setup)
    : setup_(setup), inputs_(setup.shape.dtype, setup.op, setup.shape.ranks) {}

Puppet::~Puppet() {
  // All leave before any endpoint's peer is destroyed.
  for (const auto& member : members_)
    if (member->group) member->group->leave(Status(StatusCode::aborted, "the puppet show is over"));
}

Result<std::unique_ptr<Puppet>> Puppet::make(const PuppetSetup& setup) {
  // Two ranks alternate as writers of an area, so an earlier call leaves other values there.
  if (setup.shape.ranks < 3) return unsupported("puppet: takes at least 3 ranks");
  if (setup.shape.bytes() >= LoweredLimits{}.announce_bytes)
    return unsupported(fmt::format("puppet: calls of {} bytes and more announce their buffers first",
                                   LoweredLimits{}.announce_bytes));
  auto ranks = emit_all(*setup.row, setup.instance, most_lowered_steps(setup.instance.size));
  if (!ranks) return ranks.status();
  auto lowered = lower_for_shared_memory(*ranks, Sharing::scratch);
  if (!lowered || lowered->empty() || !is_right_in_place(*lowered))
    return unsupported(
        fmt::format("puppet: messages carry {} over {} ranks", setup.row->name, setup.shape.ranks));
  std::unique_ptr<Puppet> puppet(new Puppet(setup));
  TUTTI_RETURN_IF_ERROR(puppet->connect(*lowered));
  TUTTI_RETURN_IF_ERROR(puppet->run_first_call());
  return puppet;
}

Status Puppet::connect(const std::vector<Schedule>& lowered) {
  const auto size = static_cast<std::uint32_t>(setup_.shape.ranks);
  const auto fabric = make_inproc_fabric();
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<std::vector<std::byte>> addresses;
  for (std::uint32_t r = 0; r < size; ++r) {
    auto made = make_inproc_transport(fabric, {});
    if (!made) return made.status();
    transports.push_back(*std::move(made));
    addresses.push_back(transports.back()->address());
  }
  for (std::uint32_t r = 0; r < size; ++r) {
    auto member = std::make_unique<Member>();
    GroupContext::Options group;
    group.context = 1;
    group.rank = r;
    PeerList peers;
    for (const auto& address : addresses) peers.emplace_back(transports[r].get(), address);
    group.peers = std::make_shared<const PeerList>(std::move(peers));
    Engine::Options engine;
    engine.waiting = setup_.waiting;
    std::vector<std::unique_ptr<Transport>> own;
    own.push_back(std::move(transports[r]));
    member->engine = std::make_unique<Engine>(std::move(own), engine);
    member->group = std::make_unique<GroupContext>(*member->engine, std::move(group));
    TUTTI_RETURN_IF_ERROR(prepare(*member, lowered));
    members_.push_back(std::move(member));
  }
  return {};
}

Status Puppet::prepare(Member& member, const std::vector<Schedule>& lowered) {
  const Shape& shape = setup_.shape;
  const std::uint32_t rank = member.group->rank();
  const auto rank_index = static_cast<int>(rank);
  member.input.resize(shape.input_count(rank_index) * size_of(shape.dtype));
  member.output.resize(shape.output_count(rank_index) * size_of(shape.dtype));
  fill_input(inputs_, shape, rank_index, 0, member.input.data());
  Call& call = member.call;
  call.collective = shape.collective;
  call.dtype = shape.dtype;
  call.op.op = setup_.op;
  call.root = static_cast<std::uint32_t>(shape.root);
  call.input = member.input.empty() ? nullptr : member.input.data();
  call.output = member.output.empty() ? nullptr : member.output.data();
  call.count = call_count(shape);

  auto plan = compile_lowered(lowered, rank, member.group->control_block_shape(BlockKind::small).lines);
  if (!plan) return plan.status();
  LoweredPlans plans;
  plans.staged = std::make_shared<const LoweredPlan>(*std::move(plan));
  Prepared& prepared = member.prepared;
  prepared.vector_bytes = shape.bytes();
  prepared.kernel = is_reducing(call.collective) ? select_kernel(call.op.op, call.dtype) : nullptr;
  prepared.contract = contract_of(call, member.group->contract());
  prepared.row = member.group->row_of(call.collective, shape.bytes(), setup_.row->name, true);
  const BlockKind kind = choose_block_kind(*member.group, call, shape.bytes(), *plans.staged);
  member.group->place(std::make_shared<const LoweredPlans>(std::move(plans)), kind, call, &prepared);
  if (!prepared.lowered->is_one_epoch())
    return unsupported(
        fmt::format("puppet: {} bytes over {} ranks take several epochs", shape.bytes(), shape.ranks));
  return {};
}

Status Puppet::run_first_call() {
  std::vector<WorkRef> under_way;
  for (const auto& member : members_) {
    auto work = member->group->submit(member->prepared, member->call, Completion::asynchronous);
    if (!work) return work.status();
    under_way.push_back(*std::move(work));
  }
  for (bool is_complete = false; !is_complete;) {
    is_complete = true;
    for (const WorkRef& work : under_way) is_complete = work->test() && is_complete;
  }
  for (std::size_t r = 0; r < under_way.size(); ++r)
    TUTTI_RETURN_IF_ERROR(under_way[r]->status().with_context(fmt::format("puppet: rank {}", r)));
  Member& own = *members_[setup_.rank];
  const ControlBlocks& blocks = own.prepared.lowered->control_blocks();
  if (blocks.state() != ControlBlocks::State::linked)
    return Status(StatusCode::resource_exhausted, "puppet: no memory for the control blocks");
  for (const auto& member : members_) {
    member->engine->lock().acquire();
    static_cast<void>(member->prepared.lowered->staged());
    member->engine->lock().release();
  }
  cached_ = CachedEpoch::make(*own.group, own.prepared, own.call);
  if (cached_ == nullptr) return unsupported("puppet: calls of this kind are not cached");
  cached_->resolve();
  const std::size_t taken = own.prepared.lowered->whole().staged_bytes, room = blocks.shape().staging_bytes;
  const bool rotates = blocks.shape().rotates_offset && taken > 0 && taken <= room / 2;
  priming_calls_ = static_cast<std::uint32_t>(4 * blocks.shape().slots * (rotates ? room / taken : 1));
  return {};
}

Status Puppet::play() {
  for (std::uint32_t r = 0; r < members_.size(); ++r)
    if (r != setup_.rank) members_[r]->begin_epoch();
  for (bool is_left = true; is_left;) {
    is_left = false;
    bool has_moved = false;
    for (std::uint32_t r = 0; r < members_.size(); ++r) {
      Member& member = *members_[r];
      if (r == setup_.rank || member.next == nullptr) continue;
      has_moved = member.go_on(setup_.rank) || has_moved;
      is_left = is_left || member.next != nullptr;
    }
    if (is_left && !has_moved)
      return Status(StatusCode::internal, "puppet: the peers wait for each other forever");
  }
  return {};
}

Status Puppet::run() {
  WorkRef unfinished;
  if (cached_->run(members_[setup_.rank]->call, Completion::blocking, &unfinished) && !unfinished) return {};
  return Status(StatusCode::internal, "puppet: the rank's call did not run through; it found a peer behind");
}

std::size_t Puppet::wrong_count() const {
  return wrong_elements(inputs_, setup_.shape, static_cast<int>(setup_.rank), 0,
                        members_[setup_.rank]->output.data());
}

StepCounts Puppet::counts() const {
  const ResolvedEpoch& epoch = members_[setup_.rank]->prepared.lowered->whole();
  StepCounts counts;
  counts.written_lines = epoch.written.size();
  for (const ResolvedStep& step : epoch.steps) {
    if (step.kind == LoweredStep::Kind::signal) ++counts.signals;
    if (step.kind == LoweredStep::Kind::wait) ++counts.waits;
    if (step.kind == LoweredStep::Kind::signal || step.kind == LoweredStep::Kind::wait) continue;
    ++counts.passes;
    for (std::uint32_t i = 0; i < step.source_count; ++i)
      if (epoch.sources[step.first_source + i].origin == ResolvedPlace::others_staging)
        counts.read_lines += (step.bytes + kLineBytes - 1) / kLineBytes;
  }
  counts.read_lines += counts.waits;
  return counts;
}

}  // namespace tutti::bench
