// Least squares of few unknowns, and what the unknowns stand for.
#include "tools/cli/tune/fit.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "runtime/selection/line_costs.hpp"

namespace tutti::tool {
namespace {

constexpr double kPsPerUs = 1e6;

// One function for figures of messages, one for those of lines.
template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

// Latencies, messages, bytes, bytes over shared resources of a node, additions and copies: the time of each
// along the path, in the model that is scaled. And the call itself, as one.
Unknowns parts_of(const PathCounts& path, const CostModel& scaled) {
  const auto only = [&](auto keep) {
    CostModel part;
    for (std::size_t i = 0; i < kLevelCount; ++i) {
      keep(part, part.links[i], scaled.links[i]);
      keep(part, part.lines[i], scaled.lines[i]);
    }
    return static_cast<double>(price_path(path, part).total_ps) / kPsPerUs;
  };
  return {1.0,
          only(Overloaded{
              [](CostModel&, LinkCost& to, const LinkCost& from) { to.latency_ps = from.latency_ps; },
              [](CostModel&, LineCost& to, const LineCost& from) { to.transfer_ps = from.transfer_ps; }}),
          only(Overloaded{
              [](CostModel&, LinkCost& to, const LinkCost& from) { to.message_ps = from.message_ps; },
              [](CostModel&, LineCost& to, const LineCost& from) { to.further_ps = from.further_ps; }}),
          only(Overloaded{[](CostModel&, LinkCost& to, const LinkCost& from) { to.kib_ps = from.kib_ps; },
                          [](CostModel&, LineCost& to, const LineCost& from) {
                            to.kib_ps = from.kib_ps;
                            to.crowd_kib_ps = from.crowd_kib_ps;
                          }}),
          only(Overloaded{
              [](CostModel&, LinkCost& to, const LinkCost& from) { to.shared_kib_ps = from.shared_kib_ps; },
              [](CostModel&, LineCost&, const LineCost&) {}}),
          only([&](CostModel& part, const auto&, const auto&) {
            part.reduce_kib_ps = scaled.reduce_kib_ps;
            part.copy_kib_ps = scaled.copy_kib_ps;
          })};
}

CostModel scaled_by(const CostModel& model, const Unknowns& x) {
  const auto times = [](std::uint64_t figure, double factor) {
    return static_cast<std::uint64_t>(std::llround(static_cast<double>(figure) * factor));
  };
  CostModel scaled;
  scaled.far_reader_slows_all = model.far_reader_slows_all;
  scaled.call_ps = times(1, x[0] * kPsPerUs);
  for (std::size_t i = 0; i < kLevelCount; ++i) {
    scaled.links[i] = {times(model.links[i].latency_ps, x[1]), times(model.links[i].message_ps, x[2]),
                       times(model.links[i].kib_ps, x[3]), times(model.links[i].shared_kib_ps, x[4])};
    scaled.lines[i] = {times(model.lines[i].transfer_ps, x[1]), times(model.lines[i].further_ps, x[2]),
                       times(model.lines[i].kib_ps, x[3]), times(model.lines[i].crowd_kib_ps, x[3])};
  }
  scaled.reduce_kib_ps = times(model.reduce_kib_ps, x[5]);
  scaled.copy_kib_ps = times(model.copy_kib_ps, x[5]);
  return scaled;
}

// The normal equations of the unknowns in the set, by elimination; nullopt where they do not tell them apart.
std::optional<Unknowns> solve(const std::array<Unknowns, kUnknowns>& ata, const Unknowns& aty, unsigned set) {
  std::vector<std::size_t> index;
  for (std::size_t i = 0; i < kUnknowns; ++i) {
    if ((set >> i & 1U) != 0) index.push_back(i);
  }
  std::array<std::array<double, kUnknowns + 1>, kUnknowns> m{};
  for (std::size_t r = 0; r < index.size(); ++r) {
    for (std::size_t c = 0; c < index.size(); ++c) m[r][c] = ata[index[r]][index[c]];
    m[r][kUnknowns] = aty[index[r]];
  }
  constexpr double kSingular = 1e-9;  // of columns of length 1
  for (std::size_t k = 0; k < index.size(); ++k) {
    if (!(m[k][k] > kSingular)) return std::nullopt;
    for (std::size_t r = 0; r < index.size(); ++r) {
      if (r == k) continue;
      const double factor = m[r][k] / m[k][k];
      for (std::size_t c = k; c < index.size(); ++c) m[r][c] -= factor * m[k][c];
      m[r][kUnknowns] -= factor * m[k][kUnknowns];
    }
  }
  Unknowns x{};
  for (std::size_t k = 0; k < index.size(); ++k) {
    x[index[k]] = m[k][kUnknowns] / m[k][k];
    if (!(x[index[k]] >= 0)) return std::nullopt;
  }
  return x;
}

}  // namespace

double weight_at(std::uint64_t measured_bytes, std::uint64_t bytes) {
  constexpr double kHalfLife = 2;  // in doublings of the size
  const double ratio = static_cast<double>(measured_bytes + 1) / static_cast<double>(bytes + 1);
  return std::exp2(-std::abs(std::log2(ratio)) / kHalfLife);
}

CostModel typical_model() {
  CostModel model;
  model.link(Level::network) = {1500000, 500000, 50 * 1024, 50 * 1024};
  model.link(Level::node) = {300000, 100000, 100 * 1024, 0};
  model.link(Level::cache) = {150000, 50000, 70 * 1024, 0};
  model.reduce_kib_ps = 125 * 1024;
  model.copy_kib_ps = 60 * 1024;
  model.complete();
  use_lines(machine_class_of(""), model);
  return model;
}

Unknowns solve_non_negative(std::span<const Unknowns> a, std::span<const double> y) {
  // Columns of length 1, so that one limit tells what is singular.
  Unknowns length{};
  for (const Unknowns& row : a) {
    for (std::size_t i = 0; i < kUnknowns; ++i) length[i] += row[i] * row[i];
  }
  for (double& l : length) l = std::sqrt(l);
  const auto at = [&](std::size_t row, std::size_t i) { return length[i] > 0 ? a[row][i] / length[i] : 0.0; };
  std::array<Unknowns, kUnknowns> ata{};
  Unknowns aty{};
  for (std::size_t row = 0; row < a.size(); ++row) {
    for (std::size_t i = 0; i < kUnknowns; ++i) {
      aty[i] += at(row, i) * y[row];
      for (std::size_t j = 0; j < kUnknowns; ++j) ata[i][j] += at(row, i) * at(row, j);
    }
  }
  Unknowns best{};
  double best_gain = 0;  // what the residual's square is smaller by than with nothing
  for (unsigned set = 1; set < 1U << kUnknowns; ++set) {
    const auto x = solve(ata, aty, set);
    if (!x) continue;
    double gain = 0;
    for (std::size_t i = 0; i < kUnknowns; ++i) gain += (*x)[i] * aty[i];
    if (gain <= best_gain) continue;
    best_gain = gain;
    best = *x;
  }
  for (std::size_t i = 0; i < kUnknowns; ++i) best[i] = length[i] > 0 ? best[i] / length[i] : 0;
  return best;
}

CostModel fit_model(std::span<const Sample> samples) {
  const CostModel unit = typical_model();
  std::vector<Unknowns> a;
  std::vector<double> y;
  for (const Sample& sample : samples) {
    Unknowns row = parts_of(sample.path, unit);
    for (double& part : row) part *= sample.weight / sample.us;
    a.push_back(row);
    y.push_back(sample.weight);
  }
  return scaled_by(unit, solve_non_negative(a, y));
}

}  // namespace tutti::tool
