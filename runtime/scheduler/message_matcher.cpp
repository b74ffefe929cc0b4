// Matching messages and receives; see message_matcher.hpp.
#include "runtime/scheduler/message_matcher.hpp"

#include <algorithm>

namespace tutti {
namespace {

bool accepts(const MessageMatcher::Receive& receive, const MessageMatcher::Message& message) {
  return receive.tag == message.tag && (receive.source == message.source || receive.source == kFromAnyRank);
}

// Takes the first for which `is_it` holds.
template <class T, class Predicate>
std::optional<T> take_first(std::vector<T>& from, const Predicate& is_it) {
  const auto found = std::find_if(from.begin(), from.end(), is_it);
  if (found == from.end()) return std::nullopt;
  const T taken = *found;
  from.erase(found);
  return taken;
}

}  // namespace

std::optional<MessageMatcher::Message> MessageMatcher::post(const Receive& receive) {
  const auto taken = take_first(announced_, [&](const Message& m) { return accepts(receive, m); });
  if (!taken) posted_.push_back(receive);
  return taken;
}

std::optional<MessageMatcher::Receive> MessageMatcher::announce(const Message& message) {
  const auto taken = take_first(posted_, [&](const Receive& r) { return accepts(r, message); });
  if (!taken) announced_.push_back(message);
  return taken;
}

bool MessageMatcher::withdraw(const Operation* operation) {
  return take_first(posted_, [&](const Receive& r) { return r.operation == operation; }).has_value();
}

bool MessageMatcher::waits_for_any(std::uint32_t tag) const {
  return std::any_of(posted_.begin(), posted_.end(),
                     [&](const Receive& r) { return r.tag == tag && r.source == kFromAnyRank; });
}

std::optional<MessageMatcher::Receive> MessageMatcher::take_unrivalled(std::uint32_t tag) {
  const auto first =
      std::find_if(posted_.begin(), posted_.end(), [&](const Receive& r) { return r.tag == tag; });
  if (first == posted_.end() || first->source == kFromAnyRank) return std::nullopt;
  const Receive taken = *first;
  posted_.erase(first);
  return taken;
}

}  // namespace tutti
