// Joins the ranks of one node into a world. Knows no transport.
#include "runtime/group/bootstrap.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <map>
#include <mutex>
#include <utility>

namespace tutti {
namespace {

// How often this process has joined that meeting point as that rank. Worlds that follow each other get names
// of their own, so that a fast rank cannot run into the world that a slow one is still leaving.
std::uint64_t next_world_number(const std::string& meeting_point, int rank) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, int>, std::uint64_t> numbers;
  const std::lock_guard lock(mutex);
  return numbers[{meeting_point, rank}]++;
}

// The program's exchange carries a unique id from rank 0 to everybody; the rest is as with any unique id.
Result<LaunchInfo> launch_from_exchange(Exchange& exchange, const Environment& environment,
                                        Clock::time_point deadline) {
  std::string unique_id;
  if (exchange.rank() == 0) {
    Result<std::string> made = new_unique_id();
    if (!made) return made.status();
    unique_id = *std::move(made);
  }
  ByteWriter card;
  card.put_text(node_identity(environment));
  card.put_text(unique_id);
  const Result<std::vector<std::string>> cards = exchange.allgather(card.take(), deadline);
  if (!cards) return cards.status();
  std::string first_node, first_id;
  std::vector<int> strangers;
  for (int rank = 0; rank < exchange.size(); ++rank) {
    ByteReader reader((*cards)[static_cast<std::size_t>(rank)]);
    std::string node, id;
    if (!reader.get_text(node) || !reader.get_text(id)) {
      return invalid_argument(
          fmt::format("the program's exchange: the bytes of rank {} did not arrive unchanged", rank));
    }
    if (rank == 0) {
      first_node = node;
      first_id = id;
    } else if (node != first_node) {
      strangers.push_back(rank);
    }
  }
  if (!strangers.empty()) {
    return unsupported(
        fmt::format("{} are on other nodes than rank 0: a job on several nodes needs a transport between "
                    "nodes, which this build does not have",
                    name_ranks(strangers, exchange.size())));
  }
  Result<LaunchInfo> launch = launch_from_unique_id(first_id, exchange.rank(), exchange.size());
  if (launch) launch->launcher = "exchange";
  return launch;
}

Result<LaunchInfo> find_launch(const BootstrapOptions& options, Clock::time_point deadline) {
  if (options.exchange != nullptr) {
    const int size = options.exchange->size(), rank = options.exchange->rank();
    if (size < 1 || rank < 0 || rank >= size) {
      return invalid_argument(fmt::format("exchange: rank {} of {} is not a rank", rank, size));
    }
    return launch_from_exchange(*options.exchange, options.environment, deadline);
  }
  if (!options.unique_id.empty()) return launch_from_unique_id(options.unique_id, options.rank, options.size);
  return detect_launch(options.environment);
}

}  // namespace

Result<World> bootstrap(const BootstrapOptions& options) {
  Result<LaunchInfo> launch = find_launch(options, Clock::now() + options.timeout);
  if (!launch) return launch.status();
  if (launch->local_size > 0 && launch->may_span_nodes()) {
    return unsupported(
        fmt::format("{} of the job's {} ranks are on this node: a job on several nodes needs a "
                    "transport between nodes, which this build does not have",
                    launch->local_size, launch->size));
  }
  ControlOptions control;
  // Abstract socket names are seen by every user, so they hold the user id.
  control.meeting_point =
      fmt::format("tutti/{}/{}/{}", ::getuid(), launch->job, next_world_number(launch->job, launch->rank));
  control.secret = launch->secret;
  control.build_id = options.build_id;
  control.rank = launch->rank;
  control.size = launch->size;
  control.timeout = options.timeout;
  control.warn = options.warn;
  Result<std::unique_ptr<ControlChannel>> channel = ControlChannel::open(control);
  if (!channel) return channel.status();
  World world;
  world.info = WorldInfo{launch->rank, launch->size, launch->rank, launch->size, {}, launch->launcher};
  // An abstract unix socket reaches one network namespace of one machine: whoever has joined is on this node.
  world.info.node_of_rank.assign(static_cast<std::size_t>(launch->size), 0);
  world.control = *std::move(channel);
  return world;
}

std::string node_identity(const Environment& environment) {
  if (const auto name = environment.find("TUTTI_NODE_ID")) return std::string(*name);
  std::string boot_id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, boot_id);
  std::array<char, 64> name_space{};
  const ssize_t length = ::readlink("/proc/self/ns/net", name_space.data(), name_space.size());
  return boot_id + "/" + std::string(name_space.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
}

}  // namespace tutti
