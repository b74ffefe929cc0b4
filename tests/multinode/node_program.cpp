// The program of jobs_test.py's ranks on the nodes of a bed: one behaviour per word on its command line.
// Prints one line per finding; knows nothing of the bed.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "backends/native/native_backend.hpp"
#include "runtime/base/config.hpp"
#include "runtime/base/version.hpp"
#include "runtime/group/world.hpp"
#include "tests/collectives/exercise.hpp"
#include "tests/support/async_traffic.hpp"
#include "tests/support/rank_output.hpp"
#include "tests/support/test_fraction.hpp"
#include "tutti/tutti.hpp"

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;

namespace {

// The cases of a row, in an order that all ranks share: every count and placement, two roots, uneven counts.
std::vector<Case> cases_of(const AlgorithmRow& row, std::uint32_t p, const Hierarchy& domains) {
  constexpr std::uint64_t kLarge = 1ULL << 17U;
  std::vector<Case> cases;
  for (const Flavour& flavour : kFlavours) {
    if (!is_reducing(row.collective) && &flavour != &kFlavours[0]) continue;
    for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{p - 1},
                                      std::uint64_t{p}, std::uint64_t{p + 1}, std::uint64_t{4097}, kLarge}) {
      if (row.collective == Collective::barrier && count != 0) continue;
      if (count == kLarge && flavour.dtype != Dtype::f32 && is_reducing(row.collective)) continue;
      for (const std::uint32_t root : {0U, p - 1}) {
        if (root != 0 && !is_rooted(row.collective)) continue;
        for (const bool in_place : {false, true}) {
          for (const bool has_counts : {false, true}) {
            if (has_counts && (!has_rank_blocks(row.collective) || count == kLarge)) continue;
            if (!check_legality(row, p, flavour.is_commutative, in_place, !has_counts, &domains)) continue;
            cases.push_back({&row, &flavour,
                             has_rank_blocks(row.collective) && count == kLarge ? count / p : count, root,
                             in_place, has_counts});
          }
        }
      }
    }
  }
  return cases;
}

// Every row over this world against the serial reference, and the same bits everywhere where a row promises
// them.
int run_collectives() {
  const Environment environment = Environment::of_process();
  auto settings = read_settings(environment);
  if (!settings) return print(settings.status().to_string()), 1;
  BootstrapOptions options;
  options.environment = environment;
  options.build_id = build_id();
  options.timeout = settings->timeout;
  auto world = WorldState::make(options, *std::move(settings));
  if (!world) return print(world.status().to_string()), 1;
  const WorldInfo& info = (*world)->info();
  test::Member member;
  member.rank = static_cast<std::uint32_t>(info.rank);
  member.size = static_cast<std::uint32_t>(info.size);
  GroupContext::Options group;
  group.context = 7;
  group.rank = member.rank;
  std::vector<int> all;
  for (int rank = 0; rank < info.size; ++rank) all.push_back(rank);
  group.peers = (*world)->peers_of(all);
  member.group = std::make_unique<GroupContext>((*world)->engine(), std::move(group));
  member.selector = std::make_unique<Selector>(*Selector::make({}));
  const Hierarchy nodes = (*world)->domains().hierarchy_of(all);
  member.backend = make_native_backend(*member.group, *member.selector, std::size_t{64} << 20U, nodes,
                                       info.node_count > 1 ? Reach::network : Reach::node);
  ReferenceCache references;
  std::uint64_t number = 0, done = 0;
  int status = 0;
  for (const AlgorithmRow& row : catalog()) {
    for (const Case& c : cases_of(row, member.size, nodes)) {
      if (!is_selected(number++)) continue;
      std::vector<std::byte> output;
      const std::string wrong = exercise(member, c, references, &output);
      if (!wrong.empty()) return print(wrong), 1;
      ++done;
      if (row.collective != Collective::allreduce || !row.same_bits || c.count != 4097) continue;
      const auto outputs = (*world)->control().allgather(
          {reinterpret_cast<const char*>(output.data()), output.size()}, Clock::now() + 20s);
      if (!outputs) return print(outputs.status().to_string()), 1;
      if ((*outputs)[member.rank] != (*outputs)[0]) return print(describe(c) + ": not the bits of rank 0"), 1;
    }
  }
  const auto last = (*world)->control().allgather("", Clock::now() + 60s);  // nobody leaves early
  if (!last) status = 1;
  member.backend.reset();
  member.group.reset();
  std::string transports;
  for (const TransportPath& path : (*world)->paths())
    transports += path.transport.empty() ? "-" : path.transport[0] == 's' ? "s" : "n";
  print(fmt::format("rank {}: {} cases agree, {} domains, peers {}", info.rank, done, nodes.domain_count(),
                    transports));
  return status;
}

