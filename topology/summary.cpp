// A topology as one line for contracts, and back.
// Knows the value only, and no text for people.
//
//   topology1 cores=1x36 pus=0-35 sockets=18x2 numa=0:67119017984:0:18,1:67639386112:18:18
//   caches=1:32768:64:0:1x36,...   (one line)
//
//   cores, sockets  PUs x number of such units in a row
//   pus             the system's CPU numbers: the first PU of each core, then all second ones, and so on, which
//                   makes long runs (first-last/step)
//   numa            number:bytes:first PU:PUs
//   caches          level:bytes:line:first PU:PUs x number of such caches in a row
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "topology/topology.hpp"

namespace tutti {
namespace {

constexpr std::string_view kName = "topology1";
constexpr std::size_t kMaxCaches = 5 * kMaxPus;  // five levels; a short summary must not ask for much memory

// Visits the PUs as the summary lists them.
template <class Visit>
void for_each_by_thread(std::vector<PuRange> cores, Visit visit) {
  for (std::uint32_t thread = 0; !cores.empty(); ++thread) {
    for (const PuRange& core : cores) visit(core.first + thread);
    std::erase_if(cores, [&](const PuRange& core) { return core.count == thread + 1; });
  }
}

std::string sizes_text(const std::vector<PuRange>& ranges) {
  std::string text;
  for (std::size_t i = 0; i < ranges.size();) {
    std::size_t same = i;
    while (same < ranges.size() && ranges[same].count == ranges[i].count) ++same;
    text += fmt::format("{}{}x{}", i == 0 ? "" : ",", ranges[i].count, same - i);
    i = same;
  }
  return text;
}

// Rising runs: "first-last", or "first-last/step" where steps may be longer than one.
std::string runs_text(const std::vector<std::uint32_t>& numbers, bool has_steps) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    std::uint32_t step = 1;
    // Two numbers alone make a run of step 1 only.
    if (has_steps && i + 2 < numbers.size() && numbers[i + 1] > numbers[i] &&
        numbers[i + 2] - numbers[i + 1] == numbers[i + 1] - numbers[i])
      step = numbers[i + 1] - numbers[i];
    while (last + 1 < numbers.size() && numbers[last + 1] > numbers[last] &&
           numbers[last + 1] - numbers[last] == step)
      ++last;
    text += fmt::format("{}{}", i == 0 ? "" : ",", numbers[i]);
    if (last > i) text += fmt::format("-{}", numbers[last]);
    if (last > i && step > 1) text += fmt::format("/{}", step);
    i = last + 1;
  }
  return text;
}

std::string caches_text(const std::vector<Cache>& caches) {
  std::string text;
  for (std::size_t i = 0; i < caches.size();) {
    const Cache& first = caches[i];
    std::size_t same = i + 1;
    while (same < caches.size() && caches[same].level == first.level && caches[same].bytes == first.bytes &&
           caches[same].line_bytes == first.line_bytes && caches[same].pus.count == first.pus.count &&
           caches[same].pus.first == caches[same - 1].pus.end())
      ++same;
    text += fmt::format("{}{}:{}:{}:{}:{}x{}", i == 0 ? "" : ",", first.level, first.bytes, first.line_bytes,
                        first.pus.first, first.pus.count, same - i);
    i = same;
  }
  return text;
}

