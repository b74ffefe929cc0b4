// Ranks that join and leave the job of `tutti run` while it runs. Knows nothing of the decisions, which are
// elastic_plan.cpp's. They are made by the `tutti run` that was called; on several hosts its parts carry them out.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tools/cli/run/job.hpp"
#include "tools/cli/run/remote.hpp"

namespace tutti {
namespace {

using Kind = PartMessage::Kind;

// How often the script is asked, and the folder is read; and by a part, whose news others wait for.
constexpr std::chrono::milliseconds kTick{1000}, kPartTick{100};
// A first rank, or one that joins.
constexpr const char* kJoins = "joins";

}  // namespace

Status Job::prepare_elastic() {
  if (!options_.is_elastic()) return {};
  if (!has_parts()) {
    auto folder = ElasticFolder::make();
    if (!folder) return folder.status();
    folder_ = *std::move(folder);
  }
  if (is_part()) return {};
  const std::vector<HostSlots> here{{"localhost", options_.rank_count}};
  const std::vector<HostSlots>& placed = has_parts()                       ? options_.hosts
                                         : options_.part.placement.empty() ? here
                                                                           : options_.part.placement;
  plan_.emplace(options_.elastic, placed, options_.offered.empty() ? placed : options_.offered);
  for (std::size_t host = 0; host < placed.size(); ++host) {
    for (int slot = 0; slot < placed[host].slots; ++slot) numbers_.push_back({host, slot});
  }
  if (!options_.discovery_script.empty())
    discovery_.emplace(options_.discovery_script, options_.slots_per_host);
  return {};
}

void Job::serve_elastic() {
  const Clock::time_point now = Clock::now();
  if (!options_.is_elastic() || cause_) return;
  if (now >= next_tick_) {
    next_tick_ = now + (is_part() ? kPartTick : kTick);
    has_news_ = true;
    if (discovery_) {
      if (const Status status = discovery_->start(); !status)
        output_.say(fmt::format("tutti run: {}", status.message()));
    }
    read_news();
    // Ranks forget it with each change, and not all that wait are admitted by one.
    for (const auto& [place, process] : waiting_) tell_of_waiting(place, process);
  }
  if (!std::exchange(has_news_, false) || !plan_) return;
  const ElasticPlan::Steps steps = plan_->next(now);
  if (!steps.end) {
    carry_out(steps);
    // Parts wait for what there may be to do.
    if (!plan_->has_processes())
      for (OwnedFd& input : part_inputs_) input.reset();
    return;
  }
  cause_ = last_failure_.value_or(Cause{-1, 1, false, {}});
  cause_->text = *steps.end;
  output_.say(fmt::format("tutti run: {}; ending the job", cause_->text));
  end_job();
}

std::chrono::milliseconds Job::time_to_tick() const {
  if (has_news_) return std::chrono::milliseconds(0);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_tick_ - Clock::now());
  return std::max(left, std::chrono::milliseconds(0));
}

void Job::read_discovery() {
  const auto hosts = discovery_->read();
  if (!hosts) return;
  std::string problem = *hosts ? "" : hosts->status().message();
  std::vector<HostSlots> ours{{plan_->hosts().front(), 0}};
  for (std::size_t i = 0; *hosts && i < (*hosts)->size(); ++i) {
    const HostSlots& host = (**hosts)[i];
    if (host.host == ours.front().host || is_here(host.host)) {
      ours.front().slots += host.slots;
    } else if (!has_parts()) {
      problem = fmt::format(
          "the job is on this machine alone, so it does not use host {}; --through ssh lets it", host.host);
    }
  }
  if (problem != discovery_problem_ && !problem.empty()) output_.say(fmt::format("tutti run: {}", problem));
  discovery_problem_ = problem;
  if (*hosts) plan_->offer(has_parts() ? **hosts : ours);
  has_news_ = true;
}

// -- news of ranks ------------------------------------------------------------------------------------------

void Job::read_news() { has_parts() ? read_messages() : read_folder(); }

// Those of processes that have just ended, too.
void Job::read_last_news() {
  if (has_parts()) output_.read_available();
  read_news();
}

void Job::read_messages() {
  for (auto news = output_.take_messages(); !news.empty(); news = output_.take_messages()) {
    for (const auto& [part, message] : news) note(part, message);
    if (!failures_.empty() && !cause_) judge();
  }
}

