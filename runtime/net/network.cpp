// Addresses to text and back, getifaddrs(3), the grammar of interface settings. See network.hpp.
#include "runtime/net/network.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

namespace tutti {
namespace {

SocketAddress copy_address(const sockaddr* address) {
  SocketAddress copy;
  copy.bytes = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&copy.storage, address, copy.bytes);
  return copy;
}

bool is_ip(const sockaddr* address) {
  return address != nullptr && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
}

const sockaddr_in& as_v4(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in&>(address.storage);
}
const sockaddr_in6& as_v6(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.storage);
}

// The bytes of the address alone.
std::span<const std::uint8_t> bits_of(const SocketAddress& address) {
  if (address.family() == AF_INET)
    return {reinterpret_cast<const std::uint8_t*>(&as_v4(address).sin_addr), 4};
  return {as_v6(address).sin6_addr.s6_addr, 16};
}

bool is_link_local(const SocketAddress& address) {
  const auto bits = bits_of(address);
  if (address.family() == AF_INET) return bits[0] == 169 && bits[1] == 254;
  return bits[0] == 0xfe && (bits[1] & 0xc0U) == 0x80;
}

bool is_in_network(const SocketAddress& address, const SocketAddress& network, std::uint32_t prefix_bits) {
  if (address.family() != network.family()) return false;
  const auto a = bits_of(address), b = bits_of(network);
  for (std::uint32_t bit = 0; bit < prefix_bits; ++bit) {
    const std::uint32_t mask = 0x80U >> (bit % 8);
    if (((a[bit / 8] ^ b[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

std::optional<SocketAddress> parse_host(const std::string& text) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(text.c_str(), nullptr, &hints, &found) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  if (!is_ip(found->ai_addr)) return std::nullopt;
  return copy_address(found->ai_addr);
}

std::optional<std::uint32_t> parse_number(std::string_view text, std::uint32_t highest) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > highest) return std::nullopt;
  return value;
}

std::string list_names(const std::vector<Interface>& all) {
  std::string text;
  for (const Interface& interface : all) {
    text +=
        fmt::format("{}{} ({}/{}{})", text.empty() ? "" : ", ", interface.name, interface.address.host_text(),
                    interface.prefix_bits, interface.is_usable ? "" : ", down");
  }
  return text.empty() ? "none" : text;
}

std::vector<Interface> select_by_default(const std::vector<Interface>& all) {
  std::vector<Interface> selected;
  for (const Interface& interface : all) {
    if (!interface.is_usable || interface.is_loopback) continue;
    const bool has_better = std::any_of(all.begin(), all.end(), [&](const Interface& other) {
      return other.name == interface.name && !is_link_local(other.address);
    });
    if (!is_link_local(interface.address) || !has_better) selected.push_back(interface);
  }
  if (selected.empty()) {
    std::copy_if(all.begin(), all.end(), std::back_inserter(selected),
                 [](const Interface& interface) { return interface.is_usable; });
  }
  return selected;
}

// An item of TUTTI_IFACE: a name, or a network.
struct InterfaceItem {
  std::string_view text;
  std::optional<SocketAddress> network;
  std::uint32_t prefix_bits = 0;

  bool fits(const Interface& interface) const {
    return network ? is_in_network(interface.address, *network, prefix_bits) : interface.name == text;
  }
  std::string to_text() const { return fmt::format("{} '{}'", network ? "in" : "named", text); }
};

Result<InterfaceItem> parse_interface_item(std::string_view text) {
  InterfaceItem item{text, std::nullopt, 0};
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return item;
  item.network = parse_host(std::string(text.substr(0, slash)));
  const auto bits = item.network
                        ? parse_number(text.substr(slash + 1), item.network->family() == AF_INET ? 32 : 128)
                        : std::nullopt;
  if (!bits)
    return invalid_argument(fmt::format("'{}' is not a network; expected something like 10.0.0.0/24", text));
  item.prefix_bits = *bits;
  return item;
}

}  // namespace

// -- addresses ----------------------------------------------------------------------------------------------

bool SocketAddress::is_loopback() const {
  const auto bits = bits_of(*this);
  return family() == AF_INET ? bits[0] == 127 : IN6_IS_ADDR_LOOPBACK(&as_v6(*this).sin6_addr);
}

std::uint16_t SocketAddress::port() const {
  return ntohs(family() == AF_INET ? as_v4(*this).sin_port : as_v6(*this).sin6_port);
}

SocketAddress SocketAddress::with_port(std::uint16_t port) const {
  SocketAddress address = *this;
  if (family() == AF_INET) {
    reinterpret_cast<sockaddr_in&>(address.storage).sin_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port = htons(port);
  }
  return address;
}

SocketAddress SocketAddress::unmapped() const {
  if (family() != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&as_v6(*this).sin6_addr)) return *this;
  SocketAddress address;
  address.bytes = sizeof(sockaddr_in);
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
  v4.sin_family = AF_INET;
  v4.sin_port = as_v6(*this).sin6_port;
  std::memcpy(&v4.sin_addr, as_v6(*this).sin6_addr.s6_addr + 12, sizeof v4.sin_addr);
  return address;
}

std::string SocketAddress::host_text() const {
  std::array<char, NI_MAXHOST> host{};
  if (bytes == 0 || ::getnameinfo(reinterpret_cast<const sockaddr*>(&storage), bytes, host.data(),
                                  host.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "?";
  }
  return host.data();
}

std::string SocketAddress::to_text() const {
  const std::uint16_t number = bytes == 0 ? std::uint16_t{0} : port();
  if (family() == AF_INET6) return fmt::format("[{}]:{}", host_text(), number);
  return fmt::format("{}:{}", host_text(), number);
}

Result<SocketAddress> parse_socket_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon != std::string_view::npos) {
    std::string_view host = text.substr(0, colon);
    const bool has_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (has_brackets) host = host.substr(1, host.size() - 2);
    const auto port = parse_number(text.substr(colon + 1), 65535);
    const auto address = parse_host(std::string(host));
    if (port && address && has_brackets == (address->family() == AF_INET6)) {
      return address->with_port(static_cast<std::uint16_t>(*port));
    }
  }
  return invalid_argument(fmt::format("'{}' is not an address with a port", text));
}