std::atomic<bool> is_told{false};

// Sums for ever, until something ends it; or until the last rank is told to end it.
int sum_for_ever(bool may_end) {
  if (may_end) std::signal(SIGUSR1, [](int) { is_told = true; });
  const CommGroup group = init();
  print(fmt::format("rank {} is there", group.rank()));
  for (std::uint64_t turn = 0;; ++turn) {
    try {
      std::vector<int> value(1000, group.rank());
      group.allreduce(std::span(value));
      if (turn == 10) print(fmt::format("rank {} sums", group.rank()));
      if (!may_end) continue;
      std::vector<int> end{is_told ? 1 : 0};
      group.broadcast(std::span(end), group.size() - 1);
      if (end[0] == 0) continue;
      print(fmt::format("rank {} has ended", group.rank()));
      return 0;
    } catch (const Error& error) {
      print(fmt::format("rank {} caught {} peer {}: {}", group.rank(), to_string(error.code()), error.peer(),
                        error.what()));
      return 0;
    }
  }
}

// Sums, and goes on with the survivors when ranks die, but with two at least; until the last rank is told to end it.
int sum_and_go_on(CommGroup group) {
  std::signal(SIGUSR1, [](int) { is_told = true; });
  if (group.rank() == 0) print("invitation " + group.invitation());
  for (std::uint64_t turn = 0;; ++turn) {
    try {
      std::vector<int> values(1000, 1), end{is_told ? 1 : 0};
      group.allreduce(std::span(values));
      if (values[999] != group.size()) return print(fmt::format("wrong sum {}", values[999])), 1;
      group.broadcast(std::span(end), group.size() - 1);
      if (turn == 10) print(fmt::format("rank {} of {} sums", group.rank(), group.size()));
      if (end[0] != 0) return 0;
    } catch (const Error& error) {
      if (error.code() != StatusCode::peer_failed) throw;
      group = group.reconfigure(2);
      turn = 0;
    }
  }
}

int submit_at_random() {
  CommGroup world = init();
  constexpr int kOperations = 8334;  // of each group: with three numbers of progress threads 100,000 in all
  const Verdict verdict = run_overlapping_groups(world, kOperations);
  print(fmt::format("rank {}: {}", world.rank(), verdict.empty() ? "all operations agree" : verdict));
  return verdict.empty() ? 0 : 1;
}

int connect() {
  const auto before = Clock::now();
  const CommGroup group = init();
  std::vector<int> value(1000, group.rank());
  group.allreduce(std::span(value));
  print(fmt::format("rank {} of {} connected in {} ms", group.rank(), group.size(),
                    std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - before).count()));
  return value[0] == group.size() * (group.size() - 1) / 2 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view word = argc > 1 ? argv[1] : "";
  try {
    if (word == "collectives") return run_collectives();
    if (word == "sum") return sum_for_ever(false);
    if (word == "sum_until_told") return sum_for_ever(true);
    if (word == "go_on") return sum_and_go_on(init());
    if (word == "join" && argc > 2) return sum_and_go_on(tutti::join(argv[2]));
    if (word == "connect") return connect();
    if (word == "async") return submit_at_random();
  } catch (const Error& error) {
    print(fmt::format("error {}: {}", to_string(error.code()), error.what()));
    return 1;
  }
  return 99;
}
