// Addresses and network interfaces of this machine, and the choice between them (TUTTI_IFACE).
// Knows no socket of its own and no job; of variables only TUTTI_PORTS.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/config.hpp"
#include "runtime/base/status.hpp"

namespace tutti {

// An IPv4 or IPv6 address with a port.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  int family() const { return storage.ss_family; }
  bool is_loopback() const;
  std::uint16_t port() const;
  SocketAddress with_port(std::uint16_t port) const;
  SocketAddress unmapped() const;  // IPv4 as such, also where an IPv6 socket shows it as ::ffff:10.0.0.1
  std::string host_text() const;   // "10.0.0.1", "fe80::1%eth0"
  std::string to_text() const;     // "10.0.0.1:80", "[fe80::1%eth0]:80"
  bool operator==(const SocketAddress& other) const { return to_text() == other.to_text(); }
};

// Inverse of to_text(). Errors: invalid_argument.
Result<SocketAddress> parse_socket_address(std::string_view text);

// Several addresses as one line of text, and back. Errors: invalid_argument.
std::string join_addresses(const std::vector<SocketAddress>& addresses);
Result<std::vector<SocketAddress>> split_addresses(std::string_view text);

// All addresses of a host name (or of an address), with port 0. May ask name servers. Errors:
// invalid_argument with the resolver's reason.
Result<std::vector<SocketAddress>> resolve_host(const std::string& host);

// One address of an interface; an interface with several addresses appears once for each.
struct Interface {
  std::string name;
  SocketAddress address;
  std::uint32_t prefix_bits = 0;  // of its network: 24 for a netmask of 255.255.255.0
  bool is_usable = false;         // up, and connected
  bool is_loopback = false;
};

// Errors: internal with the system's reason.
Result<std::vector<Interface>> list_interfaces();

// The interfaces that a setting selects, in the order of `all`. Empty setting: everything usable but
// loopback, and link-local addresses only where an interface has no other; loopback where nothing else is
// left. Otherwise items separated by commas, each a name (eth0) or a network (10.0.0.0/24, fd00::/8). A ^ in
// front of the first excludes the items instead. An item may fit nothing here, as one setting serves nodes
// that differ. Errors: invalid_argument, without the variable's name, where no item fits, listing what there
// is.
Result<std::vector<Interface>> select_interfaces(const std::vector<Interface>& all, std::string_view setting);

// Ports that a firewall lets through. first <= last, and first > 0.
struct PortRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;

  std::uint32_t count() const { return std::uint32_t{last} - first + 1; }
  bool operator==(const PortRange&) const = default;
};
// "20000-20100", or one port. Errors: invalid_argument, without the variable's name.
Result<PortRange> parse_port_range(std::string_view text);
// TUTTI_PORTS; none if it is not set. Errors: invalid_argument naming the variable.
Result<std::optional<PortRange>> read_ports(const Environment& environment);
std::string to_text(const PortRange& range);
// The ports to try, one after the other, where any will do. With a range: all of it, from a start that
// differs between processes. Without one: 0, so the kernel chooses.
std::vector<std::uint16_t> ports_to_try(const std::optional<PortRange>& range);

// The address of this machine that the kernel would send from to reach `target`. Sends nothing. Errors:
// unsupported with the system's reason (no route).
Result<SocketAddress> find_source_address(const SocketAddress& target);

// Whether this machine has a network adapter that bypasses the kernel (InfiniBand, RoCE, Omni-Path, EFA,
// Slingshot), as far as `folder` of the kernel shows it. Says nothing about where it leads.
bool has_fabric(const std::string& folder = "/sys/class");

// The name of the interface that has this address (ports do not matter); empty if none has.
std::string find_interface_name(const std::vector<Interface>& all, const SocketAddress& address);

// The system's text for an error, with the limit that was reached where that is one of open files: "Too many
// open files (limit: open files, ulimit -n, which is 64)".
std::string describe_system_error(int error);
inline bool is_out_of_descriptors(int error) { return error == EMFILE || error == ENFILE; }
// For failures of libraries that do not say why: the same text where fewer than 16 more files can be opened; else empty.
std::string describe_lack_of_descriptors();

}  // namespace tutti