// Reads what the ranks have written.
void Job::read_folder() {
  if (std::string text = folder_.invitation(); !text.empty() && text != invitation_) {
    invitation_ = std::move(text);
    report({Kind::invitation, 0, 0, invitation_});
  }
  for (int slot = 0; slot < static_cast<int>(ranks_.size()); ++slot) {
    Kind& reported = ranks_[static_cast<std::size_t>(slot)].reported;
    for (const auto& [kind, state] :
         {std::pair(Kind::waiting, "waiting"), std::pair(Kind::member, "member")}) {
      if (reported == kind || !folder_.has(state, slot)) continue;
      reported = kind;
      report({kind, slot, 0, folder_.read(state, slot)});
    }
  }
}

// To whoever decides.
void Job::report(const PartMessage& message) {
  if (plan_) return note(0, message);
  output_.say(mark_message(message, job_id_));
}

void Job::note(std::size_t host, const PartMessage& message) {
  const ElasticPlace place{host, message.slot};
  if (!plan_->has(place)) return;
  has_news_ = true;
  if (message.kind != Kind::invitation && message.kind != Kind::here)
    std::erase_if(waiting_, [&](const auto& waiting) { return waiting.first == place; });
  switch (message.kind) {
    case Kind::invitation:
      plan_->note_invitation();
      invitation_ = message.text;
      for (std::size_t part = 0; part < parts_.size(); ++part)
        if (part != host) send(part, message);
      break;
    case Kind::waiting:
      waiting_.emplace_back(place, message.text);
      tell_of_waiting(place, message.text);
      break;
    case Kind::member:
      plan_->note_member(place);
      break;
    case Kind::ended:
      if (plan_->note_end(place, message.number != 0, Clock::now()) && message.number != 0) {
        const bool is_signal = message.number < 0;
        failures_.push_back({number_of(place),
                             is_signal ? kSignalStatusBase - message.number : message.number, is_signal,
                             message.text});
      }
      break;
    case Kind::here:
      has_answered_[host] = true;
      break;
    default:
      break;
  }
}

// To the members on other hosts; those on its own host see its file.
void Job::tell_of_waiting(const ElasticPlace& place, const std::string& process) {
  for (std::size_t part = 0; part < parts_.size(); ++part)
    if (part != place.host && plan_->has_member(part)) send(part, {Kind::waiting, 0, 0, process});
}

// -- what is to be done -------------------------------------------------------------------------------------

void Job::carry_out(const ElasticPlan::Steps& steps) {
  for (const ElasticPlace& place : steps.leave) {
    command(place, {Kind::leave, place.slot});
    output_.say(fmt::format("tutti run: {} is to leave the job", name_of(place)));
  }
  for (const ElasticPlace& place : steps.stop) command(place, {Kind::stop, place.slot});
  for (const ElasticPlace& place : steps.start) {
    output_.say(fmt::format("tutti run: {} is started, to join the job", name_of(place)));
    command(place, {Kind::start, place.slot, number_of(place), kJoins});
  }
}

void Job::command(const ElasticPlace& place, const PartMessage& message) {
  if (!has_parts()) return obey(message);
  if (open_part(place.host)) send(place.host, message);
}

// On this host.
void Job::obey(const PartMessage& message) {
  const auto slot = static_cast<std::size_t>(message.slot);
  switch (message.kind) {
    case Kind::start:
      start_here(message);
      break;
    case Kind::leave:
      folder_.set("leave", message.slot);
      break;
    case Kind::stop:
      if (slot < ranks_.size() && ranks_[slot].is_running) ::kill(-ranks_[slot].pid, SIGTERM);
      break;
    case Kind::invitation:
      invitation_ = message.text;
      folder_.invite(invitation_);
      break;
    case Kind::waiting:
      folder_.note_waiting_elsewhere(message.text);
      break;
    default:
      break;
  }
}

void Job::start_here(const PartMessage& message) {
  const auto slot = static_cast<std::size_t>(message.slot);
  ranks_.resize(std::max(ranks_.size(), slot + 1));
  Rank& rank = ranks_[slot];
  rank.number = message.number;
  rank.joins = message.text == kJoins;
  if (rank.joins) folder_.set("starting", message.slot);
  const auto error = spawn(message.slot);
  if (!error) return;
  Cause failure{message.number, status_of(*error), false,
                fmt::format("{}: {}: {}", name_of(message.slot), error->what, std::strerror(error->error))};
  if (rank.joins) output_.say("tutti run: " + failure.text);
  static_cast<void>(end_elastic(message.slot, failure));
}

