// The flags of `tutti run` itself. Knows no process; see flags.hpp.
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <optional>

#include "runtime/base/ascii.hpp"
#include "tools/cli/run/flags.hpp"

namespace tutti {
namespace {

constexpr int kMostOwnRanks = 4096;  // that we start ourselves

Status set_rank_count(RunOptions& options, const RunFlag&, std::string_view text) {
  const std::optional<double> value = parse_number<double>(text);
  if (!value || *value < 1 || *value > kMostOwnRanks || *value != static_cast<int>(*value)) {
    return invalid_argument(
        fmt::format("expected a number of ranks from 1 to {}, got '{}'", kMostOwnRanks, text));
  }
  options.rank_count = static_cast<int>(*value);
  return {};
}

Status set_grace(RunOptions& options, const RunFlag&, std::string_view text) {
  const std::optional<double> value = parse_number<double>(text);
  if (!value || !(*value >= 0) || *value > 86400) {
    return invalid_argument(fmt::format("expected seconds from 0 to 86400, got '{}'", text));
  }
  options.grace = std::chrono::milliseconds(static_cast<long>(*value * 1000));
  return {};
}

Status set_hosts(RunOptions& options, const RunFlag&, std::string_view text) {
  auto hosts = parse_hosts(text);
  if (!hosts) return hosts.status();
  options.hosts = *std::move(hosts);
  return {};
}

Status set_hostfile(RunOptions& options, const RunFlag&, std::string_view text_of_path) {
  const std::string path(text_of_path);
  const auto text = read_text(path);
  if (!text) return text.status();
  auto hosts = parse_hostfile(*text);
  if (!hosts) return hosts.status().with_context(path);
  options.hosts = *std::move(hosts);
  return {};
}

Status set_way(RunOptions& options, const RunFlag&, std::string_view text) {
  if (text != "ssh" && text != "srun" && text != "mpiexec")
    return invalid_argument(fmt::format("expected ssh, srun or mpiexec, got '{}'", text));
  options.way = text;
  return {};
}

// "NAME=value", or "NAME", whose value here is meant.
Status set_exported(RunOptions& options, const RunFlag&, std::string_view text) {
  const std::size_t equals = text.find('=');
  const std::string name(text.substr(0, equals));
  if (name.empty()) return invalid_argument(fmt::format("expected NAME or NAME=value, got '{}'", text));
  if (equals != std::string_view::npos) {
    options.exported.push_back({name, std::string(text.substr(equals + 1))});
    return {};
  }
  const char* const value = std::getenv(name.c_str());
  if (value == nullptr)
    return invalid_argument(fmt::format("{} is not set here; set it, or write -x {}=value", name, name));
  options.exported.push_back({name, value});
  return {};
}

Status set_bind(RunOptions& options, const RunFlag&, std::string_view text) {
  auto request = parse_pin(text == "none" ? "off" : text);
  if (!request) return request.status();
  options.bind = *std::move(request);
  options.bind_text = text;
  return {};
}

Status set_bind_order(RunOptions& options, const RunFlag&, std::string_view text) {
  if (text != "compact" && text != "scatter")
    return invalid_argument(fmt::format("expected compact or scatter, got '{}'", text));
  options.bind_order = text == "scatter" ? PinOrder::scatter : PinOrder::compact;
  return {};
}

// "first,count,size", as we write it ourselves.
Status set_part(RunOptions& options, const RunFlag&, std::string_view text) {
  std::array<int, 3> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::size_t comma = text.find(',');
    const std::optional<double> value = parse_number<double>(text.substr(0, comma));
    if (!value || *value < 0 || *value > kMostJobRanks || (comma == std::string_view::npos) != (i == 2))
      return invalid_argument("expected FIRST,COUNT,SIZE");
    numbers[i] = static_cast<int>(*value);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  if (numbers[1] < 1 || numbers[0] + numbers[1] > numbers[2]) return invalid_argument("these are no ranks");
  options.part.first_rank = numbers[0];
  options.rank_count = numbers[1];
  options.part.world_size = numbers[2];
  return {};
}

// "node1:4,node2:4": the hosts of the whole job with their ranks.
Status set_placement(RunOptions& options, const RunFlag&, std::string_view text) {
  auto hosts = parse_hosts(text);
  if (!hosts) return hosts.status();
  options.part.placement = *std::move(hosts);
  return {};
}

template <class Member>
Status set_member(Member& member, std::string_view text) {
  member = text;
  return {};
}

constexpr RunFlag kOwnFlags[] = {
    {"-n -np --num-proc", 1, set_rank_count},
    {"-H --hosts", 1, set_hosts},
    {"--hostfile -hostfile", 1, set_hostfile},
    {"-x", 1, set_exported},
    {"--grace", 1, set_grace},
    {"--through", 1, set_way},
    {"--bind", 1, set_bind},
    {"--bind-order", 1, set_bind_order},
    {"--agent", 1,
     [](RunOptions& o, const RunFlag&, std::string_view text) {
       if (text.empty()) return invalid_argument("expected a command, such as ssh");
       return set_member(o.agent, text);
     }},
    {"--help -h", 0, set_flag<&RunOptions::wants_help>},
    {"--no-prefix", 0, set_flag<&RunOptions::has_prefix, false>},
    {"--report-bindings", 0, set_flag<&RunOptions::reports_bindings>},
    {"--horovod", 0, set_flag<&RunOptions::is_horovod>},
    // For the parts that `tutti run` starts on other hosts.
    {"--part", 1, set_part},
    {"--placement", 1, set_placement},
    {"--address", 1,
     [](RunOptions& o, const RunFlag&, std::string_view text) { return set_member(o.part.address, text); }},
    {"--job", 1,
     [](RunOptions& o, const RunFlag&, std::string_view text) { return set_member(o.part.job_id, text); }},
};

}  // namespace

std::span<const RunFlag> own_flags() { return kOwnFlags; }

}  // namespace tutti
