// The life of a group: making it, submitting to it, its failure. Knows no argument checking; that is
// calls.cpp.
#include "runtime/group/comm_group.hpp"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "backends/native/native_backend.hpp"
#include "runtime/base/fork_guard.hpp"
#include "runtime/base/kernels.hpp"
#include "runtime/base/log.hpp"
#include "runtime/group/cache_limits.hpp"
#include "runtime/group/device_calls.hpp"
#include "runtime/group/work_access.hpp"

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
  impl->world_->add(*impl);
  return impl;
}

// In a child of fork() endpoints and threads belong to the parent: nothing may be closed on its behalf.
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
  GroupContext::Options options;
  options.context = context;
  options.rank = static_cast<std::uint32_t>(rank_);
  for (const int world_rank : world_ranks_)
    options.peers.push_back(world_->peers()[static_cast<std::size_t>(world_rank)]);
  options.contract = world_->contract_hash();
  options.timeout = timeout;
  options.uses_boards = world_->settings().uses_boards;
  const CacheLimits limits =
      limits_for(caches_of(world_->settings().topology), static_cast<std::uint32_t>(size()));
  options.lowered_limits = limits.lowered;
  options.small_boards.staging_bytes = limits.small_staging_bytes;
  options.bulk_boards.staging_bytes = limits.bulk_staging_bytes;
  options.staging = world_->settings().staging;
  group_ = std::make_unique<GroupContext>(world_->engine(), std::move(options));
  Hierarchy hierarchy = world_->domains().hierarchy_of(world_ranks_);
  if (!hierarchy.is_flat() && rank_ == 0 && owner_ == nullptr)
    log_info("group of {} ranks in {}", size(), to_text(hierarchy));
  backend_ = make_native_backend(*group_, selector(), kPlanCacheBytes, std::move(hierarchy),
                                 world_->domains().spans_nodes(world_ranks_) ? Reach::network : Reach::node,
                                 world_->domains().shares_cpus(world_ranks_));
}

