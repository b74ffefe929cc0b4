// The transports that a world opens, and the one that connects each pair of ranks. Knows transports by their
// seam and the names of the registry.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <thread>

#include "runtime/base/fork_guard.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/rank_lists.hpp"
#include "runtime/group/open_in_time.hpp"
#include "runtime/group/pinning.hpp"
#include "runtime/group/world.hpp"
#include "runtime/net/network.hpp"

namespace tutti {
namespace {

constexpr std::chrono::microseconds kShortSleep{100};
// The number of neighbours on either side that are met before anything is sent. All ranks of a node would be
// ideal, but the cost of a start would grow with their square. Limits that are reached later are errors.
constexpr std::size_t kMetOnEitherSide = 8;

// Transports between nodes, in the order of the registry: our own sockets first. Libraries go first where
// there is a fabric that only they can use. Transports without protection are left out where the user wants it.
std::vector<std::string> network_transports(bool prefers_libraries, WireSecurity security) {
  std::vector<std::string> names;
  for (const TransportEntry& entry : transport_entries()) {
    if (entry.connects_nodes && (entry.has_wire_security || security == WireSecurity::off))
      names.emplace_back(entry.name);
  }
  if (prefers_libraries) std::rotate(names.begin(), names.begin() + 1, names.end());
  return names;
}

// Whether an error only rules out a transport here: it is reported to the other ranks, and another transport
// may do.
bool is_refusal(const Status& status) {
  return status.code() == StatusCode::unsupported || status.code() == StatusCode::resource_exhausted;
}

// The address of a rank's shared memory, if this rank can reach it.
std::optional<std::span<const std::byte>> find_reachable(const Transport& shm,
                                                         const std::map<std::string, std::string>& theirs) {
  const auto found = theirs.find("shm");
  if (found == theirs.end()) return std::nullopt;
  const std::span address(reinterpret_cast<const std::byte*>(found->second.data()), found->second.size());
  if (!shm.reach(shm.address(), address)) return std::nullopt;
  return address;
}

// The first reason, with all ranks that report it.
Status first_reason(const std::vector<Status>& verdicts) {
  const auto first = std::find_if(verdicts.begin(), verdicts.end(), [](const Status& v) { return !v; });
  if (first == verdicts.end()) return {};
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < verdicts.size(); ++rank) {
    if (!verdicts[rank] && verdicts[rank].message() == first->message())
      ranks.push_back(static_cast<int>(rank));
  }
  return {first->code(),
          fmt::format("{} on {}", first->message(), name_ranks(ranks, static_cast<int>(verdicts.size())))};
}

void append(std::string& text, std::string_view separator, std::string_view item) {
  if (!text.empty()) text += separator;
  text += item;
}

}  // namespace

Status WorldState::open_transports() {
  settings_.transport.node_id = info().node_id;
  settings_.transport.interface = info().interface;
  settings_.transport.wire_key = world_.data_key;
  if (engine_ != nullptr && !may_extend_engine()) drop_engine();
  if (!settings_.transports.empty()) {
    TUTTI_RETURN_IF_ERROR(open_transports(settings_.transports));
  } else if (info().node_count == 1 && is_one_process_) {
    TUTTI_RETURN_IF_ERROR(open_transports({"inproc"}));
  } else if (info().node_count == 1) {
    TUTTI_RETURN_IF_ERROR(open_on_one_node());
  } else {
    TUTTI_RETURN_IF_ERROR(open_between_nodes());
  }
  report_transports();
  if (engine_ != nullptr) return {};
  Engine::Options options;
  const bool has_messages = std::any_of(peers_.begin(), peers_.end(), [](const PeerAddress& peer) {
    return peer.transport != nullptr && peer.transport->caps().family == Family::message;
  });
  options.waiting = settings_.wait_policy(rank_count_here_, cpu_count_, has_messages);
  // A thread sleeps on one bell at a time, so a sleep may miss another. It never takes longer than the wait
  // before it.
  if (transports_.size() > 1) options.waiting.first_sleep = kShortSleep;
  options.stall_warning = settings_.stall_warning;
  options.progress_threads = progress_thread_options();
  options.helpers = helper_options();
  engine_ = std::make_shared<WorldEngine>(std::move(transports_), std::move(options), std::move(trace_),
                                          rank_count_here_);
  return {};
}

// Whether newcomers can use the transports of the other ranks, equal on all. Only shared memory has neither keys nor
// interfaces of one world. The machine must not get more ranks than the way of waiting of the kept engines suits.
bool WorldState::may_extend_engine() const {
  if (info().node_count != 1 || (is_one_process_ && settings_.transports.empty())) return false;
  return std::all_of(records_.begin(), records_.end(), [&](const RankRecord& record) {
    return record.transports.empty() ||
           (record.transports == "shm" && rank_count_here_ <= record.most_ranks_here);
  });
}

