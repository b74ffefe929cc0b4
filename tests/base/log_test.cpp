// Log lines: levels, form, one write per line, threads.
#include "runtime/base/log.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.hpp"

namespace tutti {
namespace {

// The output of `body` on standard error. It runs in a child process, so that level, rank and descriptors of
// this one stay. A datagram socket would keep the writes apart; a pipe in packet mode does the same: one read
// gets one write.
template <class Body>
std::vector<std::string> writes_of(Body body) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_DIRECT) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    body();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::vector<std::string> writes;
  char buffer[8192];
  for (ssize_t got = 0; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
    writes.emplace_back(buffer, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  return writes;
}

TEST_CASE("levels decide what is written") {
  LogCapture capture(LogLevel::info);
  CHECK(is_log_enabled(LogLevel::error));
  CHECK(is_log_enabled(LogLevel::info));
  CHECK_FALSE(is_log_enabled(LogLevel::debug));
  log_error("e {}", 1);
  log_warn("w");
  log_info("i {:.2f} {}", 1.5, "text");
  log_debug("d");
  log_trace("t");
  CHECK(capture.lines() ==
        std::vector<std::string>{"tutti error: e 1", "tutti warn: w", "tutti info: i 1.50 text"});
}

TEST_CASE("a message is one line of bounded length") {
  LogCapture capture(LogLevel::warn);
  log_warn("a\nb\tc\x1b[31m");
  log_warn("{}", std::string(10000, 'x'));
  const auto lines = capture.lines();
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == "tutti warn: a b c [31m");
  CHECK(lines[1].size() == 4095);  // and the line end
  CHECK(lines[1].substr(4092) == "...");
}

TEST_CASE("threads do not lose or mix lines") {
  LogCapture capture(LogLevel::warn);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 100; ++i) log_warn("thread {} line {}", t, i);
    });
  }
  for (auto& thread : threads) thread.join();
  std::vector<int> next(4, 0);
  const auto lines = capture.lines();
  CHECK(lines.size() == 400);
  for (const std::string& line : lines) {
    for (int t = 0; t < 4; ++t) {
      if (line == fmt::format("tutti warn: thread {} line {}", t, next[static_cast<std::size_t>(t)])) {
        ++next[static_cast<std::size_t>(t)];
      }
    }
  }
  CHECK(next == std::vector<int>(4, 100));
}

TEST_CASE("a line is one write, with the rank once it is known") {
  const auto writes = writes_of([] {
    set_log_level(LogLevel::warn);
    log_warn("before");
    set_log_rank(-1);
    set_log_rank(3);
    set_log_rank(4);
    log_error("after {}", 1);
    log_info("too quiet");
  });
  CHECK(writes == std::vector<std::string>{"tutti warn: before\n", "tutti[3] error: after 1\n"});
}

TEST_CASE("TUTTI_LOG chooses the level, and a malformed one is reported") {
  const auto with = [](const char* value) {
    return writes_of([value] {
      ::setenv("TUTTI_LOG", value, 1);
      detail::log_level.store(-1, std::memory_order_relaxed);  // as in a fresh process
      log_warn("w");
      log_debug("d");
    });
  };
  CHECK(with("debug") == std::vector<std::string>{"tutti warn: w\n", "tutti debug: d\n"});
  CHECK(with("error").empty());
  const auto writes = with("loud");
  REQUIRE(writes.size() == 2);
  CHECK(writes[0].find("TUTTI_LOG='loud'") != std::string::npos);
  CHECK(writes[1] == "tutti warn: w\n");
}

}  // namespace
}  // namespace tutti
