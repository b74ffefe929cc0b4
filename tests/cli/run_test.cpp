// `tutti run` with real processes: environment, output, input, failures, signals, and that nothing is left
// behind.
#include <pty.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/group/job.hpp"
#include "tests/support/catch.hpp"

using namespace tutti::test;
using Catch::Matchers::Contains;

namespace {

Outcome launch(std::vector<std::string> words, const std::string& input = {}) {
  words.insert(words.begin(), TUTTI_RUN);
  return run(std::move(words), input);
}

Outcome shell(int ranks, const std::string& script, std::vector<std::string> options = {}) {
  std::vector<std::string> words{"-n", std::to_string(ranks)};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {"sh", "-c", script});
  return launch(words);
}

std::multiset<std::string> lines_of(const std::string& text) {
  std::multiset<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.insert(line);
  return lines;
}

// A word that only this test's processes have in their command line.
std::string mark(const char* name) {
  return "tutti_mark_" + std::string(name) + "_" + std::to_string(::getpid());
}

}  // namespace

TEST_CASE("each rank finds its place in the environment") {
  const Outcome outcome =
      shell(3,
            "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $TUTTI_RANK/$TUTTI_SIZE; "
            "test ${#TUTTI_JOB_ID} = 32 && test ${#TUTTI_SECRET} = 64");
  CHECK(outcome.status == 0);
  CHECK(outcome.err.empty());
  CHECK(lines_of(outcome.out) ==
        std::multiset<std::string>{"[0] 0/3 0/3 0/3", "[1] 1/3 1/3 1/3", "[2] 2/3 2/3 2/3"});
}

