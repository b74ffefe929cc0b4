// Measures a transport alone between two ranks: round trips of small messages, one-way bandwidth of large ones.
// Knows the seam; not part of any test.
// usage: transport_pingpong [TRANSPORT|sockets] [malloc|heap] [mapped_read_bytes] [copied_read_bytes]
//                           [piece_bytes] [offset]
//
// `sockets` is the floor of transports over TCP: one connection over loopback, polled by hand. Prints half the
// median round trip in us, and GB/s of messages in sequence. Receivers read the messages and senders rewrite
// them, as a training step does.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "transports/memory/inproc/plugin.hpp"
#include "transports/registry.hpp"

namespace {

using namespace tutti;
using Clock = std::chrono::steady_clock;

struct Shared {
  std::atomic<int> arrived{0};
  std::size_t address_bytes[2]{};
  std::byte address[2][2048]{};
};

void check(const Status& status) {
  if (status) return;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  std::exit(1);
}

class Runner {
 public:
  Runner(Transport* transport, Endpoint* peer) : transport_(transport), peer_(peer) {}
  void send(std::span<std::byte> data) {
    const ConstByteRange range = data;
    post([&] { return peer_->send(0, 1, {&range, 1}, 1); });
  }
  void recv(std::span<std::byte> data) {
    const ByteRange range = data;
    const Sink sink{{&range, 1}, data.size(), nullptr, nullptr};
    post([&] { return peer_->recv(0, 1, sink, 1); });
  }

 private:
  template <class F>
  void post(F attempt) {
    Event event;
    Post answer = attempt();
    while (answer == Post::again) {
      transport_->progress({&event, 1});
      answer = attempt();
    }
    if (answer == Post::done) return;
    while (transport_->progress({&event, 1}) == 0) {
    }
  }
  Transport* transport_;
  Endpoint* peer_;
};

// A connected socket that does not block.
class SocketRunner {
 public:
  explicit SocketRunner(int socket) : socket_(socket) {}
  void send(std::span<std::byte> data) {
    move(data,
         [&](std::span<std::byte> rest) { return ::send(socket_, rest.data(), rest.size(), MSG_NOSIGNAL); });
  }
  void recv(std::span<std::byte> data) {
    move(data, [&](std::span<std::byte> rest) { return ::recv(socket_, rest.data(), rest.size(), 0); });
  }

 private:
  template <class F>
  void move(std::span<std::byte> rest, F attempt) {
    while (!rest.empty()) {
      const ssize_t moved = attempt(rest);
      if (moved > 0) rest = rest.subspan(static_cast<std::size_t>(moved));
    }
  }
  int socket_;
};

std::uint64_t touch(std::span<std::byte> data, bool is_writing) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i + 8 <= data.size(); i += 64) {
    std::uint64_t value = i;
    if (is_writing) {
      std::memcpy(data.data() + i, &value, 8);
    } else {
      std::memcpy(&value, data.data() + i, 8);
      sum += value;
    }
  }
  return sum;
}

template <class R>
void measure(int rank, R& run, std::span<std::byte> buffer) {
  std::uint64_t sum = 0;
  for (const std::size_t bytes : {8UL, 64UL, 1024UL, 4096UL, 16384UL}) {
    const std::span<std::byte> data = buffer.first(bytes);
    std::vector<double> times;
    for (int i = 0; i < 20000; ++i) {
      const auto start = Clock::now();
      if (rank == 0) run.send(data);
      run.recv(data);
      if (rank == 1) run.send(data);
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    }
    std::nth_element(times.begin(), times.begin() + 10000, times.end());
    if (rank == 0) std::printf("%9zu bytes  latency %8.3f us\n", bytes, times[10000] / 2);
  }
  for (const std::size_t bytes : {16384UL, 65536UL, 262144UL, 1UL << 20U, 4UL << 20U, 16UL << 20U}) {
    const std::span<std::byte> data = buffer.first(bytes);
    const std::size_t count = std::max<std::size_t>(8, (512UL << 20U) / bytes / 4);
    std::vector<double> rates;
    for (int repeat = 0; repeat < 5; ++repeat) {
      const auto start = Clock::now();
      for (std::size_t i = 0; i < count; ++i) {
        if (rank == 0) {
          touch(data, true);
          run.send(data);
        } else {
          run.recv(data);
          sum += touch(data, false);
        }
      }
      // One short answer, so that both sides are through.
      if (rank == 0) {
        run.recv(data.first(8));
      } else {
        run.send(data.first(8));
      }
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      rates.push_back(static_cast<double>(bytes * count) / seconds / 1e9);
    }
    std::sort(rates.begin(), rates.end());
    if (rank == 0) std::printf("%9zu bytes  one way %8.2f GB/s\n", bytes, rates[2]);
  }
  if (sum == 1) std::printf("\n");
}

