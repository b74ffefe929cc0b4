// The control channel with threads as ranks: joining, refusing, allgather, messages, causes of failure, absence.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <future>
#include <map>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "runtime/job/bootstrap.hpp"
#include "runtime/job/exchange.hpp"
#include "tests/job/control_ranks.hpp"
#include "tests/support/catch.hpp"

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

std::vector<Channel> open_all(const std::string& name, int size) {
  std::vector<std::future<Result<Channel>>> futures;
  for (int rank = size - 1; rank >= 0; --rank) futures.push_back(open_async(options_of(name, rank, size)));
  std::vector<Channel> channels(static_cast<std::size_t>(size));
  for (auto& future : futures) {
    Result<Channel> channel = future.get();
    INFO(channel.status().to_string());
    REQUIRE(channel);
    const int rank = (*channel)->rank();
    channels[static_cast<std::size_t>(rank)] = *std::move(channel);
  }
  return channels;
}

// A store as programs have it: get() waits for the key.
class KeyValues {
 public:
  void put(const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return values_.count(key) > 0; });
    return values_[key];
  }
  void erase(const std::string& key) {
    const std::lock_guard lock(mutex_);
    values_.erase(key);
  }
  std::size_t size() {
    const std::lock_guard lock(mutex_);
    return values_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

struct Recorder final : ControlObserver {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::tuple<std::uint64_t, int, std::string>> failures;
  std::vector<std::pair<int, std::string>> messages;
  void on_failure(std::uint64_t group, int dead_rank, const Status& cause) override {
    const std::lock_guard lock(mutex);
    failures.emplace_back(group, dead_rank, cause.to_string());
    changed.notify_all();
  }
  void on_message(int source, std::string_view bytes) override {
    const std::lock_guard lock(mutex);
    messages.emplace_back(source, bytes);
    changed.notify_all();
  }
  template <class Condition>
  bool wait(Condition condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 20s, condition);
  }
};

}  // namespace

TEST_CASE("ranks join in any order and swap bytes of any length") {
  const int size = GENERATE(1, 2, 3, 8);
  const std::vector<Channel> channels = open_all(fresh_name(), size);
  std::vector<std::future<std::vector<std::vector<std::string>>>> results;
  for (const Channel& channel : channels) {
    results.push_back(std::async(std::launch::async, [&channel] {
      std::vector<std::vector<std::string>> rounds;
      for (int round = 0; round < 20; ++round) {
        const std::string mine(static_cast<std::size_t>(channel->rank() * round * 100),
                               static_cast<char>('a' + round));
        auto all = channel->allgather(mine, Clock::now() + 20s);
        rounds.push_back(all ? *all : std::vector<std::string>{all.status().to_string()});
      }
      return rounds;
    }));
  }
  for (auto& future : results) {
    const auto rounds = future.get();
    for (int round = 0; round < 20; ++round) {
      REQUIRE(rounds[round].size() == static_cast<std::size_t>(size));
      for (int rank = 0; rank < size; ++rank) {
        CHECK(rounds[round][rank] ==
              std::string(static_cast<std::size_t>(rank * round * 100), static_cast<char>('a' + round)));
      }
    }
  }
}

TEST_CASE("who does not belong is refused with the reason and the job goes on") {
  const std::string name = fresh_name();
  auto first = open_async(options_of(name, 0, 3));
  auto second = open_async(options_of(name, 1, 3));
  const auto reason = [&](auto change) {
    ControlOptions options = options_of(name, 2, 3);
    change(options);
    const Status status = ControlChannel::open(options).status();
    CHECK(status.code() == StatusCode::refused);
    return status.message();
  };
  CHECK_THAT(reason([](ControlOptions& o) { o.secret = "guess"; }),
             Contains("another secret") && Contains("TUTTI_SECRET"));
  CHECK_THAT(reason([](ControlOptions& o) { o.secret = ""; }), Contains("another secret"));
  CHECK_THAT(reason([](ControlOptions& o) { o.build_id = "build 2"; }),
             Contains("'build 2'") && Contains("'build 1'"));
  CHECK_THAT(reason([](ControlOptions& o) { o.size = 4; }),
             Contains("expects 4 ranks") && Contains("expects 3"));
  CHECK_THAT(reason([](ControlOptions& o) { o.rank = 7; }),
             Contains("rank 7 is not one of the job's 3 ranks"));
  // Rank 1 may still be on its way, so its double may be the one that is let in: only one of the two is.
  auto third = open_async(options_of(name, 2, 3));
  std::vector<Channel> channels;
  for (auto* future : {&first, &second, &third}) {
    auto channel = future->get();
    INFO(channel.status().to_string());
    REQUIRE(channel);
    channels.push_back(*std::move(channel));
  }
  CHECK_THAT(reason([](ControlOptions& o) { o.rank = 1; }),
             Contains("rank 1 of this job has joined already"));
  CHECK_THAT(reason([](ControlOptions&) {}), Contains("rank 2 of this job has joined already"));
}