void WorldState::drop_engine() {
  engine_.reset();
  peers_.clear();
  paths_.clear();
  settings_.trace_path.clear();  // the old engine has the file
}

ProgressThreadOptions WorldState::progress_thread_options() const {
  ProgressThreadOptions options;
  options.count = settings_.progress.thread_count;
  options.is_dedicated = !settings_.progress.cpus.entries.empty();
  options.on_start = [cpus = progress_cpus_](std::uint32_t number) {
    pin_this_progress_thread(number, cpus[number]);
  };
  return options;
}

HelperOptions WorldState::helper_options() const {
  HelperOptions options;
  options.count = helper_count_;
  // A thread starts with the CPUs of the one that makes it, which may have fewer than its rank.
  options.on_start = [cpus = own_cpus_] { bind_this_helper(cpus); };
  return options;
}

std::vector<Transport*> WorldState::list_transports() const {
  std::vector<Transport*> transports;
  if (engine_ != nullptr) return engine_->list_transports();
  for (const auto& transport : transports_) transports.push_back(transport.get());
  return transports;
}

// Shared memory alone, unless some rank cannot have it.
Status WorldState::open_on_one_node() {
  Status verdict = agree_on(open_transports({"shm"}));
  if (verdict || !is_refusal(verdict)) return verdict;
  if (engine_ != nullptr) drop_engine();
  return open_between_nodes();
}

// The first network that connects all nodes: one that is missing on some node is useless on the others.
Status WorldState::open_between_nodes() {
  std::string reasons;
  StatusCode code = StatusCode::unsupported;
  const auto fabrics = control().allgather(has_fabric() ? "1" : "0", start_deadline_);
  if (!fabrics) return fabrics.status();
  const bool is_fabric =
      std::all_of(fabrics->begin(), fabrics->end(), [](const auto& text) { return text == "1"; });
  for (const std::string& network : network_transports(is_fabric, settings_.transport.security)) {
    Status verdict = agree_on(open_transports({"shm", network}));
    if (verdict) {
      // The user may expect the faster network, so warn about the one in use.
      if (!reasons.empty() && info().rank == 0)
        log_warn("{} carries what goes between nodes, for {}", network, reasons);
      return {};
    }
    if (!is_refusal(verdict)) return verdict;
    if (verdict.code() == StatusCode::resource_exhausted) code = verdict.code();
    append(reasons, "; ", verdict.message());
  }
  return {code, fmt::format("the job has ranks on {} node{}, and no transport connects them ({})",
                            info().node_count, info().node_count == 1 ? "" : "s", reasons)};
}

// Collective: the same verdict on all ranks.
Status WorldState::agree_on(const Status& verdict) {
  if (!verdict && !is_refusal(verdict)) return verdict;  // no time or no peer is left to agree
  auto verdicts = exchange(verdict);
  return verdicts ? first_reason(*verdicts) : verdicts.status();
}

// Collective: the status of every rank, by rank.
Result<std::vector<Status>> WorldState::exchange(const Status& own) {
  const auto all = control().allgather(encode(StatusPayload{own.code(), own.message()}), start_deadline_);
  if (!all) return all.status();
  std::vector<Status> verdicts(all->size());
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    StatusPayload verdict;
    if (!decode((*all)[rank], verdict))
      return internal_error(fmt::format("the verdict of rank {} is malformed", rank), static_cast<int>(rank));
    if (verdict.code != StatusCode::ok) verdicts[rank] = Status(verdict.code, std::move(verdict.message));
  }
  return verdicts;
}

// Opens each transport that can be used here.
WorldState::Refusals WorldState::open_listed(const std::vector<std::string>& names) {
  Refusals refusals;
  transports_.clear();
  peers_.clear();
  paths_.clear();
  for (const std::string& name : names) {
    const auto entries = transport_entries();
    const bool is_module = std::any_of(entries.begin(), entries.end(), [&](const TransportEntry& entry) {
      return entry.name == name && entry.is_module;
    });
    TransportSettings settings = settings_.transport;
    settings.silence = settings_.timeout;
    OpenTransport open = [name, settings = std::move(settings)] { return make_transport(name, settings); };
    auto made = is_module ? open_in_time(std::move(open), start_deadline_) : open();
    if (made && (*made)->caps().unavailable.empty()) {
      transports_.push_back(*std::move(made));
      continue;
    }
    const Status reason = made ? unsupported((*made)->caps().unavailable) : made.status();
    std::string text = reason.message();
    if (text.starts_with(name + ": ")) text.erase(0, name.size() + 2);  // most name themselves
    if (name == "shm") refusals.memory = {reason.code(), text};
    std::string all = refusals.all.message();
    append(all, "; ", fmt::format("{}: {}", name, text));
    const bool is_limit = reason.code() == StatusCode::resource_exhausted ||
                          refusals.all.code() == StatusCode::resource_exhausted;
    refusals.all =
        Status(is_limit ? StatusCode::resource_exhausted : StatusCode::unsupported, std::move(all));
  }
  return refusals;
}

