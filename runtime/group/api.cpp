// Public interface besides calls.cpp: init, groups from groups, waiting, reductions, shared memory. Knows no
// transport by name and no algorithm.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "runtime/base/horovod_variables.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/rank_lists.hpp"
#include "runtime/base/version.hpp"
#include "runtime/group/comm_group.hpp"
#include "runtime/group/common_world.hpp"
#include "runtime/group/open_worlds.hpp"
#include "runtime/group/work_access.hpp"
#include "runtime/job/meeting.hpp"

namespace tutti {
namespace {

constexpr std::uint64_t kWorldContext = 1;

// Calls a protected member of WorkState, as WorkRef does: a Work counts references itself because WorkRef is
// not part of the public headers.
struct WorkCount : WorkState {
  static void retain_state(WorkState& state) { (state.*(&WorkCount::retain))(); }
  static void release_state(WorkState& state) { (state.*(&WorkCount::release))(); }
};

CommGroup::Impl& impl_of(const Work& work) {
  auto& impl = *static_cast<CommGroup::Impl*>(WorkAccess::group_of(work));
  impl.check_process();
  return impl;
}

void warn_of_unknown_variables(const Environment& environment) {
  static std::once_flag once;
  std::call_once(once, [&] {
    for (const std::string& warning : check_unknown(environment)) log_warn("{}", warning);
  });
}

// Once for the job: these are about another library.
void answer_horovod_variables(const Environment& environment, int rank) {
  static std::once_flag once;
  if (rank != 0) return;
  std::call_once(once, [&] {
    for (const std::string& sentence : check_horovod_variables(environment)) log_warn("{}", sentence);
  });
}

// The program's exchange, if it gave one. Errors: invalid_argument for options that do not go together.
Result<std::unique_ptr<Exchange>> make_exchange(const InitOptions& options) {
  const bool has_store = options.put != nullptr || options.get != nullptr;
  const int ways = static_cast<int>(!options.unique_id.empty()) +
                   static_cast<int>(options.allgather != nullptr) + static_cast<int>(has_store);
  if (ways > 1) return invalid_argument("init: give only one of unique_id, allgather, and put with get");
  if (has_store && (options.put == nullptr || options.get == nullptr)) {
    return invalid_argument("init: put and get go together");
  }
  if (ways == 0) {
    if (options.rank != -1 || options.size != -1) {
      return invalid_argument("init: rank and size go with unique_id, allgather, or put and get");
    }
    return std::unique_ptr<Exchange>();
  }
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return invalid_argument(
        fmt::format("init: rank={} and size={}: expected a size of at least 1 and a rank below it",
                    options.rank, options.size));
  }
  if (options.allgather != nullptr)
    return make_function_exchange(options.rank, options.size, options.allgather);
  if (has_store) {
    return make_store_exchange(options.rank, options.size, options.store_prefix, options.put, options.get,
                               options.erase);
  }
  return std::unique_ptr<Exchange>();
}

// Worlds in which this rank could make the new group. The pointers keep them open during the meeting.
std::vector<std::shared_ptr<WorldState>> list_sharable_worlds() {
  std::map<std::string, int>
      counts;  // ranks may be threads of this process: each has its own object of a world
  std::vector<std::shared_ptr<WorldState>> worlds = list_open_worlds();
  for (const auto& world : worlds) ++counts[world->identity()];
  std::erase_if(worlds,
                [&](const auto& world) { return counts[world->identity()] > 1 || !world->is_sound(); });
  worlds.resize(std::min(worlds.size(), kMaxOpenWorlds));
  return worlds;
}

std::string describe_worlds(const std::vector<std::shared_ptr<WorldState>>& worlds) {
  std::vector<OpenWorld> open;
  open.reserve(worlds.size());
  for (const auto& world : worlds) open.push_back({world->identity(), world->info().rank});
  return encode_open_worlds(open);
}

std::shared_ptr<CommGroup::Impl> make_first_group(const InitOptions& options) {
  BootstrapOptions bootstrap;
  warn_of_unknown_variables(bootstrap.environment);
  Result<WorldSettings> settings = read_settings(bootstrap.environment);
  throw_if_error(settings.status());
  if (options.timeout.count() > 0) settings->timeout = options.timeout;
  const std::chrono::milliseconds timeout = settings->timeout;
  auto exchange = make_exchange(options);
  throw_if_error(exchange.status());
  bootstrap.unique_id = options.unique_id;
  bootstrap.rank = options.rank;
  bootstrap.size = options.size;
  bootstrap.exchange = exchange->get();
  bootstrap.build_id = std::string(build_id());
  bootstrap.timeout = settings->timeout;
  bootstrap.warn = [](const std::string& text) { log_warn("{}", text); };
  std::vector<std::shared_ptr<WorldState>> open;
  if (options.shares_world && *exchange != nullptr) open = list_sharable_worlds();
  bootstrap.open_worlds = describe_worlds(open);
  Result<Meeting> meeting = arrange_meeting(bootstrap);
  throw_if_error(meeting.status());
  if (const std::optional<CommonWorld> common = find_common_world(meeting->open_worlds)) {
    const auto own = std::find_if(open.begin(), open.end(),
                                  [&](const auto& world) { return world->identity() == common->identity; });
    return CommGroup::Impl::make_within(*own, common->ranks, meeting->job, timeout,
                                        [&] { (*exchange)->clean_up(); });
  }
  open.clear();
  Result<std::shared_ptr<WorldState>> world =
      WorldState::make(bootstrap, *std::move(meeting), *std::move(settings));
  throw_if_error(world.status());
  answer_horovod_variables(bootstrap.environment, (*world)->info().rank);
  return CommGroup::Impl::make(*world, first_ranks(static_cast<std::size_t>((*world)->info().size)),
                               kWorldContext, timeout);
}

}  // namespace