constexpr std::size_t kBytes = 16UL << 20U;

void stay_on_cpu(int rank) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(rank, &cpus);
  ::sched_setaffinity(0, sizeof(cpus), &cpus);
}

// Large blocks of malloc start 16 bytes into a page; allocators of frameworks align to 64.
struct OrdinaryBuffer {
  explicit OrdinaryBuffer(std::size_t offset) : memory(kBytes + 4096) {
    const std::size_t start = -reinterpret_cast<std::uintptr_t>(memory.data()) % 4096;
    data = std::span(memory).subspan((start + offset) % 4096, kBytes);
  }
  std::vector<std::byte> memory;
  std::span<std::byte> data;
};

struct Options {
  std::string transport = "shm";
  bool uses_heap = false;
  MemoryOptions memory;
  std::size_t offset = 64;
};

Result<std::unique_ptr<Transport>> make(const Options& options, const std::shared_ptr<InprocFabric>& fabric) {
  if (fabric != nullptr) return make_inproc_transport(fabric, options.memory);
  TransportSettings settings;
  settings.memory = options.memory;
  settings.interface = "lo";
  return make_transport(options.transport, settings);
}

void run_rank(int rank, Shared* shared, const Options& options, const std::shared_ptr<InprocFabric>& fabric) {
  stay_on_cpu(rank);
  auto made = make(options, fabric);
  check(made.status());
  Transport& transport = **made;
  const std::vector<std::byte> address = transport.address();
  shared->address_bytes[rank] = address.size();
  std::memcpy(shared->address[rank], address.data(), address.size());
  shared->arrived.fetch_add(1);
  while (shared->arrived.load() < 2) ::sched_yield();
  if (rank == 0)
    std::printf("%s: %s\n", std::string(transport.caps().name).c_str(), transport.caps().detail.c_str());
  auto peer = transport.open({shared->address[1 - rank], shared->address_bytes[1 - rank]}, 1);
  check(peer.status());
  Runner run(&transport, peer->get());
  if (!options.uses_heap) {
    OrdinaryBuffer buffer(options.offset);
    measure(rank, run, buffer.data);
    return;
  }
  auto memory = transport.caps().heap->allocate(kBytes);
  check(memory.status());
  measure(rank, run, *memory);
}

void run_socket(int rank, int socket, const Options& options) {
  stay_on_cpu(rank);
  OrdinaryBuffer buffer(options.offset);
  SocketRunner run(socket);
  if (rank == 0) std::printf("sockets: over loopback\n");
  measure(rank, run, buffer.data);
}

// Both ends of a connection over loopback.
std::array<int, 2> connected_sockets() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  std::array<int, 2> ends{::socket(AF_INET, SOCK_STREAM, 0), -1};
  const bool is_up = ::bind(listener, generic, bytes) == 0 && ::listen(listener, 1) == 0 &&
                     ::getsockname(listener, generic, &bytes) == 0 && ::connect(ends[0], generic, bytes) == 0;
  ends[1] = is_up ? ::accept(listener, nullptr, nullptr) : -1;
  if (ends[1] < 0) std::perror("loopback");
  for (const int end : ends) {
    const int one = 1;
    ::setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    ::fcntl(end, F_SETFL, O_NONBLOCK);
  }
  ::close(listener);
  return ends;
}

}  // namespace

int main(int argc, char* argv[]) {
  Options options;
  if (argc > 1) options.transport = argv[1];
  options.uses_heap = argc > 2 && std::string(argv[2]) == "heap";
  if (argc > 3) options.memory.mapped_read_bytes = std::strtoull(argv[3], nullptr, 10);
  if (argc > 4) options.memory.copied_read_bytes = std::strtoull(argv[4], nullptr, 10);
  if (argc > 5) options.memory.piece_bytes = std::strtoull(argv[5], nullptr, 10);
  if (argc > 6) options.offset = std::strtoull(argv[6], nullptr, 10);
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* shared = new (memory) Shared();
  if (options.transport == "inproc") {
    const auto fabric = make_inproc_fabric();
    std::thread second([&] { run_rank(1, shared, options, fabric); });
    run_rank(0, shared, options, fabric);
    second.join();
    return 0;
  }
  const bool has_sockets = options.transport == "sockets";
  const std::array<int, 2> ends = has_sockets ? connected_sockets() : std::array<int, 2>{};
  const pid_t child = ::fork();
  const int rank = child == 0 ? 1 : 0;
  if (has_sockets) {
    run_socket(rank, ends[static_cast<std::size_t>(rank)], options);
  } else {
    run_rank(rank, shared, options, nullptr);
  }
  if (child != 0) ::waitpid(child, nullptr, 0);
  return 0;
}