// Every rank reports its refusals; addresses are exchanged in any case.
Status WorldState::open_transports(const std::vector<std::string>& names) {
  const Refusals refusals = engine_ != nullptr ? Refusals() : open_listed(names);
  const Status& refusal = refusals.all;
  // No early return: other ranks wait for our addresses, and an empty list tells them that there are none.
  const auto addresses = swap_addresses();
  if (!addresses) return addresses.status();
  std::vector<Status> apart(addresses->size());
  if (info().size > 1 && std::find(names.begin(), names.end(), "shm") != names.end()) {
    auto met = meet_neighbours(*addresses, refusals.memory);
    if (!met) return met.status();
    apart = *std::move(met);
  }
  Status chosen = choose_paths(*addresses, apart);
  if (list_transports().empty())
    return {refusal.code(), fmt::format("no transport can be used here ({})", refusal.message())};
  if (!chosen && is_refusal(chosen) && !refusal)
    return {chosen.code(), fmt::format("{}; here {}", chosen.message(), refusal.message())};
  if (const Status reason = first_reason(apart); chosen && !reason && info().rank == 0)
    log_warn("shared memory cannot be used everywhere, so {} takes its place: {}", names.back(),
             reason.message());
  return chosen;
}

// The addresses of every rank, by the names of its transports.
Result<std::vector<std::map<std::string, std::string>>> WorldState::swap_addresses() {
  ByteWriter writer;
  for (const Transport* transport : list_transports()) {
    const std::vector<std::byte> address = transport->address();
    writer.put_text(transport->caps().name);
    writer.put_text({reinterpret_cast<const char*>(address.data()), address.size()});
  }
  const auto all = control().allgather(writer.take(), start_deadline_);
  if (!all) return all.status();
  std::vector<std::map<std::string, std::string>> addresses(all->size());
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    if (static_cast<int>(rank) == info().rank) continue;
    ByteReader reader((*all)[rank]);
    while (!reader.is_at_end()) {
      std::string name, address;
      if (!reader.get_text(name) || !reader.get_text(address)) {
        return internal_error(fmt::format("the addresses of rank {} are malformed", rank),
                              static_cast<int>(rank));
      }
      addresses[rank].emplace(std::move(name), std::move(address));
    }
  }
  return addresses;
}

// The ranks of this node that this rank maps the memory of, if they have not met; by rank, with their addresses.
std::map<std::size_t, std::span<const std::byte>> WorldState::find_neighbours(
    const Transport& shm, const Addresses& addresses) const {
  std::vector<std::size_t> sharing;  // ranks, with this one
  std::size_t own_index = 0;
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    const bool is_own = static_cast<int>(rank) == info().rank;
    if (is_own) own_index = sharing.size();
    if (is_own || find_reachable(shm, addresses[rank])) sharing.push_back(rank);
  }
  std::map<std::size_t, std::span<const std::byte>> neighbours;
  for (std::size_t distance = 1; distance < std::min(kMetOnEitherSide + 1, sharing.size()); ++distance) {
    for (const std::size_t step : {distance, sharing.size() - distance}) {
      const std::size_t rank = sharing[(own_index + step) % sharing.size()];
      const bool has_met = rank < peers_.size() && peers_[rank].transport != nullptr;
      if (static_cast<int>(rank) != info().rank && !has_met)
        neighbours[rank] = *find_reachable(shm, addresses[rank]);
    }
  }
  return neighbours;
}

// Collective: ranks of a node map each other's memory. By rank, the reason why it cannot share memory. A rank
// shares with all or with none, so members of a group never disagree.
Result<std::vector<Status>> WorldState::meet_neighbours(const Addresses& addresses,
                                                        const Status& own_refusal) {
  const std::vector<Transport*> transports = list_transports();
  const auto shm = std::find_if(transports.begin(), transports.end(), [](const Transport* transport) {
    return transport->caps().name == std::string_view("shm");
  });
  Status own = own_refusal;
  std::map<std::size_t, std::span<const std::byte>> neighbours;
  if (shm != transports.end()) neighbours = find_neighbours(**shm, addresses);
  const Clock::time_point deadline = start_deadline_;
  const auto meet_all = [&](Contact wanted) -> Status {
    for (const auto& [rank, address] : neighbours) {
      while (own) {
        const auto meeting = (*shm)->meet(address);
        if (!meeting && !is_refusal(meeting.status())) break;  // the peer has ended; it is reported elsewhere
        if (!meeting) own = meeting.status();
        if (!meeting || *meeting >= wanted) break;
        if (Clock::now() > deadline) {
          own = unsupported(fmt::format("rank {} has not shown its memory in time", rank),
                            static_cast<int>(rank));
          break;
        }
        TUTTI_RETURN_IF_ERROR(control().trouble());  // who has ended shows nothing any more
        std::this_thread::sleep_for(kShortSleep);
      }
    }
    return {};
  };
  TUTTI_RETURN_IF_ERROR(meet_all(Contact::told));
  auto verdicts = exchange(own);
  if (!verdicts) return verdicts;
  // Failed ranks may not have sent their segment.
  std::erase_if(neighbours, [&](const auto& neighbour) { return !(*verdicts)[neighbour.first]; });
  TUTTI_RETURN_IF_ERROR(meet_all(Contact::met));
  return exchange(own);
}

