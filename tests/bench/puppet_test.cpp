// The puppet: its results are right for every kind of plan. And what a call takes of a rank, whatever the number of
// ranks: signals and waits by the default plans of 2 to 256 ranks, instructions by single steps of a traced process.
#include "bench/puppet/puppet.hpp"

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <csignal>
#include <optional>

#include "runtime/schedule/passes/lower.hpp"
#include "runtime/selection/selection.hpp"
#include "tests/support/catch.hpp"

namespace tutti::bench {
namespace {

PuppetSetup setup_of(Collective collective, std::string_view algorithm, int ranks, std::size_t bytes,
                     std::uint32_t rank = 0) {
  PuppetSetup setup;
  setup.shape = make_shape(collective, Dtype::f32, ranks, bytes);
  setup.row = find_algorithm(collective, algorithm);
  setup.instance.size = static_cast<std::uint32_t>(ranks);
  if (setup.row != nullptr) setup.instance.params = default_params(*setup.row);
  setup.rank = rank;
  return setup;
}

// Of a rank in one call of the default plan, the most of all ranks that are looked at.
struct PlanCounts {
  std::uint64_t signals = 0, waits = 0, far_sources = 0;
};

PlanCounts count_default_plan(Collective collective, std::uint32_t ranks, const Hierarchy& hierarchy) {
  Question question;
  question.collective = collective;
  question.bytes = 8;
  question.size = ranks;
  question.hierarchy = &hierarchy;
  const Selector selector = *Selector::make({});
  const Selection selection = *selector.choose(question);
  Instance instance;
  instance.size = ranks;
  instance.params = selection.params;
  instance.hierarchy = hierarchy;
  const auto emitted = emit_all(*selection.row, instance, most_lowered_steps(ranks));
  REQUIRE(emitted.is_ok());
  const auto lowered = lower_for_shared_memory(*emitted, Sharing::scratch);
  REQUIRE(lowered.is_ok());
  PlanCounts most;
  for (const std::uint32_t rank : {0U, 1U, ranks / 2, ranks - 1}) {
    CAPTURE(rank, selection.row->name);
    const auto plan = compile_lowered(*lowered, rank, GroupContext::Options{}.shape(BlockKind::small).lines);
    REQUIRE(plan.is_ok());
    PlanCounts own;
    for (const LoweredStep& step : plan->steps) {
      if (step.kind == LoweredStep::Kind::signal) ++own.signals;
      if (step.kind == LoweredStep::Kind::wait) ++own.waits;
      for (std::uint32_t i = 0; i < step.source_count; ++i)
        if (plan->slices[step.first_source + i].owner != rank) ++own.far_sources;
    }
    most.signals = std::max(most.signals, own.signals);
    most.waits = std::max(most.waits, own.waits);
    most.far_sources = std::max(most.far_sources, own.far_sources);
  }
  return most;
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TUTTI_TEST_INSTRUMENTED 1
#endif
#endif

// The fewest instructions that one of 16 calls takes; nullopt: this process may not be traced.
// A child stops itself in front of a call and behind it. Between these stops it is stepped.
std::optional<std::uint64_t> count_instructions(Puppet& puppet) {
  constexpr int kCalls = 16;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(2);
    for (int i = 0; i < kCalls; ++i) {
      const bool is_played = puppet.play().is_ok();
      ::raise(SIGSTOP);
      const bool has_run = puppet.run().is_ok();
      ::raise(SIGSTOP);
      if (!is_played || !has_run) ::_exit(1);
    }
    ::_exit(0);
  }
  std::uint64_t fewest = ~std::uint64_t{0}, steps = 0;
  bool is_stepping = false;
  int status = 0;
  while (::waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
    if (WSTOPSIG(status) == SIGSTOP) {
      if (is_stepping) fewest = std::min(fewest, steps);
      is_stepping = !is_stepping;
      steps = 0;
    }
    ++steps;
    ::ptrace(is_stepping ? PTRACE_SINGLESTEP : PTRACE_CONT, child, nullptr, nullptr);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 2) return std::nullopt;
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
  return fewest;
}

}  // namespace

TEST_CASE("a rank among puppets gets the right result", "[puppet]") {
  struct Case {
    Collective collective;
    std::string_view algorithm;
  };
  for (const Case& tried : {Case{Collective::allreduce, "one_shot"}, Case{Collective::allreduce, "two_shot"},
                            Case{Collective::allreduce, "recursive_multiplying"},
                            Case{Collective::broadcast, "knomial"}, Case{Collective::allgather, "direct"}}) {
    for (const int ranks : {3, 9}) {
      for (const std::size_t bytes : {std::size_t{8}, std::size_t{4000}}) {
        const auto last = static_cast<std::uint32_t>(ranks - 1);
        CAPTURE(tried.algorithm, ranks, bytes);
        auto puppet = Puppet::make(setup_of(tried.collective, tried.algorithm, ranks, bytes, last));
        INFO(puppet.status().to_string());
        REQUIRE(puppet.is_ok());
        for (std::uint32_t call = 0; call < (*puppet)->priming_calls(); ++call) {
          REQUIRE((*puppet)->play().is_ok());
          REQUIRE((*puppet)->run().is_ok());
        }
        CHECK((*puppet)->wrong_count() == 0);
      }
    }
  }
}

TEST_CASE("calls that a puppet cannot play are refused", "[puppet]") {
  CHECK(Puppet::make(setup_of(Collective::allreduce, "one_shot", 4, 8192)).status().code() ==
        StatusCode::unsupported);
  CHECK(Puppet::make(setup_of(Collective::allreduce, "one_shot", 2, 8)).status().code() ==
        StatusCode::unsupported);
}

// Up to 8 ranks read each other; beyond, the plans go by rounds of at most four, or by levels of at most 8.
TEST_CASE("a rank's share of a short call does not grow with the number of ranks", "[puppet]") {
  for (const std::uint32_t ranks : {2U, 8U, 9U, 31U, 64U, 100U, 128U, 256U}) {
    const std::uint64_t rounds = std::bit_width(ranks - 1);
    std::vector<Hierarchy> hierarchies(1);
    if (ranks >= 31) {
      std::vector<std::uint32_t> sizes(ranks / 8, 8);
      if (ranks % 8 != 0) sizes.push_back(ranks % 8);
      hierarchies.push_back(Hierarchy::of_sizes(sizes));
    }
    for (const Hierarchy& hierarchy : hierarchies) {
      for (const Collective collective :
           {Collective::allreduce, Collective::broadcast, Collective::barrier}) {
        const PlanCounts counts = count_default_plan(collective, ranks, hierarchy);
        CAPTURE(ranks, hierarchy.is_flat(), to_string(collective), counts.signals, counts.waits,
                counts.far_sources);
        const std::uint64_t most_signals = collective == Collective::broadcast ? 1 : 2 + rounds / 2;
        const std::uint64_t most_reads = collective == Collective::broadcast ? 1 : 7 + rounds;
        CHECK(counts.signals <= most_signals);
        CHECK(counts.waits <= most_reads);
        CHECK(counts.far_sources <= most_reads);
      }
    }
  }
}

TEST_CASE("the instructions of a call follow the steps of its plan, not the ranks", "[puppet]") {
#if defined(TUTTI_TEST_INSTRUMENTED)
  WARN("skipped: the instructions of the sanitizer would be counted, too, and stepped for minutes");
  return;
#endif
  // Rounds of recursive doubling: 2, 3 and 5.
  constexpr std::array kRanks = {4, 8, 32};
  std::array<std::uint64_t, 3> instructions{};
  for (std::size_t i = 0; i < kRanks.size(); ++i) {
    auto puppet = Puppet::make(setup_of(Collective::allreduce, "recursive_doubling", kRanks[i], 8));
    REQUIRE(puppet.is_ok());
    const auto counted = count_instructions(**puppet);
    if (!counted) {
      WARN("skipped: this process may not trace its own child (ptrace)");
      return;
    }
    instructions[i] = *counted;
  }
  CAPTURE(instructions);
  const std::uint64_t of_round = instructions[1] - instructions[0];
  CHECK(of_round > 0);
  // One instruction for each further rank would be 24.
  CHECK(instructions[2] - instructions[1] < 2 * of_round + 24);
}

}  // namespace tutti::bench
