// A peer that is killed while messages from and to it are under way, and what the survivors must still do.
// Knows no transport.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/transports/cases.hpp"
#include "tests/transports/world.hpp"

namespace tutti::test {

// True when nothing is pending any more. Odd ranks sleep meanwhile: both ways of waiting must notice.
inline bool wait_until_quiet(Rank& self) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (self.pending != 0 && std::chrono::steady_clock::now() < until) {
    if (self.rank % 2 == 0) {
      self.progress();
    } else {
      self.sleep_once();
    }
  }
  return self.pending == 0;
}

inline std::string talk(Rank& self, int other) {
  std::uint64_t out = static_cast<std::uint64_t>(self.rank), back = 7;
  const ConstByteRange from{reinterpret_cast<std::byte*>(&out), sizeof(out)};
  const ByteRange to{reinterpret_cast<std::byte*>(&back), sizeof(back)};
  self.send(self.peer(other), 0, 9, {&from, 1}, 4);
  self.recv(self.peer(other), 0, 9, sink_of(&to), 5);
  return self.wait() && back == static_cast<std::uint64_t>(other) ? "" : "survivors cannot talk";
}

// Of three ranks the last sends a message to both others and is killed; each of them expects a second one and
// sends a large one. `judge` says what is wrong with what came of it, told whether the first message is
// whole.
template <class Judge>
std::string outlive_killed_peer(Rank& self, const Judge& judge) {
  if (std::string why = self.open_all(); !why.empty()) return why;
  const std::vector<std::byte> data = pattern(20000, 4);
  const ConstByteRange from = data;
  if (self.rank == 2) {
    for (int other = 0; other < 2; ++other) self.send(self.peer(other), 0, 1, {&from, 1}, 1);
    if (!self.wait()) return "does not complete";
    ::kill(::getpid(), SIGKILL);
  }
  Endpoint& dead = self.peer(2);
  std::vector<std::byte> in(data.size()), more(data.size());
  const ByteRange to = in, to_more = more;
  self.recv(dead, 0, 1, sink_of(&to), 1);
  self.recv(dead, 0, 2, sink_of(&to_more), 2);
  const std::vector<std::byte> large = pattern(50U << 20U, 1);
  const ConstByteRange large_from = large;
  self.send(dead, 1, 3, {&large_from, 1}, 3);
  if (!wait_until_quiet(self)) return "the death is not noticed";
  if (std::string why = judge(self, in == data); !why.empty()) return why;
  return talk(self, 1 - self.rank);
}

}  // namespace tutti::test
