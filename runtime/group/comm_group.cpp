// Construction and end of a group, and submission to it. Knows no argument checking; that is calls.cpp.
#include "runtime/group/comm_group.hpp"

#include "runtime/group/call_fusion.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "backends/native/native_backend.hpp"
#include "runtime/base/fork_guard.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/rank_lists.hpp"
#include "runtime/group/cache_limits.hpp"
#include "runtime/group/device_calls.hpp"
#include "runtime/group/work_access.hpp"
#include "runtime/kernels/kernels.hpp"

namespace tutti {
namespace {

constexpr std::size_t kPlanCacheBytes = std::size_t{64} << 20U;
constexpr std::chrono::seconds kUnwindTime{10};

}  // namespace

void throw_error(const Status& status) { throw Error(status.code(), status.peer(), status.message()); }

std::shared_ptr<CommGroup::Impl> CommGroup::Impl::make(std::shared_ptr<WorldState> world,
                                                       std::vector<int> world_ranks, std::uint64_t context,
                                                       std::chrono::milliseconds timeout,
                                                       std::shared_ptr<const Selector> rules) {
  std::shared_ptr<Impl> impl =
      own(new Impl(std::move(world), std::move(world_ranks), context, timeout, std::move(rules)));
  impl->world_->callers().note();
  impl->world_->add(*impl);
  return impl;
}

// In a child of fork() endpoints and threads belong to the parent: close nothing.
std::shared_ptr<CommGroup::Impl> CommGroup::Impl::own(Impl* made) {
  return {made, [generation = fork_generation()](Impl* last) {
            if (generation == fork_generation()) delete last;
          }};
}

std::shared_ptr<CommGroup::Impl> CommGroup::Impl::with_rules(std::shared_ptr<const Selector> rules) {
  if (group_->has_failed()) throw_error(settle(group_->failure()));
  return make(world_, world_ranks_, derive_context(world_ranks_, MadeBy::rules, {}), group_->timeout(),
              std::move(rules));
}

void CommGroup::Impl::refuse_closed(const char* name) {
  throw_error(invalid_argument(std::string(name) + ": this CommGroup is closed (it is no group)"));
}

CommGroup::Impl::Impl(std::shared_ptr<WorldState> world, std::vector<int> world_ranks, std::uint64_t context,
                      std::chrono::milliseconds timeout, std::shared_ptr<const Selector> rules, Impl* owner,
                      int stream)
    : world_(std::move(world)),
      rules_(std::move(rules)),
      world_ranks_(std::move(world_ranks)),
      is_alone_(world_ranks_.size() == 1 && world_->engine().trace() == nullptr),
      owner_(owner),
      stream_(stream) {
  static std::atomic<std::uint64_t> last_number{0};
  number_ = last_number.fetch_add(1, std::memory_order_relaxed) + 1;
  rank_ = group_rank_of(world_->info().rank);
  fuses_calls_ = stream_ >= 0 && size() > 1 && world_->settings().tensors.fusion.call_count > 1;
  GroupContext::Options options;
  options.context = context;
  options.rank = static_cast<std::uint32_t>(rank_);
  options.stream = stream_;
  options.peers = world_->peers_of(world_ranks_);
  options.contract = world_->contract_hash();
  options.timeout = timeout;
  options.uses_control_blocks = world_->settings().uses_control_blocks;
  const CacheLimits limits =
      limits_for(caches_of(world_->settings().topology), static_cast<std::uint32_t>(size()));
  options.lowered_limits = limits.lowered;
  options.shape(BlockKind::small).staging_bytes = limits.small_staging_bytes;
  options.shape(BlockKind::bulk).staging_bytes = limits.bulk_staging_bytes;
  options.staging = world_->settings().staging;
  options.record = world_->record();
  group_ = std::make_unique<GroupContext>(world_->engine(), std::move(options));
  Hierarchy hierarchy = world_->domains().hierarchy_of(world_ranks_);
  if (!hierarchy.is_flat() && rank_ == 0 && owner_ == nullptr)
    log_info("group of {} ranks in {}", size(), to_text(hierarchy));
  backend_ = make_native_backend(*group_, selector(), kPlanCacheBytes, std::move(hierarchy),
                                 world_->domains().spans_nodes(world_ranks_) ? Reach::network : Reach::node,
                                 world_->domains().shares_cpus(world_ranks_), world_->settings().wire,
                                 world_->domains().spans_sockets(world_ranks_));
}

CommGroup::Impl::~Impl() {
  std::map<int, std::shared_ptr<Impl>> streams;
  {
    const std::lock_guard lock(streams_mutex_);
    streams.swap(streams_);
  }
  // Both use internal streams.
  close_call_fusion();
  device_calls_.reset();
  for (const auto& [number, stream] : streams) {
    stream->close_call_fusion();
    stream->device_calls_.reset();
  }
  streams.clear();  // without the mutex, which failure reports take
  world_->remove(*this);
  backend_.reset();  // its plans are used by operations, which the group ends
  group_.reset();
}

void CommGroup::Impl::refuse_child() {
  throw_error(unsupported(
      "this process was forked from a rank and cannot use the rank's groups: start workers before "
      "init(), or let them exec a program of their own"));
}

int CommGroup::Impl::group_rank_of(int world_rank) const {
  const auto found = std::find(world_ranks_.begin(), world_ranks_.end(), world_rank);
  return found == world_ranks_.end() ? -1 : static_cast<int>(found - world_ranks_.begin());
}

// -- submission ---------------------------------------------------------------------------------------------

ReduceOp CommGroup::Impl::convert(const Reduction& reduction) {
  const detail::ReductionValue value = ReductionAccess::value_of(reduction);
  if (reduction.op() == Op::premul_sum) {
    return value.has_integer_factor ? ReduceOp::premul_sum_integer(value.integer_factor)
                                    : ReduceOp::premul_sum(value.factor);
  }
  if (reduction.op() != Op::user) return reduction.op();
  return ReduceOp::user_defined(
      UserOp{value.function, value.context, value.is_commutative, value.element_bytes});
}

DeviceBackend& CommGroup::Impl::device_backend() {
  if (device_calls_ == nullptr) {
    auto made = DeviceCalls::make(*this);
    throw_if_error(made.status());
    device_calls_ = *std::move(made);
  }
  return device_calls_->backend();
}

void CommGroup::Impl::split_device_calls(Impl* part, int colour) {
  if (device_calls_ == nullptr) return;
  const Status status =
      device_calls_->backend().split(part == nullptr ? nullptr : &part->device_backend(), colour);
  if (!status) throw_error(settle(status));
}

std::uint64_t CommGroup::Impl::register_buffer(const void* memory, std::size_t bytes) {
  throw_if_error(check_device_memory(memory, bytes));
  const auto number = device_backend().register_buffer(memory, bytes);
  throw_if_error(number.status());
  return *number;
}

void CommGroup::Impl::deregister_buffer(std::uint64_t number) {
  if (device_calls_ != nullptr) device_calls_->backend().deregister_buffer(number);
}

WorkRef CommGroup::Impl::submit_on_device(const Call& call, std::string_view algorithm) {
  check_may_wait();  // the first call connects the members
  compare_if_asked(call);
  Result<WorkRef> work = device_backend().start(call, algorithm);
  if (!work) throw_error(settle(work.status()));
  return *std::move(work);
}

WorkRef CommGroup::Impl::submit_checked(const Call& call, const Choice& choice) {
  compare_if_asked(call);
  Result<WorkRef> work = backend_->start(call, choice);
  if (!work) throw_error(settle(work.status()));
  return *std::move(work);
}

Work CommGroup::Impl::start(const Call& call, const CallOptions& options) {
  world_->callers().note();
  if (call.is_device)
    return WorkAccess::make(handle(), submit_on_device(call, options.algorithm), 0, options);
  if (run_alone(call, options.algorithm)) return {};
  if (fuses_calls_ && CallFusion::may_share(call, options.algorithm)) {
    const Result<WorkRef> work = call_fusion()->submit(call);
    if (!work) throw_error(settle(work.status()));
    return WorkAccess::make(handle(), *work, 0, options);
  }
  const Completion completion = options.will_wait ? Completion::awaited_soon : Completion::asynchronous;
  const WorkRef work = submit_checked(call, {options.algorithm, completion});
  if (!work) return {};
  const std::uint32_t sequence = call.collective == Collective::send_recv ? 0 : submitted_sequence();
  return WorkAccess::make(handle(), work, sequence, options);
}

std::shared_ptr<CallFusion> CommGroup::Impl::call_fusion() {
  {
    const std::lock_guard lock(fusion_mutex_);
    if (fusion_ != nullptr) return fusion_;
  }
  // Without the mutex: streams are made, and closed, under one of their own.
  Impl& lengths = internal_stream(Purpose::fusion_lengths);
  Impl& calls = internal_stream(Purpose::fused_calls);
  const FusionLimits& limits = world_->settings().tensors.fusion;
  const std::lock_guard lock(fusion_mutex_);
  if (fusion_ == nullptr)
    fusion_ = std::make_shared<CallFusion>(lengths, calls,
                                           CallFusion::Limits{limits.call_count, limits.fused_bytes});
  return fusion_;
}

void CommGroup::Impl::close_call_fusion() {
  std::shared_ptr<CallFusion> fusion;
  {
    const std::lock_guard lock(fusion_mutex_);
    fusion = fusion_;
  }
  if (fusion != nullptr) fusion->close();  // without the mutex, which callbacks may take
}

void CommGroup::Impl::check_may_wait() {
  if (!is_in_callback()) return;
  throw_error(invalid_argument(
      "a completion callback must not wait, nor a function that is called while waiting: submit there, "
      "and wait elsewhere or give that operation a callback too"));
}

// The result of one rank is its input.
bool CommGroup::Impl::run_alone(const Call& call) const {
  if (group_->has_failed()) return false;
  const bool moves_nothing = call.collective == Collective::barrier || call.collective == Collective::exscan;
  const bool is_scaled = is_reducing(call.collective) && scales_before(call.op.op);
  if (moves_nothing || (call.in_place && !is_scaled)) return true;
  const auto first = [](std::span<const std::uint64_t> list) { return list.empty() ? 0 : list[0]; };
  const bool has_two_lists = call.collective == Collective::alltoall;
  const bool has_input_list = has_two_lists || call.collective == Collective::scatter;
  const std::size_t bytes = element_bytes(call);
  const std::uint64_t count = call.counts.empty() ? call.count : call.counts[0];
  const auto* from = static_cast<const std::byte*>(call.input);
  auto* to = static_cast<std::byte*>(call.output);
  if (has_input_list) from += first(call.displacements) * bytes;
  if (has_two_lists) to += first(call.output_displacements) * bytes;
  if (!has_input_list) to += first(call.displacements) * bytes;
  run_in_parts(group_->engine().helpers(), count * bytes, count * bytes,
               [&](std::size_t at, std::size_t length) {
                 if (!is_scaled) return copy_bytes(to + at, from + at, length);
                 scale(call.op, 1, call.dtype, to + at, from + at, length / bytes);
               });
  return true;
}

void CommGroup::Impl::run(const Call& call, std::string_view algorithm) {
  world_->callers().note();
  check_may_wait();
  if (run_alone(call, algorithm)) return;
  // A call on GPU memory is done once it is enqueued on its stream.
  if (call.is_device) {
    submit_on_device(call, algorithm);
    return;
  }
  const WorkRef work = submit_checked(call, {algorithm, Completion::blocking});
  if (work) wait(*work.operator->(), call.collective == Collective::send_recv ? 0 : submitted_sequence());
}

int CommGroup::Impl::receive(const Call& call, std::string_view algorithm) {
  world_->callers().note();
  check_may_wait();
  if (call.is_device) {
    const WorkRef work = submit_on_device(call, algorithm);
    if (call.root != kFromAnyRank) return static_cast<int>(call.root);
    wait(*work.operator->(), 0);
    return work->source();
  }
  const WorkRef work = submit_checked(call, {algorithm, Completion::awaited_soon});
  wait(*work.operator->(), 0);
  return work->source();
}

bool CommGroup::Impl::run(const Call& call, CachedCall& cached, const CallOptions& options) {
  check_may_wait();  // before any operation uses the caller's buffers
  WorkRef unfinished;
  if (!cached.run(call, Completion::blocking, &unfinished)) return false;
  if (unfinished) {
    const WaitHookScope scope({options.while_waiting, options.while_waiting_context});
    wait(*unfinished.operator->(), submitted_sequence());
  }
  return true;
}

bool CommGroup::Impl::Alone::run(const Call& call, Completion /*completion*/, WorkRef* /*unfinished*/) {
  return group.run_alone(call);
}

CachedCall* CommGroup::Impl::cached_call(const Call& call) {
  if (is_alone_ && !call.is_device) return &alone_;
  const bool has_message_to_compare = world_->settings().check == CheckLevel::group;
  if (has_message_to_compare || call.collective == Collective::send_recv) return nullptr;
  return backend_->cached_call(call);
}

void CommGroup::Impl::wait(WorkState& state, std::uint32_t sequence) {
  // Most short operations are complete by now; they need no reading of the clock.
  if (state.is_complete() && state.status()) return;
  wait(state, sequence, Clock::now() + group_->timeout(), group_->timeout());
}

void CommGroup::Impl::wait(WorkState& state, std::uint32_t sequence, Clock::time_point deadline,
                           std::chrono::milliseconds limit) {
  if (!state.is_complete()) check_may_wait();
  const LastingWait lasting(world_->callers(), {context(), sequence});
  const Status status = state.is_complete() ? state.status() : state.wait(deadline);
  if (status) return;
  if (status.code() != StatusCode::timeout || group_->has_failed()) throw_error(settle(status));
  const Status cause = time_out(sequence, status, limit);
  // Return the buffers only after the failed operation has stopped using them.
  static_cast<void>(state.wait(Clock::now() + kUnwindTime));
  throw_error(cause);
}

void CommGroup::Impl::compare_if_asked(const Call& call) {
  if (world_->settings().check != CheckLevel::group || call.collective == Collective::send_recv ||
      size() == 1)
    return;
  constexpr std::size_t kTextBytes = 120;
  struct Summary {
    std::uint64_t hash;
    char text[kTextBytes];
  };
  Summary mine{};
  mine.hash = contract_of(call, world_->contract_hash()).hash;
  describe_call(call).copy(mine.text, kTextBytes - 1);
  std::vector<Summary> all(world_ranks_.size());
  Call swap;
  swap.collective = Collective::allgather;
  swap.dtype = Dtype::u8;
  swap.input = &mine;
  swap.output = all.data();
  swap.count = sizeof(Summary);
  Result<WorkRef> work = backend_->start(swap, {});
  if (!work) throw_error(settle(work.status()));
  const Status status = (*work)->wait(Clock::now() + group_->timeout());
  if (!status) {
    throw_error(status.code() == StatusCode::timeout && !group_->has_failed()
                    ? time_out(submitted_sequence(), status, group_->timeout())
                    : settle(status));
  }
  std::map<std::pair<std::uint64_t, std::string>, std::vector<int>> callers;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    callers[{all[rank].hash, all[rank].text}].push_back(static_cast<int>(rank));
  }
  if (callers.size() == 1) return;
  std::string text = "ranks of one group made different calls:";
  const char* separator = " ";
  for (const auto& [call_of, ranks] : callers) {
    text += fmt::format("{}{} called {}", separator, name_ranks(ranks, size()), call_of.second);
    separator = "; ";
  }
  throw_error(Status(StatusCode::mismatch, text, first_of_fewest(callers)));
}

}  // namespace tutti
