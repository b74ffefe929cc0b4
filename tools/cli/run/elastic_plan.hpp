// Decides which ranks of an elastic job start, leave or are waited for. Knows no process, no clock and no file.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/cli/run/hosts.hpp"

namespace tutti {

struct ElasticLimits {
  int min_ranks = 0;                            // 0: the job is not elastic
  int max_ranks = 0;                            // never more at a time
  int reset_limit = 0;                          // how often ranks may change; 0: any number of times
  std::chrono::seconds timeout{600};            // with fewer ranks than min_ranks
  std::optional<std::pair<int, int>> cooldown;  // seconds until a host is tried again; none: never
  bool discovers_hosts = false;                 // others may come
};

// A place for one rank: the `slot`-th of the `host`-th host.
struct ElasticPlace {
  std::size_t host = 0;
  int slot = 0;
  bool operator==(const ElasticPlace&) const = default;
};

class ElasticPlan {
 public:
  using Clock = std::chrono::steady_clock;
  struct Steps {
    std::vector<ElasticPlace> start;  // ranks that join
    std::vector<ElasticPlace> leave;  // ranks to be told to leave
    std::vector<ElasticPlace> stop;   // processes that will not be admitted any more
    std::optional<std::string> end;   // the job ends, and why
  };

  // `placed`: the hosts with the ranks that the job starts with; `offered`: with all their slots.
  ElasticPlan(const ElasticLimits& limits, const std::vector<HostSlots>& placed,
              const std::vector<HostSlots>& offered);

  // The discovery script's hosts; a host that is missing has no slots any more.
  void offer(const std::vector<HostSlots>& hosts);
  // Members run that admit processes.
  void note_invitation() { has_invitation_ = true; }
  void note_member(ElasticPlace place);
  // The process at a place has ended. A host where one ends before it is a member gets no more of them for a time.
  // False: nobody needed it any more.
  bool note_end(ElasticPlace place, bool has_failed, Clock::time_point now);
  // Nothing runs on a host any more that should. It gets no more processes for a time. False: nobody was needed.
  bool note_lost_host(std::size_t host, Clock::time_point now);
  // To be called after each change, and now and then.
  Steps next(Clock::time_point now);

  const std::vector<std::string>& hosts() const { return names_; }
  bool has(ElasticPlace place) const {
    return static_cast<std::size_t>(place.slot) < hosts_[place.host].states.size();
  }
  int slots_of(std::size_t host) const { return hosts_[host].slots; }
  bool has_member(std::size_t host) const { return count(hosts_[host], State::member) > 0; }
  bool has_processes() const {
    return count(State::starting) + count(State::member) + count(State::leaving) > 0;
  }
  int rank_count() const;  // members and those that have ended well
  bool is_short() const { return rank_count() < limits_.min_ranks; }

 private:
  enum class State : std::uint8_t { free, starting, member, leaving };
  struct Host {
    int slots = 0;
    std::vector<State> states;
    int strikes = 0;
    std::optional<Clock::time_point> closed_until;
  };

  static int count(const Host& host, State state);
  int count(State state) const;
  void close(Host& host, Clock::time_point now) const;
  void start_missing(Clock::time_point now, Steps& steps);
  void leave_removed(Steps& steps);
  bool is_open(const Host& host, Clock::time_point now) const;
  std::optional<std::string> reason_to_end(Clock::time_point now, const Steps& steps);

  ElasticLimits limits_;
  std::vector<std::string> names_;
  std::vector<Host> hosts_;
  bool has_invitation_ = false;
  int finished_ = 0;  // ended well: the job is ending
  int changes_ = 0;
  bool has_changed_ = false;  // since the last steps
  std::optional<Clock::time_point> short_since_;
};

}  // namespace tutti
