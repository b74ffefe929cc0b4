// The fit for each job and size, and the choice by it.
#include "tools/cli/tune/evaluate.hpp"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "tools/cli/tune/fit.hpp"

namespace tutti::tool {
namespace {

struct Candidate {
  std::string name;
  RuleItem item;
  Program program;
  const std::map<std::uint64_t, double>* times = nullptr;

  bool is_same_algorithm(const Candidate& other) const {
    return item.row == other.item.row && item.params == other.item.params;
  }
};

// The two to fit: the one that waits least for a short vector, and of the others the one that moves the
// fewest bytes of a long one. Among equals the one in most messages, which separates the two costs. Decided
// by the model alone, not by measurements.
std::vector<const Candidate*> two_of(const std::vector<Candidate>& candidates, const Places& places) {
  struct Ranked {
    const Candidate* candidate;
    std::uint64_t latency_ps, bytes_ps;
  };
  std::vector<Ranked> ranked;
  const CostModel model = typical_model();
  const std::uint64_t long_bytes = std::uint64_t{places.size()} << 20U;
  for (const Candidate& candidate : candidates) {
    const auto quick = candidate.program.price(0, places, model);
    const auto large = candidate.program.price(long_bytes, places, model);
    const bool is_known = std::any_of(ranked.begin(), ranked.end(), [&](const Ranked& other) {
      return candidate.is_same_algorithm(*other.candidate);
    });
    if (quick && large && !is_known) ranked.push_back({&candidate, quick->total_ps, large->bytes_ps});
  }
  if (ranked.empty()) return {};
  const auto first = std::min_element(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) {
    return std::tuple(a.latency_ps, a.bytes_ps) < std::tuple(b.latency_ps, b.bytes_ps);
  });
  std::vector<const Candidate*> two = {first->candidate};
  ranked.erase(first);
  const auto second = std::min_element(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) {
    // Within a tenth two volumes are the same.
    const std::uint64_t least = std::min(a.bytes_ps, b.bytes_ps), most = std::max(a.bytes_ps, b.bytes_ps);
    return most - least > least / 10 ? a.bytes_ps < b.bytes_ps : a.latency_ps > b.latency_ps;
  });
  if (second != ranked.end()) two.push_back(second->candidate);
  return two;
}

// The candidates of a job, with prices. Candidates without a price are noted.
std::vector<Candidate> candidates_of(const std::vector<Alias>& aliases, const Times& times,
                                     const Places& places, const Hierarchy& nodes, JobReport& report) {
  std::vector<Candidate> candidates;
  for (const Alias& alias : aliases) {
    const auto found = times.find(alias.name);
    if (found == times.end()) continue;
    Status legal = check_legality(*alias.item.row, places.size(), true, false, true, &nodes);
    auto program = legal ? Program::make({alias.item.row, alias.item.params, 0, &nodes, false}, places, false)
                         : Result<Program>(legal);
    if (program) {
      candidates.push_back({alias.name, alias.item, *std::move(program), &found->second});
    } else {
      report.skipped.push_back(fmt::format("{}: {}", alias.name, program.status().message()));
    }
  }
  return candidates;
}

// A fit over all sizes first, so that its paths are those of this machine; then those near the size.
class LocalFit {
 public:
  LocalFit(std::vector<const Candidate*> two, const Places& places) : two_(std::move(two)), places_(places) {}

  Status start() {
    CostModel model = typical_model();
    constexpr int kRounds = 2;
    for (int round = 0; round <= kRounds; ++round) {
      if (round > 0) model = fit_model(samples_);
      TUTTI_RETURN_IF_ERROR(find_paths(model));
    }
    return {};
  }

  CostModel at(std::uint64_t bytes) {
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      samples_[i].weight = weight_at(bytes_[i], bytes);
    }
    return fit_model(samples_);
  }

 private:
  Status find_paths(const CostModel& model) {
    samples_.clear();
    bytes_.clear();
    for (const Candidate* candidate : two_) {
      for (const auto& [bytes, us] : *candidate->times) {
        const auto price = candidate->program.price(bytes, places_, model);
        if (!price) return price.status();
        samples_.push_back({price->path, us, 1});
        bytes_.push_back(bytes);
      }
    }
    return {};
  }

  std::vector<const Candidate*> two_;
  const Places& places_;
  std::vector<Sample> samples_;
  std::vector<std::uint64_t> bytes_;  // of the samples
};

double default_time(const Times& times, std::uint64_t bytes) {
  for (const auto& [name, at] : times) {
    if (name.rfind("default", 0) != 0) continue;
    if (const auto found = at.find(bytes); found != at.end()) return found->second;
  }
  return 0;
}

Status judge(const Job& job, const Times& times, const std::vector<Alias>& aliases, Evaluation& evaluation) {
  const Places places = places_of(job.size(), job.ranks_per_node);
  const Hierarchy nodes(places.node);
  JobReport report;
  report.job = job;
  const std::vector<Candidate> candidates = candidates_of(aliases, times, places, nodes, report);
  const std::vector<const Candidate*> two = two_of(candidates, places);
  if (two.size() < 2) return {};
  report.fitted[0] = two[0]->name;
  report.fitted[1] = two[1]->name;
  evaluation.jobs.push_back(report);
  LocalFit fit(two, places);
  TUTTI_RETURN_IF_ERROR(fit.start());
  std::map<std::uint64_t, std::vector<const Candidate*>> by_size;
  for (const Candidate& candidate : candidates) {
    for (const auto& [bytes, us] : *candidate.times) by_size[bytes].push_back(&candidate);
  }
  for (const auto& [bytes, there] : by_size) {
    if (there.size() < 2) continue;
    const CostModel model = fit.at(bytes);
    Verdict verdict;
    verdict.job = job;
    verdict.collective = there[0]->item.row->collective;
    verdict.bytes = bytes;
    verdict.candidates = static_cast<std::uint32_t>(there.size());
    verdict.default_us = default_time(times, bytes);
    for (const Candidate* candidate : there) {
      const auto price = candidate->program.price(bytes, places, model);
      if (!price) return price.status();
      const double predicted = static_cast<double>(price->total_ps) / 1e6, us = candidate->times->at(bytes);
      if (verdict.chosen.empty() || predicted < verdict.predicted_us) {
        verdict.chosen = candidate->name;
        verdict.chosen_algorithm = to_text(candidate->item);
        verdict.predicted_us = predicted;
        verdict.chosen_us = us;
      }
      if (verdict.best.empty() || us < verdict.best_us) {
        verdict.best = candidate->name;
        verdict.best_us = us;
      }
    }
    evaluation.verdicts.push_back(std::move(verdict));
  }
  return {};
}

}  // namespace

Result<Evaluation> evaluate(const Measurements& measured, const AliasMap& map) {
  Evaluation evaluation;
  for (const auto& [job, times] : measured) {
    const auto aliases = map.find(job.collective);
    if (aliases == map.end()) continue;
    if (Status status = judge(job, times, aliases->second, evaluation); !status)
      return status.with_context(fmt::format("{} {} on {} nodes", job.system, job.collective, job.nodes));
  }
  if (evaluation.verdicts.empty())
    return invalid_argument("no job has two algorithms that the map names; nothing to evaluate");
  return evaluation;
}

}  // namespace tutti::tool
