// Matching messages and receives; see message_matcher.hpp.
#include "runtime/scheduler/message_matcher.hpp"

#include <algorithm>

namespace tutti {

std::optional<std::uint64_t> MessageMatcher::first_of(const Queues& queues, Key key) {
  const auto found = queues.find(key);
  return found == queues.end() ? std::nullopt : std::optional(*found->second.begin());
}

void MessageMatcher::drop(Queues& queues, Key key, std::uint64_t place) {
  const auto found = queues.find(key);
  found->second.erase(place);
  if (found->second.empty()) queues.erase(found);
}

MessageMatcher::Receive MessageMatcher::take_receive(std::uint64_t place) {
  const auto found = posted_.find(place);
  const Receive taken = found->second;
  posted_.erase(found);
  drop(receives_, key_of(taken.source, taken.tag), place);
  drop(receives_, key_of(kAllOfTag, taken.tag), place);
  return taken;
}

MessageMatcher::Message MessageMatcher::take_message(std::uint64_t place) {
  const auto found = announced_.find(place);
  const Message taken = found->second;
  announced_.erase(found);
  drop(messages_, key_of(taken.source, taken.tag), place);
  drop(messages_, key_of(kAllOfTag, taken.tag), place);
  return taken;
}

std::optional<MessageMatcher::Message> MessageMatcher::post(const Receive& receive) {
  const std::uint32_t source = receive.source == kFromAnyRank ? kAllOfTag : receive.source;
  if (const auto first = first_of(messages_, key_of(source, receive.tag))) return take_message(*first);
  const std::uint64_t place = next_place_++;
  posted_.emplace(place, receive);
  receives_[key_of(receive.source, receive.tag)].insert(place);
  receives_[key_of(kAllOfTag, receive.tag)].insert(place);
  return std::nullopt;
}

std::optional<MessageMatcher::Receive> MessageMatcher::announce(const Message& message) {
  const auto from_source = first_of(receives_, key_of(message.source, message.tag));
  const auto from_any = first_of(receives_, key_of(kFromAnyRank, message.tag));
  if (from_source && from_any) return take_receive(std::min(*from_source, *from_any));
  if (from_source) return take_receive(*from_source);
  if (from_any) return take_receive(*from_any);
  const std::uint64_t place = next_place_++;
  announced_.emplace(place, message);
  messages_[key_of(message.source, message.tag)].insert(place);
  messages_[key_of(kAllOfTag, message.tag)].insert(place);
  return std::nullopt;
}

bool MessageMatcher::withdraw(const Receive& receive) {
  const auto queue = receives_.find(key_of(receive.source, receive.tag));
  if (queue == receives_.end()) return false;
  const auto found = std::find_if(queue->second.begin(), queue->second.end(), [&](std::uint64_t place) {
    return posted_.at(place).operation == receive.operation;
  });
  if (found == queue->second.end()) return false;
  take_receive(*found);
  return true;
}

std::optional<MessageMatcher::Receive> MessageMatcher::take_unrivalled(std::uint32_t tag) {
  const auto first = first_of(receives_, key_of(kAllOfTag, tag));
  if (!first || posted_.at(*first).source == kFromAnyRank) return std::nullopt;
  return take_receive(*first);
}

}  // namespace tutti
