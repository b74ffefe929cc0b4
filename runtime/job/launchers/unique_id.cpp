// Unique ids: text that one process makes and all ranks join by. Knows no launcher.
#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>

#include "runtime/job/launchers/launch.hpp"
#include "runtime/job/launchers/rank_variables.hpp"
#include "runtime/net/network.hpp"

namespace tutti {
namespace {

constexpr std::string_view kIdPrefix = "tutti-";
constexpr std::size_t kIdNameDigits = 32;
constexpr std::size_t kIdSecretDigits = 64;
constexpr std::size_t kMaxHostBytes = 255;

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace

Result<std::string> new_unique_id() {
  if (sodium_init() < 0) return internal_error("libsodium cannot get random numbers");
  std::array<unsigned char, kIdNameDigits / 2> name{};
  std::array<unsigned char, kIdSecretDigits / 2> secret{};
  randombytes_buf(name.data(), name.size());
  randombytes_buf(secret.data(), secret.size());
  // Every address of this machine: the other node finds out which of them it can reach.
  const auto all = list_interfaces();
  const auto selected = all ? select_interfaces(*all, "") : all;
  if (!selected) return selected.status();
  std::string hosts;
  for (const Interface& interface : *selected) {
    const std::string host = interface.address.host_text();
    if (hosts.size() + 1 + host.size() <= kMaxHostBytes) hosts += (hosts.empty() ? "" : ",") + host;
  }
  return fmt::format("{}{:02x}-{:02x}@{}", kIdPrefix, fmt::join(name, ""), fmt::join(secret, ""), hosts);
}

Result<LaunchInfo> launch_from_unique_id(std::string_view id, int rank, int size) {
  constexpr std::size_t kSecretAt = kIdPrefix.size() + kIdNameDigits + 1;
  constexpr std::size_t kHostAt = kSecretAt + kIdSecretDigits + 1;
  const bool is_well_formed = id.size() >= kHostAt && id.size() <= kHostAt + kMaxHostBytes &&
                              id.starts_with(kIdPrefix) && id[kSecretAt - 1] == '-' &&
                              id[kHostAt - 1] == '@' && is_hex(id.substr(kIdPrefix.size(), kIdNameDigits)) &&
                              is_hex(id.substr(kSecretAt, kIdSecretDigits)) &&
                              is_printable(id.substr(kHostAt));
  // The id is not repeated in the message: it holds the secret.
  if (!is_well_formed) {
    return invalid_argument("unique id: this is not a text that make_unique_id() returned");
  }
  if (size < 1 || size > detail::kMaxSize) {
    return invalid_argument(
        fmt::format("size={}: expected a number of ranks from 1 to {}", size, detail::kMaxSize));
  }
  if (rank < 0 || rank >= size) {
    return invalid_argument(fmt::format("rank={}: expected a rank from 0 to {}", rank, size - 1));
  }
  LaunchInfo info;
  info.rank = rank;
  info.size = size;
  info.secret = id.substr(kSecretAt, kIdSecretDigits);
  info.host = id.substr(kHostAt);
  info.launcher = "unique id";
  info.job = detail::make_job("id", id.substr(kIdPrefix.size(), kIdNameDigits));
  return info;
}

}  // namespace tutti
