// Reads ranks and sizes from variables, and makes names of jobs. Knows no launcher.
#include "runtime/job/launchers/rank_variables.hpp"

#include <fmt/format.h>
#include <sodium.h>

#include <array>
#include <charconv>
#include <utility>

namespace tutti::detail {

Result<int> parse_int(std::string_view name, std::string_view text, int low, int high,
                      std::string_view meaning) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high) {
    return invalid_argument(
        fmt::format("{}='{}': expected {}, a number from {} to {}", name, text, meaning, low, high));
  }
  return value;
}

Result<std::string> require(const Environment& environment, const char* name, std::string_view launcher) {
  const auto text = environment.find(name);
  if (!text) {
    return invalid_argument(
        fmt::format("{} is not set, but other variables say that {} started this process; set it, or name "
                    "the launcher in TUTTI_LAUNCHER (none: a world of one)",
                    name, launcher));
  }
  return std::string(*text);
}

Status read_rank(const Environment& environment, const RankVariables& names, LaunchInfo& info) {
  info.launcher = names.launcher;
  const Result<std::string> size = require(environment, names.size, names.launcher);
  if (!size) return size.status();
  const Result<int> size_value = parse_int(names.size, *size, 1, kMaxSize, "the number of ranks");
  if (!size_value) return size_value.status();
  const Result<std::string> rank = require(environment, names.rank, names.launcher);
  if (!rank) return rank.status();
  const Result<int> rank_value =
      parse_int(names.rank, *rank, 0, *size_value - 1, fmt::format("a rank below {}", names.size));
  if (!rank_value) return rank_value.status();
  info.rank = *rank_value;
  info.size = *size_value;
  if (names.local_size == nullptr) return {};
  if (const auto text = environment.find(names.local_size)) {
    const Result<int> value = parse_int(names.local_size, *text, 1, info.size,
                                        fmt::format("the ranks on this node, at most {}", names.size));
    if (!value) return value.status();
    info.local_size = *value;
  }
  if (const auto text = environment.find(names.local_rank); text && info.local_size > 0) {
    const Result<int> value = parse_int(names.local_rank, *text, 0, info.local_size - 1,
                                        fmt::format("a rank below {}", names.local_size));
    if (!value) return value.status();
    info.local_rank = *value;
  }
  return {};
}

Status check_agreement(const Environment& environment, const RankVariables& first,
                       const RankVariables& second) {
  const std::pair<const char*, const char*> pairs[] = {{first.rank, second.rank}, {first.size, second.size}};
  for (const auto& [ours, theirs] : pairs) {
    if (ours == nullptr || theirs == nullptr) continue;
    const auto our_text = environment.find(ours), their_text = environment.find(theirs);
    if (our_text && their_text && *our_text != *their_text) {
      return invalid_argument(fmt::format(
          "{}={} but {}={}: two launchers disagree; name the one to follow in TUTTI_LAUNCHER ({} or {})",
          ours, *our_text, theirs, *their_text, first.launcher, second.launcher));
    }
  }
  return {};
}

std::string make_job(std::string_view kind, std::string_view text) {
  std::array<unsigned char, 16> hash{};
  crypto_generichash(hash.data(), hash.size(), reinterpret_cast<const unsigned char*>(text.data()),
                     text.size(), nullptr, 0);
  return fmt::format("{}/{:02x}", kind, fmt::join(hash, ""));
}

}  // namespace tutti::detail
