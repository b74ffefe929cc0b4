// Writes what groups and operations do into the record of this rank. Knows no way of carrying them out.
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/record/rank_file.hpp"
#include "runtime/scheduler/group_context.hpp"
#include "runtime/scheduler/operation.hpp"

namespace tutti {

std::unique_ptr<record::GroupRecord> GroupContext::make_record() {
  const record::GroupRecord::Member member{options_.context, options_.rank, size(), options_.stream};
  if (options_.record == nullptr) return std::make_unique<record::GroupRecord>(member);
  return options_.record->add_group(member);
}

void GroupContext::find_counters() {
  std::set<std::string_view> names;
  for (const PeerAddress& peer : *options_.peers) {
    if (peer.transport == nullptr) continue;
    const std::string_view name = peer.transport->caps().name;
    names.insert(name);
    if (options_.record != nullptr && &traffic_of(*peer.transport) == &uncounted_)
      traffic_.emplace_back(peer.transport, &options_.record->traffic_of(name));
  }
  transports_ = fmt::format("{}", fmt::join(names, "+"));
}

record::Traffic& GroupContext::traffic_of(const Transport& transport) {
  for (const auto& [of, traffic] : traffic_)
    if (of == &transport) return *traffic;
  return uncounted_;
}

std::uint16_t GroupContext::row_of(Collective collective, std::uint64_t bytes, std::string_view algorithm,
                                   bool is_lowered) {
  const std::string_view transport = is_lowered ? std::string_view("shared memory") : transports_;
  return record_->row_of(static_cast<std::uint8_t>(collective), bytes, algorithm, transport);
}

void Operation::begin_record() {
  record::GroupRecord& group = group_->record();
  recorded_.has_heard = false;
  if (call_.collective != Collective::send_recv)
    return recorded_.times.begin(group, group.operation(sequence_), sequence_, recorded_.row,
                                 trace_.submitted, trace_.entered);
  record::Submitted message;
  message.digest = std::uint64_t{sequence_} << 1U | std::uint64_t{call_.is_send};
  const CallContract contract = contract_of(call_, 0);
  message.kind = contract.kind | std::uint64_t{call_.root} << 32U;
  message.count = contract.count;
  message.state = {record::Phase::moving, false, recorded_.row};
  record::Entry& entry = group.add_message(message);
  recorded_.times.begin(group, entry, message.sequence, recorded_.row, trace_.submitted, trace_.entered);
}

void Operation::note_stalled() {
  if (frame_ != nullptr && !blocks_.is_used)
    recorded_.times.block(first_awaited_sender(), !recorded_.has_heard);
}

}  // namespace tutti
