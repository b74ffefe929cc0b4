// Meeting points of jobs. Knows no protocol of the connections that follow; see meeting.hpp.
#include "runtime/job/meeting.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "runtime/job/agreement.hpp"
#include "runtime/job/control_frame.hpp"
#include "runtime/job/exchange.hpp"
#include "runtime/job/frame_socket.hpp"
#include "runtime/net/tcp_socket.hpp"
#include "tutti/detail/process.hpp"

namespace tutti {
namespace {

// Below the range from which Linux takes ports for outgoing connections.
constexpr PortRange kPorts{20000, 31999};
constexpr std::size_t kPortCandidates = 16;

// How often this process has joined each job, by rank. Successive worlds have different names: a fast rank
// must not join the world that a slow one is still leaving.
struct WorldNumbers {
  std::mutex mutex;
  std::map<std::pair<std::string, int>, std::uint64_t> next;
  std::map<std::string, std::uint64_t> first;  // by job, of those that the parent has joined

  // A child of fork() may be another rank than its parent. In any case its worlds come after all of the
  // parent's, some of which may be open.
  static WorldNumbers inherit(const WorldNumbers& parent) {
    std::map<std::string, std::uint64_t> first = parent.first;
    for (const auto& [place, number] : parent.next) first[place.first] = std::max(first[place.first], number);
    return {{}, {}, std::move(first)};
  }
};

std::uint64_t next_world_number(const std::string& job, int rank) {
  auto& numbers = detail::of_process<WorldNumbers>();
  const std::lock_guard lock(numbers.mutex);
  const auto first = numbers.first.find(job);
  return numbers.next.try_emplace({job, rank}, first == numbers.first.end() ? 0 : first->second)
      .first->second++;
}

std::string hash_text(std::string_view text) {
  std::array<unsigned char, 16> hash{};
  crypto_generichash(hash.data(), hash.size(), reinterpret_cast<const unsigned char*>(text.data()),
                     text.size(), nullptr, 0);
  return fmt::format("{:02x}", fmt::join(hash, ""));
}

std::string node_of(const Environment& environment, int launcher_node) {
  std::string node = node_identity(environment);
  if (launcher_node >= 0) node += fmt::format("#{}", launcher_node);
  return node;
}

// -- rank 0 -------------------------------------------------------------------------------------------------

Result<std::uint16_t> port_of(int fd) {
  SocketAddress bound;
  bound.bytes = sizeof bound.storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&bound.storage), &bound.bytes) != 0)
    return internal_error(fmt::format("getsockname: {}", std::strerror(errno)));
  return bound.port();
}

// An address that cannot be had now, as one that IPv6 still checks for duplicates, is left out.
Result<Listeners> listen_at_port(const std::vector<SocketAddress>& places, std::uint16_t port) {
  Listeners listeners;
  Status last = unsupported("no interface has an address");
  for (const SocketAddress& place : places) {
    Result<int> fd = listen_at(place.with_port(port));
    if (!fd && fd.status().code() == StatusCode::resource_exhausted) return fd.status();
    if (!fd) {
      last = fd.status();
      continue;
    }
    listeners.sockets.emplace_back(*fd);
    const Result<std::uint16_t> bound = port_of(*fd);
    if (!bound) return bound.status();
    port = *bound;  // the same at all addresses
    listeners.addresses.push_back(place.with_port(port));
  }
  if (listeners.sockets.empty()) return last;
  return listeners;
}

Result<Listeners> listen_at_any(const std::vector<SocketAddress>& places,
                                const std::vector<std::uint16_t>& ports) {
  constexpr int kTriesOfAnyPort = 8;  // one that is free at the first address may be taken at the next
  Status last;
  for (const std::uint16_t port : ports) {
    for (int i = 0; i < (port == 0 ? kTriesOfAnyPort : 1); ++i) {
      Result<Listeners> listeners = listen_at_port(places, port);
      if (listeners) return listeners;
      last = listeners.status();
    }
  }
  return last.with_context("cannot listen for ranks of other nodes");
}

// -- the setting of rank 0's host ---------------------------------------------------------------------------

// "node7", "10.0.0.1,10.1.0.1" or "node7:4711" (a port that only this job uses).
struct HostSetting {
  std::vector<std::string> hosts;
  std::uint16_t port = 0;
};

HostSetting parse_host_setting(std::string_view text) {
  HostSetting setting;
  const std::size_t colon = text.rfind(':');
  const bool has_port =
      colon != std::string_view::npos && (text.find(':') == colon || text[colon - 1] == ']');
  if (has_port) {
    const std::string_view digits = text.substr(colon + 1);
    std::from_chars(digits.data(), digits.data() + digits.size(), setting.port);
    text = text.substr(0, colon);
  }
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    std::string host(text.substr(0, comma));
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    if (!host.empty()) setting.hosts.push_back(std::move(host));
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return setting;
}