std::string join_addresses(const std::vector<SocketAddress>& addresses) {
  std::string text;
  for (const SocketAddress& address : addresses) text += (text.empty() ? "" : " ") + address.to_text();
  return text;
}

Result<std::vector<SocketAddress>> split_addresses(std::string_view text) {
  std::vector<SocketAddress> addresses;
  while (!text.empty()) {
    const std::size_t space = text.find(' ');
    const Result<SocketAddress> address = parse_socket_address(text.substr(0, space));
    if (!address) return address.status();
    addresses.push_back(*address);
    text = space == std::string_view::npos ? std::string_view() : text.substr(space + 1);
  }
  return addresses;
}

Result<std::vector<SocketAddress>> resolve_host(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) return invalid_argument(fmt::format("host '{}': {}", host, ::gai_strerror(error)));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    if (is_ip(at->ai_addr)) addresses.push_back(copy_address(at->ai_addr));
  }
  return addresses;
}

// -- interfaces ---------------------------------------------------------------------------------------------

Result<std::vector<Interface>> list_interfaces() {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return internal_error("getifaddrs: " + describe_system_error(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(found, &::freeifaddrs);
  std::vector<Interface> all;
  for (const ifaddrs* at = found; at != nullptr; at = at->ifa_next) {
    if (!is_ip(at->ifa_addr)) continue;
    Interface interface;
    interface.name = at->ifa_name;
    interface.address = copy_address(at->ifa_addr);
    if (is_ip(at->ifa_netmask)) {
      const SocketAddress mask = copy_address(at->ifa_netmask);
      for (const std::uint8_t byte : bits_of(mask))
        interface.prefix_bits += static_cast<std::uint32_t>(std::popcount(byte));
    }
    interface.is_usable = (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_RUNNING) != 0;
    interface.is_loopback = (at->ifa_flags & IFF_LOOPBACK) != 0;
    all.push_back(std::move(interface));
  }
  return all;
}

Result<std::vector<Interface>> select_interfaces(const std::vector<Interface>& all,
                                                 std::string_view setting) {
  if (setting.empty()) return select_by_default(all);
  const bool is_exclusion = setting.front() == '^';
  std::string_view rest = setting.substr(is_exclusion ? 1 : 0);
  std::vector<bool> is_named(all.size(), false);
  bool fits_any = is_exclusion;
  std::vector<std::string> missing;
  for (;;) {
    const std::size_t comma = rest.find(',');
    const Result<InterfaceItem> item = parse_interface_item(rest.substr(0, comma));
    if (!item) return item.status();
    bool fits = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!item->fits(all[i])) continue;
      is_named[i] = true;
      fits = true;
    }
    // One setting serves nodes that differ: each takes, or leaves out, what it has.
    fits_any = fits_any || fits;
    if (!fits) missing.push_back(item->to_text());
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (!fits_any)
    return invalid_argument(
        fmt::format("no interface {}; there are {}", fmt::join(missing, " or "), list_names(all)));
  std::vector<Interface> selected;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (is_named[i] != is_exclusion && all[i].is_usable) selected.push_back(all[i]);
  }
  if (is_exclusion) selected = select_by_default(selected);
  if (selected.empty()) {
    return invalid_argument(fmt::format("no interface that is up is left; there are {}", list_names(all)));
  }
  return selected;
}

