// Streams of a group, and groups made from groups. Knows no submission and no argument of a collective.
#include <fmt/format.h>
#include <sodium.h>

#include <array>
#include <cstring>

#include "runtime/group/comm_group.hpp"
#include "runtime/group/device_calls.hpp"

namespace tutti {
namespace {

// The library's own groups have tags that begin so.
constexpr std::string_view kOwnTags = "tutti ";

std::uint64_t hash_context(const std::string& text) {
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
  return number == 0 ? owner().handle() : owner().find_stream(number)->handle();
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
  const auto take = [&](int taken) {
    const std::lock_guard making(group.making_mutex_);
    ++group.closings_[taken];
    const std::lock_guard lock(group.streams_mutex_);
    const auto found = group.streams_.find(taken);
    if (found == group.streams_.end()) return;
    closed.push_back(std::move(found->second));
    group.streams_.erase(found);
  };
  // Without the mutexes: callbacks of the program run meanwhile, and may ask for streams.
  take(number);
  if (!closed.empty()) {  // these use the streams that are taken next
    closed[0]->close_call_fusion();
    closed[0]->device_calls_.reset();
  }
  for (int purpose = 0; purpose < kPurposes; ++purpose) take(-1 - kPurposes * number - purpose);
  const Status why(StatusCode::aborted, fmt::format("stream {} was closed", number));
  for (const std::shared_ptr<Impl>& stream : closed) {
    stream->is_closed_.store(true, std::memory_order_release);
    stream->group_->leave(why);
  }
}

CommGroup::Impl& CommGroup::Impl::internal_stream(Purpose purpose) {
  return *owner().find_stream(-1 - kPurposes * stream_ - static_cast<int>(purpose));
}

std::shared_ptr<CommGroup::Impl> CommGroup::Impl::find_stream(int number) {
  const std::lock_guard making(making_mutex_);
  {
    const std::lock_guard lock(streams_mutex_);
    if (const auto found = streams_.find(number); found != streams_.end()) return found->second;
  }
  if (group_->has_failed()) throw_error(settle(group_->failure()));
  // All members derive the same one, whenever they ask for it.
  ByteWriter writer;
  writer.put(context());
  writer.put_text("stream");
  writer.put(number);
  writer.put(closings_[number]);
  std::shared_ptr<Impl> made = own(
      new Impl(world_, world_ranks_, hash_context(writer.take()), group_->timeout(), rules_, this, number));
  world_->add(*made);
  {
    const std::lock_guard lock(streams_mutex_);
    streams_.emplace(number, made);
  }
  // A failure that was decided before has not reached it.
  if (const auto decided = wait_for_decision(std::chrono::milliseconds(0))) made->group_->fail(*decided);
  return made;
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
  std::shared_ptr<Impl> group =
      make(std::move(world), std::move(world_ranks), context_of("within", name), timeout);
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
  std::shared_ptr<Impl> made = make(world_, std::move(world_ranks), context, group_->timeout());
  // Named tensors are fused already, and partitions of plans go one by one.
  if (tag.starts_with(kOwnTags)) made->fuses_calls_ = false;
  return made;
}

std::uint64_t CommGroup::Impl::context_of(std::string_view way, std::string_view name) {
  ByteWriter writer;
  writer.put_text(way);
  writer.put_text(name);
  return hash_context(writer.take());
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
  return hash_context(identity);
}

}  // namespace tutti
