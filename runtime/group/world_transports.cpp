// Which transports a world opens, and which of them carries what between whom.
// Knows transports by their seam and the names of the registry.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "runtime/base/log.hpp"
#include "runtime/base/network.hpp"
#include "runtime/group/open_in_time.hpp"
#include "runtime/group/pinning.hpp"
#include "runtime/group/world.hpp"

namespace tutti {
namespace {

constexpr std::chrono::microseconds kShortSleep{100};

// What connects nodes, in the order of the registry: our own sockets first. Libraries go before them where
// there is a fabric that only they can use.
std::vector<std::string> network_transports(bool prefers_libraries) {
  std::vector<std::string> names;
  for (const TransportEntry& entry : transport_entries()) {
    if (entry.connects_nodes) names.emplace_back(entry.name);
  }
  if (prefers_libraries) std::rotate(names.begin(), names.begin() + 1, names.end());
  return names;
}

void append(std::string& text, std::string_view separator, std::string_view item) {
  if (!text.empty()) text += separator;
  text += item;
}

}  // namespace

Status WorldState::open_transports() {
  settings_.transport.node_id = info().node_id;
  settings_.transport.interface = info().interface;
  if (!settings_.transports.empty()) {
    TUTTI_RETURN_IF_ERROR(open_transports(settings_.transports));
  } else if (info().node_count == 1) {
    TUTTI_RETURN_IF_ERROR(open_transports({is_one_process_ ? "inproc" : "shm"}));
  } else {
    TUTTI_RETURN_IF_ERROR(open_between_nodes());
  }
  report_transports();
  Engine::Options options;
  const bool has_messages = std::any_of(peers_.begin(), peers_.end(), [](const PeerAddress& peer) {
    return peer.transport != nullptr && peer.transport->caps().family == Family::message;
  });
  options.waiting = settings_.wait_policy(rank_count_here_, cpu_count_, has_messages);
  // Several bells cannot be slept on at once, so a sleep may miss one: never for longer than the wait before
  // it.
  if (transports_.size() > 1) options.waiting.first_sleep = kShortSleep;
  options.stall_warning = settings_.stall_warning;
  options.on_stall = [this](const Stall& stall) { on_stall(stall); };
  options.workers = worker_options();
  options.trace = trace_.get();
  engine_ = std::make_unique<Engine>(std::move(transports_), std::move(options));
  return {};
}

WorkerOptions WorldState::worker_options() const {
  WorkerOptions options;
  options.count = settings_.workers.count;
  options.is_dedicated = !settings_.workers.cpus.entries.empty();
  options.on_start = [this](std::uint32_t worker) { pin_this_worker(worker, worker_cpus_[worker]); };
  return options;
}

// The first network that connects everybody: one that is missing on some node only is no use on the others.
Status WorldState::open_between_nodes() {
  std::string reasons;
  const auto fabrics = control().allgather(has_fabric() ? "1" : "0", start_deadline_);
  if (!fabrics) return fabrics.status();
  const bool is_fabric =
      std::all_of(fabrics->begin(), fabrics->end(), [](const auto& text) { return text == "1"; });
  for (const std::string& network : network_transports(is_fabric)) {
    Status verdict = agree_on(open_transports({"shm", network}));
    if (verdict) {
      // Somebody expects the faster network: what is used instead, and why, is said without being asked for.
      if (!reasons.empty() && info().rank == 0)
        log_warn("{} carries what goes between nodes, for {}", network, reasons);
      return {};
    }
    if (verdict.code() != StatusCode::unsupported) return verdict;
    append(reasons, "; ", verdict.message());
  }
  return unsupported(fmt::format("the job has ranks on {} nodes, and no transport connects them ({})",
                                 info().node_count, reasons));
}

// Collective: the same verdict on all ranks.
Status WorldState::agree_on(const Status& verdict) {
  if (!verdict && verdict.code() != StatusCode::unsupported)
    return verdict;  // no time or no peer is left to agree
  const auto all = control().allgather(verdict.message(), start_deadline_);
  if (!all) return all.status();
  std::map<std::string, std::vector<int>> ranks_of;
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    if (!(*all)[rank].empty()) ranks_of[(*all)[rank]].push_back(static_cast<int>(rank));
  }
  if (ranks_of.empty()) return {};
  const auto& [reason, ranks] = *ranks_of.begin();
  return unsupported(fmt::format("{} on {}", reason, name_ranks(ranks, info().size)));
}