std::vector<std::uint16_t> ports_of(const HostSetting& setting, const Meeting& meeting,
                                    const std::optional<PortRange>& range) {
  if (setting.port == 0) return candidate_ports(meeting.job, range);
  return {setting.port};
}

Result<std::vector<SocketAddress>> find_hosts(const HostSetting& setting,
                                              const std::vector<std::uint16_t>& ports) {
  std::vector<SocketAddress> addresses;
  Status last;
  for (const std::string& host : setting.hosts) {
    const Result<std::vector<SocketAddress>> found = resolve_host(host);
    if (!found) {
      last = found.status();
      continue;
    }
    for (const SocketAddress& address : *found) {
      for (const std::uint16_t port : ports) addresses.push_back(address.with_port(port));
    }
  }
  if (addresses.empty()) return last;
  return addresses;
}

// -- the three ways -----------------------------------------------------------------------------------------

struct Network {
  std::vector<SocketAddress> places;  // that TUTTI_IFACE leaves
  bool is_chosen = false;             // by TUTTI_IFACE
  std::vector<Interface> all;
  std::optional<PortRange> ports;  // TUTTI_PORTS

  Result<Listeners> listen_anywhere() const { return listen_at_any(places, ports_to_try(ports)); }
};

Result<Network> find_network(const Environment& environment) {
  const auto all = list_interfaces();
  if (!all) return all.status();
  const auto [name, setting] = find_value(environment, "TUTTI_IFACE");
  auto selected = select_interfaces(*all, setting);
  if (!selected) return selected.status().with_context(fmt::format("{}='{}'", name, setting));
  const auto ports = read_ports(environment);
  if (!ports) return ports.status();
  Network network{{}, !setting.empty(), *all, *ports};
  for (const Interface& interface : *selected) network.places.push_back(interface.address);
  return network;
}

// The contribution of a rank to the program's exchange.
struct Introduction {
  StatusPayload problem;  // the reason why the rank cannot join, if there is one
  std::string node;       // Meeting::node
  std::string unique_id;  // of rank 0, as the addresses
  std::string addresses;
  std::string open_worlds;
  static auto fields(auto& self) {
    return std::tie(self.problem, self.node, self.unique_id, self.addresses, self.open_worlds);
  }
};

// Rank 0 listens and makes the id of the job.
Status introduce_root(const Network& network, Introduction& mine, Listeners& listeners) {
  Result<std::string> id = new_unique_id();
  if (!id) return id.status();
  Result<Listeners> opened = network.listen_anywhere();
  if (!opened) return opened.status();
  mine.unique_id = *std::move(id);
  mine.addresses = join_addresses(opened->addresses);
  listeners = *std::move(opened);
  return {};
}

Result<std::vector<Introduction>> exchange_introductions(Exchange& exchange, const Introduction& mine,
                                                         Clock::time_point deadline) {
  const Result<std::vector<std::string>> all = exchange.allgather(encode(mine), deadline);
  if (mine.problem.code != StatusCode::ok) return Status(mine.problem.code, mine.problem.message);
  if (!all) return all.status();
  std::vector<Introduction> introductions(all->size());
  for (std::size_t i = 0; i < all->size(); ++i) {
    const int rank = static_cast<int>(i);
    if (!decode((*all)[i], introductions[i]))
      return invalid_argument(
          fmt::format("the program's exchange: the bytes of rank {} did not arrive unchanged", rank), rank);
    const StatusPayload& problem = introductions[i].problem;
    if (problem.code != StatusCode::ok)
      return Status(problem.code, fmt::format("rank {} cannot join: {}", rank, problem.message), rank);
  }
  return introductions;
}

