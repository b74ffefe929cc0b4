// Starts a command with captured output, for tests. Knows no rank.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace tutti::test {

struct Outcome {
  int status = -1;  // exit status, or 128 + signal
  std::string out, err;
  bool is_late = false;  // it had to be killed
};

class Job {
 public:
  // `ignored`: signals that the command finds ignored.
  explicit Job(std::vector<std::string> words, const std::string& input = {},
               const std::vector<int>& ignored = {}) {
    std::array<int, 2> out{}, err{}, in{};
    if (::pipe2(out.data(), O_CLOEXEC) != 0 || ::pipe2(err.data(), O_CLOEXEC) != 0 ||
        ::pipe2(in.data(), O_CLOEXEC) != 0) {
      std::abort();
    }
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      ::dup2(err[1], 2);
      // Under nohup, or in the background of a script, these are ignored, which a shell cannot undo by a
      // trap.
      for (const int signal : {SIGHUP, SIGINT, SIGQUIT}) ::signal(signal, SIG_DFL);
      for (const int signal : ignored) ::signal(signal, SIG_IGN);
      std::vector<char*> arguments;
      for (std::string& word : words) arguments.push_back(word.data());
      arguments.push_back(nullptr);
      ::execvp(arguments[0], arguments.data());
      ::_exit(125);
    }
    ::close(out[1]);
    ::close(err[1]);
    ::close(in[0]);
    if (::write(in[1], input.data(), input.size()) != static_cast<ssize_t>(input.size())) std::abort();
    ::close(in[1]);
    fds_ = {out[0], err[0]};
  }
  ~Job() {
    for (const int fd : fds_) ::close(fd);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& out() const { return outcome_.out; }

  // Its standard output so far.
  const std::string& output() const { return outcome_.out; }
  // Reads until `text` appears on standard output; false at the end of the output or after half a minute.
  bool wait_for(const std::string& text) {
    const auto until = Clock::now() + kPatience;
    while (outcome_.out.find(text) == std::string::npos) {
      if (Clock::now() > until || !read_some()) return false;
    }
    return true;
  }

  // Reads everything and reaps the process.
  Outcome finish() {
    const auto until = Clock::now() + kPatience;
    while (read_some()) {
      if (Clock::now() < until) continue;
      outcome_.is_late = true;
      ::kill(pid_, SIGKILL);
    }
    int status = 0;
    ::waitpid(pid_, &status, 0);
    outcome_.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return outcome_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPatience{30};

  // False once both streams have ended.
  bool read_some() {
    std::array<pollfd, 2> ready{pollfd{is_open_[0] ? fds_[0] : -1, POLLIN, 0},
                                pollfd{is_open_[1] ? fds_[1] : -1, POLLIN, 0}};
    if (!is_open_[0] && !is_open_[1]) return false;
    ::poll(ready.data(), ready.size(), 200);
    for (std::size_t i = 0; i < 2; ++i) {
      if (ready[i].revents == 0) continue;
      std::array<char, 4096> bytes;
      const ssize_t got = ::read(fds_[i], bytes.data(), bytes.size());
      if (got > 0) (i == 0 ? outcome_.out : outcome_.err).append(bytes.data(), static_cast<std::size_t>(got));
      if (got <= 0) is_open_[i] = false;
    }
    return is_open_[0] || is_open_[1];
  }

  pid_t pid_ = -1;
  std::array<int, 2> fds_{-1, -1};
  std::array<bool, 2> is_open_{true, true};
  Outcome outcome_;
};

inline Outcome run(std::vector<std::string> words, const std::string& input = {}) {
  return Job(std::move(words), input).finish();
}

inline std::size_t count(const std::string& text, const std::string& piece) {
  std::size_t times = 0;
  for (std::size_t at = text.find(piece); at != std::string::npos; at = text.find(piece, at + 1)) ++times;
  return times;
}

// False if it does not hold within half a minute.
template <class Condition>
bool holds_soon(Condition condition) {
  for (int i = 0; i < 1500; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

// Waits until no process has this word in its command line; false if one still has after some seconds.
inline bool is_gone(const std::string& word) {
  for (int i = 0; i < 500; ++i) {
    if (run({"pgrep", "-f", word}).status == 1) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace tutti::test