TEST_CASE("each rank finds where env:// of torch meets, at a port that rank 0 can listen at") {
  const Outcome outcome =
      shell(2,
            "echo $MASTER_ADDR $MASTER_PORT; test $RANK = 1 || python3 -c 'import os, socket; "
            "s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); "
            "s.bind((\"\", int(os.environ[\"MASTER_PORT\"]))); s.listen()'",
            {"--no-prefix"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  const auto lines = lines_of(outcome.out);
  REQUIRE(lines.size() == 2);
  CHECK(*lines.begin() == *lines.rbegin());
  CHECK(lines.begin()->starts_with("127.0.0.1 "));
}

TEST_CASE("two jobs have different ids and secrets, equal within a job") {
  std::set<std::string> seen;
  for (int job = 0; job < 2; ++job) {
    const Outcome outcome = shell(2, "echo $TUTTI_JOB_ID $TUTTI_SECRET", {"--no-prefix"});
    const auto lines = lines_of(outcome.out);
    REQUIRE(lines.size() == 2);
    CHECK(*lines.begin() == *lines.rbegin());
    seen.insert(*lines.begin());
  }
  CHECK(seen.size() == 2);
}

TEST_CASE("lines of ranks never mix, a last line without newline is kept, streams stay apart") {
  const Outcome outcome =
      shell(4,
            "for i in 1 2 3 4 5 6 7 8 9; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa $RANK; "
            "echo bbbbbbbbbbbbb >&2; done; printf end$RANK");
  CHECK(outcome.status == 0);
  for (int rank = 0; rank < 4; ++rank) {
    const std::string number = std::to_string(rank);
    CHECK(count(outcome.out, "[" + number + "] aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa " + number + "\n") == 9);
    CHECK(count(outcome.out, "[" + number + "] end" + number + "\n") == 1);
    CHECK(count(outcome.err, "[" + number + "] bbbbbbbbbbbbb\n") == 9);
  }
}

TEST_CASE("much output arrives whole") {
  const Outcome outcome = shell(
      2,
      "i=0; while [ $i -lt 20000 ]; do echo $i-0123456789012345678901234567890123456789; i=$((i+1)); done");
  CHECK(outcome.status == 0);
  CHECK(count(outcome.out, "\n") == 40000);
  CHECK(count(outcome.out, "[1] 19999-0123456789012345678901234567890123456789\n") == 1);
}

TEST_CASE("standard input goes to rank 0 alone") {
  const Outcome outcome = launch({"-n", "3", "cat"}, "one\ntwo\n");
  CHECK(outcome.status == 0);
  CHECK(outcome.out == "[0] one\n[0] two\n");
}

TEST_CASE("the first rank that exits with an error ends the job with its status") {
  const Outcome outcome = shell(4, "if [ $RANK = 2 ]; then exit 3; fi; exec sleep 100");
  CHECK(outcome.status == 3);
  CHECK_THAT(outcome.err, Contains("rank 2") && Contains("exit status 3"));
  CHECK(count(outcome.err, "\n") == 1);
}

TEST_CASE("a rank that is killed ends the job with 128 + the signal") {
  const Outcome outcome =
      shell(3, "if [ $RANK = 1 ]; then echo last words; kill -SEGV $$; fi; exec sleep 100");
  CHECK(outcome.status == 128 + SIGSEGV);
  CHECK_THAT(outcome.err, Contains("rank 1") && Contains("killed by signal 11 (Segmentation fault)"));
  CHECK_THAT(outcome.out, Contains("[1] last words\n"));
}

TEST_CASE("ranks that ignore SIGTERM are killed after the grace, with all they have started") {
  const std::string word = mark("stubborn");
  const Outcome outcome = shell(3,
                                "trap '' TERM; if [ $RANK = 0 ]; then sleep 0.3; exit 5; fi; "
                                "sh -c 'trap \"\" TERM; while :; do sleep 1; done' " +
                                    word + " & wait; wait",
                                {"--grace", "0.2"});
  CHECK(outcome.status == 5);
  CHECK_FALSE(outcome.is_late);
  CHECK(is_gone(word));
}

TEST_CASE("background processes of a rank end with the job") {
  const std::string word = mark("daemon");
  const Outcome outcome = shell(2, "setsid sh -c 'sleep 100; :' " + word + " & sleep 0.2; echo done");
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.err, Contains("tutti run: rank 0 left sh (pid ") && Contains("rank 1 left sh (pid "));
  CHECK_FALSE(outcome.is_late);
  CHECK(is_gone(word));
}

TEST_CASE("a program that is not there or cannot be executed is said so") {
  const Outcome missing = launch({"-n", "4", "/no/such/program"});
  CHECK(missing.status == 127);
  CHECK_THAT(missing.err, Contains("cannot run '/no/such/program': No such file or directory"));
  const Outcome directory = launch({"-n", "2", "/tmp"});
  CHECK(directory.status == 126);
  CHECK_THAT(directory.err, Contains("cannot run '/tmp': Permission denied"));
  const Outcome usage = launch({"-n", "zero", "true"});
  CHECK(usage.status == 2);
  CHECK_THAT(usage.err, Contains("-n: expected a number of ranks"));
}

TEST_CASE("signals are passed on to every rank") {
  for (const auto& [signal, name] :
       {std::pair(SIGUSR1, "USR1"), std::pair(SIGUSR2, "USR2"), std::pair(SIGHUP, "HUP"),
        std::pair(SIGINT, "INT"), std::pair(SIGTERM, "TERM")}) {
    Job job(
        {TUTTI_RUN, "-n", "2", "sh", "-c",
         std::string("trap 'echo got it; exit 0' ") + name + "; echo ready; while :; do sleep 0.02; done"});
    REQUIRE(job.wait_for("[0] ready"));
    REQUIRE(job.wait_for("[1] ready"));
    ::kill(job.pid(), signal);
    const Outcome outcome = job.finish();
    CHECK(outcome.status == 0);
    CHECK(count(outcome.out, "got it") == 2);
  }
}

TEST_CASE("a rank that dies of a signal that was passed on ends the job with 128 + signal") {
  Job job({TUTTI_RUN, "-n", "2", "sh", "-c", "echo ready; exec sleep 100"});
  REQUIRE(job.wait_for("[0] ready"));
  REQUIRE(job.wait_for("[1] ready"));
  ::kill(job.pid(), SIGINT);
  CHECK(job.finish().status == 128 + SIGINT);
}

TEST_CASE("kill -9 of tutti run ends the ranks") {
  const std::string word = mark("orphan");
  Job job({TUTTI_RUN, "-n", "3", "sh", "-c", "echo ready; while :; do sleep 0.05; done", word});
  for (int rank = 0; rank < 3; ++rank) REQUIRE(job.wait_for("[" + std::to_string(rank) + "] ready"));
  ::kill(job.pid(), SIGKILL);
  CHECK(job.finish().status == 128 + SIGKILL);
  CHECK(is_gone(word));
}

TEST_CASE("kill -9 of tutti run ends what its ranks have started, also outside of their process groups") {
  const std::string word = mark("grandchild");
  Job job({TUTTI_RUN, "-n", "2", "sh", "-c",
           "setsid sh -c 'echo ready; while :; do sleep 0.05; done' " + word + " & wait"});
  for (int rank = 0; rank < 2; ++rank) REQUIRE(job.wait_for("[" + std::to_string(rank) + "] ready"));
  ::kill(job.pid(), SIGKILL);
  CHECK(job.finish().status == 128 + SIGKILL);
  CHECK(is_gone(word));
}

// Two hosts, which are this machine, with nothing of our environment; where ssh would be called.
std::vector<std::string> two_hosts() {
  return {TUTTI_RUN, "-H", "one,two", "--agent", "env -i sh -c 'exec sh -c \"$1\"'"};
}

TEST_CASE("ranks on other hosts have the settings of this environment and what -x says") {
  std::vector<std::string> words = {
      "env",     "NCCL_ALGO=Ring", "MLSL_NUM_SERVERS=2", "HWLOC_COMPONENTS=x86", "TUTTI_LOG=info",
      "DATA=/d", "HOROVOD_RANK=7", "PRIVATE=p"};
  const std::vector<std::string> run_words = two_hosts();
  words.insert(words.end(), run_words.begin(), run_words.end());
  words.insert(words.end(), {"-x", "DATA", "-x", "MORE=it's 1", "sh", "-c",
                             "echo \"$RANK $NCCL_ALGO $MLSL_NUM_SERVERS $HWLOC_COMPONENTS $TUTTI_LOG $DATA "
                             "$MORE ${HOROVOD_RANK-none} ${PRIVATE-none}\""});
  const Outcome outcome = run(words);
  INFO(outcome.err);
  CHECK(outcome.status == 0);
  CHECK(lines_of(outcome.out) == std::multiset<std::string>{"[0] 0 Ring 2 x86 info /d it's 1 none none",
                                                            "[1] 1 Ring 2 x86 info /d it's 1 none none"});
  CHECK_THAT(outcome.err, Contains("ranks on other hosts get from this environment:") &&
                              Contains(" NCCL_ALGO") && Contains(" DATA"));
  const Outcome unset = launch({"-n", "2", "-x", "SURELY_NOT_SET", "true"});
  CHECK(unset.status == 2);
  CHECK_THAT(unset.err, Contains("-x: SURELY_NOT_SET is not set here"));
  const Outcome local = launch({"-n", "1", "-x", "A=b", "-x", "RANK=9", "sh", "-c", "echo $A $RANK"});
  CHECK(local.out == "[0] b 0\n");
}

TEST_CASE("kill -9 of tutti run ends ranks on other hosts") {
  const std::string word = mark("elsewhere");
  std::vector<std::string> words = two_hosts();
  words.insert(words.end(), {"sh", "-c", "echo ready; while :; do sleep 0.05; done", word});
  Job job(words);
  for (int rank = 0; rank < 2; ++rank) REQUIRE(job.wait_for("[" + std::to_string(rank) + "] ready"));
  ::kill(job.pid(), SIGKILL);
  job.finish();
  CHECK(is_gone(word));
}

TEST_CASE("Ctrl-Z stops the ranks with tutti run, and they go on with it") {
  const bool is_here = GENERATE(true, false);
  std::vector<std::string> words = is_here ? std::vector<std::string>{TUTTI_RUN, "-n", "2"} : two_hosts();
  words.insert(words.end(), {"sh", "-c", "echo pid $$ here; exec sleep 1000"});
  Job job(words);
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string start = "[" + std::to_string(rank) + "] pid ";
    REQUIRE(job.wait_for(start));
    REQUIRE(job.wait_for("here"));
    ranks.push_back(std::atoi(job.out().c_str() + job.out().find(start) + start.size()));
  }
  const auto is_stopped = [](pid_t pid) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string number, name, state;
    stat >> number >> name >> state;
    return state == "T";
  };
  for (int turn = 0; turn < 2; ++turn) {
    ::kill(job.pid(), SIGTSTP);
    int status = 0;
    REQUIRE(::waitpid(job.pid(), &status, WUNTRACED) == job.pid());
    REQUIRE(WIFSTOPPED(status));
    CHECK(holds_soon([&] { return is_stopped(ranks[0]) && is_stopped(ranks[1]); }));
    ::kill(job.pid(), SIGCONT);
    CHECK(holds_soon([&] { return !is_stopped(ranks[0]) && !is_stopped(ranks[1]); }));
  }
  ::kill(job.pid(), SIGTERM);
  CHECK(job.finish().status == 128 + SIGTERM);
}