// The program's exchange carries all of it: nodes, the job's id and the addresses of rank 0.
Status meet_by_exchange(const BootstrapOptions& options, Clock::time_point deadline, Meeting& meeting) {
  Exchange& exchange = *options.exchange;
  const Result<Network> network = find_network(options.environment);
  meeting.node = node_of(options.environment, -1);
  Introduction mine;
  Listeners listeners;
  Status problem = network.status();
  if (exchange.rank() == 0 && network) problem = introduce_root(*network, mine, listeners);
  mine.problem = {problem.code(), problem.message()};
  mine.node = meeting.node;
  mine.open_worlds = options.open_worlds;
  Result<std::vector<Introduction>> all = exchange_introductions(exchange, mine, deadline);
  if (!all) return all.status();
  const Introduction& root = all->front();
  const bool is_one_node =
      std::all_of(all->begin(), all->end(), [&](const Introduction& rank) { return rank.node == root.node; });
  for (const Introduction& rank : *all) meeting.open_worlds.push_back(rank.open_worlds);
  Result<LaunchInfo> launch = launch_from_unique_id(root.unique_id, exchange.rank(), exchange.size());
  if (!launch) return launch.status();
  meeting.launch = *std::move(launch);
  meeting.launch.launcher = "exchange";
  meeting.job = fmt::format("{}/0", meeting.launch.job);
  if (is_one_node) return {};
  meeting.listeners = std::move(listeners);
  meeting.find_root = [addresses = root.addresses] { return split_addresses(addresses); };
  meeting.open_listeners = [network = *network] { return network.listen_anywhere(); };
  return {};
}

// Rank 0 puts its addresses into the store, and a secret if the job has none yet.
Status meet_by_store(const Network& network, Clock::time_point deadline, Meeting& meeting) {
  LaunchInfo& launch = meeting.launch;
  const std::string key = fmt::format("tutti/{}/root", meeting.job);
  meeting.open_listeners = [network] { return network.listen_anywhere(); };
  if (launch.rank == 0) {
    Result<Listeners> listeners = network.listen_anywhere();
    if (!listeners) return listeners.status();
    meeting.listeners = *std::move(listeners);
    if (launch.secret.empty()) {
      const Result<std::string> fresh = new_unique_id();
      if (!fresh) return fresh.status();
      launch.secret = hash_text(*fresh) + hash_text(*fresh + "2");
    }
    Status told = launch.store->put(
        key, fmt::format("{}|{}", launch.secret, join_addresses(meeting.listeners.addresses)));
    if (told) told = launch.store->commit(deadline);
    return told;
  }
  TUTTI_RETURN_IF_ERROR(launch.store->commit(deadline));
  const Result<std::string> value = launch.store->get(key, deadline);
  if (!value) return value.status();
  const std::size_t bar = value->find('|');
  if (bar == std::string::npos)
    return internal_error(fmt::format("{}: the value of rank 0 is malformed", key));
  if (launch.secret.empty()) launch.secret = value->substr(0, bar);
  meeting.find_root = [text = value->substr(bar + 1)] { return split_addresses(text); };
  return {};
}

// The addresses at which rank 0 listens where others know its host. They use those of the setting as they are. A name
// may mean another address on each host, so it needs every interface, and loopback for ranks of this machine.
std::vector<SocketAddress> places_of_root(const HostSetting& setting, const Network& network) {
  if (network.is_chosen) return network.places;
  std::vector<SocketAddress> named, loopback;
  bool has_name = false;
  for (const std::string& host : setting.hosts) {
    const bool is_v6 = host.find(':') != std::string::npos;
    const auto address = parse_socket_address(is_v6 ? fmt::format("[{}]:1", host) : host + ":1");
    has_name = has_name || !address;
    if (address && (address->is_loopback() || !find_interface_name(network.all, *address).empty()))
      named.push_back(*address);
  }
  if (!has_name && !named.empty()) return named;
  std::vector<SocketAddress> places = network.places;
  for (const char* host : {"127.0.0.1:1", "127.0.1.1:1", "[::1]:1"}) {
    const SocketAddress address = *parse_socket_address(host);
    const bool is_known = std::any_of(places.begin(), places.end(), [&](const SocketAddress& place) {
      return place.host_text() == address.host_text();
    });
    if (!is_known) places.push_back(address);
  }
  return places;
}

// All ranks know the host of rank 0. It listens at the first free one of a few ports that follow from the
// job.
Status meet_by_address(const Network& network, Meeting& meeting) {
  const HostSetting setting = parse_host_setting(meeting.launch.host);
  const std::vector<std::uint16_t> ports = ports_of(setting, meeting, network.ports);
  meeting.open_listeners = [network] { return network.listen_anywhere(); };
  if (meeting.launch.rank == 0) {
    Result<Listeners> listeners = listen_at_any(places_of_root(setting, network), ports);
    if (!listeners) return listeners.status();
    meeting.listeners = *std::move(listeners);
  } else {
    meeting.find_root = [setting, ports] { return find_hosts(setting, ports); };
  }
  return {};
}

}  // namespace