// -- init ---------------------------------------------------------------------------------------------------

CommGroup init(const InitOptions& options) { return CommGroup(make_first_group(options)); }

CommGroup join(std::string_view invitation, std::chrono::milliseconds timeout) {
  return CommGroup(CommGroup::Impl::join(invitation, timeout));
}

std::string make_unique_id() {
  Result<std::string> id = new_unique_id();
  throw_if_error(id.status());
  return *std::move(id);
}

std::string_view version() { return version_text(); }

// -- groups -------------------------------------------------------------------------------------------------

int CommGroup::rank() const { return Impl::of(*this, "rank").rank(); }
int CommGroup::size() const { return Impl::of(*this, "size").size(); }

int CommGroup::local_rank() const {
  const Impl& group = Impl::of(*this, "local_rank");
  const std::vector<int>& nodes = group.world().info().node_of_rank;
  const auto& ranks = group.world_ranks();
  const int node = nodes[static_cast<std::size_t>(ranks[static_cast<std::size_t>(group.rank())])];
  return static_cast<int>(std::count_if(ranks.begin(), ranks.begin() + group.rank(), [&](int rank) {
    return nodes[static_cast<std::size_t>(rank)] == node;
  }));
}

int CommGroup::local_size() const {
  const Impl& group = Impl::of(*this, "local_size");
  const std::vector<int>& nodes = group.world().info().node_of_rank;
  const auto& ranks = group.world_ranks();
  const int node = nodes[static_cast<std::size_t>(ranks[static_cast<std::size_t>(group.rank())])];
  return static_cast<int>(std::count_if(
      ranks.begin(), ranks.end(), [&](int rank) { return nodes[static_cast<std::size_t>(rank)] == node; }));
}

