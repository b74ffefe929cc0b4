// The control channel among strangers: nonsense, floods, guesses, another user, ranks that die on the way.
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <vector>

#include "runtime/job/handshake.hpp"
#include "tests/job/control_ranks.hpp"
#include "tests/support/catch.hpp"

using namespace tutti;
using namespace tutti::test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

TEST_CASE("strangers that write nonsense, nothing or half a frame do not disturb the job") {
  const std::string name = fresh_name();
  auto first = open_async(options_of(name, 0, 2));
  std::vector<int> strangers;
  std::string half;
  HelloPayload hello;
  hello.job = name;
  append_frame(half, Frame{FrameType::hello, 1, 0, encode(hello)});
  std::string early_proof;
  append_frame(early_proof, Frame{FrameType::proof, 1, 0, encode(ProofPayload{})});
  std::string forged = half;
  append_frame(forged, Frame{FrameType::proof, 1, 0, encode(ProofPayload{})});
  const std::string bomb = half.substr(0, 4) + std::string("\xff\xff\xff\xff", 4) + std::string(8, '\0');
  for (const std::string& bytes : {std::string(), std::string("GET / HTTP/1.1\r\n\r\n"), half.substr(0, 20),
                                   early_proof, forged, bomb, std::string(5000, '\0')}) {
    const int fd = connect_raw(name);
    REQUIRE(fd >= 0);
    if (!bytes.empty()) CHECK(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0);
    strangers.push_back(fd);
  }
  for (int i = 0; i < 300; ++i) ::close(connect_raw(name));  // a scanner
  auto second = open_async(options_of(name, 1, 2));
  auto a = first.get(), b = second.get();
  REQUIRE(a);
  REQUIRE(b);
  auto other = std::async(std::launch::async, [&] { return (*b)->barrier(Clock::now() + 20s); });
  CHECK((*a)->barrier(Clock::now() + 20s));
  CHECK(other.get());
  for (const int fd : strangers) ::close(fd);
}

TEST_CASE("a flood of connections costs a bounded number of descriptors, and the last rank gets in") {
  const std::string name = fresh_name();
  auto first = open_async(options_of(name, 0, 2));
  constexpr std::size_t kFlood = 400, kPlaces = 66;
  std::vector<pollfd> strangers;
  std::string hello_bytes;
  HelloPayload hello;
  hello.job = name;
  append_frame(hello_bytes, Frame{FrameType::hello, 1, 0, encode(hello)});
  for (std::size_t i = 0; i < kFlood; ++i) {
    strangers.push_back({connect_raw(name), POLLIN, 0});
    REQUIRE(strangers.back().fd >= 0);
    // Some know how to begin.
    if (i % 3 == 0)
      CHECK(::send(strangers.back().fd, hello_bytes.data(), hello_bytes.size(), MSG_NOSIGNAL) > 0);
  }
  const auto count_ended = [&] {
    return static_cast<std::size_t>(std::count_if(strangers.begin(), strangers.end(), [](pollfd& stranger) {
      return ::poll(&stranger, 1, 0) > 0 && (stranger.revents & POLLHUP) != 0;
    }));
  };
  for (int i = 0; i < 20000 && count_ended() < kFlood - kPlaces; ++i) std::this_thread::sleep_for(1ms);
  CHECK(count_ended() >= kFlood - kPlaces);
  auto second = open_async(options_of(name, 1, 2));
  const auto a = first.get(), b = second.get();
  CHECK(a);
  CHECK(b);
  for (const pollfd& stranger : strangers) ::close(stranger.fd);
}

TEST_CASE("wrong proofs are one line a second, however many there are") {
  const std::string name = fresh_name();
  std::atomic<int> lines{0};
  ControlOptions options = options_of(name, 0, 2);
  options.warn = [&](const std::string&) { ++lines; };
  auto first = open_async(options);
  const auto begin = Clock::now();
  ControlOptions guess = options_of(name, 1, 2);
  for (int i = 0; i < 100; ++i) {
    guess.secret = std::to_string(i);
    const Status status = ControlChannel::open(guess).status();
    CHECK_THAT(status.message(), Contains("another secret"));
  }
  CHECK(lines <= 2 + std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - begin).count());
  CHECK(lines >= 1);
  auto second = open_async(options_of(name, 1, 2));
  CHECK(first.get());
  CHECK(second.get());
}

