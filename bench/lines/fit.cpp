// Judges the figures of runtime/selection/line_costs.cpp by measured times of flat broadcasts, and searches for better ones:
//
//   lines_fit xhc_fanout.csv        the errors of the committed figures, by machine
//   lines_fit xhc_fanout.csv fit    and figures that fit better, by coordinate descent on half of the numbers of ranks; the
//                                   error on the other half is reported beside it
#include <cstdio>
#include <numeric>

#include "bench/lines/fan_out.hpp"

namespace tutti::bench {
namespace {

double mean(const std::vector<double>& errors) {
  double sum = 0;
  for (const double error : errors) sum += std::min(error, 1.0);
  return sum / static_cast<double>(std::max<std::size_t>(errors.size(), 1));
}

void report(const char* what, const std::string& name, const std::vector<double>& errors) {
  if (errors.empty()) return;
  std::printf("%-7s %-10s %5zu times: median error %4.1f %%, mean %4.1f %%, nine of ten within %4.1f %%\n",
              name.c_str(), what, errors.size(), 100 * errors[errors.size() / 2], 100 * mean(errors),
              100 * errors[errors.size() * 9 / 10]);
}

// The figures that the times tell: of the near levels, which are one, of the other socket, and of a call.
std::vector<std::uint64_t*> figures_of(MachineClass& machine) {
  LineCost &near = machine.lines[1], &far = machine.lines[4];
  return {&machine.call_ps,   &near.transfer_ps, &near.further_ps, &near.kib_ps,
          &near.crowd_kib_ps, &far.transfer_ps,  &far.kib_ps,      &far.crowd_kib_ps};
}

void fit(const std::vector<FanOutTime>& times, const std::string& name) {
  std::vector<FanOutTime> fitted, kept;
  for (const FanOutTime& time : times) {
    // Every fourth size of every other number of ranks, and the step to the second socket.
    const bool is_step = time.ranks == socket_cores(name) + 1;
    const bool is_sparse = std::lround(std::log2(static_cast<double>(time.bytes))) % 2 == 0;
    if (time.ranks % 4 == 0 || time.ranks == 2 || is_step) {
      if (is_sparse) fitted.push_back(time);
    } else {
      kept.push_back(time);
    }
  }
  MachineClass machine = class_of(name);
  double best = mean(fan_out_errors(fitted, name, machine));
  for (double step = 0.3; step > 0.01;) {
    bool is_better = false;
    for (std::size_t i = 0; i < figures_of(machine).size(); ++i) {
      for (const double factor : {1 + step, 1 / (1 + step)}) {
        MachineClass changed = machine;
        std::uint64_t& figure = *figures_of(changed)[i];
        figure = static_cast<std::uint64_t>(static_cast<double>(figure) * factor);
        changed.lines[4].further_ps = changed.lines[1].further_ps;
        const double error = mean(fan_out_errors(fitted, name, changed));
        if (error >= best - 1e-6) continue;
        best = error;
        machine = changed;
        is_better = true;
      }
    }
    if (!is_better) step /= 2;
  }
  report("fitted", name, fan_out_errors(fitted, name, machine));
  report("kept back", name, fan_out_errors(kept, name, machine));
  report("all", name, fan_out_errors(times, name, machine));
  std::printf("        call, near transfer, further, kib, crowd, far transfer, kib, crowd (ps):");
  for (const std::uint64_t* figure : figures_of(machine))
    std::printf(" %llu", static_cast<unsigned long long>(*figure));
  std::printf("\n");
}

}  // namespace
}  // namespace tutti::bench

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: lines_fit FILE.csv [fit]\n");
    return 2;
  }
  const auto times = tutti::bench::read_fan_out(argv[1]);
  if (times.empty()) {
    std::fprintf(stderr, "%s: expected rows of source,what,ranks,bytes,median_us\n", argv[1]);
    return 1;
  }
  for (const std::string name : {"SKX-24", "CSX-48", "ICX-48"}) {
    tutti::bench::report("committed", name,
                         tutti::bench::fan_out_errors(times, name, tutti::bench::class_of(name)));
    if (argc > 2) tutti::bench::fit(times, name);
  }
  return 0;
}