TEST_CASE("a second rank 0 finds the name taken") {
  const std::string name = fresh_name();
  const std::vector<Channel> channels = open_all(name, 2);
  const Status status = ControlChannel::open(options_of(name, 0, 2)).status();
  CHECK(status.code() == StatusCode::resource_exhausted);
  CHECK_THAT(status.message(), Contains("another process is rank 0"));
}

TEST_CASE("absent ranks are named at the deadline, on every rank that is there") {
  // On a busy machine a rank that is there may be late, too: then once more with more time.
  std::vector<Status> heard;
  for (const auto timeout : {300ms, 3000ms, 20000ms}) {
    const std::string name = fresh_name(), wanted = fmt::format("ranks 2, 4 of 5 did not arrive within {}",
                                                                format_seconds(timeout));
    std::vector<std::future<Result<Channel>>> futures;
    for (const int rank : {0, 1, 3}) {
      ControlOptions options = options_of(name, rank, 5);
      options.timeout = timeout;
      futures.push_back(open_async(options));
    }
    heard.clear();
    bool is_named_by_all = true;
    for (auto& future : futures) {
      heard.push_back(future.get().status());
      is_named_by_all = is_named_by_all && heard.back().message() == wanted;
    }
    if (is_named_by_all) break;
  }
  for (const Status& status : heard) {
    CHECK(status.code() == StatusCode::timeout);
    CHECK_THAT(status.message(), StartsWith("ranks 2, 4 of 5 did not arrive within "));
  }
}

TEST_CASE("who is lost is not called dead where only its connection is known to be") {
  const MemberClaim claim{3, 4, 12, "node1", "build"};
  const auto text = [&](StatusCode code, bool is_remote) {
    return to_text(judge_loss(claim, Status(code, "connection lost"), is_remote, {}));
  };
  CHECK_THAT(text(StatusCode::timeout, true), Contains("does not answer"));
  CHECK_THAT(text(StatusCode::aborted, true), Contains("reset") && Contains("was cut"));
  CHECK_THAT(text(StatusCode::peer_failed, true), Contains("without a goodbye"));
  CHECK_THAT(text(StatusCode::aborted, false), Contains("without a goodbye"));
  CHECK(judge_loss(claim, Status(StatusCode::timeout, "no answer"), true, {}).kind ==
        VerdictKind::unreachable);
  // A rank of this machine is dead or has only lost its connection, as the kernel says.
  const RankVerdict killed =
      judge_loss(claim, Status(StatusCode::peer_failed, "closed"), false, state_of_end(9));
  CHECK(killed.signal == 9);
  CHECK(to_text(killed) == "rank 3 (pid 12 on node1) is gone: killed by signal 9 (SIGKILL)");
  const ProcessState runs{ProcessCondition::runs, 0, -1, {}};
  CHECK_THAT(to_text(judge_loss(claim, Status(StatusCode::peer_failed, "closed"), false, runs)),
             Contains("without a goodbye"));
}

TEST_CASE("an absent rank 0 is named too") {
  ControlOptions options = options_of(fresh_name(), 1, 2);
  options.timeout = 100ms;
  const Status status = ControlChannel::open(options).status();
  CHECK(status.code() == StatusCode::timeout);
  CHECK_THAT(status.message(), Contains("rank 0 of 2 did not arrive within 0.1 s"));
}

TEST_CASE(
    "a member that waits longer than rank 0 hears rank 0's verdict; one that waits less asks who is "
    "missing") {
  const std::string name = fresh_name();
  ControlOptions hub = options_of(name, 0, 3), member = options_of(name, 1, 3);
  hub.timeout = 2s;
  member.timeout = 700ms;
  auto first = open_async(hub), second = open_async(member);
  CHECK(second.get().status().message() == "rank 2 of 3 did not arrive within 0.7 s");
  CHECK_THAT(first.get().status().message(), Contains("did not arrive within 2 s"));
}

TEST_CASE("an allgather that somebody misses names them") {
  const std::vector<Channel> channels = open_all(fresh_name(), 3);
  auto other = std::async(std::launch::async, [&] { return channels[2]->barrier(Clock::now() + 500ms); });
  const Status here = channels[0]->barrier(Clock::now() + 500ms);
  CHECK(here.code() == StatusCode::timeout);
  // Within what was left of the 500 ms when the call looked at the clock again.
  for (const Status& status : {here, other.get()}) {
    CHECK_THAT(status.message(), StartsWith("rank 1 of 3 did not arrive within 0."));
  }
}