TEST_CASE("who has proved nothing is told a random number and nothing else") {
  const std::string name = fresh_name();
  ControlOptions options = options_of(name, 0, 2);
  options.host = "a-host-name";
  auto first = open_async(options);
  FrameSocket socket(connect_raw(name));
  HelloPayload hello;
  hello.job = name;
  socket.send(Frame{FrameType::hello, 1, 0, encode(hello)});
  REQUIRE(socket.flush());
  std::vector<Frame> frames;
  while (frames.empty()) {
    pollfd readable{socket.fd(), POLLIN, 0};
    REQUIRE(::poll(&readable, 1, 20000) == 1);
    REQUIRE(socket.receive(frames));
  }
  REQUIRE(frames.size() == 1);
  CHECK(frames[0].type == FrameType::challenge);
  CHECK(frames[0].payload.size() == sizeof(Nonce));
  auto second = open_async(options_of(name, 1, 2));
  CHECK(first.get());
  CHECK(second.get());
}

TEST_CASE("another user that takes the name of rank 0 does not keep the job from starting") {
  if (::geteuid() != 0) {
    WARN("skipped: takes another user");
    return;
  }
  const std::string name = fresh_name();
  const std::filesystem::path directory = "/tmp/tutti-test-" + std::to_string(::getpid());
  const bool is_path = GENERATE(true, false);
  const std::string hidden = is_path ? (directory / "root").string() : fresh_name();
  std::array<int, 2> taken{}, done{};
  REQUIRE(::pipe(taken.data()) == 0);
  REQUIRE(::pipe(done.data()) == 0);
  const pid_t squatter = ::fork();
  if (squatter == 0) {
    ::close(done[1]);
    const bool is_other = ::setuid(65534) == 0;
    const Result<int> fd = listen_at(name);
    char byte = is_other && fd ? 'y' : 'n';
    static_cast<void>(!::write(taken[1], &byte, 1));
    static_cast<void>(!::read(done[0], &byte, 1));
    ::_exit(0);
  }
  char answer = 0;
  REQUIRE(::read(taken[0], &answer, 1) == 1);
  CHECK(answer == 'y');
  std::vector<std::future<Result<Channel>>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ControlOptions options = options_of(name, rank, 3);
    options.private_name = hidden;
    ranks.push_back(open_async(options));
  }
  for (auto& rank : ranks) {
    const auto channel = rank.get();
    INFO(channel.status().to_string());
    CHECK(channel);
  }
  CHECK_FALSE(std::filesystem::exists(hidden));
  if (is_path) {
    CHECK((std::filesystem::status(directory).permissions() & std::filesystem::perms::all) ==
          std::filesystem::perms::owner_all);
    // A directory that others may write to is no place to meet.
    std::filesystem::permissions(directory, std::filesystem::perms::all);
    ControlOptions options = options_of(name, 0, 2);
    options.private_name = hidden;
    CHECK_THAT(ControlChannel::open(options).status().message(), Contains("mode 0700"));
    std::filesystem::remove(directory);
  }
  for (const int fd : {taken[0], taken[1], done[0], done[1]}) ::close(fd);
  ::waitpid(squatter, nullptr, 0);
}