CommGroup CommGroup::split(int colour, int key) const {
  struct Wish {
    std::int32_t colour, key;
  };
  Impl& group = Impl::of(*this, "split");
  const Wish mine{colour, key};
  std::vector<Wish> wishes(static_cast<std::size_t>(group.size()));
  allgather(&mine, wishes.data(), 2, Dtype::i32);
  if (colour < 0) {
    group.split_device_calls(nullptr, colour);
    return {};
  }
  std::vector<int> members;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (wishes[static_cast<std::size_t>(rank)].colour == colour) members.push_back(rank);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return wishes[static_cast<std::size_t>(a)].key < wishes[static_cast<std::size_t>(b)].key;
  });
  CommGroup part(group.make_part(members, Impl::MadeBy::split));
  group.split_device_calls(part.impl_.get(), colour);
  return part;
}

CommGroup CommGroup::split_by_node() const {
  const Impl& group = Impl::of(*this, "split_by_node");
  const std::vector<int>& nodes = group.world().info().node_of_rank;
  const auto node_of = [&](int rank) {
    return nodes[static_cast<std::size_t>(group.world_ranks()[static_cast<std::size_t>(rank)])];
  };
  std::vector<int> members;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (node_of(rank) == node_of(group.rank())) members.push_back(rank);
  }
  return create(members);
}

CommGroup CommGroup::create(std::span<const int> ranks, std::string_view tag) const {
  Impl& group = Impl::of(*this, "create");
  std::vector<bool> is_listed(static_cast<std::size_t>(group.size()), false);
  for (const int rank : ranks) {
    if (rank < 0 || rank >= group.size()) {
      throw_error(invalid_argument(fmt::format("create: ranks: {} is no rank of the group; expected 0 to {}",
                                               rank, group.size() - 1)));
    }
    if (is_listed[static_cast<std::size_t>(rank)]) {
      throw_error(invalid_argument(fmt::format("create: ranks: {} is listed twice", rank)));
    }
    is_listed[static_cast<std::size_t>(rank)] = true;
  }
  if (!is_listed[static_cast<std::size_t>(group.rank())]) {
    throw_error(invalid_argument(
        fmt::format("create: ranks: this rank, {}, is not listed; only members call create", group.rank())));
  }
  return CommGroup(group.make_part(ranks, Impl::MadeBy::create, tag));
}

CommGroup CommGroup::stream(int number) const { return CommGroup(Impl::of(*this, "stream").stream(number)); }

void CommGroup::close_stream(int number) const { Impl::of(*this, "close_stream").close_stream(number); }

RegisteredBuffer CommGroup::register_buffer(const void* memory, std::size_t bytes) const {
  struct Held {
    std::weak_ptr<Impl> group;
    std::uint64_t number;
    Held(std::weak_ptr<Impl> of, std::uint64_t as) : group(std::move(of)), number(as) {}
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() {
      if (const auto open = group.lock()) open->deregister_buffer(number);
    }
  };
  Impl& group = Impl::of(*this, "register_buffer");
  const std::uint64_t number = group.register_buffer(memory, bytes);
  return RegisteredBuffer(std::make_shared<Held>(group.handle(), number));
}

std::string CommGroup::explain_algorithm(Collective collective, std::size_t count, Dtype dtype,
                                         Reduction op) const {
  Impl& group = Impl::of(*this, "explain_algorithm");
  Call call;
  call.collective = collective;
  call.dtype = dtype;
  call.count = count;
  if (is_reducing(collective)) call.op = CommGroup::Impl::convert(op);
  Result<std::string> text = group.backend().explain(call);
  throw_if_error(text.status());
  return *std::move(text);
}

void CommGroup::abort(const std::string& why) const {
  Impl& group = Impl::of(*this, "abort");
  group.abort(Status(StatusCode::aborted, fmt::format("rank {} aborted the group: {}", group.rank(), why),
                     group.rank()));
}

CommGroup CommGroup::shrink(std::span<const int> left_out) const {
  return CommGroup(Impl::of(*this, "shrink").change({"shrink", left_out, std::nullopt}));
}

CommGroup CommGroup::grow(int new_size) const {
  Impl& group = Impl::of(*this, "grow");
  if (new_size != 0 && new_size < group.size()) {
    throw_error(invalid_argument(fmt::format(
        "grow: new_size: {}; expected at least {}, the size of the group, or 0", new_size, group.size())));
  }
  return CommGroup(group.change({"grow", {}, static_cast<std::size_t>(new_size)}));
}

