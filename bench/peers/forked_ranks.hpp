// The ranks of a program that starts them itself, by fork: on one host, or each in the network namespace of
// its node. Knows no library under test and no protocol.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "bench/peers/mapped_rank.hpp"
#include "bench/peers/peer_main.hpp"

namespace tutti::bench {

struct ForkedRanks {
  int count = 2;
  bool is_bound = false;  // rank i on the i-th allowed processor
  // By node; nodes have equally many ranks, in order. Namespaces are paths (/proc/PID/ns/net); none: this
  // one.
  std::vector<std::string> addresses{"127.0.0.1"};
  std::vector<std::string> namespaces;

  // Takes "--ranks=", "--bind", "--addresses=", "--namespaces="; false if `argument` is none of them. Throws
  // std::invalid_argument.
  bool take(std::string_view argument) {
    if (argument.substr(0, 8) == "--ranks=") {
      count = detail::parse_number("--ranks", argument.substr(8));
      if (count < 1) throw std::invalid_argument("--ranks: at least one");
    } else if (argument == "--bind") {
      is_bound = true;
    } else if (argument.substr(0, 12) == "--addresses=") {
      addresses = split(argument.substr(12));
    } else if (argument.substr(0, 13) == "--namespaces=") {
      namespaces = split(argument.substr(13));
    } else {
      return false;
    }
    return true;
  }

  const std::string& address(int rank) const { return addresses[place(rank, addresses.size())]; }

  // Forks the other ranks, puts each where it belongs and returns the rank of this process. Call it before
  // there are threads. Throws std::system_error.
  int start() const {
    const int rank = fork_all();
    if (!namespaces.empty()) enter(namespaces[place(rank, namespaces.size())]);
    if (!bind_as_mapped(rank) && is_bound) bind_to_processor(rank);
    return rank;
  }
  // In rank 0, when the others may end: their end is no failure from here on.
  void expect_end() const { ::signal(SIGCHLD, SIG_DFL); }
  // Does not return. Others leave without tidying up: threads of theirs may hold connections of ranks that
  // are gone, and nothing is left to save.
  [[noreturn]] void end(int rank) const {
    for (int others = 1; rank == 0 && others < count; ++others) ::wait(nullptr);
    ::_exit(0);
  }

 private:
  static std::vector<std::string> split(std::string_view list) {
    std::vector<std::string> words;
    for (std::size_t at = 0; at <= list.size();) {
      const std::size_t comma = std::min(list.find(',', at), list.size());
      words.emplace_back(list.substr(at, comma - at));
      at = comma + 1;
    }
    return words;
  }
  std::size_t place(int rank, std::size_t nodes) const {
    return static_cast<std::size_t>(rank) * nodes / static_cast<std::size_t>(count);
  }

  // A rank that dies would leave the others waiting for it: the first process ends then, and takes the rest
  // along.
  static void end_with_child(int) {
    static constexpr char kMessage[] = "a rank ended early\n";
    const ssize_t written = ::write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
    ::_exit(written > 0 ? 1 : 2);
  }

  int fork_all() const {
    struct sigaction action = {};
    action.sa_handler = end_with_child;
    action.sa_flags = SA_NOCLDSTOP;
    ::sigaction(SIGCHLD, &action, nullptr);
    const pid_t first = ::getpid();
    for (int rank = 1; rank < count; ++rank) {
      const pid_t child = ::fork();
      if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
      if (child != 0) continue;
      ::signal(SIGCHLD, SIG_DFL);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != first) ::_exit(1);
      return rank;
    }
    return 0;
  }

  static void enter(const std::string& network) {
    const int fd = ::open(network.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || ::setns(fd, CLONE_NEWNET) != 0)
      throw std::system_error(errno, std::generic_category(), "entering " + network);
    ::close(fd);
  }

  static void bind_to_processor(int rank) {
    cpu_set_t allowed;
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    int position = rank % CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &allowed) || position-- != 0) continue;
      bind_to_cpu(cpu);
      return;
    }
  }
};

}  // namespace tutti::bench
