// A job that is stopped as a whole for longer than its timeout goes on as if nothing had happened, whatever
// its ranks were at.
#include <memory>

#include "tests/group/job.hpp"
#include "tests/support/catch.hpp"

using namespace tutti::test;

namespace {

// One job in one phase, which prints the ids of its ranks.
class Suspended {
 public:
  Suspended(std::string phase, int size)
      : phase_(std::move(phase)),
        size_(size),
        job_({TUTTI_RUN, "-n", std::to_string(size), "--grace", "10", "env", "TUTTI_TIMEOUT=3s",
              SUSPENDED_PROGRAM, phase_}) {}

  bool starts() {
    for (int rank = 0; rank < size_; ++rank) {
      const std::string name = "pid" + std::to_string(rank) + "=";
      if (!job_.wait_for(name)) return false;
      const std::string& out = job_.output();
      const std::size_t at = out.find(name) + name.size();
      if (out.find(';', at) == std::string::npos) return false;  // lines come whole
      pids_.push_back(static_cast<pid_t>(std::stoi(out.substr(at))));
    }
    return true;
  }
  void signal(int number) const {
    for (const pid_t pid : pids_) ::kill(pid, number);
  }
  Outcome finish() { return job_.finish(); }
  const std::string& phase() const { return phase_; }

 private:
  const std::string phase_;
  const int size_;
  std::vector<pid_t> pids_;
  Job job_;
};

}  // namespace

TEST_CASE("a job that is stopped as a whole for longer than its timeout goes on") {
  const int size = GENERATE(2, 4);
  std::vector<std::unique_ptr<Suspended>> jobs;
  for (const char* phase : {"start", "between", "inside", "moving"})
    jobs.push_back(std::make_unique<Suspended>(phase, size));
  for (const auto& job : jobs) {
    INFO(job->phase());
    REQUIRE(job->starts());
  }
  for (const auto& job : jobs) job->signal(SIGUSR1);
  // By now those that wait do so, or are about to: either way the whole stop lies within the phase.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  for (const auto& job : jobs) job->signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(4000));
  for (const auto& job : jobs) {
    job->signal(SIGCONT);
    job->signal(SIGUSR2);
  }
  for (const auto& job : jobs) {
    const Outcome outcome = job->finish();
    INFO(job->phase() << "\n" << outcome.out << outcome.err);
    CHECK(outcome.status == 0);
    CHECK_FALSE(outcome.is_late);
  }
}