TEST_CASE("a rank that comes and dies before all are there is named, long before the deadline or at it") {
  const std::string name = fresh_name();
  ControlOptions options = options_of(name, 0, 3);
  const bool is_short = GENERATE(false, true);
  options.timeout = is_short ? 2s : 300s;
  options.rejoin_time = is_short ? 300000ms : 200ms;
  auto first = open_async(options);
  FrameSocket socket(connect_raw(name));
  const auto answer = [&](Frame frame) {
    socket.send(frame);
    std::vector<Frame> frames;
    pollfd readable{socket.fd(), POLLIN, 0};
    while (socket.flush() && frames.empty() && ::poll(&readable, 1, 20000) == 1 && socket.receive(frames)) {
    }
    return frames.empty() ? std::string() : frames[0].payload;
  };
  HelloPayload hello;
  hello.job = name;
  ChallengePayload challenge;
  REQUIRE(decode(answer(Frame{FrameType::hello, 1, 0, encode(hello)}), challenge));
  const ProofPayload proof{prove("the secret", ProofRole::member, hello.nonce, challenge.nonce)};
  ClaimPayload welcome, mine;
  REQUIRE(decode(answer(Frame{FrameType::proof, 1, 0, encode(proof)}), welcome));
  CHECK(is_equal(welcome.proof,
                 prove("the secret", ProofRole::hub, hello.nonce, challenge.nonce, welcome.claim)));
  mine.claim = MemberClaim{1, 3, 0, "", "build 1"};
  mine.proof = prove("the secret", ProofRole::claim, hello.nonce, challenge.nonce, mine.claim);
  socket.send(Frame{FrameType::claim, 1, 0, encode(mine)});
  REQUIRE(socket.flush());
  socket.close();
  const Status status = first.get().status();
  CHECK(status.code() == StatusCode::peer_failed);
  CHECK(status.peer() == 1);
  CHECK_THAT(status.message(), StartsWith("rank 1 (pid ") && Contains("is gone"));
}

namespace {

constexpr rlim_t kFewFiles = 256;

// Leaves this process `left` descriptors.
void use_up_descriptors(int left) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = kFewFiles;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  int last = -1;
  for (int fd = 0; fd >= 0; fd = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)) last = fd;
  for (; left > 0; --left) ::close(last--);
}

bool is_listened_at(const std::string& name) {
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    if (line.find("@" + name) != std::string::npos) return true;
  }
  return false;
}

// Runs `body` in a child; what it returns arrives through the pipe, behind "ready" if it writes that itself.
struct Child {
  explicit Child(const std::function<std::string(int out)>& body) {
    std::array<int, 2> ends{};
    REQUIRE(::pipe(ends.data()) == 0);
    pid = ::fork();
    if (pid == 0) {
      const std::string said = body(ends[1]);
      ::_exit(::write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1);
    }
    ::close(ends[1]);
    in = ends[0];
  }
  ~Child() {
    ::close(in);
    ::waitpid(pid, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  std::string read() const {
    std::array<char, 1000> bytes{};
    return {bytes.data(),
            static_cast<std::size_t>(std::max<ssize_t>(0, ::read(in, bytes.data(), bytes.size())))};
  }
  pid_t pid = -1;
  int in = -1;
};

}  // namespace

TEST_CASE("a rank 0 that has no descriptor left for another rank says so, and so hears whoever comes") {
  const std::string name = fresh_name();
  const Child first([&](int out) {
    auto opened = open_async(options_of(name, 0, 3));
    while (!is_listened_at(name)) std::this_thread::sleep_for(1ms);
    use_up_descriptors(1);
    if (::write(out, "ready", 5) != 5) return std::string();
    return opened.get().status().to_string();
  });
  REQUIRE(first.read() == "ready");
  auto second = open_async(options_of(name, 1, 3));  // there is room for one of them
  auto third = open_async(options_of(name, 2, 3));
  const std::string expected =
      "rank 0 cannot let other ranks in: Too many open files (limit: open files, ulimit -n, "
      "which is 256)";
  CHECK_THAT(first.read(), Contains(expected));
  CHECK_THAT(second.get().status().message(), Contains(expected));
  CHECK_THAT(third.get().status().message(), Contains(expected));
}

TEST_CASE("a rank that has no descriptor left to look for rank 0 does not wait") {
  const Child rank([&](int) {
    use_up_descriptors(1);  // which wakes its thread
    return ControlChannel::open(options_of(fresh_name(), 1, 2)).status().to_string();
  });
  CHECK_THAT(rank.read(), Contains("no connection to rank 0") && Contains("ulimit -n, which is 256"));
}
