// Joins the ranks of a job into a world. Knows no transport.
#include "runtime/job/bootstrap.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "runtime/job/handshake.hpp"
#include "runtime/job/meeting.hpp"
#include "runtime/net/network.hpp"

namespace tutti {
namespace {

// Time that a process waits for another of its node to lead; by its local rank, where the launcher gives one. Less than
// rank 0 waits for the successor of a dead rank: one of its node that has not met it still finds rank 0.
constexpr std::chrono::milliseconds kLeadIfUnknown{300}, kLeadIfNotFirst{1000};
constexpr std::chrono::milliseconds kLeastRejoinTime{2000}, kMostRejoinTime{30000};

// The location of a rank, which all ranks exchange.
struct RankLocation {
  std::string node;     // Meeting::node
  std::string machine;  // nodes that are parts of one machine share its CPUs
  std::string host;
  std::string remote;  // the address of another node that it is connected to
  MemberPlace place;
  std::int32_t pid = 0;
  std::string pid_scope;  // equal for processes that know each other by pid
  static auto fields(auto& self) {
    return std::tie(self.node, self.machine, self.host, self.remote, self.place, self.pid, self.pid_scope);
  }
};

// The name of this node in messages: the user's (TUTTI_NODE_ID), else the host's.
std::string host_name(const Environment& environment) {
  if (const auto name = environment.find("TUTTI_NODE_ID")) return std::string(*name);
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

// Numbers equal texts alike: 0, 1, ... in order of first appearance.
template <class Text>
std::vector<int> number(const std::vector<RankLocation>& locations, Text text) {
  std::map<std::string, int> numbers;
  std::vector<int> result;
  result.reserve(locations.size());
  for (const RankLocation& location : locations)
    result.push_back(numbers.try_emplace(text(location), static_cast<int>(numbers.size())).first->second);
  return result;
}

// The interface by which the kernel would send to another node, as far as TUTTI_IFACE permits it.
Status choose_interface(const Environment& environment, const std::vector<RankLocation>& locations,
                        WorldInfo& info) {
  const auto me = static_cast<std::size_t>(info.rank);
  const auto [spelling, setting] = find_value(environment, "TUTTI_IFACE");
  const auto all = list_interfaces();
  if (!all) return all.status();
  const auto selected = select_interfaces(*all, setting);
  if (!selected) return selected.status().with_context(fmt::format("{}='{}'", spelling, setting));
  info.interface = selected->front().name;
  info.interface_reason =
      setting.empty() ? "the first that is up" : fmt::format("{}='{}'", spelling, setting);
  for (const RankLocation& location : locations) {
    if (location.node != locations[me].node || location.remote.empty()) continue;
    const auto target = parse_socket_address(location.remote);
    const auto source = target ? find_source_address(*target) : Result<SocketAddress>(target.status());
    const std::string name = source ? find_interface_name(*selected, *source) : "";
    if (name.empty()) continue;
    info.interface = name;
    info.interface_reason = fmt::format("the route to {}", target->host_text());
    break;
  }
  return {};
}

// Those of the interface towards other nodes alone, where this rank has one.
Result<Listeners> listen_on_chosen(const WorldKeys& keys, const std::string& interface) {
  Result<Listeners> opened = keys.open_listeners();
  const auto all = list_interfaces();
  if (!opened || !all) return opened;
  Listeners kept;
  for (std::size_t i = 0; i < opened->addresses.size(); ++i) {
    if (find_interface_name(*all, opened->addresses[i]) != interface) continue;
    kept.sockets.push_back(std::move(opened->sockets[i]));
    kept.addresses.push_back(opened->addresses[i]);
  }
  if (kept.sockets.empty()) return keys.open_listeners();
  return kept;
}

// Ranks of other network namespaces need addresses to reach the listener of a member.
Status swap_member_addresses(const BootstrapOptions& options, Clock::time_point deadline, World& world) {
  WorldKeys& keys = world.keys;
  const bool is_one_scope =
      std::all_of(keys.places.begin(), keys.places.end(),
                  [&](const MemberPlace& place) { return place.scope == keys.places.front().scope; });
  if (is_one_scope) return {};
  std::function<Result<Listeners>()> open;
  if (keys.open_listeners) open = [&] { return listen_on_chosen(keys, world.info.interface); };
  const Status opened = keys.listener->open_network(open);
  if (!opened && options.warn)
    options.warn("groups with this rank cannot shrink or grow across nodes: " + opened.message());
  const auto all = world.control->allgather(keys.listener->place().addresses, deadline);
  if (!all) return all.status();
  for (std::size_t rank = 0; rank < all->size(); ++rank) keys.places[rank].addresses = (*all)[rank];
  return {};
}

// Finds the ranks that share a node or a machine, and the interface between nodes.
Status discover_local_ranks(const Environment& environment, const Meeting& meeting, const std::string& host,
                            Clock::time_point deadline, World& world) {
  RankLocation mine{meeting.node,
                    boot_identity(),
                    host,
                    world.control->remote_address(),
                    world.keys.listener->place(),
                    ::getpid(),
                    namespace_scope("pid")};
  const auto all = world.control->allgather(encode(mine), deadline);
  if (!all) return all.status();
  std::vector<RankLocation> locations(all->size());
  for (std::size_t rank = 0; rank < locations.size(); ++rank) {
    if (!decode((*all)[rank], locations[rank]))
      return internal_error(fmt::format("the location of rank {} is malformed", rank),
                            static_cast<int>(rank));
    world.info.host_of_rank.push_back(locations[rank].host);
    world.keys.places.push_back(locations[rank].place);
    world.info.pid_of_rank.push_back(locations[rank].pid);
    world.info.shares_pids.push_back(locations[rank].node == mine.node &&
                                     locations[rank].pid_scope == mine.pid_scope);
  }
  WorldInfo& info = world.info;
  info.node_of_rank = number(locations, [](const RankLocation& location) { return location.node; });
  info.machine_of_rank = number(locations, [](const RankLocation& location) { return location.machine; });
  info.node_count = 1 + *std::max_element(info.node_of_rank.begin(), info.node_of_rank.end());
  info.node_id = meeting.node;
  const int node = info.node_of_rank[static_cast<std::size_t>(info.rank)];
  const auto end = info.node_of_rank.begin() + info.rank;
  info.local_rank = static_cast<int>(std::count(info.node_of_rank.begin(), end, node));
  info.local_size = static_cast<int>(std::count(info.node_of_rank.begin(), info.node_of_rank.end(), node));
  if (info.node_count > 1) return choose_interface(environment, locations, info);
  return {};
}

// Ranks that are missing may be on other nodes, which nothing is open for.
Status explain_failure(const Status& failure, const std::string& closed_because) {
  if (closed_because.empty() || failure.code() != StatusCode::timeout) return failure;
  return Status(failure.code(),
                fmt::format("{} (only ranks of this node can join: {})", failure.message(), closed_because),
                failure.peer());
}

}  // namespace

Result<World> bootstrap(const BootstrapOptions& options) {
  Result<Meeting> meeting = arrange_meeting(options);
  if (!meeting) return meeting.status();
  return bootstrap(options, *std::move(meeting));
}

Result<World> bootstrap(const BootstrapOptions& options, Meeting meeting) {
  const Clock::time_point deadline = Clock::now() + options.timeout;
  const LaunchInfo& launch = meeting.launch;
  ControlOptions control;
  auto secret = strengthen_secret(launch.secret, launch.job);
  if (!secret) return secret.status();
  // Any user may take an abstract name that can be guessed, so there is a second, secret one. The first
  // remains, so that a rank with another secret is refused instead of searching in vain.
  const std::string hidden = name_from_secret(*secret, meeting.job);
  control.root_name = fmt::format("tutti/{}/{}", ::getuid(), meeting.job);
  control.private_name = secret->empty() ? fmt::format("/tmp/tutti-{}/{}", ::getuid(), hidden)
                                         : fmt::format("tutti/{}/{}", ::getuid(), hidden);
  control.node_name = fmt::format("tutti/{}/{}/{:x}", ::getuid(), secret->empty() ? meeting.job : hidden,
                                  std::hash<std::string>()(meeting.node));
  control.job = meeting.job;
  World world;
  if (!secret->empty()) world.data_key = make_data_key(*secret);
  control.secret = *std::move(secret);
  control.build_id = options.build_id;
  const auto security = read_wire_security(options.environment);
  if (!security) return security.status();
  control.security = *security;
  control.host = host_name(options.environment);
  control.rank = launch.rank;
  control.size = launch.size;
  control.timeout = options.timeout;
  control.warn = options.warn;
  control.find_root = meeting.find_root;
  control.open_listeners = meeting.open_listeners;
  control.lead_after = launch.local_size == 0   ? kLeadIfUnknown
                       : launch.local_rank != 0 ? kLeadIfNotFirst
                                                : std::chrono::milliseconds(0);
  control.silence = options.silence.value_or(options.timeout);
  control.rejoin_time = std::clamp(control.silence / 3, kLeastRejoinTime, kMostRejoinTime);
  control.watch_start = std::move(meeting.watch_start);
  world.keys = {meeting.listener, {}, meeting.job, control.secret, meeting.open_listeners, control.security};
  if (world.keys.listener == nullptr) {
    auto listener = MemberListener::open();
    if (!listener) return listener.status();
    world.keys.listener = *std::move(listener);
  }
  Result<std::unique_ptr<ControlChannel>> channel =
      ControlChannel::open(control, std::move(meeting.listeners));
  if (!channel) return explain_failure(channel.status(), meeting.closed_because);
  world.info.rank = launch.rank;
  world.info.size = launch.size;
  world.info.launcher = launch.launcher;
  world.info.job = launch.job;
  world.control = *std::move(channel);
  if (may_go_to_other_nodes(options.environment, launch)) {
    const Status opened = world.keys.listener->open_network(meeting.open_listeners);
    if (!opened && options.warn) options.warn("no process of another node can join: " + opened.message());
  }
  TUTTI_RETURN_IF_ERROR(discover_local_ranks(options.environment, meeting, control.host, deadline, world));
  TUTTI_RETURN_IF_ERROR(swap_member_addresses(options, deadline, world));
  // All ranks have joined, and take part in another exchange before init() ends on any rank.
  if (options.exchange != nullptr) options.exchange->clean_up();
  return world;
}

std::string node_identity(const Environment& environment) {
  if (const auto name = environment.find("TUTTI_NODE_ID")) return std::string(*name);
  return network_scope();
}

}  // namespace tutti