std::vector<std::uint16_t> candidate_ports(std::string_view job, const std::optional<PortRange>& range) {
  std::array<unsigned char, 2 * kPortCandidates> hash{};
  crypto_generichash(hash.data(), hash.size(), reinterpret_cast<const unsigned char*>(job.data()), job.size(),
                     nullptr, 0);
  std::vector<std::uint16_t> ports;
  const PortRange allowed = range.value_or(kPorts);
  // A short range is tried whole, from a port that follows from the job.
  const bool is_short = allowed.count() <= kPortCandidates;
  for (std::size_t i = 0; i < std::min<std::size_t>(kPortCandidates, allowed.count()); ++i) {
    const unsigned value =
        is_short ? hash[0] + static_cast<unsigned>(i) : hash[2 * i] * 256U + hash[2 * i + 1];
    ports.push_back(static_cast<std::uint16_t>(allowed.first + value % allowed.count()));
  }
  return ports;
}

bool may_go_to_other_nodes(const Environment& environment, const LaunchInfo& launch) {
  return environment.find("TUTTI_ELASTIC") && !launch.host.empty() && !launch.secret.empty();
}

Result<Meeting> arrange_meeting(const BootstrapOptions& options) {
  const Clock::time_point deadline = Clock::now() + options.timeout;
  Meeting meeting;
  if (options.exchange != nullptr) {
    const int size = options.exchange->size(), rank = options.exchange->rank();
    if (size < 1 || rank < 0 || rank >= size) {
      return invalid_argument(fmt::format("exchange: rank {} of {} is not a rank", rank, size));
    }
    TUTTI_RETURN_IF_ERROR(meet_by_exchange(options, deadline, meeting));
    return meeting;
  }
  Result<LaunchInfo> launch = options.unique_id.empty()
                                  ? detect_launch(options.environment, deadline)
                                  : launch_from_unique_id(options.unique_id, options.rank, options.size);
  if (!launch) return launch.status();
  meeting.launch = *std::move(launch);
  meeting.node = node_of(options.environment, meeting.launch.node);
  meeting.job =
      fmt::format("{}/{}", meeting.launch.job, next_world_number(meeting.launch.job, meeting.launch.rank));
  const bool may_grow = may_go_to_other_nodes(options.environment, meeting.launch);
  const bool is_alone =
      meeting.launch.size == 1 || (meeting.launch.store == nullptr && !meeting.launch.may_span_nodes());
  if (is_alone && !may_grow) return meeting;
  const Result<Network> network = find_network(options.environment);
  if (!network) return network.status();
  if (is_alone) {
    meeting.open_listeners = [network = *network] { return network.listen_anywhere(); };
    return meeting;
  }
  if (meeting.launch.store != nullptr) {
    TUTTI_RETURN_IF_ERROR(meet_by_store(*network, deadline, meeting));
  } else if (meeting.launch.secret.empty()) {
    meeting.closed_because = "no TUTTI_SECRET is set, which ranks of other nodes would have to prove";
  } else if (meeting.launch.host.empty()) {
    meeting.closed_because = "nothing says where rank 0 is (TUTTI_ADDRESS)";
  } else {
    TUTTI_RETURN_IF_ERROR(meet_by_address(*network, meeting));
  }
  return meeting;
}

Result<std::function<Result<Listeners>()>> find_open_listeners(const Environment& environment) {
  const Result<Network> network = find_network(environment);
  if (!network) return network.status();
  return std::function<Result<Listeners>()>([network = *network] { return network.listen_anywhere(); });
}

Meeting meet_as_successor(const WorldKeys& keys, const WorldInfo& info, const Agreed& agreed,
                          std::int32_t own_id) {
  Meeting meeting;
  const std::vector<Member>& members = agreed.successor.membership.members;
  LaunchInfo& launch = meeting.launch;
  launch.size = static_cast<int>(members.size());
  const std::string& scope = keys.listener->place().scope;
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    if (members[rank].id == own_id) {
      launch.rank = static_cast<int>(rank);
      launch.local_rank = launch.local_size;
    }
    if (members[rank].place.scope == scope) ++launch.local_size;
  }
  launch.job = agreed.successor.job;
  launch.secret = keys.secret;
  launch.launcher = info.launcher;
  meeting.job = agreed.successor.job;
  meeting.node = info.node_id;
  meeting.listener = keys.listener;
  // The control channel outlives the start: it must not keep the connections of the agreement.
  meeting.watch_start = [side = std::weak_ptr(agreed.side)] {
    const std::shared_ptr<AgreementSide> kept = side.lock();
    return kept != nullptr ? kept->watch() : Status();
  };
  meeting.open_listeners = keys.open_listeners;
  meeting.listeners = agreed.side->take_listeners();
  if (launch.rank != 0 && !agreed.successor.root_addresses.empty())
    meeting.find_root = [text = agreed.successor.root_addresses] { return split_addresses(text); };
  return meeting;
}

}  // namespace tutti
