// Threads or forked processes as ranks of a conformance case; see world.hpp.
#include "tests/transports/world.hpp"

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>

#include "tutti_config.hpp"

#include "tests/transports/faulty_transport.hpp"
#include "tests/transports/null/plugin.hpp"
#include "transports/memory/inproc/plugin.hpp"
#include "transports/memory/instance.hpp"
#include "transports/registry.hpp"
#if TUTTI_HAVE_TRANSPORT_SHM
#include "transports/memory/shm/plugin.hpp"
#endif

namespace tutti::test {

namespace {

constexpr std::size_t kMaxRanks = 32;
constexpr std::size_t kMaxAddress = 4096;
constexpr std::size_t kMaxAnswer = 4096;
// Far beyond what a case takes on a busy machine with a sanitizer.
constexpr std::chrono::seconds kDeadline{90};

}  // namespace

struct Rank::Shared {
  std::atomic<std::uint32_t> arrived{0};
  std::atomic<std::uint32_t> dead{0};  // ranks that no barrier waits for
  std::size_t address_bytes[kMaxRanks] = {};
  std::byte address[kMaxRanks][kMaxAddress] = {};
  char answer[kMaxRanks][kMaxAnswer] = {};
  std::atomic<std::uint32_t> has_answered[kMaxRanks] = {};
};

Setup setup_from_environment() {
  Setup setup;
  const char* kind = std::getenv("TUTTI_TEST_TRANSPORT");
  const std::string name = kind == nullptr ? "inproc" : kind;
  const std::size_t suffix = name.find("_processes");
  const std::string transport = name.substr(0, suffix);
  if (transport == "shm") {
    setup.kind = suffix == std::string::npos ? Kind::shm_threads : Kind::shm_processes;
  } else if (transport != "inproc") {
    setup.kind = suffix == std::string::npos ? Kind::message_threads : Kind::message_processes;
    setup.name = transport;
  }
  const char* faulty = std::getenv("TUTTI_TEST_FAULTY");
  setup.is_faulty = faulty != nullptr && std::string(faulty) == "1";
  return setup;
}

std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    data[i] = static_cast<std::byte>((seed * 131U + i * 7U + (i >> 8U) * 3U) & 0xffU);
  }
  return data;
}

bool has_pattern(ConstByteRange data, std::uint64_t seed, std::size_t first) {
  for (std::size_t k = 0; k < data.size(); ++k) {
    const std::size_t i = first + k;
    if (data[k] != static_cast<std::byte>((seed * 131U + i * 7U + (i >> 8U) * 3U) & 0xffU)) return false;
  }
  return true;
}

std::string Rank::open_all(std::uint64_t context) {
  for (int other = 0; other < size; ++other) {
    auto opened = transport->open(addresses[static_cast<std::size_t>(other)], context);
    if (!opened) return "open " + std::to_string(other) + ": " + opened.status().to_string();
    peers.push_back(std::move(*opened));
  }
  return {};
}

Result<std::unique_ptr<SharedWindow>> Rank::open_window(std::uint64_t context) {
  std::vector<ConstByteRange> all(addresses.begin(), addresses.end());
  all[static_cast<std::size_t>(rank)] = {};
  return transport->open_window(all, context);
}

void Rank::send(Endpoint& to, std::uint32_t channel, std::uint64_t match_header,
                std::span<const ConstByteRange> ranges, RequestId request) {
  for (;;) {
    const Post post = to.send(channel, match_header, ranges, request);
    if (post == Post::pending) ++pending;
    if (post != Post::again) return;
    progress();
  }
}

void Rank::recv(Endpoint& from, std::uint32_t channel, std::uint64_t match_header, const Sink& sink,
                RequestId request) {
  for (;;) {
    const Post post = from.recv(channel, match_header, sink, request);
    if (post == Post::pending) ++pending;
    if (post != Post::again) return;
    progress();
  }
}

void Rank::control(Endpoint& to, ConstByteRange bytes) {
  while (to.control(bytes) == Post::again) progress();
}

void Rank::progress() {
  std::array<Event, 7> batch;
  const std::size_t n = transport->progress(batch);
  for (std::size_t i = 0; i < n; ++i) {
    const Event& event = batch[i];
    switch (event.kind) {
      case Event::Kind::control:
        controls.emplace_back(event.data.begin(), event.data.end());
        events.push_back(event);
        continue;
      case Event::Kind::sent:
        sent.push_back(event.request);
        break;
      case Event::Kind::received:
        received.push_back(event.request);
        break;
      case Event::Kind::mismatch:
      case Event::Kind::failed:
        events.push_back(event);
        break;
    }
    --pending;
  }
  if (n == 0) ::sched_yield();
}

bool Rank::wait(std::size_t left) {
  return wait_until([&] { return pending <= left; });
}

bool Rank::wait_until(const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + kDeadline;
  while (!condition()) {
    progress();
    if (std::chrono::steady_clock::now() > until) return false;
  }
  return true;
}