CommGroup CommGroup::reconfigure(int new_size, std::span<const int> left_out) const {
  Impl& group = Impl::of(*this, "reconfigure");
  if (new_size < 0)
    throw_error(invalid_argument(fmt::format("reconfigure: new_size: {}; expected 0 or more", new_size)));
  return CommGroup(group.change({"reconfigure", left_out, static_cast<std::size_t>(new_size)}));
}

std::vector<int> CommGroup::member_ids() const { return Impl::of(*this, "member_ids").member_ids(); }

std::string CommGroup::invitation() const { return Impl::of(*this, "invitation").invitation(); }

std::optional<Error> CommGroup::failure() const {
  const std::optional<Status> cause = Impl::of(*this, "failure").failure();
  if (!cause) return std::nullopt;
  return Error(cause->code(), cause->peer(), cause->message());
}

// -- waiting ------------------------------------------------------------------------------------------------

namespace detail {

WorkHandle::WorkHandle(void* state) : state_(state) {
  if (state_ != nullptr) WorkCount::retain_state(*static_cast<WorkState*>(state_));
}

WorkHandle::~WorkHandle() {
  if (state_ != nullptr) WorkCount::release_state(*static_cast<WorkState*>(state_));
}

void check_count(const char* what, std::size_t got, std::size_t expected) {
  if (got == expected) return;
  throw_error(invalid_argument(fmt::format("{}: {} elements, expected {}", what, got, expected)));
}

std::size_t block_count(const char* what, std::size_t got, int ranks) {
  const auto size = static_cast<std::size_t>(ranks);
  if (got % size != 0) {
    throw_error(invalid_argument(
        fmt::format("{}: {} elements, expected a multiple of {}, the size of the group", what, got, size)));
  }
  return got / size;
}

}  // namespace detail

bool Work::test() const {
  WorkState* state = WorkAccess::state_of(*this);
  if (state == nullptr) return true;
  impl_of(*this);
  return state->test();
}

int Work::source() const {
  const WorkState* state = WorkAccess::state_of(*this);
  return state == nullptr ? -1 : state->source();
}

void Work::wait() const {
  WorkState* state = WorkAccess::state_of(*this);
  if (state == nullptr) return;
  const WaitHookScope scope(WorkAccess::hook_of(*this));
  impl_of(*this).wait(*state, sequence_);
}

void Work::wait_within(std::chrono::milliseconds limit, Clock::time_point since) const {
  WorkState* state = WorkAccess::state_of(*this);
  if (state == nullptr) return;
  CommGroup::Impl& group = impl_of(*this);
  const WaitHookScope scope(WorkAccess::hook_of(*this));
  const std::chrono::milliseconds whole = group.group().timeout();
  const Clock::time_point now = Clock::now();
  const auto passed = std::chrono::floor<std::chrono::milliseconds>(now - since);
  if (limit < passed + whole) return group.wait(*state, sequence_, since + limit, limit);
  group.wait(*state, sequence_, now + whole, whole);
}

std::string Work::missing() const {
  WorkState* state = WorkAccess::state_of(*this);
  if (state == nullptr || state->is_complete()) return {};
  CommGroup::Impl& group = impl_of(*this);
  const Status status = state->wait(Clock::now());
  if (status.code() != StatusCode::timeout) return {};
  if (sequence_ == 0) return status.message();
  return group.find_awaited(sequence_).text;
}

void wait_all(std::span<const Work> works) {
  std::optional<Error> first;
  for (const Work& work : works) {
    try {
      work.wait();
    } catch (const Error& error) {
      if (!first) first = error;
    }
  }
  if (first) throw Error(*first);
}

