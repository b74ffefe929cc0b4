// Commands of rank 0 on their way to all ranks, and the measurement itself.
#include "tools/cli/tune/field.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "bench/harness/inputs.hpp"
#include "runtime/group/comm_group.hpp"

namespace tutti::tool {

// A command of rank 0: bytes that are sent as they are.
struct Field::Command {
  static constexpr std::size_t kRuleBytes = 1000;
  std::uint64_t bytes = 0;
  double seconds = 0;
  std::uint32_t collective = 0;
  std::uint32_t is_end = 0;
  char rules[kRuleBytes] = {};
};

// A group that chooses by certain rules, and the call of the size under way.
struct Field::Lane {
  explicit Lane(CommGroup made) : group(std::move(made)), library(group, Allocation::anonymous, "") {}
  CommGroup group;
  TuttiLibrary library;
  std::function<void()> call;  // empty: not prepared for the size under way
  bool has_run = false;        // this call
};

namespace {

// Ranks of one node meet on a page, others through the library that they measure.
struct Rendezvous {
  bench::SharedPage* page;
  GroupRendezvous& group;
  int rank_count() const { return group.rank_count(); }
  void barrier() {
    if (page != nullptr) {
      page->barrier();
    } else {
      group.barrier();
    }
  }
  void gather(std::span<const double> mine, std::span<double> all) {
    if (page != nullptr) {
      page->gather(mine, all);
    } else {
      group.gather(mine, all);
    }
  }
};

}  // namespace

Field::Field(const CommGroup& world, std::optional<bench::SharedPage> page, bench::Mode mode)
    : world_(world), page_(std::move(page)), over_group_(world), mode_(mode) {}

Field::~Field() = default;

double Field::now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::optional<double> Field::time(Collective collective, std::uint64_t bytes, const std::string& rules,
                                  double seconds) {
  Command command;
  command.bytes = bytes;
  command.seconds = seconds;
  command.collective = static_cast<std::uint32_t>(collective);
  if (rules.size() >= Command::kRuleBytes) return std::nullopt;
  rules.copy(command.rules, Command::kRuleBytes - 1);
  world_.broadcast(&command, sizeof command, Dtype::u8, 0);
  return run(command);
}

void Field::stop() {
  Command command;
  command.is_end = 1;
  world_.broadcast(&command, sizeof command, Dtype::u8, 0);
}

void Field::serve() {
  for (;;) {
    Command command;
    world_.broadcast(&command, sizeof command, Dtype::u8, 0);
    if (command.is_end != 0) return;
    static_cast<void>(run(command));
  }
}

// The lane of the command's rules, ready for its call; null, on all ranks alike, where these cannot run.
Field::Lane* Field::find_lane(const Command& command) {
  const auto collective = static_cast<Collective>(command.collective);
  const bool is_other = collective != collective_;
  if (is_other) lanes_.clear();
  if (is_other || command.bytes != bytes_ || !buffers_) {
    for (auto& [rules, lane] : lanes_) lane->call = nullptr;
    collective_ = collective;
    bytes_ = command.bytes;
    request_ = {};
    request_.shape = bench::make_shape(collective, Dtype::f32, world_.size(), command.bytes);
    buffers_ = TuttiLibrary(world_, Allocation::anonymous, "").make_buffers(request_, world_.rank());
  }
  std::unique_ptr<Lane>& lane = lanes_[command.rules];
  if (lane == nullptr) {
    std::vector<RuleText> texts;
    if (command.rules[0] != '\0') texts.push_back({collective, "tutti tune", command.rules});
    auto selector = Selector::make(std::move(texts));
    if (!selector) return nullptr;
    lane = std::make_unique<Lane>(
        CommGroup(CommGroup::Impl::of(world_, "tune")
                      .with_rules(std::make_shared<const Selector>(*std::move(selector)))));
  }
  if (!lane->call) {
    lane->call = lane->library.prepare(request_, *buffers_);
    lane->has_run = false;
  }
  return lane.get();
}

std::optional<double> Field::run(const Command& command) {
  Lane* const lane = find_lane(command);
  if (lane == nullptr) return std::nullopt;
  // The first call may refuse, on all ranks alike and before anything was sent.
  if (!lane->has_run) {
    try {
      lane->call();
    } catch (const Error& error) {
      if (error.code() != StatusCode::unsupported && error.code() != StatusCode::invalid_argument) throw;
      return std::nullopt;
    }
    lane->has_run = true;
  }
  bench::LoopPlan plan;
  plan.mode = mode_;
  plan.warmup_count = 4;
  plan.iteration_count = mode_ == bench::Mode::b2b ? 20000 : 2000;
  plan.minimum_count = 3;
  plan.budget_seconds = command.seconds;
  Rendezvous ranks{page_ ? &*page_ : nullptr, over_group_};
  bench::Inputs inputs(Dtype::f32, Op::sum, world_.size());
  const auto rewrite = [&](std::uint64_t seed) {
    bench::fill_input(inputs, request_.shape, world_.rank(), seed, buffers_->input);
  };
  return bench::measure(plan, ranks, rewrite, lane->call).p50_us;
}

}  // namespace tutti::tool
