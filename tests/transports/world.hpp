// Runs the ranks of a conformance case on one transport: as threads, or as forked processes.
// Knows no case. Rank bodies return text, empty if all is well; only the main thread asserts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transports/options.hpp"
#include "transports/transport.hpp"

namespace tutti::test {

enum class Kind { inproc, shm_threads, shm_processes, message_threads, message_processes };

// The subject of this run of the suite, from the environment: TUTTI_TEST_TRANSPORT is inproc, shm,
// shm_processes, or the name of a message transport, with or without _processes; TUTTI_TEST_FAULTY=1 puts
// FaultyTransport in between.
struct Setup {
  Kind kind = Kind::inproc;
  std::string name;  // of a message transport
  bool is_faulty = false;
  MemoryOptions options;
  std::string node_id;
  // Called in each rank before its transport is made (process ranks only).
  std::function<void(int rank)> prepare;
};
Setup setup_from_environment();

// One rank while it runs. Waits have a deadline: they fail with text instead of hanging.
class Rank {
 public:
  int rank = 0;
  int size = 1;
  std::vector<std::vector<std::byte>> addresses;  // of every rank
  std::unique_ptr<Transport> transport;
  std::vector<std::unique_ptr<Endpoint>> peers;  // context 1, by rank; opened by open_all

  // Opens an endpoint to every rank, this one included.
  std::string open_all(std::uint64_t context = 1);
  Endpoint& peer(int other) { return *peers[static_cast<std::size_t>(other)]; }

  // Opens its side of a window of all ranks.
  Result<std::unique_ptr<SharedWindow>> open_window(std::uint64_t context);

  // Posts, repeating while the answer is `again`. Completions are collected in `events`.
  void send(Endpoint& to, std::uint32_t channel, std::uint64_t match_header,
            std::span<const ConstByteRange> ranges, RequestId request);
  void recv(Endpoint& from, std::uint32_t channel, std::uint64_t match_header, const Sink& sink,
            RequestId request);
  void control(Endpoint& to, ConstByteRange bytes);
  void progress();
  // Progresses until the number of unfinished posts is at most `left`. False after the deadline.
  bool wait(std::size_t left = 0);
  // Progresses until `condition` holds. False after the deadline.
  bool wait_until(const std::function<bool()>& condition);
  // Waits for every rank, progressing meanwhile.
  bool barrier();
  // As progress(), but sleeps when there is nothing to do.
  void sleep_once();

  std::size_t pending = 0;
  std::vector<Event> events;  // everything that was not `sent` or `received`, in order
  std::vector<std::vector<std::byte>> controls;
  std::vector<RequestId> sent, received;  // completed by an event
  std::uint64_t sleeps = 0;

  struct Shared;
  Shared* shared = nullptr;
  std::uint32_t barriers = 0;
};

using Body = std::function<std::string(Rank&)>;

// Runs `body` on `size` ranks; the answers of all of them, each with its rank in front, empty if all are.
// In process kinds a body may end its process; `expected_dead` lists ranks that need not answer.
std::string run_ranks(const Setup& setup, int size, const Body& body,
                      const std::vector<int>& expected_dead = {});

// Bytes that depend on every argument.
std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed);
bool has_pattern(ConstByteRange data, std::uint64_t seed, std::size_t first = 0);

}  // namespace tutti::test