Result<PortRange> parse_port_range(std::string_view text) {
  const std::size_t dash = text.find('-');
  const auto first = parse_number(text.substr(0, dash), 65535);
  const auto last = dash == std::string_view::npos ? first : parse_number(text.substr(dash + 1), 65535);
  if (!first || !last || *first == 0 || *last < *first)
    return invalid_argument(
        fmt::format("'{}' is no range of ports; expected something like 20000-20100", text));
  return PortRange{static_cast<std::uint16_t>(*first), static_cast<std::uint16_t>(*last)};
}

Result<std::optional<PortRange>> read_ports(const Environment& environment) {
  const auto text = get_text(environment, "TUTTI_PORTS");
  if (!text) return text.status();
  if (!*text) return std::optional<PortRange>();
  auto range = parse_port_range(**text);
  if (!range) return range.status().with_context("TUTTI_PORTS");
  return std::optional(*range);
}

std::string to_text(const PortRange& range) { return fmt::format("{}-{}", range.first, range.last); }

std::vector<std::uint16_t> ports_to_try(const std::optional<PortRange>& range) {
  if (!range) return {0};
  std::vector<std::uint16_t> ports;
  // Processes that start together have neighbouring numbers: a stride keeps them apart.
  constexpr std::uint32_t kStride = 7;
  const std::uint32_t start = static_cast<std::uint32_t>(::getpid()) * kStride;
  for (std::uint32_t i = 0; i < range->count(); ++i)
    ports.push_back(static_cast<std::uint16_t>(range->first + (start + i) % range->count()));
  return ports;
}

Result<SocketAddress> find_source_address(const SocketAddress& target) {
  // Connecting a datagram socket asks the routing table and sends nothing.
  const int fd = ::socket(target.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0);
  SocketAddress source;
  source.bytes = sizeof source.storage;
  const SocketAddress with_port = target.with_port(target.port() == 0 ? 9 : target.port());
  const bool is_found =
      fd >= 0 && ::connect(fd, reinterpret_cast<const sockaddr*>(&with_port.storage), with_port.bytes) == 0 &&
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&source.storage), &source.bytes) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!is_found)
    return unsupported(fmt::format("no route to {}: {}", target.host_text(), std::strerror(error)));
  return source.with_port(0);
}

bool has_fabric(const std::string& folder) {
  for (const char* kind : {"infiniband", "cxi"}) {
    std::error_code error;
    const std::filesystem::directory_iterator adapters(folder + "/" + kind, error);
    if (!error && adapters != std::filesystem::directory_iterator()) return true;
  }
  return false;
}

std::string find_interface_name(const std::vector<Interface>& all, const SocketAddress& address) {
  for (const Interface& interface : all) {
    if (interface.address.with_port(0) == address.with_port(0)) return interface.name;
  }
  return {};
}

std::string describe_system_error(int error) {
  const char* const text = std::strerror(error);
  if (error == ENFILE) return fmt::format("{} (limit: open files of the machine)", text);
  if (error != EMFILE) return text;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  return fmt::format("{} (limit: open files, ulimit -n, which is {})", text, files.rlim_cur);
}

std::string describe_lack_of_descriptors() {
  constexpr std::size_t kNeeded = 16;
  std::vector<int> opened;
  int error = 0;
  while (opened.size() < kNeeded && error == 0) {
    const int descriptor = ::eventfd(0, EFD_CLOEXEC);
    if (descriptor < 0)
      error = errno;
    else
      opened.push_back(descriptor);
  }
  for (const int descriptor : opened) ::close(descriptor);
  return is_out_of_descriptors(error) ? describe_system_error(error) : std::string();
}

}  // namespace tutti