// Reads a summary from left to right. After a mismatch every further step fails too.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool word(std::string_view expected) {
    if (!is_ok_ || text_.substr(0, expected.size()) != expected) return is_ok_ = false;
    text_.remove_prefix(expected.size());
    return true;
  }
  template <class T>
  T number() {
    T value = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (!is_ok_ || error != std::errc()) {
      is_ok_ = false;
      return 0;
    }
    text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
    return value;
  }
  // Is this character next? Takes it if so.
  bool take(char c) {
    if (!is_ok_ || text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool is_ok() const { return is_ok_; }
  bool is_at_end() const { return is_ok_ && text_.empty(); }
  bool is_at_space() const { return is_ok_ && !text_.empty() && text_.front() == ' '; }
  void fail() { is_ok_ = false; }

 private:
  std::string_view text_;
  bool is_ok_ = true;
};

std::vector<PuRange> read_sizes(Reader& reader) {
  std::vector<PuRange> ranges;
  std::uint32_t next = 0;
  do {
    const auto count = reader.number<std::uint32_t>();
    reader.word("x");
    const auto repeats = reader.number<std::uint32_t>();
    if (count == 0 || count > kMaxPus || repeats == 0 || repeats > (kMaxPus - next) / count) reader.fail();
    for (std::uint32_t i = 0; reader.is_ok() && i < repeats; ++i, next += count)
      ranges.push_back({next, count});
  } while (reader.take(','));
  return ranges;
}

std::vector<std::uint32_t> read_runs(Reader& reader) {
  std::vector<std::uint32_t> numbers;
  do {
    const auto first = reader.number<std::uint32_t>();
    const auto last = reader.take('-') ? reader.number<std::uint32_t>() : first;
    const auto step = reader.take('/') ? reader.number<std::uint32_t>() : 1;
    if (last < first || step == 0 || (last - first) / step >= kMaxPus - numbers.size()) reader.fail();
    for (std::uint32_t i = 0; reader.is_ok() && i <= (last - first) / step; ++i)
      numbers.push_back(first + i * step);
  } while (reader.take(','));
  return numbers;
}

std::vector<NumaNode> read_numa(Reader& reader) {
  std::vector<NumaNode> nodes;
  if (reader.is_at_space()) return nodes;  // a machine may have none that is known
  do {
    NumaNode node;
    node.os_index = reader.number<std::uint32_t>();
    reader.word(":");
    node.bytes = reader.number<std::uint64_t>();
    reader.word(":");
    node.pus.first = reader.number<std::uint32_t>();
    reader.word(":");
    node.pus.count = reader.number<std::uint32_t>();
    nodes.push_back(node);
  } while (reader.take(','));
  return nodes;
}

std::vector<Cache> read_caches(Reader& reader) {
  std::vector<Cache> caches;
  if (reader.is_at_end()) return caches;
  do {
    Cache cache;
    cache.level = reader.number<std::uint32_t>();
    reader.word(":");
    cache.bytes = reader.number<std::uint64_t>();
    reader.word(":");
    cache.line_bytes = reader.number<std::uint32_t>();
    reader.word(":");
    cache.pus.first = reader.number<std::uint32_t>();
    reader.word(":");
    cache.pus.count = reader.number<std::uint32_t>();
    reader.word("x");
    const auto repeats = reader.number<std::uint32_t>();
    if (cache.pus.count == 0 || cache.pus.first > kMaxPus || cache.pus.count > kMaxPus || repeats == 0 ||
        repeats > kMaxPus / cache.pus.count || caches.size() > kMaxCaches)
      reader.fail();
    for (std::uint32_t i = 0; reader.is_ok() && i < repeats; ++i, cache.pus.first += cache.pus.count)
      caches.push_back(cache);
  } while (reader.take(','));
  return caches;
}

}  // namespace

std::string to_summary(const Topology& topology) {
  std::vector<std::uint32_t> numbers;
  for_each_by_thread(topology.cores, [&](std::uint32_t pu) { numbers.push_back(topology.pus[pu].os_index); });
  std::string numa;
  for (const NumaNode& node : topology.numa_nodes) {
    numa += fmt::format("{}{}:{}:{}:{}", numa.empty() ? "" : ",", node.os_index, node.bytes, node.pus.first,
                        node.pus.count);
  }
  return fmt::format("{} cores={} pus={} sockets={} numa={} caches={}", kName, sizes_text(topology.cores),
                     runs_text(numbers, true), sizes_text(topology.sockets), numa,
                     caches_text(topology.caches));
}

Result<Topology> parse_summary(std::string_view summary) {
  Reader reader(summary);
  const auto malformed = [](std::string_view field) {
    return invalid_argument(fmt::format("not a topology summary: the field '{}' is malformed", field));
  };
  if (!reader.word(kName)) return malformed(kName);
  Topology topology;
  topology.source = "summary";
  reader.word(" cores=");
  topology.cores = read_sizes(reader);
  if (!reader.is_ok()) return malformed("cores");
  reader.word(" pus=");
  const std::vector<std::uint32_t> numbers = read_runs(reader);
  if (!reader.is_ok() || numbers.size() != topology.cores.back().end()) return malformed("pus");
  reader.word(" sockets=");
  topology.sockets = read_sizes(reader);
  if (!reader.is_ok()) return malformed("sockets");
  reader.word(" numa=");
  topology.numa_nodes = read_numa(reader);
  if (!reader.is_ok()) return malformed("numa");
  reader.word(" caches=");
  topology.caches = read_caches(reader);
  if (!reader.is_at_end()) return malformed("caches");

  topology.pus.resize(numbers.size());
  std::size_t next = 0;
  for_each_by_thread(topology.cores, [&](std::uint32_t pu) { topology.pus[pu].os_index = numbers[next++]; });
  TUTTI_RETURN_IF_ERROR(topology.check().with_context("not a topology summary"));
  return topology;
}

std::string cpu_list_text(std::vector<std::uint32_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return runs_text(numbers, false);
}

}  // namespace tutti
