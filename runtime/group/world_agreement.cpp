// Agreement of the ranks before a world is used: contract, binding, tuning file.
// Knows no transport and no group.
#include <fmt/format.h>
#include <sched.h>
#include <sodium.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "runtime/base/log.hpp"
#include "runtime/base/rank_lists.hpp"
#include "runtime/group/common_world.hpp"
#include "runtime/group/pinning.hpp"
#include "runtime/group/world.hpp"
#include "tutti/detail/process.hpp"

namespace tutti {
namespace {

using Contract = std::vector<std::pair<std::string, std::string>>;

std::vector<std::uint32_t> list_cpus(const cpu_set_t& set) {
  std::vector<std::uint32_t> cpus;
  for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  randombytes_buf(bytes.data(), bytes.size());
  return bytes;
}

// Identifies this process; a child of fork() gets another identity. Process ids are not unique: ranks in
// different containers may have the same one.
struct ProcessIdentity {
  std::string bytes = random_bytes(16);
};

std::string encode_contract(const Contract& contract) {
  ByteWriter writer;
  for (const auto& [name, value] : contract) {
    writer.put_text(name);
    writer.put_text(value);
  }
  return writer.take();
}

Contract decode_contract(std::string_view bytes) {
  Contract contract;
  ByteReader reader(bytes);
  while (!reader.is_at_end()) {
    auto& [name, value] = contract.emplace_back();
    if (!reader.get_text(name) || !reader.get_text(value)) break;
  }
  return contract;
}

std::string value_of(const Contract& contract, const std::string& name) {
  for (const auto& [key, value] : contract) {
    if (key == name) return value;
  }
  return "not set";
}

// The error for the first setting that differs between ranks, with all values and their ranks.
Status compare_contracts(const std::vector<RankRecord>& records) {
  const bool is_equal = std::all_of(records.begin(), records.end(), [&](const RankRecord& record) {
    return record.contract == records[0].contract;
  });
  if (is_equal) return {};
  std::vector<Contract> contracts;
  contracts.reserve(records.size());
  for (const RankRecord& record : records) contracts.push_back(decode_contract(record.contract));
  for (const Contract& contract : contracts) {
    for (const auto& [name, ignored] : contract) {
      std::map<std::string, std::vector<int>> holders;
      for (std::size_t rank = 0; rank < records.size(); ++rank) {
        holders[value_of(contracts[rank], name)].push_back(static_cast<int>(rank));
      }
      if (holders.size() == 1) continue;
      std::string text = fmt::format("{} must be equal on all ranks but is", name);
      const char* separator = " ";
      for (const auto& [value, ranks] : holders) {
        text += fmt::format("{}'{}' on {}", separator, value,
                            name_ranks(ranks, static_cast<int>(records.size())));
        separator = "; ";
      }
      return invalid_argument(text, first_of_fewest(holders));
    }
  }
  return {};
}

Result<std::vector<RankRecord>> exchange_records(ControlChannel& control, const RankRecord& mine,
                                                 Clock::time_point deadline) {
  const auto all = control.allgather(encode(mine), deadline);
  if (!all) return all.status();
  std::vector<RankRecord> records(all->size());
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    if (!decode((*all)[rank], records[rank]))
      return internal_error(fmt::format("the record of rank {} is malformed", rank), static_cast<int>(rank));
  }
  return records;
}

// The CPUs that this rank may use, and the caches and sockets that hold them.
void discover_affinity(const WorldSettings& settings, const WorldInfo& info, RankRecord& mine) {
  CPU_ZERO(&mine.cpus);
  ::sched_getaffinity(0, sizeof mine.cpus, &mine.cpus);
  mine.domains =
      find_domains(settings.topology, list_cpus(mine.cpus), static_cast<std::uint32_t>(info.local_rank),
                   static_cast<std::uint32_t>(info.local_size));
}

// The ranks on one machine, and the CPUs that they may use together.
struct MachineShare {
  int rank_count = 0;
  cpu_set_t cpus{};
  void add(const RankRecord& record) {
    ++rank_count;
    CPU_OR(&cpus, &cpus, &record.cpus);
  }
  int cpu_count() const { return std::max(1, CPU_COUNT(&cpus)); }
};

Status first_problem(const std::vector<RankRecord>& records, std::string_view variable) {
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    const std::string& problem = records[rank].problem;
    if (!problem.empty())
      return invalid_argument(fmt::format("{}: rank {}: {}", variable, rank, problem),
                              static_cast<int>(rank));
  }
  return {};
}

// The number of helper threads that leaves every rank of the machine a core for each of its threads.
std::uint32_t choose_own_helpers(const WorldSettings& settings, const WorldInfo& info,
                                 const std::vector<RankRecord>& records) {
  const auto own = static_cast<std::size_t>(info.rank);
  std::vector<std::vector<std::uint32_t>> neighbours;
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    if (rank != own && info.machine_of_rank[rank] == info.machine_of_rank[own])
      neighbours.push_back(list_cpus(records[rank].cpus));
  }
  return choose_helper_count(settings.topology, list_cpus(records[own].cpus), neighbours);
}

