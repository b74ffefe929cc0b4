// Negotiation. tensor_submission.cpp takes tensors in, tensor_execution.cpp carries the agreed ones out.
#include "runtime/training/tensor_scheduler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "runtime/base/log.hpp"
#include "runtime/base/ops.hpp"
#include "runtime/base/rank_lists.hpp"
#include "runtime/job/exchange.hpp"
#include "runtime/training/tensor_backlog.hpp"
#include "tutti/detail/process.hpp"

namespace tutti {
namespace {

// Residuals are kept for so many tensors even where ranks remember less.
constexpr std::size_t kLeastResiduals = 1024;
// A call between ranks of one node costs less than one between nodes, and packing a tensor as much.
constexpr std::uint64_t kPackedBytesInNode = std::uint64_t{64} << 10U;
constexpr int kLengthTag = 1, kBytesTag = 2;
// An ended queue waits so long for ranks that have not begun the last cycle.
constexpr std::chrono::seconds kFarewellTime{2};

std::vector<int> all_ranks(const CommGroup& group) {
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void set_bit(std::span<std::uint64_t> words, std::uint32_t bit) {
  words[bit / 64] |= std::uint64_t{1} << bit % 64;
}
void clear_bit(std::span<std::uint64_t> words, std::uint32_t bit) {
  words[bit / 64] &= ~(std::uint64_t{1} << bit % 64);
}
bool has_bit(std::span<const std::uint64_t> words, std::uint32_t bit) {
  return (words[bit / 64] >> bit % 64 & 1U) != 0;
}

std::vector<int> to_ints(const std::vector<std::uint32_t>& ranks) { return {ranks.begin(), ranks.end()}; }

}  // namespace

void TensorScheduler::refuse(const Status& status) {
  throw Error(status.code(), status.peer(), status.message());
}

TensorScheduler::TensorScheduler(const CommGroup& group, const TensorQueueOptions& options)
    : data_(group.create(all_ranks(group), "tutti tensors")),
      control_(group.create(all_ranks(group), "tutti tensors: control")),
      settings_(options.settings),
      save_fusion_(options.save_fusion),
      limits_(settings_.fusion),
      stall_warning_(options.stall_warning),
      rank_(static_cast<std::uint32_t>(group.rank())),
      size_(static_cast<std::uint32_t>(group.size())),
      cache_(options.settings.cache_capacity),
      help_(std::make_shared<TensorHelp>(*this)),
      residuals_(std::max(options.settings.cache_capacity, kLeastResiduals)),
      timing_(std::make_shared<TensorTiming>(rank_)),
      last_warning_(Clock::now()),
      refusals_(rank_),
      last_cycle_(Clock::now()),
      cycle_time_(settings_.cycle) {
  if (control_.local_size() == control_.size())
    limits_.packed_bytes = std::min(limits_.packed_bytes, kPackedBytesInNode);
  open_blocks(options.block_ranks);
  if (rank_ == 0) coordinator_.emplace(size_, options.settings.stall_timeout);
  if (settings_.priority != TensorPriority::none)
    backlog_ = std::make_unique<Backlog>(settings_.priority, timing_, [this] { negotiate_now(); });
  begin_timeline_of_environment();
  begin_autotuning();
  const std::string reason = detail::start_thread(&thread_, "tutti-tensors", [this] { run(); });
  if (!reason.empty())
    refuse(
        Status(StatusCode::resource_exhausted, "the thread of a tensor queue cannot be started: " + reason));
}

TensorScheduler::~TensorScheduler() {
  close();
  help_->end();
  thread_.join();
  backlog_.reset();
  timing_->end();
}

void TensorScheduler::close() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  changed_.notify_all();
}

// By any thread, which may run a callback of an operation.
void TensorScheduler::negotiate_now() {
  {
    const std::lock_guard lock(mutex_);
    is_urgent_ = true;
  }
  changed_.notify_all();
}

// -- negotiation, by one thread at a time ---------------------------------------------------------------------

// Is there something for rank 0 to decide, or to tell?
bool TensorScheduler::needs_coordination(const RequestBatch& requests) const {
  return !requests.requests.empty() || !requests.joined_ranks.empty() || !requests.events.empty() ||
         !requests.refusals.empty() || new_setting_ ||
         (coordinator_ && coordinator_->has_expired(Clock::now()));
}

TensorScheduler::Contribution TensorScheduler::contribute() {
  Contribution mine;
  mine.bit_words = (cache_.number_count() + 63) / 64;
  mine.words.assign(1 + 2 * mine.bit_words + (backlog_ != nullptr ? backlog_->word_count() : 0), 0);
  if (backlog_ != nullptr) {
    backlog_->mark_unfinished(mine.unfinished());
    if (backlog_->was_idle()) mine.words[0] |= was_idle;
  }
  const std::lock_guard lock(mutex_);
  if (is_closing_) mine.words[0] |= is_leaving;
  if (!entries_.empty()) mine.words[0] |= has_tensors;
  announce_refusals(mine);
  announce_arrived(mine);
  if (joining_ && !has_announced_join_) {
    has_announced_join_ = true;
    mine.requests.joined_ranks.push_back(rank_);
    if (zeros_on_device_) mine.requests.ranks_with_device.push_back(rank_);
  }
  mine.words[0] |= timing_->flags();
  note_submissions(mine.requests);
  if (needs_coordination(mine.requests)) mine.words[0] |= has_requests;
  if (joining_) {
    evict_unjoinable(mine.evicted());
  } else {
    for (std::uint32_t number = 0; number < cache_.number_count(); ++number)
      set_bit(mine.not_ready(), number);
    for (const auto& [name, entry] : entries_) {
      if (entry.stage == Stage::cached) clear_bit(mine.not_ready(), entry.number);
    }
  }
  evict_stalled(mine.evicted());
  return mine;
}

// Tensors that were submitted since the last cycle: a bit of the cache, or a request.
void TensorScheduler::announce_arrived(Contribution& mine) {
  std::vector<std::string> arrived;
  arrived.swap(arrived_);
  for (const std::string& name : arrived) {
    Entry& entry = entries_.find(name)->second;
    if (refusals_.holds(entry.request.signature.batch)) {
      arrived_.push_back(name);
      continue;
    }
    bool is_stale = false;
    const auto number = cache_.find(entry.request, rank_, &is_stale);
    if (number) {
      entry.stage = Stage::cached;
      entry.number = *number;
    } else if (is_stale) {
      // First all ranks forget what they knew; the next cycle takes the request up.
      set_bit(mine.evicted(), *cache_.find_name(name));
      arrived_.push_back(name);
    } else {
      entry.stage = Stage::requested;
      mine.requests.requests.push_back({entry.request, {rank_}});
    }
  }
}

// Other ranks may have the batch as bits of the cache, which rank 0 does not know: they have to announce it.
void TensorScheduler::announce_refusals(Contribution& mine) {
  mine.requests.refusals = refusals_.take_due();
  for (const BatchRefusal& refusal : mine.requests.refusals) {
    for (std::uint32_t number = 0; number < cache_.number_count(); ++number) {
      if (cache_.contains(number) && cache_.at(number).signature.batch == refusal.batch)
        set_bit(mine.evicted(), number);
    }
  }
}

// A rank that has joined holds nothing back. Collectives that need it are refused by rank 0, which knows who has
// joined, so the cache forgets them.
void TensorScheduler::evict_unjoinable(std::span<std::uint64_t> evicted) const {
  for (std::uint32_t number = 0; number < cache_.number_count(); ++number) {
    if (cache_.contains(number) && !goes_on_without(cache_.at(number).signature, zeros_on_device_ != nullptr))
      set_bit(evicted, number);
  }
}

// Rank 0 reports stalls, and knows nothing of tensors that are a bit of the cache.
void TensorScheduler::evict_stalled(std::span<std::uint64_t> evicted) const {
  std::chrono::milliseconds limit = stall_warning_;
  const std::chrono::milliseconds timeout = settings_.stall_timeout;
  if (timeout.count() > 0 && (limit.count() == 0 || timeout < limit)) limit = timeout;
  if (limit.count() == 0) return;
  const auto now = Clock::now();
  for (const auto& [name, entry] : entries_) {
    if (entry.stage == Stage::cached && now - entry.since > limit) set_bit(evicted, entry.number);
  }
}

void TensorScheduler::wait(const Work& work) {
  struct Closing {
    TensorScheduler* scheduler;
    std::optional<Clock::time_point> since;
  } closing{this, {}};
  const auto is_over = [](void* context) {
    auto& [scheduler, since] = *static_cast<Closing*>(context);
    const std::lock_guard lock(scheduler->mutex_);
    // A rank of another block is gone: nothing of this one's fails.
    if (scheduler->block_.is_open() && scheduler->control_.failure()) return true;
    if (!scheduler->is_closing_) return false;
    if (!since) since = Clock::now();
    return Clock::now() - *since > kFarewellTime;
  };
  if (work.wait_unless(is_over, &closing)) return;
  if (const std::optional<Error> failure = control_.failure()) throw Error(*failure);
  throw Error(StatusCode::aborted, -1,
              "the tensor queue was closed while other ranks did not take part in it");
}

void TensorScheduler::agree_in_blocks(std::vector<std::uint64_t>& words) {
  wait(block_.ireduce(words.data(), words.data(), words.size(), Dtype::u64, Op::bor, 0, kAwaited));
  if (leaders_.is_open()) wait(leaders_.iallreduce(std::span(words), Op::bor, kAwaited));
  wait(block_.ibroadcast(std::span(words), 0, kAwaited));
}

// Of rank 0, which is the first of its block.
void TensorScheduler::broadcast(void* data, std::size_t count, Dtype dtype) {
  if (!block_.is_open()) return wait(control_.ibroadcast(data, count, dtype, 0, kAwaited));
  if (leaders_.is_open()) wait(leaders_.ibroadcast(data, count, dtype, 0, kAwaited));
  wait(block_.ibroadcast(data, count, dtype, 0, kAwaited));
}

// Many ranks of one node: a message wakes its receiver up, and a rank of each message of a cycle waits for that.
void TensorScheduler::open_blocks(std::uint32_t block_ranks) {
  if (size_ <= 2 * block_ranks || control_.local_size() < control_.size()) return;
  const std::uint32_t first = rank_ - rank_ % block_ranks;
  std::vector<int> members(std::min(block_ranks, size_ - first)), leaders;
  std::iota(members.begin(), members.end(), static_cast<int>(first));
  for (std::uint32_t rank = 0; rank < size_; rank += block_ranks) leaders.push_back(static_cast<int>(rank));
  block_ = control_.create(members, "tutti tensors: block");
  if (rank_ == first) leaders_ = control_.create(leaders, "tutti tensors: leaders");
}

void TensorScheduler::send_bytes(std::string bytes, int peer) {
  Mail& mail = mail_.emplace_back();
  mail.bytes = std::move(bytes);
  mail.length = mail.bytes.size();
  wait(control_.isend(&mail.length, 1, Dtype::u64, peer, kLengthTag, kAwaited));
  wait(control_.isend(mail.bytes.data(), mail.bytes.size(), Dtype::u8, peer, kBytesTag, kAwaited));
}

const std::string& TensorScheduler::receive_bytes(int peer) {
  Mail& mail = mail_.emplace_back();
  wait(control_.irecv(&mail.length, 1, Dtype::u64, peer, kLengthTag, kAwaited));
  mail.bytes.resize(mail.length);
  wait(control_.irecv(mail.bytes.data(), mail.bytes.size(), Dtype::u8, peer, kBytesTag, kAwaited));
  return mail.bytes;
}

// Up a binomial tree: a rank merges what its children send before it sends itself, so that equal requests of many
// ranks travel as one.
ResponseList TensorScheduler::coordinate(RequestBatch requests) {
  for (std::uint32_t bit = 1; bit < size_; bit *= 2) {
    if ((rank_ & bit) != 0) {
      send_bytes(encode(requests), static_cast<int>(rank_ - bit));
      break;
    }
    if (rank_ + bit >= size_) continue;
    RequestBatch more;
    if (!decode(receive_bytes(static_cast<int>(rank_ + bit)), size_, more))
      throw Error(StatusCode::internal, static_cast<int>(rank_ + bit),
                  "a rank sent requests that cannot be read");
    merge(requests, std::move(more));
  }
  timing_->accept(std::exchange(requests.events, {}));
  Mail& mail = mail_.emplace_back();
  if (coordinator_) {
    ResponseList decisions = coordinator_->decide(std::move(requests), Clock::now());
    decisions.fusion = std::exchange(new_setting_, {});
    mail.bytes = encode(decisions);
  }
  mail.length = mail.bytes.size();
  broadcast(&mail.length, 1, Dtype::u64);
  mail.bytes.resize(mail.length);
  broadcast(mail.bytes.data(), mail.bytes.size(), Dtype::u8);
  ResponseList list;
  if (!decode(mail.bytes, size_, list))
    throw Error(StatusCode::internal, 0, "rank 0 sent decisions that cannot be read");
  mail_.clear();
  return list;
}

void TensorScheduler::evict_agreed(std::span<const std::uint64_t> bits) {
  for (std::uint32_t number = 0; number < cache_.number_count(); ++number) {
    if (cache_.contains(number) && has_bit(bits, number)) cache_.evict(number);
  }
  announce_moved();
}

// Tensors whose bit is gone, or stands for another name now, are announced anew.
void TensorScheduler::announce_moved() {
  const std::lock_guard lock(mutex_);
  for (auto& [name, entry] : entries_) {
    if (entry.stage != Stage::cached || cache_.find_name(name) == entry.number) continue;
    entry.stage = Stage::submitted;
    arrived_.push_back(name);
  }
}

// The tensors of the cache that all ranks have; batches as a whole.
std::vector<TensorScheduler::Ready> TensorScheduler::take_ready(std::span<const std::uint64_t> not_ready) {
  std::vector<std::uint32_t> numbers;
  std::map<std::string_view, std::uint32_t> members;
  for (std::uint32_t number = 0; number < cache_.number_count(); ++number) {
    if (!cache_.contains(number) || has_bit(not_ready, number)) continue;
    numbers.push_back(number);
    const TensorSignature& signature = cache_.at(number).signature;
    if (!signature.batch.empty()) ++members[signature.batch];
  }
  std::vector<Ready> ready;
  std::erase_if(numbers, [&](std::uint32_t number) {
    const TensorSignature& signature = cache_.at(number).signature;
    return !signature.batch.empty() && members[signature.batch] < signature.batch_size;
  });
  for (const std::uint32_t number : numbers) {
    ready.push_back({cache_.at(number)});
    cache_.touch(number);
  }
  take_entries(ready);
  return ready;
}

void TensorScheduler::accept(ResponseList list, std::vector<Ready>& ready) {
  if (list.fusion) follow(*list.fusion);
  std::vector<Ready> answered;
  for (TensorResponse& response : list.responses) answered.push_back({std::move(response)});
  std::optional<WorkRef> joined;
  take_entries(answered);
  {
    const std::lock_guard lock(mutex_);
    for (const std::string& batch : list.refused_batches) refusals_.settle(batch);
    if (list.last_joined_rank >= 0) joined.swap(joining_);
  }
  for (Ready& tensor : answered) {
    const TensorResponse& response = tensor.response;
    if (response.code == StatusCode::ok) {
      cache_.insert(response);
      ready.push_back(std::move(tensor));
      continue;
    }
    if (timing_->has_phases())
      timing_->note(response, TensorPhase::done, fmt::format(R"("error":"{}")", to_string(response.code)));
    if (tensor.entry)
      TensorWork::of(tensor.entry->work).complete(Status(response.code, response.message, response.peer));
  }
  announce_moved();
  if (joined) TensorWork::of(*joined).complete({}, list.last_joined_rank);
}

void TensorScheduler::warn_of_stalls() {
  if (!coordinator_ || stall_warning_.count() == 0) return;
  const auto now = Clock::now();
  if (now - last_warning_ < stall_warning_) return;
  last_warning_ = now;
  for (const Coordinator::Stalled& stalled : coordinator_->stalled(now, stall_warning_)) {
    log_warn("tensor \"{}\" has waited for {}: submitted by {}, not by {}", stalled.name,
             format_seconds(stalled.since), name_ranks(to_ints(stalled.submitted), static_cast<int>(size_)),
             name_ranks(to_ints(stalled.missing), static_cast<int>(size_)));
  }
}

void TensorScheduler::fail_all(const Status& cause) {
  EntryMap entries;
  std::optional<WorkRef> joining;
  {
    const std::lock_guard lock(mutex_);
    ended_ = cause;
    entries.swap(entries_);
    joining.swap(joining_);
    arrived_.clear();
  }
  settled_.notify_all();
  for (const auto& [name, entry] : entries)
    TensorWork::of(entry.work).complete(cause.with_context(fmt::format("tensor \"{}\"", name)));
  if (backlog_ != nullptr) backlog_->fail(cause);
  if (joining) TensorWork::of(*joining).complete(cause);
}

}  // namespace tutti
