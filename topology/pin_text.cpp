// How policies of binding are written. Knows no topology.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <tuple>
#include <utility>
#include <vector>

#include "topology/binding.hpp"

namespace tutti {
namespace {

constexpr std::array<std::pair<std::string_view, PinPolicy>, 7> kPolicies = {{{"off", PinPolicy::off},
                                                                              {"auto", PinPolicy::automatic},
                                                                              {"core", PinPolicy::core},
                                                                              {"l3", PinPolicy::l3},
                                                                              {"numa", PinPolicy::numa},
                                                                              {"socket", PinPolicy::socket},
                                                                              {"gpu", PinPolicy::gpu}}};

// "0,1,12-15" up to a semicolon or the end.
Result<std::vector<std::uint32_t>> parse_cpus(std::string_view text) {
  const auto malformed = [&] {
    return invalid_argument(fmt::format(
        "'{}' is neither a policy (off, auto, core, l3, numa, socket, gpu) nor a list of CPUs such "
        "as 0,1,12-15 or, with a set for each rank, 0-5;6-11",
        text));
  };
  std::vector<std::uint32_t> cpus;
  std::vector<bool> listed(kMaxPus);
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    std::uint32_t first = 0;
    auto [next, error] = std::from_chars(at, end, first);
    std::uint32_t last = first;
    if (error == std::errc() && next != end && *next == '-')
      std::tie(next, error) = [&, from = next + 1] {
        const auto result = std::from_chars(from, end, last);
        return std::pair(result.ptr, result.ec);
      }();
    if (error != std::errc() || last < first || last >= kMaxPus || (next != end && *next != ','))
      return malformed();
    for (std::uint32_t cpu = first; cpu <= last; ++cpu) {
      if (listed[cpu]) return invalid_argument(fmt::format("CPU {} stands twice in '{}'", cpu, text));
      listed[cpu] = true;
      cpus.push_back(cpu);
    }
    if (next == end) return cpus;
    at = next + 1;
  }
}

}  // namespace

Result<PinRequest> parse_pin(std::string_view text) {
  PinRequest request;
  for (const auto& [name, policy] : kPolicies) {
    if (text != name) continue;
    request.policy = policy;
    return request;
  }
  request.policy = PinPolicy::list;
  if (text.find(';') == std::string_view::npos) {
    auto cpus = parse_cpus(text);
    if (!cpus) return cpus.status();
    for (const std::uint32_t cpu : *cpus) request.list.push_back({cpu});
    return request;
  }
  // A semicolon may stand at the end, which tells one set from a list of CPUs.
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t semicolon = rest.find(';');
    auto cpus = parse_cpus(rest.substr(0, semicolon));
    if (!cpus) return cpus.status();
    request.list.push_back(*std::move(cpus));
    rest = semicolon == std::string_view::npos ? std::string_view() : rest.substr(semicolon + 1);
  }
  return request;
}

std::string_view to_string(PinPolicy policy) {
  for (const auto& [name, known] : kPolicies) {
    if (known == policy) return name;
  }
  return "list";
}

}  // namespace tutti
