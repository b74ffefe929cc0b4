// The peer program of plain TCP sockets: what somebody gets who writes the six collectives by hand, every
// rank straight to every other, polling. With two ranks it is the floor of whatever runs over TCP. Knows
// nothing of the loop, the statistics and the protocol (peer_main.hpp), and nothing of tutti's runtime.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "bench/peers/forked_ranks.hpp"
#include "bench/peers/peer_main.hpp"

namespace tutti::bench {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// dst[i] = a[i] op b[i]; dst may be a.
using Combine = void(float* dst, const float* a, const float* b, std::size_t count);
template <class F>
void combine(float* dst, const float* a, const float* b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) dst[i] = F()(a[i], b[i]);
}
struct Min {
  float operator()(float a, float b) const { return b < a ? b : a; }
};
struct Max {
  float operator()(float a, float b) const { return a < b ? b : a; }
};

Combine* combine_of(Op op) {
  switch (op) {
    case Op::sum:
      return combine<std::plus<float>>;
    case Op::prod:
      return combine<std::multiplies<float>>;
    case Op::min:
      return combine<Min>;
    case Op::max:
      return combine<Max>;
    default:
      throw std::invalid_argument("op not measured with sockets: " + std::string(to_string(op)));
  }
}

// The bytes to and from one peer in one exchange.
struct Lane {
  int peer = 0;
  const char* out = nullptr;
  std::size_t out_bytes = 0;
  char* in = nullptr;
  std::size_t in_bytes = 0;
  std::size_t sent = 0, received = 0;
};

// A connection to every other rank.
class Mesh {
 public:
  Mesh(const ForkedRanks& ranks, SharedPage& page) : fds_(static_cast<std::size_t>(ranks.count), -1) {
    sockaddr_in here = address_of(ranks.address(page.rank()), 0);
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof here;
    auto* name = reinterpret_cast<sockaddr*>(&here);
    if (listener < 0 || ::bind(listener, name, size) != 0 || ::listen(listener, ranks.count) != 0 ||
        ::getsockname(listener, name, &size) != 0)
      fail("listening on " + ranks.address(page.rank()));
    const double port = ntohs(here.sin_port);
    std::vector<double> ports(fds_.size());
    page.gather({&port, 1}, ports);
    // Lower ranks are called, higher ones call; each says who it is.
    for (int peer = 0; peer < page.rank(); ++peer) {
      const auto there =
          address_of(ranks.address(peer), static_cast<int>(ports[static_cast<std::size_t>(peer)]));
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const int rank = page.rank();
      if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&there), sizeof there) != 0 ||
          ::send(fd, &rank, sizeof rank, MSG_NOSIGNAL) != sizeof rank)
        fail("connecting to " + ranks.address(peer));
      keep(peer, fd);
    }
    for (int others = page.rank() + 1; others < ranks.count; ++others) {
      const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      int peer = -1;
      if (fd < 0 || ::recv(fd, &peer, sizeof peer, MSG_WAITALL) != sizeof peer) fail("accepting");
      keep(peer, fd);
    }
    ::close(listener);
  }
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;
  ~Mesh() {
    for (const int fd : fds_) {
      if (fd >= 0) ::close(fd);
    }
  }

  // Sends and receives all of it; calls `arrived` whenever something has moved.
  template <class Arrived>
  void exchange(std::vector<Lane>& lanes, Arrived arrived) const {
    std::size_t unfinished = lanes.size();
    for (int idle = 0; unfinished > 0;) {
      bool has_moved = false;
      unfinished = 0;
      for (Lane& lane : lanes) {
        const int fd = fds_[static_cast<std::size_t>(lane.peer)];
        if (lane.sent < lane.out_bytes)
          has_moved |=
              moved(::send(fd, lane.out + lane.sent, lane.out_bytes - lane.sent, MSG_DONTWAIT | MSG_NOSIGNAL),
                    lane.sent);
        if (lane.received < lane.in_bytes)
          has_moved |= moved(::recv(fd, lane.in + lane.received,
                                    std::min(kPiece, lane.in_bytes - lane.received), MSG_DONTWAIT),
                             lane.received);
        unfinished += lane.sent < lane.out_bytes || lane.received < lane.in_bytes ? 1 : 0;
      }
      if (has_moved) {
        idle = 0;
        arrived(lanes);
      } else if (++idle > kPollsBeforeYield) {
        ::sched_yield();
      }
    }
  }

 private:
  static constexpr std::size_t kPiece = 256 << 10;  // stays in the cache until it has been added
  static constexpr int kPollsBeforeYield = 200;

  static sockaddr_in address_of(const std::string& host, int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1)
      throw std::invalid_argument("no IPv4 address: " + host);
    return address;
  }
  void keep(int peer, int fd) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fds_.at(static_cast<std::size_t>(peer)) = fd;
  }
  static bool moved(ssize_t bytes, std::size_t& done) {
    if (bytes > 0) {
      done += static_cast<std::size_t>(bytes);
      return true;
    }
    if (bytes == 0) throw std::runtime_error("a connection was closed");
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) fail("a connection");
    return false;
  }

  std::vector<int> fds_;
};

