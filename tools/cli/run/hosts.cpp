// Reading lists of hosts. Knows no process; see hosts.hpp.
#include "tools/cli/run/hosts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

#include "tools/cli/run/run.hpp"

namespace tutti {
namespace {

constexpr int kMaxSlots = 1 << 16;  // of a host

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::optional<int> parse_slots(std::string_view text) {
  int slots = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  if (error != std::errc() || end != text.data() + text.size() || slots < 1 || slots > kMaxSlots)
    return std::nullopt;
  return slots;
}

// A host becomes an argument of somebody else's command line, where a leading dash would be an option.
bool is_host(std::string_view host) {
  return !host.empty() && host[0] != '-' && std::all_of(host.begin(), host.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_' || c == ':' || c == '[' || c == ']' || c == '@' || c == '%';
  });
}

Status add(std::vector<HostSlots>& hosts, std::string_view host, std::optional<int> slots,
           std::string_view item) {
  if (!is_host(host) || !slots) {
    return invalid_argument(
        fmt::format("'{}' is not a host with slots; expected something like node1:4", item));
  }
  const auto found =
      std::find_if(hosts.begin(), hosts.end(), [&](const HostSlots& h) { return h.host == host; });
  if (found != hosts.end()) {
    if (found->slots > kMaxSlots - *slots)
      return invalid_argument(fmt::format("host {} has more than {} slots", host, kMaxSlots));
    found->slots += *slots;
  } else {
    hosts.push_back({std::string(host), *slots});
  }
  return {};
}

// "a:2", "[fe80::1]:2", "a".
Status add_item(std::vector<HostSlots>& hosts, std::string_view item, int default_slots) {
  const std::size_t colon = item.rfind(':');
  const std::size_t bracket = item.rfind(']');
  const bool has_slots =
      colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  if (!has_slots) return add(hosts, item, default_slots, item);
  return add(hosts, item.substr(0, colon), parse_slots(item.substr(colon + 1)), item);
}

}  // namespace

Result<std::vector<HostSlots>> parse_hosts(std::string_view text) {
  std::vector<HostSlots> hosts;
  for (;;) {
    const std::size_t comma = text.find(',');
    TUTTI_RETURN_IF_ERROR(add_item(hosts, trim(text.substr(0, comma)), 1));
    if (comma == std::string_view::npos) return hosts;
    text.remove_prefix(comma + 1);
  }
}

Result<std::vector<HostSlots>> parse_hostfile(std::string_view text, int default_slots) {
  std::vector<HostSlots> hosts;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t newline = text.find('\n');
    const std::string_view whole = text.substr(0, newline);
    text = newline == std::string_view::npos ? std::string_view() : text.substr(newline + 1);
    const std::string_view line = trim(whole.substr(0, whole.find('#')));
    if (line.empty()) continue;
    const std::size_t blank = line.find_first_of(" \t");
    Status status;
    if (blank == std::string_view::npos) {
      status = add_item(hosts, line, default_slots);
    } else {
      std::string_view rest = trim(line.substr(blank));
      if (rest.starts_with("slots")) rest = trim(rest.substr(5));
      if (rest.starts_with('=')) rest = trim(rest.substr(1));
      // Open MPI's other words (max_slots) set bounds that we do not exceed either.
      status =
          add(hosts, line.substr(0, blank), parse_slots(rest.substr(0, rest.find_first_of(" \t"))), line);
    }
    if (!status) return status.with_context(fmt::format("line {}", number));
  }
  if (hosts.empty()) return invalid_argument("there is no host in it");
  return hosts;
}

Result<std::vector<HostSlots>> place_ranks(const std::vector<HostSlots>& hosts, int rank_count) {
  std::int64_t slots = 0;
  for (const HostSlots& host : hosts) slots += host.slots;
  if (rank_count == 0 && slots > kMostJobRanks)
    return invalid_argument(
        fmt::format("{} slots are more than {} ranks; say how many with -n", slots, kMostJobRanks));
  if (rank_count == 0) rank_count = static_cast<int>(slots);
  if (rank_count > slots) {
    return invalid_argument(
        fmt::format("{} ranks do not fit: {} have {} slots together", rank_count, to_text(hosts), slots));
  }
  std::vector<HostSlots> placed;
  for (const HostSlots& host : hosts) {
    const int here = std::min(host.slots, rank_count);
    if (here > 0) placed.push_back({host.host, here});
    rank_count -= here;
  }
  return placed;
}

CrossPlace find_cross_place(const std::vector<HostSlots>& placed, int first_rank, int local_rank) {
  CrossPlace place{0, 0, {}};
  int first_of_host = 0;
  for (const HostSlots& host : placed) {
    if (first_of_host == first_rank) place.host = host.host;
    if (local_rank < host.slots) {
      if (first_of_host < first_rank) ++place.rank;
      ++place.size;
    }
    first_of_host += host.slots;
  }
  return place;
}

std::string to_text(const std::vector<HostSlots>& hosts) {
  std::string text;
  for (const HostSlots& host : hosts)
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", host.host, host.slots);
  return text;
}

}  // namespace tutti