TEST_CASE("messages reach the observer of their target, in order") {
  const std::vector<Channel> channels = open_all(fresh_name(), 3);
  std::vector<Recorder> recorders(3);
  for (std::size_t i = 0; i < 3; ++i) channels[i]->set_observer(&recorders[i]);
  for (int i = 0; i < 100; ++i) {
    channels[1]->tell(2, "to 2: " + std::to_string(i));
    channels[0]->tell(1, "to 1");
    channels[2]->tell(2, "self");
    channels[2]->tell(9, "nobody");
  }
  CHECK(recorders[2].wait([&] { return recorders[2].messages.size() == 200; }));
  CHECK(recorders[1].wait([&] { return recorders[1].messages.size() == 100; }));
  for (auto& channel : channels) channel->set_observer(nullptr);
  int next = 0;
  for (const auto& [source, text] : recorders[2].messages) {
    if (source == 1) CHECK(text == "to 2: " + std::to_string(next++));
  }
  CHECK(next == 100);
  CHECK(recorders[0].messages.empty());
}

TEST_CASE("of two causes of one group the first holds, on all ranks") {
  const std::vector<Channel> channels = open_all(fresh_name(), 4);
  std::vector<Recorder> recorders(4);
  for (std::size_t i = 1; i < 4; ++i) channels[i]->set_observer(&recorders[i]);
  for (int rank = 0; rank < 4; ++rank) {
    channels[rank]->abort(77, Status(StatusCode::mismatch, "cause of rank " + std::to_string(rank), rank));
  }
  channels[0]->abort(78, Status(StatusCode::aborted, "another group"));
  channels[0]->set_observer(&recorders[0]);  // late: gets the earlier causes
  for (auto& recorder : recorders) CHECK(recorder.wait([&] { return recorder.failures.size() == 2; }));
  for (auto& channel : channels) channel->set_observer(nullptr);
  for (auto& recorder : recorders) {
    std::sort(recorder.failures.begin(), recorder.failures.end());
    CHECK(recorder.failures == recorders[0].failures);
    CHECK(std::get<0>(recorder.failures[0]) == 77);
  }
}

TEST_CASE("rank 0 tells the others of a failure before it hears of it itself, as it may end then") {
  struct Waiter final : ControlObserver {
    Recorder& other;
    std::atomic<bool> was_second{false};
    std::atomic<bool> has_heard{false};
    explicit Waiter(Recorder& recorder) : other(recorder) {}
    void on_failure(std::uint64_t, int, const Status&) override {
      was_second = other.wait([&] { return !other.failures.empty(); });
      has_heard = true;
      has_heard.notify_all();
    }
    void on_message(int, std::string_view) override {}
  };
  const std::vector<Channel> channels = open_all(fresh_name(), 3);
  Recorder far;
  Waiter root(far);
  channels[0]->set_observer(&root);
  channels[2]->set_observer(&far);
  channels[1]->abort(7, Status(StatusCode::aborted, "enough", 1));
  root.has_heard.wait(false);
  CHECK(root.was_second);
  for (const Channel& channel : channels) channel->set_observer(nullptr);
}

TEST_CASE("an allgather that failed before a late rank calls it names the rank that it failed for") {
  struct Departures final : ControlObserver {
    std::promise<void> of_root;
    void on_failure(std::uint64_t, int, const Status&) override {}
    void on_message(int, std::string_view) override {}
    void on_departure(int rank) override {
      if (rank == 0) of_root.set_value();
    }
  };
  std::vector<Channel> channels = open_all(fresh_name(), 3);
  Departures heard;
  channels[2]->set_observer(&heard);
  CHECK(channels[0]->trouble().is_ok());
  channels[1]->announce_departure("no disk");
  channels[1].reset();
  const std::string cause = "rank 1 has left the world: no disk";
  CHECK(channels[0]->barrier(Clock::now() + 20s).message() == cause);
  channels[0].reset();
  REQUIRE(heard.of_root.get_future().wait_for(20s) == std::future_status::ready);
  CHECK(channels[2]->barrier(Clock::now() + 20s).message() == cause);
  channels[2]->set_observer(nullptr);
}

TEST_CASE("who leaves in peace is not dead") {
  std::vector<Channel> channels = open_all(fresh_name(), 3);
  std::vector<Recorder> recorders(3);
  for (std::size_t i = 0; i < 3; ++i) channels[i]->set_observer(&recorders[i]);
  channels[1]->set_observer(nullptr);
  channels[1].reset();
  auto other = std::async(std::launch::async, [&] { return channels[2]->barrier(Clock::now() + 20s); });
  const Status status = channels[0]->barrier(Clock::now() + 20s);  // fails at once, not at the deadline
  CHECK(status.code() == StatusCode::peer_failed);
  CHECK(status.message() == "rank 1 has left the world");
  CHECK(other.get().message() == status.message());
  channels[0]->set_observer(nullptr);
  channels[0].reset();
  CHECK(channels[2]->barrier(Clock::now() + 20s).message() == "rank 0 has left the world");
  channels[2]->set_observer(nullptr);
  for (auto& recorder : recorders) CHECK(recorder.failures.empty());
}