// Chooses the CPUs of the progress threads of this rank, among those of all ranks of its machine.
Status plan_own_progress_cpus(const WorldSettings& settings, const WorldInfo& info,
                              std::vector<std::vector<std::uint32_t>>& cpus) {
  const auto own = static_cast<std::size_t>(info.rank);
  const auto here = [&](int machine) { return machine == info.machine_of_rank[own]; };
  const auto& machines = info.machine_of_rank;
  const auto before = std::count_if(machines.begin(), machines.begin() + info.rank, here);
  const auto all = std::count_if(machines.begin(), machines.end(), here);
  auto planned =
      plan_progress_cpus(settings.topology, settings.progress.cpus, static_cast<std::uint32_t>(all),
                         static_cast<std::uint32_t>(before), settings.progress.thread_count);
  if (planned) {
    cpus = *std::move(planned);
  } else if (settings.progress.cpus_may_be_missing) {
    log_warn("ignored: MLSL_SERVER_AFFINITY: {}", planned.status().message());
    cpus.resize(settings.progress.thread_count);
  } else {
    return planned.status();
  }
  return {};
}

// Applies TUTTI_PIN. Contracts are equal here, so either all ranks exchange their records again or none does.
Result<std::vector<RankRecord>> pin(const WorldSettings& settings, const WorldInfo& info,
                                    ControlChannel& control, const std::vector<RankRecord>& records,
                                    Clock::time_point deadline) {
  const auto own = static_cast<std::size_t>(info.rank);
  std::vector<StartAffinity> ranks_here;
  std::size_t index = 0;
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    if (info.machine_of_rank[rank] != info.machine_of_rank[own]) continue;
    if (rank == own) index = ranks_here.size();
    ranks_here.push_back({list_cpus(records[rank].cpus), records[rank].is_bound});
  }
  RankRecord mine = records[own];
  mine.problem = pin_this_thread(settings.topology, settings.pin, ranks_here, index).message();
  discover_affinity(settings, info, mine);
  auto again = exchange_records(control, mine, deadline);
  if (!again) return again.status();
  TUTTI_RETURN_IF_ERROR(first_problem(*again, "TUTTI_PIN"));
  return again;
}

std::string digest_bytes(std::string_view text) {
  std::string digest(crypto_generichash_BYTES_MIN, '\0');
  crypto_generichash(reinterpret_cast<unsigned char*>(digest.data()), digest.size(),
                     reinterpret_cast<const unsigned char*>(text.data()), text.size(), nullptr, 0);
  return digest;
}

std::uint32_t hash_of(std::string_view text) {
  std::uint32_t hash = 0;
  std::memcpy(&hash, digest_bytes(text).data(), sizeof hash);
  return hash;
}

// Of a successor, whose job has a random name.
static_assert(crypto_generichash_BYTES_MIN == kWorldIdentityBytes);
std::string identity_of(std::string_view job) { return digest_bytes(job); }

// 0: none is used.
std::uint32_t digest_of(const TuningFile& file) {
  if (!file.is_used()) return 0;
  std::string text;
  for (const RuleText& rule : rule_texts(file.tuning, ""))
    text += fmt::format("{} {}: {}\n", to_string(rule.collective),
                        rule.reach ? to_string(*rule.reach) : "anywhere", rule.text);
  for (const auto& [rank_count, fusion] : file.tuning.fusion)
    text += fmt::format("fusion {}: {} {}\n", rank_count, fusion.bytes, fusion.cycle_us);
  return std::max(1U, hash_of(text));
}

// A file at the default path is used by all ranks or by none.
void compare_tuning(const std::vector<RankRecord>& records, int rank, WorldSettings& settings) {
  std::vector<int> others;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (records[i].tuning != records[0].tuning) others.push_back(static_cast<int>(i));
  }
  if (!others.empty())
    settings.refuse_tuning(fmt::format("what {} would use is not what rank 0 would: {}",
                                       name_ranks(others, static_cast<int>(records.size())),
                                       settings.tuning.path.empty() ? "there is none here"
                                       : settings.tuning.is_used()  ? settings.tuning.path
                                                                    : settings.tuning.refusal));
  if (!settings.tuning.refusal.empty() && rank == 0)
    log_warn("the tuning file is not used: {}", settings.tuning.refusal);
}

}  // namespace

