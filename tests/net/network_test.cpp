// Addresses as text, and which interfaces a setting leaves.
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include <string>
#include <vector>

#include "runtime/net/network.hpp"
#include "runtime/net/tcp_socket.hpp"
#include "tests/support/catch.hpp"

using namespace tutti;
using Catch::Matchers::Contains;

namespace {

Interface make_interface(const std::string& name, const std::string& address, std::uint32_t prefix_bits) {
  const bool is_v6 = address.find(':') != std::string::npos;
  const auto parsed = parse_socket_address(is_v6 ? "[" + address + "]:0" : address + ":0");
  REQUIRE(parsed);
  return {name, *parsed, prefix_bits, true, parsed->is_loopback()};
}

std::vector<Interface> node() {
  std::vector<Interface> all = {
      make_interface("lo", "127.0.0.1", 8),        make_interface("eth0", "10.0.0.5", 24),
      make_interface("docker0", "172.17.0.1", 16), make_interface("ib0", "10.1.0.5", 24),
      make_interface("eth0", "fd00::5", 64),       make_interface("dead", "10.0.0.9", 24)};
  all.back().is_usable = false;
  return all;
}

std::string names_of(const Result<std::vector<Interface>>& selected) {
  if (!selected) return selected.status().message();
  std::string names;
  for (const Interface& interface : *selected)
    names += interface.name + "=" + interface.address.host_text() + " ";
  return names;
}

}  // namespace

TEST_CASE("addresses survive being text") {
  for (const char* text : {"10.0.0.1:80", "[::1]:65535", "[fd00::1]:0", "127.0.0.1:1"}) {
    const auto address = parse_socket_address(text);
    REQUIRE(address);
    CHECK(address->to_text() == text);
  }
  CHECK(parse_socket_address("[::ffff:10.0.0.1]:80")->unmapped().to_text() == "10.0.0.1:80");
  CHECK(parse_socket_address("[fd00::1]:80")->unmapped().to_text() == "[fd00::1]:80");
  CHECK(parse_socket_address("[::1]:5")->is_loopback());
  CHECK(parse_socket_address("127.3.2.1:5")->is_loopback());
  CHECK_FALSE(parse_socket_address("10.0.0.1:5")->is_loopback());
  CHECK(parse_socket_address("10.0.0.1:5")->with_port(700).to_text() == "10.0.0.1:700");
  for (const char* text : {"", ":", "10.0.0.1", "10.0.0.1:", "10.0.0.1:65536", "10.0.0.1:-1", "host:80",
                           "::1:80", "[10.0.0.1]:80", "[::1]", "10.0.0.1:80x"}) {
    CHECK(parse_socket_address(text).status().code() == StatusCode::invalid_argument);
  }
}

TEST_CASE("without a setting every usable interface but loopback is a candidate") {
  CHECK(names_of(select_interfaces(node(), "")) ==
        "eth0=10.0.0.5 docker0=172.17.0.1 ib0=10.1.0.5 eth0=fd00::5 ");
  std::vector<Interface> all = {make_interface("lo", "127.0.0.1", 8)};
  CHECK(names_of(select_interfaces(all, "")) == "lo=127.0.0.1 ");
  all.push_back(make_interface("eth0", "169.254.1.1", 16));
  CHECK(names_of(select_interfaces(all, "")) == "eth0=169.254.1.1 ");
  all.push_back(make_interface("eth0", "10.0.0.1", 24));
  CHECK(names_of(select_interfaces(all, "")) == "eth0=10.0.0.1 ");
}

TEST_CASE("a setting names interfaces, networks, or what to leave out") {
  CHECK(names_of(select_interfaces(node(), "ib0,lo")) == "lo=127.0.0.1 ib0=10.1.0.5 ");
  CHECK(names_of(select_interfaces(node(), "10.0.0.0/16")) == "eth0=10.0.0.5 ");
  CHECK(names_of(select_interfaces(node(), "10.0.0.0/15")) == "eth0=10.0.0.5 ib0=10.1.0.5 ");
  CHECK(names_of(select_interfaces(node(), "fd00::/8,docker0")) == "docker0=172.17.0.1 eth0=fd00::5 ");
  CHECK(names_of(select_interfaces(node(), "^docker0,lo")) == "eth0=10.0.0.5 ib0=10.1.0.5 eth0=fd00::5 ");
  CHECK(names_of(select_interfaces(node(), "eno1,ib0,192.168.0.0/24")) == "ib0=10.1.0.5 ");
  CHECK(names_of(select_interfaces(node(), "^172.16.0.0/12,nosuch,eth0")) == "ib0=10.1.0.5 ");
}