TEST_CASE("a prompt reaches the terminal before its newline, and the answer its rank") {
  int terminal = -1;
  const pid_t pid = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  REQUIRE(pid >= 0);
  if (pid == 0) {
    ::execl(TUTTI_RUN, TUTTI_RUN, "-n", "2", "sh", "-c", "printf 'name? '; read -r x; echo hello $x",
            nullptr);
    ::_exit(125);
  }
  std::string screen;
  const auto wait_for = [&](const std::string& text) {
    return holds_soon([&] {
      pollfd ready{terminal, POLLIN, 0};
      std::array<char, 4096> bytes;
      if (::poll(&ready, 1, 20) > 0) {
        const ssize_t got = ::read(terminal, bytes.data(), bytes.size());
        if (got > 0) screen.append(bytes.data(), static_cast<std::size_t>(got));
      }
      return screen.find(text) != std::string::npos;
    });
  };
  CHECK(wait_for("[0] name? "));
  CHECK(::write(terminal, "Ada\n", 4) == 4);
  CHECK(wait_for("[0] hello Ada"));
  ::close(terminal);
  int status = 0;
  ::waitpid(pid, &status, 0);
}

TEST_CASE("a job ends with its ranks, whatever its parent does with SIGCHLD") {
  Job job({TUTTI_RUN, "-n", "2", "sh", "-c", "exit $((RANK * 3))"}, {}, {SIGCHLD});
  const Outcome outcome = job.finish();
  CHECK_FALSE(outcome.is_late);
  CHECK(outcome.status == 3);
  CHECK_THAT(outcome.err, Contains("rank 1") && Contains("exit status 3"));
}

TEST_CASE("a reader that goes away ends the job as in a pipeline") {
  const Outcome outcome =
      run({"bash", "-c", std::string(TUTTI_RUN) + " -n 2 yes | head -1; exit ${PIPESTATUS[0]}"});
  CHECK(outcome.status == 128 + SIGPIPE);
  CHECK(count(outcome.out, "\n") == 1);
}
