// Compiling a schedule: steps grouped by channel, waits reduced to what channel order does not already imply,
// receives fused with the reduction that reads them.
#include "runtime/scheduler/plan.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace tutti {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

bool is_local(Verb verb) { return verb == Verb::copy || verb == Verb::reduce; }

class Compiler {
 public:
  explicit Compiler(Schedule schedule) : s_(std::move(schedule)) {
    fused_into_.assign(s_.steps.size(), kNone);
    fused_from_.assign(s_.steps.size(), kNone);
    for (std::uint32_t i = 0; i < s_.steps.size(); ++i) {
      if (s_.steps[i].verb != Verb::recv || s_.steps[i].fused_with == kNotFused) continue;
      fused_into_[i] = s_.steps[i].fused_with;
      fused_from_[s_.steps[i].fused_with] = i;
    }
  }

  Result<Plan> run() {
    if (s_.channels > 256) return unsupported("a schedule of more than 256 channels");
    number_steps();
    for (std::uint32_t i : order_) {
      TUTTI_RETURN_IF_ERROR(emit(i));
    }
    plan_.shape = std::move(s_);
    plan_.shape.steps = {};
    plan_.shape.sources = {};
    plan_.shape.dependencies = {};
    return std::move(plan_);
  }

 private:
  // Order: by channel, then program order; a fused reduction takes the place of its recv.
  void number_steps() {
    new_index_.assign(s_.steps.size(), kNone);
    plan_.channels.resize(s_.channels);
    for (std::uint32_t c = 0; c < s_.channels; ++c) {
      plan_.channels[c].first_step = static_cast<std::uint32_t>(order_.size());
      for (std::uint32_t i = 0; i < s_.steps.size(); ++i) {
        if (s_.steps[i].channel != c || fused_from_[i] != kNone) continue;
        new_index_[i] = static_cast<std::uint32_t>(order_.size());
        if (fused_into_[i] != kNone) new_index_[fused_into_[i]] = new_index_[i];
        order_.push_back(i);
      }
      plan_.channels[c].end_step = static_cast<std::uint32_t>(order_.size());
    }
  }

  std::uint32_t add_slice(const Slice& slice) {
    plan_.slices.push_back(slice);
    return static_cast<std::uint32_t>(plan_.slices.size() - 1);
  }

  Status emit(std::uint32_t i) {
    const Step& step = s_.steps[i];
    const bool is_fused = fused_into_[i] != kNone;
    const Step& work = is_fused ? s_.steps[fused_into_[i]] : step;
    PlanStep out;
    out.peer = step.peer;
    out.channel = static_cast<std::uint8_t>(step.channel);
    switch (step.verb) {
      case Verb::send:
        out.kind = PlanStep::Kind::send;
        break;
      case Verb::recv:
        out.kind = is_fused ? PlanStep::Kind::recv_reduce : PlanStep::Kind::recv;
        break;
      case Verb::copy:
        out.kind = PlanStep::Kind::copy;
        break;
      case Verb::reduce:
        out.kind = PlanStep::Kind::reduce;
        break;
      default:
        return internal_error("a lowered schedule has no message plan");
    }
    const auto sources = s_.sources_of(work);
    if (sources.size() > 255) return unsupported("a reduction of more than 255 sources in one step");
    out.source_count = static_cast<std::uint8_t>(sources.size());
    if (step.verb == Verb::send) {
      out.dst = add_slice(sources[0]);
      out.source_count = 0;
    } else {
      out.dst = add_slice(work.dst);
      out.first_source = static_cast<std::uint32_t>(plan_.slices.size());
      for (std::size_t k = 0; k < sources.size(); ++k) {
        if (is_fused && sources[k] == step.dst) out.arriving = static_cast<std::uint8_t>(k);
        add_slice(sources[k]);
      }
    }
    if (out.kind != PlanStep::Kind::copy && out.kind != PlanStep::Kind::reduce) {
      out.first_range = plan_.range_count;
      out.range_count = plan_.slices[out.dst].count;
      plan_.range_count += out.range_count;
    }
    emit_waits(i, out);
    plan_.steps.push_back(out);
    return {};
  }

  // Waits of step i and of the reduction fused into it. The order of issue in the channel implies some, which are
  // left out: an earlier local step of the same channel is complete once issued.
  void emit_waits(std::uint32_t i, PlanStep& out) {
    std::vector<std::uint32_t> waits;
    const auto add = [&](const Step& step) {
      for (std::uint32_t d : s_.dependencies_of(step)) {
        const bool is_implied = s_.steps[d].channel == s_.steps[i].channel && is_local(s_.steps[d].verb) &&
                                fused_from_[d] == kNone;
        if (new_index_[d] != new_index_[i] && !is_implied) waits.push_back(new_index_[d]);
      }
    };
    add(s_.steps[i]);
    if (fused_into_[i] != kNone) add(s_.steps[fused_into_[i]]);
    std::sort(waits.begin(), waits.end());
    waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
    out.first_wait = static_cast<std::uint32_t>(plan_.waits.size());
    out.wait_count = static_cast<std::uint32_t>(waits.size());
    plan_.waits.insert(plan_.waits.end(), waits.begin(), waits.end());
  }

  Schedule s_;
  Plan plan_;
  std::vector<std::uint32_t> fused_into_, fused_from_;  // recv -> reduction, reduction -> recv
  std::vector<std::uint32_t> order_, new_index_;
};

}  // namespace

std::size_t Plan::bytes() const {
  return steps.size() * sizeof(PlanStep) + slices.size() * sizeof(Slice) +
         waits.size() * sizeof(std::uint32_t) + channels.size() * sizeof(PlanChannel) + sizeof(Plan);
}

Result<Plan> compile(Schedule schedule) { return Compiler(std::move(schedule)).run(); }

}  // namespace tutti