bool Rank::barrier() {
  ++barriers;
  shared->arrived.fetch_add(1);
  return wait_until([&] {
    return shared->arrived.load() + shared->dead.load() * barriers >=
           static_cast<std::uint32_t>(size) * barriers;
  });
}

void Rank::sleep_once() {
  const ArmResult armed = transport->arm();
  if (armed.is_armed) {
    ++sleeps;
    const Waitable on = transport->waitable();
    const timespec timeout{0, 2000000};
    if (on.futex_word != nullptr) {
      ::syscall(SYS_futex, on.futex_word, FUTEX_WAIT, armed.futex_value, &timeout, nullptr, 0);
    } else if (on.fd >= 0) {
      pollfd fd{on.fd, POLLIN, 0};
      ::poll(&fd, 1, 2);
    }
  }
  progress();
}

namespace {

bool has_processes(Kind kind) { return kind == Kind::shm_processes || kind == Kind::message_processes; }

Result<std::unique_ptr<Transport>> make(const Setup& setup, const std::shared_ptr<InprocFabric>& fabric) {
  switch (setup.kind) {
    case Kind::inproc:
      return make_inproc_transport(fabric, setup.options);
    case Kind::shm_threads:
    case Kind::shm_processes: {
#if TUTTI_HAVE_TRANSPORT_SHM
      ShmOptions options;
      options.memory = setup.options;
      options.node_id = setup.node_id;
      options.registry = fabric;
      return make_shm_transport(options);
#else
      break;
#endif
    }
    case Kind::message_threads:
    case Kind::message_processes: {
      TransportSettings settings;
      if (setup.name == "null") return make_null_transport(settings);
      if (setup.name == "tcp") settings.interface = "lo";  // libraries are told by their own variables
      if (const auto security = read_wire_security(Environment::of_process())) settings.security = *security;
      settings.wire_key = WireKey{1, 2, 3};
      return make_transport(setup.name, settings);
    }
  }
  return Status(StatusCode::internal, "this build has no such transport");
}

std::string run_rank(const Setup& setup, int rank, int size, Rank::Shared* shared,
                     const std::shared_ptr<InprocFabric>& fabric, const Body& body) {
  Rank self;
  self.rank = rank;
  self.size = size;
  self.shared = shared;
  Result<std::unique_ptr<Transport>> made = make(setup, fabric);
  if (made) {
    self.transport = std::move(*made);
    if (setup.is_faulty) {
      self.transport = make_faulty_transport(std::move(self.transport), static_cast<std::uint64_t>(rank) + 1);
    }
    const std::vector<std::byte> address = self.transport->address();
    shared->address_bytes[rank] = address.size();
    std::memcpy(shared->address[rank], address.data(), address.size());
  }
  shared->arrived.fetch_add(1);
  while (shared->arrived.load() < static_cast<std::uint32_t>(size)) ::sched_yield();
  self.barriers = 1;
  if (!made) return "no transport: " + made.status().to_string();
  for (int other = 0; other < size; ++other) {
    self.addresses.emplace_back(shared->address[other],
                                shared->address[other] + shared->address_bytes[other]);
  }
  std::string answer = body(self);
  // Endpoints go before their transport.
  self.peers.clear();
  return answer;
}

std::string collect(Rank::Shared* shared, int size, const std::vector<int>& expected_dead) {
  std::string all;
  for (int rank = 0; rank < size; ++rank) {
    if (std::find(expected_dead.begin(), expected_dead.end(), rank) != expected_dead.end()) continue;
    if (shared->has_answered[rank].load() == 0) {
      all += "rank " + std::to_string(rank) + " did not answer\n";
    } else if (shared->answer[rank][0] != '\0') {
      all += "rank " + std::to_string(rank) + ": " + shared->answer[rank] + "\n";
    }
  }
  return all;
}

void answer(Rank::Shared* shared, int rank, const std::string& text) {
  std::strncpy(shared->answer[rank], text.c_str(), kMaxAnswer - 1);
  shared->has_answered[rank].store(1);
}

}  // namespace

std::string run_ranks(const Setup& setup, int size, const Body& body, const std::vector<int>& expected_dead) {
  void* memory =
      ::mmap(nullptr, sizeof(Rank::Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* shared = new (memory) Rank::Shared();
  if (has_processes(setup.kind)) {
    std::vector<pid_t> children;
    for (int rank = 0; rank < size; ++rank) {
      const pid_t child = ::fork();
      if (child == 0) {
        if (setup.prepare) setup.prepare(rank);
        answer(shared, rank, run_rank(setup, rank, size, shared, nullptr, body));
        ::_exit(0);
      }
      children.push_back(child);
    }
    for (const pid_t child : children) {
      int status = 0;
      ::waitpid(child, &status, 0);
      if (!WIFEXITED(status)) shared->dead.fetch_add(1);
    }
  } else {
    const std::shared_ptr<InprocFabric> fabric = make_inproc_fabric();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back(
          [&, rank] { answer(shared, rank, run_rank(setup, rank, size, shared, fabric, body)); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::string all = collect(shared, size, expected_dead);
  ::munmap(memory, sizeof(Rank::Shared));
  return all;
}

}  // namespace tutti::test