class SocketsLibrary final : public PeerLibrary {
 public:
  SocketsLibrary(const ForkedRanks& ranks, SharedPage& page)
      : mesh_(ranks, page), rank_(page.rank()), ranks_(ranks.count) {
    name = "sockets";
    setting = "default";
    transport = "tcp, polling";
    version = "POSIX";
  }

  std::function<void()> prepare(const Request& request, const CallBuffers& buffers) override {
    if (request.shape.dtype != Dtype::f32)
      throw std::invalid_argument("the sockets program measures f32 only");
    if (!request.algorithm.empty()) throw std::invalid_argument("the sockets program has one algorithm each");
    Combine* const add = combine_of(request.op);
    auto* const input = static_cast<float*>(buffers.input);
    auto* const output = static_cast<float*>(buffers.output);
    const std::size_t count = request.shape.count, block = request.shape.block_count();
    const bool in_place = request.in_place;
    const auto others = static_cast<std::size_t>(ranks_ - 1);
    const auto scratch = [&](std::size_t elements) {
      return std::make_shared<std::vector<float>>(std::max<std::size_t>(elements, 1));
    };
    switch (request.shape.collective) {
      case Collective::allreduce: {
        // Of two ranks everybody adds all: as many bytes, and one message less, than by halves.
        if (ranks_ == 2 || request.shape.bytes() <= kShortBytes) {
          const auto arrivals = scratch(others * count);
          return [=, this] { add_all(input, output, count, arrivals->data(), add, in_place); };
        }
        const auto arrivals = scratch(others * (count / static_cast<std::size_t>(ranks_) + 1));
        return [=, this] {
          const std::size_t first = part(count, rank_), own = part(count, rank_ + 1) - first;
          add_parts(input, output + first, count, arrivals->data(), add);
          spread(
              output + first, own, [&](int peer) { return output + part(count, peer); }, count);
        };
      }
      case Collective::reduce_scatter: {
        const auto arrivals = scratch(others * block);
        // In place the result lies in front, where blocks for others are still to be sent.
        const auto sums = scratch(in_place ? block : 0);
        return [=, this] {
          float* const target = in_place ? sums->data() : output;
          add_parts(input, target, count, arrivals->data(), add);
          if (in_place) std::memcpy(output, target, block * sizeof(float));
        };
      }
      case Collective::allgather:
        return [=, this] {
          float* const own = output + static_cast<std::size_t>(rank_) * block;
          if (own != input) std::memcpy(own, input, block * sizeof(float));
          spread(
              input, block, [&](int peer) { return output + static_cast<std::size_t>(peer) * block; }, count);
        };
      case Collective::alltoall: {
        const auto aside = scratch(in_place ? count : 0);
        return [=, this] {
          if (in_place) std::memcpy(aside->data(), input, count * sizeof(float));
          all_to_all(in_place ? aside->data() : input, output, block);
        };
      }
      case Collective::broadcast:
        return [=, this, root = request.shape.root] { broadcast(output, count, root); };
      default:
        return [this] {
          char mine = 0;
          std::vector<char> theirs(static_cast<std::size_t>(ranks_));
          std::vector<Lane> lanes;
          for (const int peer : peers())
            lanes.push_back({peer, &mine, 1, &theirs[static_cast<std::size_t>(peer)], 1});
          mesh_.exchange(lanes, [](const auto&) {});
        };
    }
  }

 private:
  static constexpr std::size_t kShortBytes = 16 << 10;

  // Where the rank's share of a vector begins.
  std::size_t part(std::size_t count, int rank) const {
    return count * static_cast<std::size_t>(rank) / static_cast<std::size_t>(ranks_);
  }
  std::vector<int> peers() const {
    std::vector<int> list;
    for (int d = 1; d < ranks_; ++d) list.push_back((rank_ + d) % ranks_);
    return list;
  }
  static const char* bytes(const float* data) { return reinterpret_cast<const char*>(data); }
  static char* bytes(float* data) { return reinterpret_cast<char*>(data); }

