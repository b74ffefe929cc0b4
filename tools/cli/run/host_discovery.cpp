// A script in a process of its own. See host_discovery.hpp.
#include "tools/cli/run/host_discovery.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tutti {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20U;

}  // namespace

Status HostDiscovery::start() {
  if (output_.is_open()) return {};
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return {StatusCode::resource_exhausted, fmt::format("no pipe for the script: {}", std::strerror(errno))};
  OwnedFd output(ends[0]), input(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, input.get(), STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, pipe_signal;
  sigemptyset(&none);
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &pipe_signal);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::string shell = "sh", option = "-c";
  std::array<char*, 4> arguments{shell.data(), option.data(), script_.data(), nullptr};
  const int error = ::posix_spawn(&pid_, "/bin/sh", &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    return {StatusCode::resource_exhausted, fmt::format("cannot start the script: {}", std::strerror(error))};
  output_ = std::move(output);
  text_.clear();
  return {};
}

std::optional<Result<std::vector<HostSlots>>> HostDiscovery::read() {
  std::array<char, 4096> bytes{};
  const ssize_t got = ::read(output_.get(), bytes.data(), bytes.size());
  if (got > 0) text_.append(bytes.data(), static_cast<std::size_t>(got));
  if (text_.size() > kMostBytes) {
    output_.reset();  // the script ends by SIGPIPE
    return invalid_argument(
        fmt::format("the output of '{}': expected at most {} bytes", script_, kMostBytes));
  }
  if (got > 0 || (got < 0 && errno == EINTR)) return std::nullopt;
  output_.reset();
  auto hosts = parse_hostfile(text_, default_slots_);
  if (!hosts) return hosts.status().with_context(fmt::format("the output of '{}'", script_));
  return hosts;
}

Result<std::vector<HostSlots>> HostDiscovery::run() {
  TUTTI_RETURN_IF_ERROR(start());
  for (;;) {
    auto hosts = read();
    if (!hosts) continue;
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    return *std::move(hosts);
  }
}

}  // namespace tutti
