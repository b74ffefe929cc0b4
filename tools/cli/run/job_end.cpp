// How the job of `tutti run` ends: ranks that fail, the verdict, and what ranks leave behind.
// Knows nothing of how it was started, which is job.cpp.
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tools/cli/run/job.hpp"

namespace tutti {
namespace {

// How long processes that ranks have left may take to end by themselves.
constexpr std::chrono::milliseconds kLeftoverGrace{200};
constexpr timespec kLeftoverPause{0, 5'000'000};

}  // namespace

std::optional<Job::Cause> Job::failure_of(int rank, int wait_status) const {
  const pid_t pid = ranks_[static_cast<std::size_t>(rank)].pid;
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return Cause{rank, kSignalStatusBase + signal, true,
                 fmt::format("{} (pid {}) killed by signal {} ({}){}", name_of(rank), pid, signal,
                             ::strsignal(signal), WCOREDUMP(wait_status) ? ", core dumped" : "")};
  }
  const int status = WEXITSTATUS(wait_status);
  if (status == 0) return std::nullopt;
  return Cause{rank, status, false,
               fmt::format("{} (pid {}) ended with exit status {}", name_of(rank), pid, status)};
}

void Job::reap() {
  if (options_.is_elastic()) read_last_news();
  int wait_status = 0;
  pid_t pid = 0;
  while ((pid = ::waitpid(-1, &wait_status, WNOHANG)) > 0) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].pid != pid || !ranks_[rank].is_running) continue;
      ranks_[rank].is_running = false;
      const auto failure = failure_of(static_cast<int>(rank), wait_status);
      const bool matters = !options_.is_elastic() || end_elastic(static_cast<int>(rank), failure);
      if (failure && matters) failures_.push_back(*failure);
    }
  }
  // The process that reaped our children kept their statuses.
  if (pid < 0 && errno == ECHILD && has_running_rank()) {
    for (Rank& rank : ranks_) rank.is_running = false;
    failures_.push_back(Cause{-1, 1, false, "ranks have ended, but the system did not tell how"});
  }
  if (!failures_.empty() && !cause_) judge();
}

// Whether the job goes on, as an elastic one may. Of the ranks that ended between two polls, one killed by a signal
// is the cause of the end: the others exit with an error because their peer is gone.
void Job::judge() {
  const std::vector<Cause> failures = std::exchange(failures_, {});
  // Everything the ranks had printed is in their pipes by now: let it appear before the verdict.
  output_.read_available();
  std::string reason;
  if (plan_) {
    const std::optional<std::string> why = go_on_without(failures);
    if (!why) return;
    reason = "; " + *why;
  }
  const auto killed =
      std::find_if(failures.begin(), failures.end(), [](const Cause& failure) { return failure.is_signal; });
  cause_ = killed != failures.end() ? *killed : failures.front();
  const auto running =
      std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.is_running; });
  output_.say(fmt::format("tutti run: {}{}{}", cause_->text, reason,
                          running > 0 ? fmt::format("; ending the other {} ({} running)",
                                                    has_parts() ? "parts" : "ranks", running)
                                      : std::string()));
  end_job();
}

void Job::signal_ranks(int signal) const {
  for (const Rank& rank : ranks_) {
    // The leader is not reaped yet, so neither its number nor its group can belong to anybody else.
    if (rank.is_running) ::kill(-rank.pid, signal);
  }
}

void Job::end_job() {
  for (OwnedFd& input : part_inputs_) input.reset();  // a signal would not cross to another machine
  if (!has_parts()) signal_ranks(SIGTERM);
  signal_ranks(SIGCONT);  // a stopped rank cannot die of SIGTERM
  // A part has the grace for its own ranks first.
  constexpr std::chrono::seconds kPartTime{2};
  const Clock::duration grace = has_parts() ? options_.grace + kPartTime : Clock::duration(options_.grace);
  if (!kill_at_) kill_at_ = Clock::now() + grace;
}

// Everything the ranks started and left behind is our child by now. Children we had before the job (a shell
// may exec us with some) are not ours to end. After an orderly end each is named: somebody may miss it.
void Job::kill_leftovers() {
  const Clock::time_point until = Clock::now() + kLeftoverGrace;
  for (;;) {
    std::vector<pid_t> children = list_children();
    std::erase_if(children, [this](pid_t pid) {
      return std::find(strangers_.begin(), strangers_.end(), pid) != strangers_.end() ||
             ::waitpid(pid, nullptr, WNOHANG) == pid;
    });
    if (children.empty()) return;
    if (!cause_ && Clock::now() < until) {
      ::nanosleep(&kLeftoverPause, nullptr);
      continue;
    }
    for (const pid_t pid : children) {
      const std::string leftover = cause_ ? std::string() : describe_leftover(pid);
      if (!leftover.empty()) output_.say(fmt::format("tutti run: {}; it ends with the job", leftover));
      ::kill(pid, SIGKILL);
    }
    for (const pid_t pid : children) {
      while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  }
}

}  // namespace tutti
