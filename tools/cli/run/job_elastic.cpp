// Ranks that join and leave the job of `tutti run` while it runs. Knows nothing of the decisions, which are
// elastic_plan.cpp's.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tools/cli/run/job.hpp"
#include "tools/cli/run/remote.hpp"

namespace tutti {
namespace {

// How often the script is asked, and the folder is read.
constexpr std::chrono::seconds kTick{1};

}  // namespace

Status Job::prepare_elastic() {
  if (!options_.is_elastic()) return {};
  auto folder = ElasticFolder::make();
  if (!folder) return folder.status();
  folder_ = *std::move(folder);
  const std::vector<HostSlots> here{{"localhost", options_.rank_count}};
  const std::vector<HostSlots>& placed = options_.part.placement.empty() ? here : options_.part.placement;
  plan_.emplace(options_.elastic, placed, options_.offered.empty() ? placed : options_.offered);
  if (!options_.discovery_script.empty())
    discovery_.emplace(options_.discovery_script, options_.slots_per_host);
  return {};
}

void Job::serve_elastic() {
  const Clock::time_point now = Clock::now();
  if (!plan_ || cause_ || now < next_tick_) return;
  next_tick_ = now + kTick;
  if (discovery_) {
    if (const Status status = discovery_->start(); !status)
      output_.say(fmt::format("tutti run: {}", status.message()));
  }
  refresh_elastic();
  const ElasticPlan::Steps steps = plan_->next(now);
  if (!steps.end) return carry_out(steps);
  cause_ = last_failure_.value_or(Cause{-1, 1, false, {}});
  cause_->text = *steps.end;
  output_.say(fmt::format("tutti run: {}; ending the job", cause_->text));
  end_job();
}

std::chrono::milliseconds Job::time_to_tick() const {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_tick_ - Clock::now());
  return std::max(left, std::chrono::milliseconds(0));
}

void Job::read_discovery() {
  const auto hosts = discovery_->read();
  if (!hosts) return;
  const std::string problem = *hosts ? "" : hosts->status().message();
  if (problem != discovery_problem_ && !problem.empty()) output_.say(fmt::format("tutti run: {}", problem));
  discovery_problem_ = problem;
  if (!*hosts) return;
  std::vector<HostSlots> ours{{plan_->hosts().front(), 0}};
  for (const HostSlots& host : **hosts) {
    if (host.host == ours.front().host || is_here(host.host)) ours.front().slots += host.slots;
  }
  plan_->offer(ours);
}

// Reads what the ranks have written.
void Job::refresh_elastic() {
  if (folder_.has_invitation()) plan_->note_invitation();
  for (int slot = 0; slot < static_cast<int>(ranks_.size()); ++slot) {
    if (folder_.has("member", slot)) plan_->note_member({0, slot});
  }
}

void Job::carry_out(const ElasticPlan::Steps& steps) {
  for (const ElasticPlace& place : steps.leave) {
    folder_.set("leave", place.slot);
    output_.say(fmt::format("tutti run: {} is to leave the job", name_of(place.slot)));
  }
  for (const ElasticPlace& place : steps.stop) {
    const Rank& rank = ranks_[static_cast<std::size_t>(place.slot)];
    if (rank.is_running) ::kill(-rank.pid, SIGTERM);
  }
  for (const ElasticPlace& place : steps.start) {
    const auto slot = static_cast<std::size_t>(place.slot);
    ranks_.resize(std::max(ranks_.size(), slot + 1));
    ranks_[slot].joins = true;
    folder_.set("starting", place.slot);
    if (const auto error = spawn(place.slot)) {
      output_.say(fmt::format("tutti run: {}: {}: {}", name_of(place.slot), error->what,
                              std::strerror(error->error)));
      static_cast<void>(end_elastic(place.slot, true));
    } else {
      output_.say(fmt::format("tutti run: {} is started, to join the job", name_of(place.slot)));
    }
  }
}

// Returns whether the end of this process says something about the job.
bool Job::end_elastic(int slot, bool has_failed) {
  folder_.forget(slot);
  return plan_->note_end({0, slot}, has_failed, Clock::now());
}

// Whether the job goes on. Otherwise returns why it ends.
std::optional<std::string> Job::go_on_without(const std::vector<Cause>& failures) {
  ElasticPlan::Steps steps = plan_->next(Clock::now());
  if (steps.end) return steps.end;
  last_failure_ = failures.front();
  for (const Cause& failure : failures) output_.say(fmt::format("tutti run: {}", failure.text));
  output_.say(fmt::format("tutti run: going on with {} of {} ranks{}", plan_->rank_count(), ranks_.size(),
                          plan_->is_short() ? ", once there are as many as --min-np says" : ""));
  carry_out(steps);
  return std::nullopt;
}

}  // namespace tutti