  // Adds arrived data while it is in the cache: to `own`, peer after peer. `is_guarded`: `sums` is being
  // sent, so only bytes that have left may change.
  void exchange_and_add(std::vector<Lane>& lanes, const float* own, float* sums, Combine* add,
                        bool is_guarded) const {
    std::vector<std::size_t> added(lanes.size(), 0);
    mesh_.exchange(lanes, [&](const std::vector<Lane>& now) {
      std::size_t most = SIZE_MAX;
      for (const Lane& lane : now) most = is_guarded ? std::min(most, lane.sent / sizeof(float)) : most;
      for (std::size_t i = 0; i < now.size(); ++i) {
        most = std::min(most, now[i].received / sizeof(float));
        if (most <= added[i]) continue;
        add(sums + added[i], (i == 0 ? own : sums) + added[i],
            reinterpret_cast<const float*>(now[i].in) + added[i], most - added[i]);
        added[i] = most;
      }
    });
  }

  // Everybody's whole vector to everybody.
  void add_all(const float* input, float* output, std::size_t count, float* arrivals, Combine* add,
               bool in_place) const {
    std::vector<Lane> lanes;
    for (const int peer : peers()) {
      lanes.push_back({peer, bytes(input), count * sizeof(float), bytes(arrivals), count * sizeof(float)});
      arrivals += count;
    }
    exchange_and_add(lanes, input, output, add, in_place);
    if (lanes.empty() && !in_place) std::memcpy(output, input, count * sizeof(float));
  }

  // Every rank adds its part of all inputs into `sums`. That part is sent to nobody, so it may be its own
  // sum.
  void add_parts(const float* input, float* sums, std::size_t count, float* arrivals, Combine* add) const {
    const std::size_t first = part(count, rank_), own = part(count, rank_ + 1) - first;
    std::vector<Lane> lanes;
    for (const int peer : peers()) {
      const std::size_t theirs = part(count, peer);
      lanes.push_back({peer, bytes(input + theirs), (part(count, peer + 1) - theirs) * sizeof(float),
                       bytes(arrivals), own * sizeof(float)});
      arrivals += own;
    }
    exchange_and_add(lanes, input + first, sums, add, false);
    if (lanes.empty() && sums != input) std::memcpy(sums, input, own * sizeof(float));
  }

  // The own part to everybody, and theirs to where `place` says.
  template <class Place>
  void spread(const float* own, std::size_t own_count, Place place, std::size_t count) const {
    std::vector<Lane> lanes;
    for (const int peer : peers()) {
      lanes.push_back({peer, bytes(own), own_count * sizeof(float), bytes(place(peer)),
                       (part(count, peer + 1) - part(count, peer)) * sizeof(float)});
    }
    mesh_.exchange(lanes, [](const auto&) {});
  }

  void all_to_all(const float* input, float* output, std::size_t block) const {
    const auto at = [block](auto* buffer, int rank) {
      return buffer + static_cast<std::size_t>(rank) * block;
    };
    std::vector<Lane> lanes;
    for (const int peer : peers())
      lanes.push_back({peer, bytes(at(input, peer)), block * sizeof(float), bytes(at(output, peer)),
                       block * sizeof(float)});
    std::memcpy(at(output, rank_), at(input, rank_), block * sizeof(float));
    mesh_.exchange(lanes, [](const auto&) {});
  }

  void broadcast(float* buffer, std::size_t count, int root) const {
    const std::size_t size = count * sizeof(float);
    std::vector<Lane> lanes;
    if (rank_ == root) {
      for (const int peer : peers()) lanes.push_back({peer, bytes(buffer), size});
    } else {
      lanes.push_back({root, nullptr, 0, bytes(buffer), size});
    }
    mesh_.exchange(lanes, [](const auto&) {});
  }

  Mesh mesh_;
  int rank_;
  int ranks_;
};

void run(int argc, char** argv) {
  ForkedRanks ranks;
  std::vector<std::string> common;
  for (int i = 1; i < argc; ++i) {
    if (!ranks.take(argv[i])) common.emplace_back(argv[i]);
  }
  SharedPage first_page = SharedPage::create(ranks.count);
  const int rank = ranks.start();
  SharedPage page = first_page.with_rank(rank);
  SocketsLibrary library(ranks, page);
  for (const std::string& argument : common) {
    if (!parse_common_argument(library, argument))
      throw std::invalid_argument("unknown argument: " + argument);
  }
  serve(library, page);
  if (rank == 0) ranks.expect_end();
  page.barrier();
  std::cout.flush();
  ranks.end(rank);
}

}  // namespace
}  // namespace tutti::bench

int main(int argc, char** argv) {
  try {
    tutti::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "sockets: " << error.what() << std::endl;
    ::_exit(1);
  }
  return 0;
}
