// Starting and waiting. Knows no script.
#include "tools/cli/process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace tutti::tool {

int run_and_wait(const std::vector<std::string>& words, bool is_quiet) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::fflush(nullptr);
  // Ignored by whoever started us, it would stay ignored, and the kernel would keep the status to itself.
  const auto previous_handler = ::signal(SIGCHLD, SIG_DFL);
  const pid_t pid = ::fork();
  if (pid < 0) {
    ::signal(SIGCHLD, previous_handler);
    return kNotStarted;
  }
  if (pid == 0) {
    if (is_quiet) {
      const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
      if (null >= 0) ::dup2(null, STDERR_FILENO);
    }
    ::execvp(arguments[0], arguments.data());
    ::_exit(kNotStarted);
  }
  int status = 0;
  pid_t ended = 0;
  while ((ended = ::waitpid(pid, &status, 0)) < 0 && errno == EINTR) {
  }
  ::signal(SIGCHLD, previous_handler);
  return ended == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace tutti::tool
