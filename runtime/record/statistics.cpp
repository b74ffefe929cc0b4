// See statistics.hpp.
#include "runtime/record/statistics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "runtime/base/types.hpp"

namespace tutti::record {
namespace {

std::string_view collective_name(const RecordedRow& row) {
  return row.collective < kCollectiveCount ? kCollectiveNames[row.collective] : "unknown";
}

using RowKey = std::tuple<std::uint8_t, std::uint64_t, std::string, std::string>;
RowKey key_of(const RecordedRow& row) {
  return {row.collective, row.least_bytes, row.algorithm, row.transport};
}

void add_to(RecordedRow& sum, const RecordedRow& row) {
  sum.calls += row.calls;
  sum.bytes += row.bytes;
  sum.timed_calls += row.timed_calls;
  sum.waited += row.waited;
  sum.moved += row.moved;
  sum.times.resize(std::max(sum.times.size(), row.times.size()));
  for (std::size_t i = 0; i < row.times.size(); ++i) sum.times[i] += row.times[i];
}

std::map<RowKey, JobRow> sum_rows(const std::vector<RecordedRank>& ranks) {
  std::map<RowKey, JobRow> by_key;
  for (const RecordedRank& rank : ranks) {
    for (const RecordedGroup& group : rank.groups) {
      for (const RecordedRow& row : group.rows) {
        if (row.calls == 0) continue;
        RecordedRow& sum = by_key[key_of(row)].sum;
        std::tie(sum.collective, sum.least_bytes, sum.algorithm, sum.transport) = key_of(row);
        add_to(sum, row);
      }
    }
  }
  return by_key;
}

// One operation as the ranks of its group have it.
struct Arrival {
  struct Rank {
    int rank = 0;
    std::uint64_t submitted = 0;
    bool has_waited = false;
  };
  std::vector<Rank> ranks;
  const RecordedRow* row = nullptr;
  std::uint64_t boot = 0;
  bool is_comparable = true;
};

// The rank that came last: by time where all have one, else the only one that found all others there.
std::optional<int> last_of(const Arrival& arrival, std::uint32_t size) {
  if (!arrival.is_comparable || arrival.ranks.size() != size || size < 2) return std::nullopt;
  const bool are_timed = std::all_of(arrival.ranks.begin(), arrival.ranks.end(),
                                     [](const Arrival::Rank& rank) { return rank.submitted != 0; });
  if (are_timed) {
    return std::max_element(arrival.ranks.begin(), arrival.ranks.end(),
                            [](const auto& a, const auto& b) { return a.submitted < b.submitted; })
        ->rank;
  }
  std::optional<int> found;
  for (const Arrival::Rank& rank : arrival.ranks) {
    if (rank.has_waited) continue;
    if (found) return std::nullopt;
    found = rank.rank;
  }
  return found;
}

void count_arrivals(const std::vector<RecordedRank>& ranks, std::map<RowKey, JobRow>& rows) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, Arrival> arrivals;  // by context and number
  std::map<std::uint64_t, std::uint32_t> sizes;
  for (const RecordedRank& rank : ranks) {
    for (const RecordedGroup& group : rank.groups) {
      sizes[group.context] = group.size;
      for (const RecordedCall& call : group.operations) {
        const bool is_counted = call.state.phase == Phase::complete && call.state.row < group.rows.size() &&
                                (call.kind & 0xFFU) < kCollectiveCount &&
                                waits_for_all(static_cast<Collective>(call.kind & 0xFFU));
        if (!is_counted) continue;
        Arrival& arrival = arrivals[{group.context, call.sequence}];
        arrival.is_comparable = arrival.is_comparable && (arrival.ranks.empty() || arrival.boot == rank.boot);
        arrival.boot = rank.boot;
        arrival.row = &group.rows[call.state.row];
        arrival.ranks.push_back({rank.rank, call.times.submitted, call.state.has_waited});
      }
    }
  }
  for (const auto& [key, arrival] : arrivals) {
    const std::optional<int> last = last_of(arrival, sizes[key.first]);
    const auto row = last ? rows.find(key_of(*arrival.row)) : rows.end();
    if (row != rows.end()) ++row->second.last[*last];
  }
}

std::string describe_size(std::uint64_t bytes) {
  constexpr std::uint64_t kKibi = 1024;
  if (bytes < kKibi) return fmt::format("{} B", bytes);
  if (bytes < kKibi * kKibi) return fmt::format("{} KiB", bytes / kKibi);
  if (bytes < kKibi * kKibi * kKibi) return fmt::format("{} MiB", bytes / kKibi / kKibi);
  return fmt::format("{} GiB", bytes / kKibi / kKibi / kKibi);
}

double microseconds(std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e3; }

std::string describe_last(const JobRow& row) {
  std::uint64_t all = 0;
  for (const auto& [rank, count] : row.last) all += count;
  const auto most = std::max_element(row.last.begin(), row.last.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (all == 0) return "-";
  return fmt::format("rank {} {} of {}", most->first, most->second, all);
}

// In double quotes, as the exposition format wants it.
std::string quote_label(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? ' ' : c;
  }
  return quoted + '"';
}

struct Metric {
  std::string_view name, help;
  double (*value)(const RecordedRow& row);
};
constexpr double kSeconds = 1e-9;
constexpr Metric kMetrics[] = {
    {"tutti_calls_total", "Completed calls.",
     [](const RecordedRow& r) { return static_cast<double>(r.calls); }},
    {"tutti_bytes_total", "Bytes of the full vectors of completed calls.",
     [](const RecordedRow& r) { return static_cast<double>(r.bytes); }},
    {"tutti_waiting_seconds_total", "Time in completed calls until late ranks arrived.",
     [](const RecordedRow& r) { return static_cast<double>(r.waited) * kSeconds; }},
    {"tutti_moving_seconds_total", "Other time in completed calls; of short calls an estimate from samples.",
     [](const RecordedRow& r) { return static_cast<double>(r.moved) * kSeconds; }},
};

}  // namespace

