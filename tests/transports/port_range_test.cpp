// A transport listens within the ports that it is given, and says when they are taken. For each network that
// was built; TUTTI_TEST_TRANSPORT names it.
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/net/network.hpp"
#include "runtime/net/tcp_socket.hpp"
#include "tests/support/catch.hpp"
#include "transports/registry.hpp"

using namespace tutti;

namespace {

std::string transport_name() {
  const char* name = std::getenv("TUTTI_TEST_TRANSPORT");
  return name == nullptr ? "tcp" : name;
}

std::set<std::string> own_socket_inodes() {
  std::set<std::string> inodes;
  DIR* folder = ::opendir("/proc/self/fd");
  REQUIRE(folder != nullptr);
  while (const dirent* entry = ::readdir(folder)) {
    std::array<char, 64> target{};
    if (::readlinkat(::dirfd(folder), entry->d_name, target.data(), target.size() - 1) <= 0) continue;
    const std::string text = target.data();
    if (text.rfind("socket:[", 0) == 0) inodes.insert(text.substr(8, text.size() - 9));
  }
  ::closedir(folder);
  return inodes;
}

// TCP ports at which this process listens, once for each socket.
std::vector<int> listening_ports() {
  const std::set<std::string> own = own_socket_inodes();
  std::vector<int> ports;
  for (const char* path : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::array<std::string, 10> word;
      for (std::string& w : word) words >> w;
      if (word[3] != "0A" || own.count(word[9]) == 0) continue;
      ports.push_back(std::stoi(word[1].substr(word[1].rfind(':') + 1), nullptr, 16));
    }
  }
  std::sort(ports.begin(), ports.end());
  return ports;
}

// Unused ports in a row, below the range of ephemeral ports.
PortRange free_ports(std::uint16_t count) {
  for (int attempt = 0; attempt < 200; ++attempt) {
    const int first = 20'000 + (static_cast<int>(::getpid()) * 7 + attempt * 37) % 10'000;
    const PortRange range{static_cast<std::uint16_t>(first), static_cast<std::uint16_t>(first + count - 1)};
    bool is_free = true;
    for (int port = range.first; port <= range.last && is_free; ++port) {
      const Result<SocketAddress> any = parse_socket_address("0.0.0.0:" + std::to_string(port));
      REQUIRE(bool(any));
      const Result<int> fd = listen_at(*any);
      is_free = bool(fd);
      if (is_free) ::close(*fd);
    }
    if (is_free) return range;
  }
  FAIL("no free ports");
  return {};
}

Result<std::unique_ptr<Transport>> make_within(const PortRange& ports) {
  TransportSettings settings;
  if (transport_name() == "tcp") settings.interface = "lo";  // libraries are told by their own variables
  settings.ports = ports;
  return make_transport(transport_name(), settings);
}

}  // namespace

TEST_CASE("a transport listens at ports of its range, and says when all are taken", "[conformance]") {
  const PortRange range = free_ports(3);
  const std::vector<int> before = listening_ports();
  std::vector<std::unique_ptr<Transport>> made;
  std::size_t listening = before.size();
  for (;;) {
    Result<std::unique_ptr<Transport>> transport = make_within(range);
    INFO(transport.status().message());
    if (!made.empty() && !transport) {
      // Sockets of one transport, for addresses of their own, may have equal ports.
      CHECK(transport.status().message().find("all ports of " + to_text(range) + " are taken") !=
            std::string::npos);
      CHECK(transport.status().message().find("TUTTI_PORTS") != std::string::npos);
      break;
    }
    REQUIRE(transport);
    made.push_back(*std::move(transport));
    REQUIRE(made.size() <= range.count());
    std::vector<int> ports = listening_ports();
    REQUIRE(ports.size() > listening);
    listening = ports.size();
    for (const int port : before) ports.erase(std::find(ports.begin(), ports.end(), port));
    CHECK(ports.front() >= range.first);
    CHECK(ports.back() <= range.last);
  }
}

TEST_CASE("a library's own range of ports must lie within the transport's", "[conformance]") {
  const PortRange range = free_ports(3);
  const std::string within = to_text(range), beyond = to_text({range.first, std::uint16_t(range.last + 1)});
  // False: the transport was made.
  const auto is_refused = [&](const std::vector<std::string>& names) {
    const Result<std::unique_ptr<Transport>> made = make_within(range);
    if (made) return false;
    INFO(made.status().message());
    CHECK(made.status().code() == StatusCode::invalid_argument);
    for (const std::string& name : names) CHECK(made.status().message().find(name) != std::string::npos);
    return true;
  };
  if (transport_name() == "ucx") {
    ::setenv("UCX_TCP_PORT_RANGE", beyond.c_str(), 1);
    CHECK(is_refused({"UCX_TCP_PORT_RANGE", beyond, "TUTTI_PORTS", within}));
    ::setenv("UCX_TCP_PORT_RANGE", within.c_str(), 1);
    CHECK_FALSE(is_refused({}));
    ::unsetenv("UCX_TCP_PORT_RANGE");
  }
  if (transport_name() == "ofi") {
    const std::vector<std::string> names = {"FI_TCP_PORT_LOW_RANGE", "FI_TCP_PORT_HIGH_RANGE", "TUTTI_PORTS"};
    const auto set_both = [](int low, int high) {
      ::setenv("FI_TCP_PORT_LOW_RANGE", std::to_string(low).c_str(), 1);
      ::setenv("FI_TCP_PORT_HIGH_RANGE", std::to_string(high).c_str(), 1);
    };
    set_both(range.first, range.last + 1);
    CHECK(is_refused(names));
    set_both(range.last, range.first);
    CHECK(is_refused(names));
    ::unsetenv("FI_TCP_PORT_HIGH_RANGE");
    CHECK(is_refused(names));
    ::unsetenv("FI_TCP_PORT_LOW_RANGE");
    CHECK_FALSE(is_refused(names));
  }
}
