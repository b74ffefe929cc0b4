// Random messages with tags, and receives from any source, of several threads in groups of their own: each
// arrives once, where it should, in order. Through the public interface, with threads as ranks; knows no
// transport but by name.
#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/test_fraction.hpp"
#include "tests/support/thread_ranks.hpp"

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;

namespace {

using Numbers = std::vector<std::int32_t>;

constexpr int kTags = 5;

// Elements of a message: one number for each tag, since who receives from anybody knows no more.
std::size_t count_of(int tag) {
  constexpr std::array<std::size_t, kTags> kCounts = {5, 3, 700, 40, 9000};
  return kCounts[static_cast<std::size_t>(tag)];
}

struct Traffic {
  // By sender: receiver and tag of its messages, in order.
  std::vector<std::vector<std::pair<int, int>>> messages;
};

Traffic make_traffic(std::uint64_t seed, int size, int count) {
  std::mt19937_64 random(seed);
  Traffic traffic;
  traffic.messages.resize(static_cast<std::size_t>(size));
  for (int sender = 0; sender < size; ++sender) {
    for (int i = 0; i < count; ++i) {
      const auto shift = 1 + static_cast<int>(random() % static_cast<std::uint64_t>(size - 1));
      const int tag = random() % 3 == 0 ? 0 : static_cast<int>(random() % kTags);
      traffic.messages[static_cast<std::size_t>(sender)].emplace_back((sender + shift) % size, tag);
    }
  }
  return traffic;
}

struct Receiving {
  int source = 0, tag = 0;
  Numbers buffer;
  Work work;
};

struct Sending {
  Numbers buffer;
  Work work;
};

// The receives of a rank, in the order in which it posts them: of a tag either all from anybody or all from
// one rank each, as the seed says.
std::vector<Receiving> receives_of(const Traffic& traffic, int rank, std::mt19937_64& random) {
  std::vector<Receiving> receives;
  std::array<bool, kTags> is_any{};
  for (bool& any : is_any) any = random() % 2 == 0;
  for (int sender = 0; sender < static_cast<int>(traffic.messages.size()); ++sender) {
    for (const auto& [receiver, tag] : traffic.messages[static_cast<std::size_t>(sender)]) {
      if (receiver == rank)
        receives.push_back({is_any[static_cast<std::size_t>(tag)] ? kAnySource : sender, tag, {}, {}});
    }
  }
  std::shuffle(receives.begin(), receives.end(), random);
  return receives;
}

// In the order of posting, messages of one sender and tag must be those that it sent, in order.
Verdict check_received(const std::vector<Receiving>& receives) {
  std::map<std::pair<int, int>, std::int32_t> next;
  for (const Receiving& receive : receives) {
    const int source = receive.work.source();
    const std::int32_t number = next[{source, receive.tag}]++;
    const Numbers& got = receive.buffer;
    if (got[0] != source || got[1] != receive.tag || got[2] != number || got.back() != got[2])
      return "message " + std::to_string(got[2]) + " with tag " + std::to_string(got[1]) + " of rank " +
             std::to_string(got[0]) + " instead of number " + std::to_string(number) + " with tag " +
             std::to_string(receive.tag) + " of rank " + std::to_string(source);
  }
  return {};
}

Verdict run_traffic(const CommGroup& group, std::uint64_t seed, int count) {
  const Traffic traffic = make_traffic(seed, group.size(), count);
  std::mt19937_64 random(seed * 100 + static_cast<std::uint64_t>(group.rank()));
  std::vector<Receiving> receives = receives_of(traffic, group.rank(), random);
  const auto& messages = traffic.messages[static_cast<std::size_t>(group.rank())];
  std::vector<Sending> sends(messages.size());
  std::map<std::pair<int, int>, std::int32_t> numbers;
  std::vector<Work> works;
  std::size_t next_send = 0, next_receive = 0;
  while (next_send < sends.size() || next_receive < receives.size()) {
    const bool is_send = next_receive == receives.size() || (next_send < sends.size() && random() % 2 == 0);
    if (is_send) {
      const auto& [receiver, tag] = messages[next_send];
      Sending& send = sends[next_send++];
      const std::int32_t number = numbers[{receiver, tag}]++;
      send.buffer.assign(count_of(tag), number);
      send.buffer[0] = group.rank();
      send.buffer[1] = tag;
      works.push_back(send.work = group.isend(std::span(send.buffer), receiver, tag));
    } else {
      Receiving& receive = receives[next_receive++];
      receive.buffer.assign(count_of(receive.tag), -1);
      works.push_back(receive.work = group.irecv(std::span(receive.buffer), receive.source, receive.tag));
    }
    if (random() % 16 == 0) static_cast<void>(works[random() % works.size()].test());
  }
  std::shuffle(works.begin(), works.end(), random);
  for (const Work& work : works) work.wait();
  group.barrier();  // or who receives from anybody would get messages of what comes next
  return check_received(receives);
}

}  // namespace

TEST_CASE("random traffic of several threads, with tags and from any source", "[tagged]") {
  const std::string threads = GENERATE("0", "1");
  const Variables variables{{"TUTTI_TRANSPORTS", GENERATE(as<std::string>(), "inproc", "shm", "tcp")},
                            {"TUTTI_PROGRESS_THREADS", threads}};
  constexpr int kThreads = 3, kRounds = 6, kMessages = 60;  // of each rank in each round
  CHECK(with_ranks(
            4,
            [&](CommGroup& world) -> Verdict {
              std::vector<CommGroup> groups;
              groups.reserve(kThreads);
              for (int i = 0; i < kThreads; ++i) groups.push_back(world.split(0, i == 1 ? -world.rank() : 0));
              return with_threads(groups, [&](const CommGroup& group, std::size_t i) {
                Verdict verdict;
                for (std::size_t round = 0; round < kRounds && verdict.empty(); ++round) {
                  const std::uint64_t seed = i * kRounds + round + 1;
                  if (round == 0 || is_selected(seed)) verdict = run_traffic(group, seed, kMessages);
                }
                return verdict;
              });
            },
            60s) == "");
}