// Unsupported is told by all that find it; the addresses are swapped in any case.
Status WorldState::open_transports(const std::vector<std::string>& names) {
  transports_.clear();
  std::string reasons;
  for (const std::string& name : names) {
    const auto entries = transport_entries();
    const bool is_module = std::any_of(entries.begin(), entries.end(), [&](const TransportEntry& entry) {
      return entry.name == name && entry.is_module;
    });
    OpenTransport open = [name, settings = settings_.transport] { return make_transport(name, settings); };
    auto made = is_module ? open_in_time(std::move(open), start_deadline_) : open();
    const std::string reason = !made ? made.status().message() : (*made)->caps().unavailable;
    if (reason.empty()) {
      transports_.push_back(*std::move(made));
    } else {
      append(reasons, "; ", fmt::format("{}: {}", name, reason));
    }
  }
  // No early return: the others wait for our addresses, and an empty list tells them that we have none.
  Status swapped = swap_addresses();
  if (transports_.empty()) return unsupported(fmt::format("no transport can be used here ({})", reasons));
  if (!swapped && swapped.code() == StatusCode::unsupported && !reasons.empty()) {
    return unsupported(fmt::format("{}; here {}", swapped.message(), reasons));
  }
  return swapped;
}

// Both sides take the first transport of the common order of preference that both have and that reaches.
Status WorldState::swap_addresses() {
  ByteWriter writer;
  for (const auto& transport : transports_) {
    const std::vector<std::byte> address = transport->address(0);
    writer.put_text(transport->caps().name);
    writer.put_text({reinterpret_cast<const char*>(address.data()), address.size()});
  }
  const auto all = control().allgather(writer.take(), start_deadline_);
  if (!all) return all.status();
  peers_.assign(all->size(), {});
  paths_.assign(all->size(), {});
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    if (static_cast<int>(rank) == info().rank) continue;
    std::map<std::string, std::string> theirs;
    ByteReader reader((*all)[rank]);
    while (!reader.is_at_end()) {
      std::string name, address;
      if (!reader.get_text(name) || !reader.get_text(address)) {
        return internal_error(fmt::format("the addresses of rank {} are malformed", rank));
      }
      theirs.emplace(std::move(name), std::move(address));
    }
    std::string reasons = theirs.empty() ? "it could not open any" : "";
    for (const auto& transport : transports_) {
      const auto found = theirs.find(std::string(transport->caps().name));
      if (peers_[rank].transport != nullptr) break;
      if (found == theirs.end()) {
        append(reasons, "; ", fmt::format("{}: not there", transport->caps().name));
        continue;
      }
      const auto* first = reinterpret_cast<const std::byte*>(found->second.data());
      const std::span<const std::byte> card(first, found->second.size());
      const auto cost = transport->reach(transport->address(0), card);
      if (cost) {
        peers_[rank] = PeerAddress{transport.get(), {card.begin(), card.end()}};
        paths_[rank] = {std::string(transport->caps().name), reasons};
      } else {
        append(reasons, "; ", fmt::format("{}: {}", found->first, cost.status().message()));
      }
    }
    if (peers_[rank].transport == nullptr && !transports_.empty()) {
      return Status(StatusCode::unsupported, fmt::format("no transport reaches rank {} ({})", rank, reasons),
                    static_cast<int>(rank));
    }
  }
  return {};
}

// One line for the whole job: what carries what.
void WorldState::report_transports() const {
  if (info().rank != 0 || info().size == 1) return;
  std::map<std::string, int> peers_by;
  for (const PeerPath& path : paths_) {
    if (!path.transport.empty()) ++peers_by[path.transport];
  }
  std::string carriers;
  for (const auto& [name, count] : peers_by) append(carriers, ", ", fmt::format("{} to {}", name, count));
  log_info("{} ranks on {} node{} (started by {}); from rank 0 {} of them{}", info().size, info().node_count,
           info().node_count == 1 ? "" : "s", info().launcher, carriers,
           info().interface.empty()
               ? ""
               : fmt::format(", between nodes through {} ({})", info().interface, info().interface_reason));
}

}  // namespace tutti
