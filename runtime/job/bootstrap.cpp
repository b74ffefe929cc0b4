// Joins the ranks of a job into a world. Knows no transport.
#include "runtime/job/bootstrap.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <utility>

#include "runtime/job/handshake.hpp"
#include "runtime/job/meeting.hpp"
#include "runtime/net/network.hpp"

namespace tutti {
namespace {

// How long a process waits for another of its node to lead, by what the launcher says of itself.
constexpr std::chrono::milliseconds kLeadIfUnknown{300}, kLeadIfNotFirst{2000};
constexpr std::chrono::milliseconds kLeastRejoinTime{2000}, kMostRejoinTime{30000};

// What every rank tells the others of where it is.
struct PlaceCard {
  std::string node;     // Meeting::node
  std::string machine;  // nodes that are parts of one machine share its CPUs
  std::string host;
  std::string remote;  // the address of another node that it is connected to
};

std::string encode(const PlaceCard& card) {
  ByteWriter writer;
  for (const std::string* text : {&card.node, &card.machine, &card.host, &card.remote})
    writer.put_text(*text);
  return writer.take();
}

bool decode(std::string_view bytes, PlaceCard& card) {
  ByteReader reader(bytes);
  return reader.get_text(card.node) && reader.get_text(card.machine) && reader.get_text(card.host) &&
         reader.get_text(card.remote) && reader.is_at_end();
}

std::string boot_id() {
  std::string id;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::getline(file, id);
  return id;
}

// How this process is called in messages: the name that the user gave the node, else the host's.
std::string host_name(const Environment& environment) {
  if (const auto name = environment.find("TUTTI_NODE_ID")) return std::string(*name);
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

// The same numbers, whatever the texts are: in order of first appearance.
template <class Text>
std::vector<int> number(const std::vector<PlaceCard>& cards, Text text) {
  std::map<std::string, int> numbers;
  std::vector<int> result;
  result.reserve(cards.size());
  for (const PlaceCard& card : cards)
    result.push_back(numbers.try_emplace(text(card), static_cast<int>(numbers.size())).first->second);
  return result;
}

// The interface by which the kernel would send to another node, as far as TUTTI_IFACE permits it.
Status choose_interface(const Environment& environment, const std::vector<PlaceCard>& cards,
                        WorldInfo& info) {
  const auto me = static_cast<std::size_t>(info.rank);
  const auto setting = get_text(environment, "TUTTI_IFACE");
  if (!setting) return setting.status();
  const auto all = list_interfaces();
  if (!all) return all.status();
  const auto selected = select_interfaces(*all, setting->value_or(""));
  if (!selected)
    return selected.status().with_context(fmt::format("TUTTI_IFACE='{}'", setting->value_or("")));
  info.interface = selected->front().name;
  info.interface_reason = *setting ? fmt::format("TUTTI_IFACE='{}'", **setting) : "the first that is up";
  for (const PlaceCard& card : cards) {
    if (card.node != cards[me].node || card.remote.empty()) continue;
    const auto target = parse_socket_address(card.remote);
    const auto source = target ? find_source_address(*target) : Result<SocketAddress>(target.status());
    const std::string name = source ? find_interface_name(*selected, *source) : "";
    if (name.empty()) continue;
    info.interface = name;
    info.interface_reason = fmt::format("the route to {}", target->host_text());
    break;
  }
  return {};
}

// Who shares a node and a machine with whom, and the way between nodes.
Status survey(const Environment& environment, const Meeting& meeting, const std::string& host,
              Clock::time_point deadline, World& world) {
  PlaceCard mine{meeting.node, boot_id(), host, world.control->remote_address()};
  const auto all = world.control->allgather(encode(mine), deadline);
  if (!all) return all.status();
  std::vector<PlaceCard> cards(all->size());
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    if (!decode((*all)[rank], cards[rank]))
      return internal_error(fmt::format("the place of rank {} is malformed", rank), static_cast<int>(rank));
    world.info.host_of_rank.push_back(cards[rank].host);
  }
  WorldInfo& info = world.info;
  info.node_of_rank = number(cards, [](const PlaceCard& card) { return card.node; });
  info.machine_of_rank = number(cards, [](const PlaceCard& card) { return card.machine; });
  info.node_count = 1 + *std::max_element(info.node_of_rank.begin(), info.node_of_rank.end());
  info.node_id = meeting.node;
  const int node = info.node_of_rank[static_cast<std::size_t>(info.rank)];
  const auto end = info.node_of_rank.begin() + info.rank;
  info.local_rank = static_cast<int>(std::count(info.node_of_rank.begin(), end, node));
  info.local_size = static_cast<int>(std::count(info.node_of_rank.begin(), info.node_of_rank.end(), node));
  if (info.node_count > 1) return choose_interface(environment, cards, info);
  return {};
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
  // Every user may take an abstract name that can be guessed, so there is a second one. It is not the only
  // one: a rank with another secret shall be refused, and not look for the job in vain.
  const std::string hidden = name_from_secret(*secret, meeting.job);
  control.root_name = fmt::format("tutti/{}/{}", ::getuid(), meeting.job);
  control.private_name = secret->empty() ? fmt::format("/tmp/tutti-{}/{}", ::getuid(), hidden)
                                         : fmt::format("tutti/{}/{}", ::getuid(), hidden);
  control.node_name = fmt::format("tutti/{}/{}/{:x}", ::getuid(), secret->empty() ? meeting.job : hidden,
                                  std::hash<std::string>()(meeting.node));
  control.job = meeting.job;
  control.secret = *std::move(secret);
  control.build_id = options.build_id;
  control.host = host_name(options.environment);
  control.rank = launch.rank;
  control.size = launch.size;
  control.timeout = options.timeout;
  control.warn = options.warn;
  control.find_root = meeting.find_root;
  control.open_doors = meeting.open_doors;
  control.lead_after = launch.local_size == 0   ? kLeadIfUnknown
                       : launch.local_rank != 0 ? kLeadIfNotFirst
                                                : std::chrono::milliseconds(0);
  control.silence = options.timeout;
  control.rejoin_time = std::clamp(options.timeout / 3, kLeastRejoinTime, kMostRejoinTime);
  Result<std::unique_ptr<ControlChannel>> channel = ControlChannel::open(control, std::move(meeting.doors));
  if (!channel) {
    Status status = channel.status();
    if (!meeting.closed_because.empty() && status.code() == StatusCode::timeout) {
      status = Status(
          status.code(),
          fmt::format("{} (only ranks of this node can join: {})", status.message(), meeting.closed_because),
          status.peer());
    }
    return status;
  }
  World world;
  world.info.rank = launch.rank;
  world.info.size = launch.size;
  world.info.launcher = launch.launcher;
  world.control = *std::move(channel);
  TUTTI_RETURN_IF_ERROR(survey(options.environment, meeting, control.host, deadline, world));
  // All ranks have taken part in the survey, and take part in another exchange before anybody's init() ends.
  if (options.exchange != nullptr) options.exchange->clean_up();
  return world;
}

std::string node_identity(const Environment& environment) {
  if (const auto name = environment.find("TUTTI_NODE_ID")) return std::string(*name);
  std::array<char, 64> name_space{};
  const ssize_t length = ::readlink("/proc/self/ns/net", name_space.data(), name_space.size());
  return boot_id() + "/" + std::string(name_space.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
}

}  // namespace tutti