// False: it cannot be started.
bool Job::open_part(std::size_t host) {
  while (parts_.size() <= host) {
    const std::size_t index = parts_.size();
    placed_.push_back({plan_->hosts()[index], std::max(1, plan_->slots_of(index))});
    parts_.push_back(part_of(options_, self_, job_id_, placed_, index));
    part_inputs_.emplace_back();
    has_answered_.push_back(false);
    ranks_.emplace_back();
  }
  if (ranks_[host].is_running) return true;
  const int part = static_cast<int>(host);
  if (const auto error = spawn(part)) {
    output_.say(
        fmt::format("tutti run: {}: {}: {}", name_of(part), error->what, std::strerror(error->error)));
    plan_->note_lost_host(host, Clock::now());
    return false;
  }
  if (!invitation_.empty()) send(host, {Kind::invitation, 0, 0, invitation_});
  return true;
}

void Job::start_first_ranks(std::size_t host) {
  for (int slot = 0; slot < placed_[host].slots; ++slot)
    send(host, {Kind::start, slot, number_of({host, slot})});
}

void Job::send(std::size_t part, const PartMessage& message) const {
  const OwnedFd& input = part_inputs_[part];
  if (input.is_open())
    write_all(input.get(), to_text(message) + "\n");  // one that has ended does not read it
}

// A new place gets the next one.
int Job::number_of(const ElasticPlace& place) {
  const auto found = std::find(numbers_.begin(), numbers_.end(), place);
  const auto number = static_cast<int>(found - numbers_.begin());
  if (found == numbers_.end()) numbers_.push_back(place);
  return number;
}

std::string Job::name_of(const ElasticPlace& place) {
  const std::string where =
      has_parts() ? fmt::format(" on host {}", plan_->hosts()[place.host]) : std::string();
  return fmt::format("rank {}{}", number_of(place), where);
}

// -- ends ---------------------------------------------------------------------------------------------------

// A part has ended. The first ranks wait for all of each other, so where it has never answered they begin again
// without it, if the other hosts have slots for --min-np.
bool Job::starts_without(std::size_t host) {
  if (cause_ || has_answered_[host] || !invitation_.empty() ||
      !has_slots_without(options_, placed_[host].host))
    return false;
  unreachable_host_ = placed_[host].host;
  cause_ =
      Cause{static_cast<int>(host), 1, false, fmt::format("host {} does not answer", *unreachable_host_)};
  output_.say(fmt::format("tutti run: {}; starting without it", cause_->text));
  end_job();
  return true;
}

// A rank has ended, or a part with all of its ranks. Returns whether that says something about the job.
bool Job::end_elastic(int member, const std::optional<Cause>& failure) {
  has_news_ = true;
  if (has_parts()) {
    const auto host = static_cast<std::size_t>(member);
    part_inputs_[host].reset();
    if (starts_without(host)) return false;
    std::erase_if(waiting_, [&](const auto& waiting) { return waiting.first.host == host; });
    return plan_->note_lost_host(host, Clock::now());
  }
  folder_.forget(member);
  if (plan_) return plan_->note_end({0, member}, failure.has_value(), Clock::now());
  const int status = !failure             ? 0
                     : failure->is_signal ? kSignalStatusBase - failure->exit_status
                                          : failure->exit_status;
  report({Kind::ended, member, status, failure ? failure->text : std::string()});
  return false;
}

// Whether the job goes on. Otherwise returns why it ends.
std::optional<std::string> Job::go_on_without(const std::vector<Cause>& failures) {
  ElasticPlan::Steps steps = plan_->next(Clock::now());
  if (steps.end) return steps.end;
  last_failure_ = failures.front();
  for (const Cause& failure : failures) output_.say(fmt::format("tutti run: {}", failure.text));
  output_.say(fmt::format("tutti run: going on with {} of {} ranks{}", plan_->rank_count(), numbers_.size(),
                          plan_->is_short() ? ", once there are as many as --min-np says" : ""));
  carry_out(steps);
  return std::nullopt;
}

}  // namespace tutti