std::vector<JobRow> job_rows(const std::vector<RecordedRank>& ranks) {
  std::map<RowKey, JobRow> by_key = sum_rows(ranks);
  count_arrivals(ranks, by_key);
  std::vector<JobRow> rows;
  rows.reserve(by_key.size());
  for (auto& [key, row] : by_key) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(), [](const JobRow& a, const JobRow& b) {
    return a.sum.waited + a.sum.moved > b.sum.waited + b.sum.moved;
  });
  return rows;
}

std::string describe_statistics(const std::vector<RecordedRank>& ranks) {
  const std::vector<JobRow> rows = job_rows(ranks);
  if (rows.empty()) return fmt::format("tutti: no calls of {} ranks\n", ranks.size());
  std::string text = fmt::format(
      "tutti: calls of {} of {} ranks; calls and bytes are of all of them, times in microseconds\n"
      "{:<14} {:>9} {:<22} {:<14} {:>10} {:>12} {:>10} {:>10} {:>12} {:>12}  {}\n",
      ranks.size(), ranks.front().size, "collective", "from size", "algorithm", "transport", "calls", "bytes",
      "p50", "p99", "waiting", "moving", "came last");
  for (const JobRow& row : rows) {
    const RecordedRow& sum = row.sum;
    text +=
        fmt::format("{:<14} {:>9} {:<22} {:<14} {:>10} {:>12} {:>10.2f} {:>10.2f} {:>12.0f} {:>12.0f}  {}\n",
                    collective_name(sum), describe_size(sum.least_bytes), sum.algorithm, sum.transport,
                    sum.calls, sum.bytes, microseconds(sum.quantile(0.5)), microseconds(sum.quantile(0.99)),
                    microseconds(sum.waited), microseconds(sum.moved), describe_last(row));
  }
  return text;
}

std::string prometheus_text(const std::vector<RecordedRank>& ranks) {
  std::string text;
  for (const Metric& metric : kMetrics) {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} counter\n", metric.name, metric.help);
    for (const RecordedRank& rank : ranks) {
      for (const auto& [key, row] : sum_rows({rank})) {
        text += fmt::format("{}{{rank=\"{}\",collective={},size={},algorithm={},transport={}}} {}\n",
                            metric.name, rank.rank, quote_label(collective_name(row.sum)),
                            quote_label(std::to_string(row.sum.least_bytes)), quote_label(row.sum.algorithm),
                            quote_label(row.sum.transport), metric.value(row.sum));
      }
    }
  }
  text +=
      "# HELP tutti_message_bytes_total Bytes of messages, by transport and direction.\n"
      "# TYPE tutti_message_bytes_total counter\n";
  for (const RecordedRank& rank : ranks) {
    for (const RecordedTraffic& traffic : rank.traffic) {
      for (const auto& [direction, bytes] :
           {std::pair("sent", traffic.sent_bytes), std::pair("received", traffic.received_bytes)})
        text += fmt::format("tutti_message_bytes_total{{rank=\"{}\",transport={},direction=\"{}\"}} {}\n",
                            rank.rank, quote_label(traffic.transport), direction, bytes);
    }
  }
  text +=
      "# HELP tutti_operations_under_way Operations that are not complete.\n"
      "# TYPE tutti_operations_under_way gauge\n";
  for (const RecordedRank& rank : ranks) {
    std::size_t under_way = 0;
    for (const RecordedGroup& group : rank.groups) {
      for (const auto* const calls : {&group.operations, &group.messages})
        under_way += static_cast<std::size_t>(std::count_if(
            calls->begin(), calls->end(), [](const RecordedCall& c) { return c.is_under_way(); }));
    }
    text += fmt::format("tutti_operations_under_way{{rank=\"{}\"}} {}\n", rank.rank, under_way);
  }
  return text;
}

}  // namespace tutti::record
