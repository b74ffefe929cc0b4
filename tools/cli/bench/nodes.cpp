// Enters a bed of nodes and starts ranks in it. Knows the script's words and variables.
#include "tools/cli/bench/nodes.hpp"

#include <fmt/format.h>
#include <sodium.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "runtime/base/ascii.hpp"
#include "tools/cli/files.hpp"

namespace tutti::tool {
namespace {

constexpr int kMostNodes = 253;
constexpr int kMostRanksPerNode = 1024;

std::optional<int> parse_count(std::string_view text, int most) {
  const std::optional<int> value = parse_number<int>(text);
  return value && *value >= 1 && *value <= most ? value : std::nullopt;
}

std::string random_hex() {
  unsigned char raw[32];
  char hex[2 * sizeof raw + 1];
  randombytes_buf(raw, sizeof raw);
  return sodium_bin2hex(hex, sizeof hex, raw, sizeof raw);
}

}  // namespace

std::optional<NodePlan> parse_nodes(std::string_view text) {
  const std::size_t cross = text.find('x');
  const auto nodes = parse_count(text.substr(0, cross), kMostNodes);
  const auto ranks =
      cross == std::string_view::npos ? 1 : parse_count(text.substr(cross + 1), kMostRanksPerNode);
  if (!nodes || !ranks) return std::nullopt;
  return NodePlan{*nodes, *ranks};
}

std::optional<Bed> Bed::current() {
  std::vector<std::string> values;
  for (const char* name :
       {"TESTBED_PROGRAM", "TESTBED_NETWORK", "TESTBED_HUB", "TESTBED_ADDRESSES", "TESTBED_HOLDERS"}) {
    const char* value = std::getenv(name);
    if (value == nullptr) return std::nullopt;
    values.emplace_back(value);
  }
  Bed bed{values[0], values[1], values[2], {}, {}};
  for (const std::string_view address : split(values[3], ',')) bed.addresses.emplace_back(address);
  for (const std::string_view holder : split(values[4], ','))
    bed.namespaces.push_back(fmt::format("/proc/{}/ns/net", holder));
  return bed;
}

std::vector<std::string> Bed::rank_words(int ranks_per_node) const {
  return {program,
          "ranks",
          std::to_string(ranks_per_node),
          "--",
          "env",
          "TUTTI_RANK={rank}",
          "TUTTI_SIZE={size}",
          "TUTTI_LOCAL_RANK={local_rank}",
          "TUTTI_LOCAL_SIZE={local_size}"};
}

std::vector<std::pair<std::string, std::string>> Bed::job_environment() const {
  return {
      {"TUTTI_JOB_ID", random_hex()}, {"TUTTI_SECRET", random_hex()}, {"TUTTI_ADDRESS", addresses.front()}};
}

Status enter_bed(const NodePlan& plan, const std::string& rate, const std::vector<std::string>& command) {
  auto script = find_data_file("cli/testbed.py", "testbed.py");
  if (!script) return script.status();
  std::vector<std::string> words = {*script, "--nodes", std::to_string(plan.node_count)};
  if (!rate.empty()) words.insert(words.end(), {"--rate", rate});
  words.emplace_back("--");
  words.insert(words.end(), command.begin(), command.end());
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::fflush(nullptr);
  ::execv(arguments[0], arguments.data());
  return unsupported(fmt::format("cannot start {} (it needs python3): {}", *script, std::strerror(errno)));
}

}  // namespace tutti::tool
