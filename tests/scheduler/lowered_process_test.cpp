// Lowered operations of ranks that are processes: what the others hear of one that is killed, before it
// enters, while it waits, and while it touches their buffers. Knows no group layer, which would tell the
// cause.
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "tests/scheduler/lowered_support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/test_fraction.hpp"
#include "tests/transports/world.hpp"

namespace tutti::test {
namespace {

// The scheduler of one process, over the transport that the world made for it.
Member make_member(Rank& self) {
  Member member;
  member.rank = static_cast<std::uint32_t>(self.rank);
  member.size = static_cast<std::uint32_t>(self.size);
  Transport* const transport = self.transport.get();
  std::vector<std::unique_ptr<Transport>> own;
  own.push_back(std::move(self.transport));
  member.engine = std::make_unique<Engine>(std::move(own), World::oversubscribed());
  GroupContext::Options group;
  group.context = 7;
  group.rank = member.rank;
  PeerList peers;
  for (const auto& address : self.addresses) peers.emplace_back(transport, address);
  group.peers = std::make_shared<const PeerList>(std::move(peers));
  member.group = std::make_unique<GroupContext>(*member.engine, std::move(group));
  member.selector = std::make_unique<Selector>(*Selector::make({}));
  member.backend = make_native_backend(*member.group, *member.selector, std::size_t{64} << 20U);
  return member;
}

// Calls until the group fails; "" if it does so as it should, for the death of somebody. With more than two
// ranks a survivor may first notice another one that has given up.
std::string call_until_failure(const Member& member, const Call& call, std::uint32_t victim) {
  Status s;
  while (s) s = member.run(call);
  if (s.code() != StatusCode::peer_failed) return "unexpected: " + s.to_string();
  if (member.size == 2 && s.peer() != static_cast<int>(victim))
    return "another rank is named: " + s.to_string();
  return {};
}

enum class Death { before_it_enters, at_any_time };

std::string die_in_traffic(std::uint32_t p, std::size_t count, bool is_mapped, Death death,
                           std::uint32_t delay_us) {
  Setup setup;
  setup.kind = Kind::shm_processes;
  const std::uint32_t victim = p - 1;
  return run_ranks(setup, static_cast<int>(p),
                   [&](Rank& self) -> std::string {
                     Member member = make_member(self);
                     SharedHeap* heap = member.engine->transport(0).caps().heap;
                     std::vector<std::uint32_t> input(count, 1), output(count);
                     Call call;
                     call.dtype = Dtype::u32;
                     call.count = count;
                     call.input = input.data();
                     call.output = output.data();
                     if (is_mapped) {
                       const auto shared = heap->allocate(2 * count * sizeof(std::uint32_t));
                       if (!shared) return shared.status().to_string();
                       call.input = shared->data();
                       call.output = shared->data() + count * sizeof(std::uint32_t);
                     }
                     if (Status s = member.run(call); !s) return s.to_string();
                     if (epochs_of(member) == 0) return "nothing lowered ran";
                     if (member.rank == victim) {
                       if (death == Death::before_it_enters) ::kill(::getpid(), SIGKILL);
                       ::signal(SIGALRM, SIG_DFL);  // ends the process as SIGKILL does, without its help
                       itimerval when{};
                       when.it_value.tv_usec = static_cast<suseconds_t>(delay_us);
                       ::setitimer(ITIMER_REAL, &when, nullptr);
                     }
                     return call_until_failure(member, call, victim);
                   },
                   {static_cast<int>(victim)});
}

}  // namespace

TEST_CASE("a rank that is killed while others wait for it in a lowered operation is named", "[lowered]") {
  for (const std::size_t count : {std::size_t{4}, std::size_t{3000}, std::size_t{100000}}) {
    for (const bool is_mapped : {false, true}) {
      for (const std::uint32_t p : {2U, 3U}) {
        CAPTURE(count, is_mapped, p);
        CHECK(die_in_traffic(p, count, is_mapped, Death::before_it_enters, 0) == "");
      }
    }
  }
}

TEST_CASE("a rank that is killed at any time, also in the midst of others' buffers, holds up nobody",
          "[lowered]") {
  for (std::uint32_t round = 0; round < 16; ++round) {
    if (!is_selected(round)) continue;
    const std::uint32_t p = 2 + round % 2;
    CAPTURE(round, p);
    CHECK(die_in_traffic(p, 1000000, round % 4 != 3, Death::at_any_time, 500 + round * 1700) == "");
  }
}

}  // namespace tutti::test