CommGroup::Impl::~Impl() {
  std::map<int, std::shared_ptr<Impl>> streams;
  {
    const std::lock_guard lock(streams_mutex_);
    streams.swap(streams_);
  }
  // They use internal streams, each two.
  device_calls_.reset();
  for (const auto& [number, stream] : streams) stream->device_calls_.reset();
  streams.clear();  // not with the mutex, which who tells of failures waits for
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

DeviceCalls& CommGroup::Impl::make_device_calls() {
  if (device_calls_ == nullptr) device_calls_ = std::make_unique<DeviceCalls>(*this);
  return *device_calls_;
}

void CommGroup::Impl::split_device_calls(Impl* part, int colour) {
  if (device_calls_ == nullptr) return;
  const Status status = device_calls_->split(part == nullptr ? nullptr : &part->make_device_calls(), colour);
  if (!status) throw_error(settle(status));
}

std::uint64_t CommGroup::Impl::register_buffer(const void* memory, std::size_t bytes) {
  const auto number = make_device_calls().register_buffer(memory, bytes);
  throw_if_error(number.status());
  return *number;
}

void CommGroup::Impl::deregister_buffer(std::uint64_t number) {
  if (device_calls_ != nullptr) device_calls_->deregister_buffer(number);
}

WorkRef CommGroup::Impl::submit_on_device(const Call& call, std::string_view algorithm) {
  check_may_wait();  // the first one meets the others
  compare_if_asked(call);
  Result<WorkRef> work = make_device_calls().start(call, algorithm);
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
  if (call.is_device)
    return WorkAccess::make(handle(), submit_on_device(call, options.algorithm), 0, options);
  if (run_alone(call, options.algorithm)) return {};
  const Submitter submitter = options.will_wait ? Submitter::waits : Submitter::goes_on;
  const WorkRef work = submit_checked(call, {options.algorithm, submitter});
  const std::uint32_t sequence = call.collective == Collective::send_recv ? 0 : submitted_sequence();
  return WorkAccess::make(handle(), work, sequence, options);
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
  if (is_scaled) {
    scale(call.op, 1, call.dtype, to, from, count);
  } else {
    copy_bytes(to, from, count * bytes);
  }
  return true;
}

void CommGroup::Impl::run(const Call& call, std::string_view algorithm) {
  check_may_wait();
  if (run_alone(call, algorithm)) return;
  // On its stream is all that a call on a GPU's memory has to be when it returns.
  if (call.is_device) {
    submit_on_device(call, algorithm);
    return;
  }
  const WorkRef work = submit_checked(call, {algorithm, Submitter::blocks});
  if (work) wait(*work.operator->(), call.collective == Collective::send_recv ? 0 : submitted_sequence());
}

int CommGroup::Impl::receive(const Call& call, std::string_view algorithm) {
  check_may_wait();
  if (call.is_device) {
    const WorkRef work = submit_on_device(call, algorithm);
    if (call.root != kFromAnyRank) return static_cast<int>(call.root);
    wait(*work.operator->(), 0);
    return work->source();
  }
  const WorkRef work = submit_checked(call, {algorithm, Submitter::waits});
  wait(*work.operator->(), 0);
  return work->source();
}

bool CommGroup::Impl::run(const Call& call, PersistentCall& persistent, const CallOptions& options) {
  check_may_wait();  // before anything is under way on the caller's buffers
  WorkRef unfinished;
  if (!persistent.run(call, &unfinished)) return false;
  if (unfinished) {
    const WaitHookScope scope({options.while_waiting, options.while_waiting_context});
    wait(*unfinished.operator->(), submitted_sequence());
  }
  return true;
}

bool CommGroup::Impl::Alone::run(const Call& call, WorkRef* /*unfinished*/) { return group.run_alone(call); }

PersistentCall* CommGroup::Impl::persistent(const Call& call) {
  if (is_alone_ && !call.is_device) return &alone_;
  const bool has_message_to_compare = world_->settings().check == CheckLevel::group;
  if (has_message_to_compare || call.collective == Collective::send_recv) return nullptr;
  return backend_->persistent(call);
}

void CommGroup::Impl::wait(WorkState& state, std::uint32_t sequence) {
  // Most short operations are complete by now; those cost no look at the clock.
  if (state.is_complete() && state.status()) return;
  wait(state, sequence, Clock::now() + group_->timeout(), group_->timeout());
}

void CommGroup::Impl::wait(WorkState& state, std::uint32_t sequence, Clock::time_point deadline,
                           std::chrono::milliseconds limit) {
  if (!state.is_complete()) check_may_wait();
  const Status status = state.is_complete() ? state.status() : state.wait(deadline);
  if (status) return;
  if (status.code() != StatusCode::timeout || group_->has_failed()) throw_error(settle(status));
  const Status cause = time_out(sequence, status, limit);
  // The buffers are the caller's again only when the failed operation has let go of them.
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

// -- streams and subgroups ----------------------------------------------------------------------------------

namespace {

std::uint64_t context_of(const std::string& text) {
  std::array<unsigned char, crypto_generichash_BYTES_MIN> digest{};
  crypto_generichash(digest.data(), digest.size(), reinterpret_cast<const unsigned char*>(text.data()),
                     text.size(), nullptr, 0);
  std::uint64_t derived = 0;
  std::memcpy(&derived, digest.data(), sizeof derived);
  return (derived >> 8U) | 2U;  // the scheduler multiplies it by small numbers; 0 and 1 are taken
}

}  // namespace

std::shared_ptr<CommGroup::Impl> CommGroup::Impl::stream(int number) {
  if (number < 0)
    throw_error(invalid_argument(fmt::format("stream: number: {}; expected 0 or more", number)));
  return number == 0 ? owner().handle() : owner().find_stream(number).handle();
}

std::shared_ptr<CommGroup::Impl> CommGroup::Impl::stream_handle() {
  const std::lock_guard lock(hold_mutex_);
  std::shared_ptr<StreamHold> hold = hold_.lock();
  if (hold == nullptr) {
    hold = std::make_shared<StreamHold>(StreamHold{owner_->shared_from_this(), shared_from_this()});
    hold_ = hold;
  }
  return {std::move(hold), this};
}

std::shared_ptr<CommGroup::Impl> CommGroup::Impl::find_handle(const Impl* meant) {
  if (meant == this) return handle();
  std::shared_ptr<Impl> found;
  {
    const std::lock_guard lock(streams_mutex_);
    for (const auto& [number, stream] : streams_) {
      if (stream.get() == meant) found = stream;
    }
  }
  return found == nullptr ? nullptr : found->handle();
}

void CommGroup::Impl::close_stream(int number) {
  if (number < 1) {
    throw_error(
        invalid_argument(fmt::format("close_stream: number: {}; expected 1 or more: stream 0 is the group, "
                                     "which ends with its last handle",
                                     number)));
  }
  Impl& group = owner();
  std::vector<std::shared_ptr<Impl>> closed;  // end here, or with their last handles
  const std::lock_guard making(group.making_mutex_);
  const auto take = [&](int taken) {
    ++group.closings_[taken];
    const std::lock_guard lock(group.streams_mutex_);
    const auto found = group.streams_.find(taken);
    if (found == group.streams_.end()) return;
    closed.push_back(std::move(found->second));
    group.streams_.erase(found);
  };
  take(number);
  if (!closed.empty()) closed[0]->device_calls_.reset();  // uses the streams that are taken next
  for (int purpose = 0; purpose < kPurposes; ++purpose) take(-1 - kPurposes * number - purpose);
  const Status why(StatusCode::aborted, fmt::format("stream {} was closed", number));
  for (const std::shared_ptr<Impl>& stream : closed) {
    stream->is_closed_.store(true, std::memory_order_release);
    stream->group_->leave(why);
  }
}

CommGroup::Impl& CommGroup::Impl::internal_stream(Purpose purpose) {
  return owner().find_stream(-1 - kPurposes * stream_ - static_cast<int>(purpose));
}

CommGroup::Impl& CommGroup::Impl::find_stream(int number) {
  const std::lock_guard making(making_mutex_);
  {
    const std::lock_guard lock(streams_mutex_);
    if (const auto found = streams_.find(number); found != streams_.end()) return *found->second;
  }
  if (group_->has_failed()) throw_error(settle(group_->failure()));
  // Everybody comes by the same one, whenever it is asked for.
  ByteWriter writer;
  writer.put(context());
  writer.put_text("stream");
  writer.put(number);
  writer.put(closings_[number]);
  std::shared_ptr<Impl> made =
      own(new Impl(world_, world_ranks_, context_of(writer.take()), group_->timeout(), rules_, this, number));
  world_->add(*made);
  Impl& stream = *made;
  {
    const std::lock_guard lock(streams_mutex_);
    streams_.emplace(number, std::move(made));
  }
  // What was stamped before has not found it.
  if (const auto stamped = wait_for_stamp(std::chrono::milliseconds(0))) stream.group_->fail(*stamped);
  return stream;
}

std::string CommGroup::Impl::name_operation(std::uint32_t sequence) const {
  if (stream_ == 0) return fmt::format("operation {}", sequence);
  if (stream_ < 0) return fmt::format("operation {} of those on GPUs", sequence);
  return fmt::format("operation {} of stream {}", sequence, stream_);
}

std::shared_ptr<CommGroup::Impl> CommGroup::Impl::make_within(std::shared_ptr<WorldState> world,
                                                              std::vector<int> world_ranks,
                                                              std::string_view name,
                                                              std::chrono::milliseconds timeout,
                                                              const std::function<void()>& when_met) {
  const Clock::time_point deadline = Clock::now() + timeout;
  ByteWriter writer;
  writer.put_text("within");
  writer.put_text(name);
  std::shared_ptr<Impl> group =
      make(std::move(world), std::move(world_ranks), context_of(writer.take()), timeout);
  for (const std::uint32_t step : {1U, 2U}) {
    const Status met = group->world_->meet(*group, step, deadline);
    if (!met) throw_error(group->group_->has_failed() ? group->settle(met) : group->fail_everywhere(met));
    if (step == 1) when_met();
  }
  return group;
}

std::shared_ptr<CommGroup::Impl> CommGroup::Impl::make_part(std::span<const int> ranks, MadeBy made_by,
                                                            std::string_view tag) {
  if (group_->has_failed()) throw_error(settle(group_->failure()));
  std::vector<int> world_ranks;
  for (const int rank : ranks) world_ranks.push_back(world_ranks_[static_cast<std::size_t>(rank)]);
  const std::uint64_t context = derive_context(world_ranks, made_by, tag);
  return make(world_, std::move(world_ranks), context, group_->timeout());
}

std::uint64_t CommGroup::Impl::derive_context(const std::vector<int>& world_ranks, MadeBy made_by,
                                              std::string_view tag) {
  ByteWriter writer;
  writer.put(context());
  writer.put(made_by);
  writer.put_text(tag);
  for (const int rank : world_ranks) writer.put(rank);
  std::string identity = writer.take();
  std::uint32_t number = 0;
  {
    const std::lock_guard lock(children_mutex_);
    number = children_[identity]++;
  }
  identity.append(reinterpret_cast<const char*>(&number), sizeof number);
  return context_of(identity);
}

}  // namespace tutti
