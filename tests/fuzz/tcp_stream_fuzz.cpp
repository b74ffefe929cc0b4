// Fuzzes what a peer of the tcp transport can send: frames, in pieces of any size, against receives that
// wait, messages that nobody waits for and answers to an announced message; and the addresses in addresses. The
// first byte chooses between the two, and the size of the pieces in which the rest arrives.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "transports/message/endpoint.hpp"
#include "transports/message/tcp/address.hpp"
#include "transports/message/tcp/driver.hpp"
#include "transports/message/worker.hpp"

using namespace tutti;

namespace {

constexpr std::uint64_t kOwnInstance = 1, kPeer = 2, kContext = 3, kMatchHeader = 4;
constexpr std::size_t kShortBytes = 5000, kLongBytes = 600000;

// Counts what is delivered; gaps, overlaps and odd places end the program.
struct Collector {
  std::size_t expected = 0;
  std::size_t got = 0;
  static void deliver(void* context, std::size_t offset, ConstByteRange piece) {
    auto* self = static_cast<Collector*>(context);
    if (offset != self->got || offset % 64 != 0 || offset + piece.size() > self->expected) std::abort();
    self->got += piece.size();
  }
};

void check_address(std::span<const std::byte> bytes) {
  const Result<tcp::Address> address = tcp::parse_address(bytes);
  if (!address) return;
  const std::vector<std::byte> again = tcp::to_bytes(*address);
  if (again.size() != bytes.size()) std::abort();
}

// The far end of the connection.
class Far {
 public:
  explicit Far(int fd) : fd_(fd) {}
  ~Far() { ::close(fd_); }
  Far(const Far&) = delete;
  Far& operator=(const Far&) = delete;
  // False when nobody listens any more.
  bool write(std::span<const std::byte> bytes) const {
    return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(bytes.size());
  }
  void swallow() {
    while (::recv(fd_, sink_.data(), sink_.size(), MSG_DONTWAIT) > 0) {
    }
  }

 private:
  int fd_;
  std::array<std::byte, 4096> sink_{};
};

void check_stream(std::span<const std::byte> stream, std::size_t piece_bytes) {
  tcp::Poller poller = *tcp::Poller::make();
  auto made = std::make_unique<tcp::TcpDriver>(std::move(poller), std::chrono::seconds(30));
  tcp::TcpDriver& driver = *made;
  message::Worker worker(std::move(made), "tcp", message::Fetch::piecewise, kOwnInstance);
  if (!worker.start()) std::abort();
  std::array<int, 2> fds{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()) != 0) std::abort();
  driver.adopt(kPeer, tcp::Socket(fds[0]));
  std::vector<std::byte> to_ranges(kShortBytes), long_ranges(kLongBytes);
  const std::vector<std::byte> outgoing(kLongBytes);
  Collector collector{kShortBytes}, long_collector{kLongBytes};
  std::array<Event, 8> events;
  const auto progress = [&] {
    while (worker.progress(events) != 0) {
    }
  };
  {
    message::Inbox& inbox = worker.find_inbox(kPeer, kContext);
    inbox.peer.set_address({std::byte{1}});
    message::MessageEndpoint endpoint(worker, inbox);
    const ByteRange to = to_ranges;
    const std::array<ByteRange, 2> to_long{ByteRange(long_ranges).first(100),
                                           ByteRange(long_ranges).subspan(100)};
    endpoint.recv(0, kMatchHeader, {{&to, 1}, to.size(), nullptr, nullptr}, 1);
    endpoint.recv(1, kMatchHeader, {{}, kShortBytes, &Collector::deliver, &collector}, 2);
    endpoint.recv(2, kMatchHeader, {to_long, kLongBytes, nullptr, nullptr}, 3);
    endpoint.recv(3, kMatchHeader, {{}, kLongBytes, &Collector::deliver, &long_collector}, 4);
    const ConstByteRange from = outgoing;
    endpoint.send(0, kMatchHeader, {&from, 1}, 5);
    {
      Far far(fds[1]);
      while (!stream.empty()) {
        progress();
        far.swallow();
        const std::size_t bytes = std::min(piece_bytes, stream.size());
        if (!far.write(stream.first(bytes))) break;
        stream = stream.subspan(bytes);
      }
      for (int i = 0; i < 8; ++i) progress();
      worker.arm();
      far.swallow();
    }
    for (int i = 0; i < 8; ++i) progress();
    endpoint.close(false);
  }
  for (int i = 0; i < 8; ++i) progress();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::byte> rest(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  if (data[0] == 0xff) {
    check_address(rest);
  } else {
    check_stream(rest, data[0] == 0 ? 100000 : data[0] * std::size_t{37});
  }
  return 0;
}