Status WorldState::agree() {
  contract_hash_ = hash_of(encode_contract(settings_.contract));
  if (records_.empty()) {
    TUTTI_RETURN_IF_ERROR(swap_records());
  } else {
    identity_ = identity_of(info().job);
  }
  is_one_process_ = true;
  std::map<int, MachineShare> machines;
  const auto own = static_cast<std::size_t>(info().rank);
  for (std::size_t rank = 0; rank < records_.size(); ++rank) {
    machines[info().machine_of_rank[rank]].add(records_[rank]);
    is_one_process_ = is_one_process_ && records_[rank].process == records_[own].process;
    domains_.ranks.push_back(records_[rank].domains);
  }
  domains_.setting = settings_.hierarchy;
  domains_.nodes = info().node_of_rank;
  for (const int machine : info().machine_of_rank)
    domains_.is_crowded.push_back(machines[machine].rank_count > machines[machine].cpu_count());
  const MachineShare& here = machines[info().machine_of_rank[own]];
  rank_count_here_ = here.rank_count;
  cpu_count_ = here.cpu_count();
  own_cpus_ = list_cpus(records_[own].cpus);
  helper_count_ =
      settings_.helpers.count ? *settings_.helpers.count : choose_own_helpers(settings_, info(), records_);
  return domains_.check();
}

Status WorldState::swap_records() {
  RankRecord mine;
  mine.process = detail::of_process<ProcessIdentity>().bytes;
  mine.identity = random_bytes(kWorldIdentityBytes);
  mine.is_bound = settings_.topology.is_bound;
  discover_affinity(settings_, info(), mine);
  if (Status refused = plan_own_progress_cpus(settings_, info(), progress_cpus_); !refused)
    mine.problem = refused.message();
  mine.contract = encode_contract(settings_.contract);
  mine.tuning = digest_of(settings_.tuning);
  if (engine_ != nullptr) {
    for (const Transport* const transport : engine_->list_transports())
      mine.transports += fmt::format("{}{}", mine.transports.empty() ? "" : ",", transport->caps().name);
    mine.most_ranks_here = engine_->ranks_here();
  }
  auto exchanged = exchange_records(control(), mine, start_deadline_);
  if (!exchanged) return exchanged.status();
  identity_ = exchanged->front().identity;
  TUTTI_RETURN_IF_ERROR(compare_contracts(*exchanged));
  TUTTI_RETURN_IF_ERROR(first_problem(*exchanged, "TUTTI_PROGRESS_AFFINITY"));
  if (settings_.pin.policy != PinPolicy::off) {
    exchanged = pin(settings_, info(), control(), *exchanged, start_deadline_);
    if (!exchanged) return exchanged.status();
  }
  compare_tuning(*exchanged, info().rank, settings_);
  records_ = *std::move(exchanged);
  for (RankRecord& record : records_) std::string().swap(record.contract);  // gives its memory back
  return {};
}

// -- the tuning file ----------------------------------------------------------------------------------------

Result<Fingerprint> WorldState::exchange_fingerprint() {
  // Transports of this rank, within its node and beyond.
  std::set<std::string> node, network;
  const auto own = static_cast<std::size_t>(info().rank);
  std::map<int, std::uint32_t> ranks_of_node;
  for (std::size_t rank = 0; rank < paths_.size(); ++rank) {
    ++ranks_of_node[info().node_of_rank[rank]];
    if (rank == own) continue;
    (info().node_of_rank[rank] == info().node_of_rank[own] ? node : network).insert(paths_[rank].transport);
  }
  const auto join = [](const std::set<std::string>& names) {
    return fmt::format("{}", fmt::join(names, ","));
  };
  ByteWriter writer;
  writer.put_text(join(node));
  writer.put_text(join(network));
  const auto all = control().allgather(writer.take(), Clock::now() + settings_.timeout);
  if (!all) return all.status();
  node.clear();
  network.clear();
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    std::string within, beyond;
    ByteReader reader((*all)[rank]);
    if (!reader.get_text(within) || !reader.get_text(beyond))
      return internal_error(fmt::format("the transports of rank {} are malformed", rank),
                            static_cast<int>(rank));
    if (!within.empty()) node.insert(within);
    if (!beyond.empty()) network.insert(beyond);
  }
  JobShape job{join(node), join(network), ~0U, 0};
  for (const auto& [ignored, count] : ranks_of_node) {
    job.least_ranks_per_node = std::min(job.least_ranks_per_node, count);
    job.most_ranks_per_node = std::max(job.most_ranks_per_node, count);
  }
  Fingerprint fingerprint = fingerprint_of(settings_.topology);
  append_job(fingerprint, job);
  return fingerprint;
}

// All ranks use the same file here or none does.
Status WorldState::judge_tuning() {
  TuningFile& file = settings_.tuning;
  if (!file.is_used() && !settings_.tensors.is_autotuned) return {};
  const auto here = exchange_fingerprint();
  if (!here) return here.status();
  file.here = *here;
  if (!file.is_used()) return {};
  TUTTI_RETURN_IF_ERROR(settings_.judge_tuning(*here));
  if (info().rank != 0) return {};
  if (file.is_used()) {
    log_info("rules of the tuning file {} ({})", file.path, file.tuning.origin);
  } else {
    log_warn("the tuning file is not used: {}", file.refusal);
  }
  return {};
}

}  // namespace tutti
