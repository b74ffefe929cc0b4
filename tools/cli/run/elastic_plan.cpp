// The rules of elastic jobs. Knows no process; see elastic_plan.hpp.
#include "tools/cli/run/elastic_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {

ElasticPlan::ElasticPlan(const ElasticLimits& limits, const std::vector<HostSlots>& placed,
                         const std::vector<HostSlots>& offered)
    : limits_(limits) {
  for (const HostSlots& host : placed) {
    names_.push_back(host.host);
    hosts_.emplace_back().states.assign(static_cast<std::size_t>(host.slots), State::member);
  }
  offer(offered);
}

void ElasticPlan::offer(const std::vector<HostSlots>& hosts) {
  for (Host& host : hosts_) host.slots = 0;
  for (const HostSlots& offered : hosts) {
    const auto found = std::find(names_.begin(), names_.end(), offered.host);
    const auto index = static_cast<std::size_t>(found - names_.begin());
    if (found == names_.end()) {
      names_.push_back(offered.host);
      hosts_.emplace_back();
    }
    hosts_[index].slots = offered.slots;
  }
}

void ElasticPlan::note_member(ElasticPlace place) {
  State& state = hosts_[place.host].states[static_cast<std::size_t>(place.slot)];
  if (state != State::starting) return;
  state = State::member;
  hosts_[place.host].strikes = 0;
}

bool ElasticPlan::note_end(ElasticPlace place, bool has_failed, Clock::time_point now) {
  Host& host = hosts_[place.host];
  State& state = host.states[static_cast<std::size_t>(place.slot)];
  const bool is_needed = state == State::member || (state == State::starting && finished_ == 0);
  if (state == State::member && !has_failed) ++finished_;
  if (state == State::member && has_failed) has_changed_ = true;
  if (state == State::starting && finished_ == 0) close(host, now);
  state = State::free;
  return is_needed;
}

bool ElasticPlan::note_lost_host(std::size_t host, Clock::time_point now) {
  bool is_needed = false;
  for (State& state : hosts_[host].states) {
    if (state == State::free) continue;
    if (state == State::member) has_changed_ = true;
    is_needed = is_needed || state == State::member || (state == State::starting && finished_ == 0);
    state = State::free;
  }
  if (is_needed) close(hosts_[host], now);
  return is_needed;
}

void ElasticPlan::close(Host& host, Clock::time_point now) const {
  host.closed_until = Clock::time_point::max();
  if (limits_.cooldown) {
    const auto [shortest, longest] = *limits_.cooldown;
    const long pause = static_cast<long>(shortest) << std::min(host.strikes, 20);
    host.closed_until = now + std::chrono::seconds(std::min<long>(pause, longest));
  }
  ++host.strikes;
}

int ElasticPlan::count(const Host& host, State state) {
  return static_cast<int>(std::count(host.states.begin(), host.states.end(), state));
}

int ElasticPlan::count(State state) const {
  int found = 0;
  for (const Host& host : hosts_) found += count(host, state);
  return found;
}

int ElasticPlan::rank_count() const { return count(State::member) + count(State::leaving) + finished_; }

bool ElasticPlan::is_open(const Host& host, Clock::time_point now) const {
  return !host.closed_until || now >= *host.closed_until;
}

void ElasticPlan::start_missing(Clock::time_point now, Steps& steps) {
  int missing = limits_.max_ranks - count(State::member) - count(State::starting) - count(State::leaving);
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    Host& host = hosts_[i];
    if (!is_open(host, now)) continue;
    if (host.states.size() < static_cast<std::size_t>(host.slots))
      host.states.resize(static_cast<std::size_t>(host.slots));
    for (int slot = 0; slot < host.slots && missing > 0; ++slot) {
      State& state = host.states[static_cast<std::size_t>(slot)];
      if (state != State::free) continue;
      state = State::starting;
      steps.start.push_back({i, slot});
      --missing;
    }
  }
}

// The highest slots of a host that offers fewer than are taken.
void ElasticPlan::leave_removed(Steps& steps) {
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    Host& host = hosts_[i];
    auto excess = std::count(host.states.begin(), host.states.end(), State::member) - host.slots;
    for (std::size_t slot = host.states.size(); slot-- > 0 && excess > 0;) {
      if (host.states[slot] != State::member) continue;
      host.states[slot] = State::leaving;
      steps.leave.push_back({i, static_cast<int>(slot)});
      --excess;
    }
  }
}

std::optional<std::string> ElasticPlan::reason_to_end(Clock::time_point now, const Steps& steps) {
  if (count(State::member) + count(State::leaving) == 0 && finished_ == 0) return "no rank is left";
  if (limits_.reset_limit > 0 && changes_ > limits_.reset_limit)
    return fmt::format("ranks have changed {} times; --reset-limit is {}", changes_, limits_.reset_limit);
  if (!is_short()) {
    short_since_.reset();
    return std::nullopt;
  }
  if (!short_since_) short_since_ = now;
  const bool may_recover = has_invitation_ && finished_ == 0;
  const bool is_late = now - *short_since_ >= limits_.timeout;
  const bool is_on_the_way =
      !steps.start.empty() || count(State::starting) > 0 || limits_.cooldown || limits_.discovers_hosts;
  if (may_recover && is_on_the_way && !is_late) return std::nullopt;
  return fmt::format("{} ranks are left, and --min-np is {}{}", rank_count(), limits_.min_ranks,
                     is_late ? fmt::format(" (waited {} s)", limits_.timeout.count()) : std::string());
}

ElasticPlan::Steps ElasticPlan::next(Clock::time_point now) {
  Steps steps;
  if (finished_ > 0) {
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      for (std::size_t slot = 0; slot < hosts_[i].states.size(); ++slot) {
        if (hosts_[i].states[slot] == State::starting) steps.stop.push_back({i, static_cast<int>(slot)});
      }
    }
  } else if (has_invitation_) {
    leave_removed(steps);
    start_missing(now, steps);
  }
  if (!steps.leave.empty() || !steps.start.empty()) has_changed_ = true;
  changes_ += std::exchange(has_changed_, false) ? 1 : 0;
  steps.end = reason_to_end(now, steps);
  return steps;
}

}  // namespace tutti