// Both sides take the first transport in the common order of preference that both have and that reaches.
// Ranks that met in an earlier world keep theirs. `apart`: by rank, the reason why it cannot share memory.
Status WorldState::choose_paths(const Addresses& addresses, const std::vector<Status>& apart) {
  peers_.resize(addresses.size());
  paths_.resize(addresses.size());
  const Status& own = apart[static_cast<std::size_t>(info().rank)];
  const std::vector<Transport*> transports = list_transports();
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    if (static_cast<int>(rank) == info().rank || peers_[rank].transport != nullptr) continue;
    const std::map<std::string, std::string>& theirs = addresses[rank];
    StatusCode code = StatusCode::unsupported;
    std::string reasons = theirs.empty() ? "it could not open any" : "";
    for (Transport* const transport : transports) {
      const std::string name(transport->caps().name);
      const auto found = theirs.find(name);
      if (peers_[rank].transport != nullptr) break;
      if (name == "shm" && (!own || !apart[rank])) {
        const Status& why = own ? apart[rank] : own;
        if (why.code() == StatusCode::resource_exhausted) code = why.code();
        append(reasons, "; ", fmt::format("{}: {}", name, why.message()));
        continue;
      }
      if (found == theirs.end()) {
        append(reasons, "; ", fmt::format("{}: not there", name));
        continue;
      }
      const auto* first = reinterpret_cast<const std::byte*>(found->second.data());
      const std::span<const std::byte> address(first, found->second.size());
      const auto cost = transport->reach(transport->address(), address);
      if (cost) {
        peers_[rank] = PeerAddress{transport, {address.begin(), address.end()}};
        paths_[rank] = {name, reasons};
      } else {
        append(reasons, "; ", fmt::format("{}: {}", found->first, cost.status().message()));
      }
    }
    if (peers_[rank].transport == nullptr && !transports.empty()) {
      return {code, fmt::format("no transport reaches rank {} ({})", rank, reasons), static_cast<int>(rank)};
    }
  }
  return {};
}

// One line for the whole job: the transports in use.
void WorldState::report_transports() const {
  if (info().rank != 0 || info().size == 1) return;
  std::map<std::string, int> peers_by;
  for (const TransportPath& path : paths_) {
    if (!path.transport.empty()) ++peers_by[path.transport];
  }
  std::string counts;
  for (const auto& [name, count] : peers_by) append(counts, ", ", fmt::format("{} to {}", name, count));
  log_info("{} ranks on {} node{} (started by {}); from rank 0 {} of them{}", info().size, info().node_count,
           info().node_count == 1 ? "" : "s", info().launcher, counts,
           info().interface.empty()
               ? ""
               : fmt::format(", between nodes through {} ({})", info().interface, info().interface_reason));
}

// -- shared memory ------------------------------------------------------------------------------------------

Result<std::shared_ptr<void>> WorldState::allocate_owned(std::size_t bytes) {
  for (const Transport* transport : engine_->list_transports()) {
    if (transport->caps().heap == nullptr) continue;
    const std::shared_ptr<SharedHeap> heap = transport->caps().heap->hold();
    const Result<ByteRange> memory = heap->allocate(std::max<std::size_t>(bytes, 1));
    if (!memory) return memory.status();
    // In a child of fork() the heap's state is the parent's, and its mutex may be locked for ever.
    return std::shared_ptr<void>(memory->data(),
                                 [heap, range = *memory, generation = tutti::fork_generation()](void*) {
                                   if (generation == tutti::fork_generation()) heap->release(range);
                                 });
  }
  return unsupported("no transport of this world has shared memory");
}

Result<void*> WorldState::allocate(std::size_t bytes) {
  Result<std::shared_ptr<void>> memory = allocate_owned(bytes);
  if (!memory) return memory.status();
  void* const address = memory->get();
  const std::lock_guard lock(memory_mutex_);
  memory_[address] = *std::move(memory);
  return address;
}

bool WorldState::release(void* memory) {
  const std::lock_guard lock(memory_mutex_);
  return memory_.erase(memory) != 0;
}

}  // namespace tutti