TEST_CASE("a setting that fits nothing lists what there is") {
  for (const char* setting :
       {"eth1", "192.168.0.0/24", "eno1,eth1", "dead", "^10.0.0.0/8,fd00::/8,docker0,lo"}) {
    const auto selected = select_interfaces(node(), setting);
    CHECK(selected.status().code() == StatusCode::invalid_argument);
    CHECK_THAT(selected.status().message(), Contains("eth0 (10.0.0.5/24), docker0 (172.17.0.1/16)") &&
                                                Contains("dead (10.0.0.9/24, down)"));
  }
  CHECK_THAT(names_of(select_interfaces(node(), "eth1")), Contains("no interface named 'eth1'"));
  CHECK_THAT(names_of(select_interfaces(node(), "eno1,10.9.0.0/16")),
             Contains("no interface named 'eno1' or in '10.9.0.0/16'"));
  for (const char* setting : {"10.0.0.0/33", "10.0.0/x", "/8", "fd00::/129"}) {
    CHECK_THAT(names_of(select_interfaces(node(), setting)), Contains("is not a network"));
  }
}

TEST_CASE("ranges of ports, and the order in which they are tried") {
  CHECK(*parse_port_range("20000-20100") == PortRange{20000, 20100});
  CHECK(*parse_port_range("80") == PortRange{80, 80});
  CHECK(to_text(PortRange{1, 65535}) == "1-65535");
  for (const char* text : {"", "-", "0-5", "9-8", "1-65536", "1-2-3", "1 - 2", "a-b", "+1-2"}) {
    CAPTURE(text);
    CHECK_THAT(parse_port_range(text).status().message(), Contains("expected something like 20000-20100"));
  }
  CHECK(ports_to_try(std::nullopt) == std::vector<std::uint16_t>{0});
  std::vector<std::uint16_t> ports = ports_to_try(PortRange{65530, 65535});
  std::sort(ports.begin(), ports.end());
  CHECK(ports == std::vector<std::uint16_t>{65530, 65531, 65532, 65533, 65534, 65535});
}

TEST_CASE("sockets listen within a range, and a full range is said so") {
  const auto any = parse_socket_address("127.0.0.1:0");
  std::vector<int> fds;
  constexpr PortRange kRange{42113, 42116};
  Status last;
  for (std::uint32_t i = 0; i <= kRange.count() && last; ++i) {
    const Result<int> fd = listen_in(*any, kRange);
    last = fd.status();
    if (fd) fds.push_back(*fd);
  }
  CHECK(last.code() == StatusCode::resource_exhausted);
  CHECK_THAT(last.message(), Contains("all ports of 42113-42116 are taken"));
  CHECK_FALSE(fds.empty());
  for (const int fd : fds) {
    SocketAddress bound;
    bound.bytes = sizeof bound.storage;
    REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&bound.storage), &bound.bytes) == 0);
    CHECK(bound.port() >= kRange.first);
    CHECK(bound.port() <= kRange.last);
    ::close(fd);
  }
}

TEST_CASE("an adapter of a fabric is one that the kernel shows") {
  std::string folder = "/tmp/tutti-fabric-XXXXXX";
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  CHECK_FALSE(has_fabric(folder));
  CHECK(::mkdir((folder + "/infiniband").c_str(), 0700) == 0);
  CHECK_FALSE(has_fabric(folder));
  CHECK(::mkdir((folder + "/infiniband/mlx5_0").c_str(), 0700) == 0);
  CHECK(has_fabric(folder));
  for (const char* name : {"/infiniband/mlx5_0", "/infiniband", ""})
    CHECK(::rmdir((folder + name).c_str()) == 0);
}

TEST_CASE("this machine has a loopback interface, and the kernel would use it to reach itself") {
  const auto all = list_interfaces();
  REQUIRE(all);
  const auto target = parse_socket_address("127.0.0.1:5");
  const auto source = find_source_address(*target);
  REQUIRE(source);
  CHECK(find_interface_name(*all, *source) == "lo");
  CHECK(find_interface_name(*all, *parse_socket_address("192.0.2.1:0")) == "");
  const auto resolved = resolve_host("127.0.0.1");
  REQUIRE(resolved);
  CHECK(resolved->front().host_text() == "127.0.0.1");
  CHECK_FALSE(resolve_host("no.such.host.invalid"));
}
