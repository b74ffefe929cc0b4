// Starts, asks and ends a peer's program. Knows processes and lines only.
#include "tools/cli/bench/peer_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace tutti::tool {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kQuitGrace{5};

// The last lines that the program wrote to its standard error: launchers explain themselves there.
std::string tail_of(int fd) {
  std::string text;
  const off_t end = ::lseek(fd, 0, SEEK_END);
  constexpr off_t kMost = 600;
  const off_t from = std::max<off_t>(0, end - kMost);
  text.resize(static_cast<std::size_t>(end - from));
  const ssize_t got = ::pread(fd, text.data(), text.size(), from);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

bool write_line(int fd, std::string line) {
  line += '\n';
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t put = ::write(fd, line.data() + done, line.size() - done);
    if (put < 0 && errno != EINTR) return false;
    if (put > 0) done += static_cast<std::size_t>(put);
  }
  return true;
}

}  // namespace

Result<PeerProcess> PeerProcess::start(const Start& start, std::chrono::milliseconds at_most) {
  std::array<int, 2> in{}, out{};
  if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0)
    return unsupported(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  PeerProcess peer;
  peer.errors_ = ::memfd_create("tutti-bench-peer", MFD_CLOEXEC);
  ::signal(SIGPIPE, SIG_IGN);  // a program that died is an error of ask(), not our end
  std::vector<char*> words;
  for (const std::string& word : start.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  peer.pid_ = ::fork();
  if (peer.pid_ == 0) {
    ::setsid();  // a group of its own, so that all it started can be killed, and no terminal
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    ::signal(SIGPIPE, SIG_DFL);
    ::dup2(in[0], STDIN_FILENO);
    ::dup2(out[1], STDOUT_FILENO);
    if (peer.errors_ >= 0) ::dup2(peer.errors_, STDERR_FILENO);
    for (const auto& [name, value] : start.environment) ::setenv(name.c_str(), value.c_str(), 1);
    ::execvp(words[0], words.data());
    fmt::print(stderr, "{}: {}\n", words[0], std::strerror(errno));
    std::fflush(stderr);
    ::_exit(127);
  }
  ::close(in[0]);
  ::close(out[1]);
  peer.input_ = in[1];
  peer.output_ = out[0];
  if (peer.pid_ < 0) return unsupported(fmt::format("cannot start a process: {}", std::strerror(errno)));
  const Clock::time_point deadline = Clock::now() + at_most;
  for (;;) {
    const auto line = peer.read_line(deadline);
    if (!line) return line.status();
    if (*line == "ready") return peer;
  }
}

PeerProcess::PeerProcess(PeerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      input_(std::exchange(other.input_, -1)),
      output_(std::exchange(other.output_, -1)),
      errors_(std::exchange(other.errors_, -1)),
      partial_(std::move(other.partial_)) {}

PeerProcess::~PeerProcess() {
  if (input_ >= 0) {
    if (is_running()) write_line(input_, "quit");
    ::close(input_);
  }
  const Clock::time_point deadline = Clock::now() + kQuitGrace;
  while (is_running() && Clock::now() < deadline) {
    if (::waitpid(pid_, nullptr, WNOHANG) != 0) {
      pid_ = -1;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  if (is_running()) kill_group();
  if (output_ >= 0) ::close(output_);
  if (errors_ >= 0) ::close(errors_);
}

void PeerProcess::kill_group() {
  // The leader is not reaped yet, so the group's number is still ours.
  ::kill(-pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

Status PeerProcess::failure(const std::string& what) {
  kill_group();
  const std::string tail = errors_ >= 0 ? tail_of(errors_) : "";
  return unsupported(tail.empty() ? what : fmt::format("{}; it wrote: {}", what, tail));
}

Result<std::string> PeerProcess::read_line(Clock::time_point deadline) {
  for (;;) {
    const std::size_t newline = partial_.find('\n');
    if (newline != std::string::npos) {
      std::string line = partial_.substr(0, newline);
      partial_.erase(0, newline + 1);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      return line;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return failure("no answer in time");
    pollfd ready{output_, POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(left.count())) <= 0) continue;
    std::array<char, 4096> bytes;
    const ssize_t got = ::read(output_, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return failure("the program ended");
    partial_.append(bytes.data(), static_cast<std::size_t>(got));
  }
}

Result<std::string> PeerProcess::ask(const std::string& line, std::chrono::milliseconds at_most) {
  if (!is_running()) return unsupported("the program ended");
  if (!write_line(input_, line)) return failure("the program ended");
  const Clock::time_point deadline = Clock::now() + at_most;
  for (;;) {
    auto answer = read_line(deadline);
    if (!answer || answer->starts_with('{')) return answer;
  }
}

}  // namespace tutti::tool