TEST_CASE("worlds from a unique id, one after the other and side by side") {
  const std::string id = *new_unique_id();
  std::vector<std::future<std::string>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&id, rank] {
      BootstrapOptions options;
      options.unique_id = id;
      options.rank = rank;
      options.size = 3;
      std::string log;
      for (int life = 0; life < 5; ++life) {
        auto world = bootstrap(options);
        auto second = bootstrap(options);
        if (!world || !second)
          return "bootstrap: " + world.status().to_string() + second.status().to_string();
        for (auto* w : {&*world, &*second}) {
          if (auto status = w->control->barrier(Clock::now() + 20s); !status) return status.to_string();
        }
        log += std::to_string(world->info.size) + world->info.launcher[0];
      }
      return log;
    }));
  }
  for (auto& rank : ranks) CHECK(rank.get() == "3u3u3u3u3u");
}

TEST_CASE("worlds from an exchange of the program: an allgather or a store") {
  KeyValues shared;
  const auto put = [&](const std::string& key, const std::string& value) { shared.put(key, value); };
  const auto get = [&](const std::string& key) { return shared.get(key); };
  const bool use_store = GENERATE(true, false);
  std::vector<std::future<std::string>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&, rank]() -> std::string {
      const auto store = make_store_exchange(rank, 3, use_store ? "a" : "b", put, get);
      const auto function = make_function_exchange(
          rank, 3, [&](std::string_view mine) { return *store->allgather(mine, Clock::now() + 20s); });
      BootstrapOptions options;
      options.exchange = use_store ? store.get() : function.get();
      auto world = bootstrap(options);
      if (!world) return world.status().to_string();
      auto all = world->control->allgather(std::to_string(rank), Clock::now() + 20s);
      return all ? world->info.launcher + (*all)[0] + (*all)[1] + (*all)[2] : all.status().to_string();
    }));
  }
  for (auto& rank : ranks) CHECK(rank.get() == "exchange012");
}

TEST_CASE("what ranks put into a store of the program is erased before anybody's start is over") {
  KeyValues shared;
  const auto put = [&](const std::string& key, const std::string& value) { shared.put(key, value); };
  const auto get = [&](const std::string& key) { return shared.get(key); };
  const auto erase = [&](const std::string& key) { shared.erase(key); };
  // The same keys in each life: a fast rank must not find what a slow one has put in the life before.
  std::vector<std::future<std::string>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&, rank]() -> std::string {
      for (int life = 0; life < 20; ++life) {
        const auto store = make_store_exchange(rank, 3, "same", put, get, erase);
        BootstrapOptions options;
        options.exchange = store.get();
        const auto world = bootstrap(options);
        if (!world) return world.status().to_string();
        // As WorldState does before it gives the world to anybody.
        if (auto status = world->control->barrier(Clock::now() + 20s); !status) return status.to_string();
      }
      return "fine";
    }));
  }
  for (auto& rank : ranks) CHECK(rank.get() == "fine");
  CHECK(shared.size() == 0);
  {
    const auto left_alone = make_store_exchange(
        0, 2, "same", put, [](const std::string&) -> std::string { throw std::runtime_error("too late"); },
        erase);
    CHECK_THAT(left_alone->barrier(Clock::now() + 20s).message(), Contains("too late"));
    CHECK(shared.size() == 1);
  }
  CHECK(shared.size() == 0);  // also where the start has failed
}

TEST_CASE("an exchange of the program that throws or lies is an error with its text") {
  const auto thrower = make_function_exchange(0, 2, [](std::string_view) -> std::vector<std::string> {
    throw std::runtime_error("the store is closed");
  });
  CHECK_THAT(thrower->barrier(Clock::now()).message(), Contains("the store is closed"));
  const auto liar = make_function_exchange(
      0, 2, [](std::string_view mine) { return std::vector<std::string>{std::string(mine)}; });
  CHECK_THAT(liar->barrier(Clock::now()).message(), Contains("returned 1 values for 2 ranks"));
}

TEST_CASE("a start that fails after rank 0 has opened its listeners leaves no descriptor open") {
  const auto thrower = make_function_exchange(0, 2, [](std::string_view) -> std::vector<std::string> {
    throw std::runtime_error("the store is closed");
  });
  const auto count_descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = count_descriptors();
  BootstrapOptions options;
  options.exchange = thrower.get();
  CHECK_THAT(bootstrap(options).status().message(), Contains("the store is closed"));
  CHECK(count_descriptors() == before);
}