bool Work::wait_for(std::chrono::milliseconds at_most) const {
  WorkState* state = WorkAccess::state_of(*this);
  if (state == nullptr) return true;
  CommGroup::Impl& group = impl_of(*this);
  if (!state->is_complete()) CommGroup::Impl::check_may_wait();
  const WaitHookScope scope(WorkAccess::hook_of(*this));
  const Status status = state->wait(Clock::now() + at_most);
  if (status) return true;
  if (status.code() == StatusCode::timeout && !group.group().has_failed()) return false;
  throw_error(group.settle(status));
}

void Work::on_complete(std::function<void(const Error*)> callback) const {
  if (callback == nullptr) throw_error(invalid_argument("on_complete: callback: it is empty"));
  WorkState* state = WorkAccess::state_of(*this);
  if (state == nullptr) return call_back([&](const Status&) { callback(nullptr); }, {});
  // A group that ends meanwhile must not be kept by its own operation.
  CommGroup::Impl& impl = impl_of(*this);
  state->when_complete(
      [owner = impl.weak_owner(), meant = &impl, callback = std::move(callback)](const Status& status) {
        if (status) return callback(nullptr);
        Status cause = status;
        if (const std::shared_ptr<CommGroup::Impl> group = owner.lock()) {
          if (const std::shared_ptr<CommGroup::Impl> found = group->find_handle(meant))
            cause = found->settle(status);
        }
        const Error error(cause.code(), cause.peer(), cause.message());
        callback(&error);
      });
}

bool Work::wait_unless(bool (*is_interrupted)(void* context), void* context) const {
  constexpr std::chrono::milliseconds kBetweenQuestions{100};
  WorkState* state = WorkAccess::state_of(*this);
  if (state == nullptr) return true;
  CommGroup::Impl& group = impl_of(*this);
  const WaitHookScope scope(WorkAccess::hook_of(*this));
  const std::chrono::milliseconds limit = group.group().timeout();
  const Clock::time_point deadline = Clock::now() + limit;
  const LastingWait lasting(group.world().callers(), {group.context(), sequence_});
  while (!state->is_complete() && Clock::now() + kBetweenQuestions < deadline) {
    if (wait_for(kBetweenQuestions)) return true;
    if (is_interrupted(context)) return false;
  }
  group.wait(*state, sequence_, deadline, limit);
  return true;
}

// -- reductions and memory ----------------------------------------------------------------------------------

Reduction Reduction::premul_sum(double factor) {
  Reduction reduction(Op::premul_sum);
  reduction.factor_ = factor;
  return reduction;
}

Reduction Reduction::premul_sum_integer(std::int64_t factor) {
  Reduction reduction(Op::premul_sum);
  reduction.has_integer_factor_ = true;
  reduction.integer_factor_ = factor;
  return reduction;
}

Reduction Reduction::user(UserFunction function, void* context, bool is_commutative) {
  Reduction reduction(Op::user);
  reduction.function_ = function;
  reduction.context_ = context;
  reduction.is_commutative_ = is_commutative;
  return reduction;
}

Reduction Reduction::user(UserFunction function, void* context, bool is_commutative,
                          std::uint32_t element_bytes) {
  Reduction reduction = user(function, context, is_commutative);
  reduction.element_bytes_ = element_bytes;
  return reduction;
}

void* alloc(const CommGroup& group, std::size_t bytes) {
  const Result<void*> memory = CommGroup::Impl::of(group, "alloc").world().allocate(bytes);
  throw_if_error(memory.status());
  return *memory;
}

std::shared_ptr<void> alloc_owned(const CommGroup& group, std::size_t bytes) {
  Result<std::shared_ptr<void>> memory =
      CommGroup::Impl::of(group, "alloc_owned").world().allocate_owned(bytes);
  throw_if_error(memory.status());
  return *std::move(memory);
}

void free(const CommGroup& group, void* memory) {
  WorldState& world = CommGroup::Impl::of(group, "free").world();
  if (memory == nullptr || world.release(memory)) return;
  throw_error(invalid_argument("free: memory: this is not from tutti::alloc of the same world"));
}

}  // namespace tutti
