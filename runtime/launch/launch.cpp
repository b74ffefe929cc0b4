// Reads the variables of launchers and unique ids. Knows no socket.
#include "runtime/launch/launch.hpp"

#include <fmt/format.h>
#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "runtime/base/network.hpp"

namespace tutti {
namespace {

constexpr int kMaxSize = 1 << 20;
constexpr std::string_view kIdPrefix = "tutti-";
constexpr std::size_t kIdNameDigits = 32;
constexpr std::size_t kIdSecretDigits = 64;
constexpr std::size_t kMaxHostBytes = 255;

// The names under which one launcher tells a rank its place.
struct PlaceVariables {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};
constexpr PlaceVariables kTuttiRun = {"tutti run", "TUTTI_RANK", "TUTTI_SIZE", "TUTTI_LOCAL_RANK",
                                      "TUTTI_LOCAL_SIZE"};
constexpr PlaceVariables kTorchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};

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
        fmt::format("{} is not set, but other variables say that {} started this process; set it, "
                    "or unset RANK, WORLD_SIZE and TUTTI_JOB_ID for a world of one",
                    name, launcher));
  }
  return std::string(*text);
}

// Rank and size are required. Set by hand, the local ones may be missing.
Status read_place(const Environment& environment, const PlaceVariables& names, LaunchInfo& info) {
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

// `tutti run` sets both families of names. If another launcher has changed one since, we cannot know whose
// job this is.
Status check_agreement(const Environment& environment) {
  constexpr std::pair<const char*, const char*> kPairs[] = {{kTuttiRun.rank, kTorchrun.rank},
                                                            {kTuttiRun.size, kTorchrun.size}};
  for (const auto& [ours, theirs] : kPairs) {
    const auto our_text = environment.find(ours), their_text = environment.find(theirs);
    if (our_text && their_text && *our_text != *their_text) {
      return invalid_argument(
          fmt::format("{}={} but {}={}: two launchers disagree; unset TUTTI_JOB_ID to follow {}, or "
                      "{} to follow {}",
                      ours, *our_text, theirs, *their_text, theirs, theirs, ours));
    }
  }
  return {};
}

// Hashed: the text may be of any length and have odd characters.
std::string make_job(std::string_view kind, std::string_view text) {
  std::array<unsigned char, 16> hash{};
  crypto_generichash(hash.data(), hash.size(), reinterpret_cast<const unsigned char*>(text.data()),
                     text.size(), nullptr, 0);
  return fmt::format("{}/{:02x}", kind, fmt::join(hash, ""));
}

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace

Result<LaunchInfo> detect_launch(const Environment& environment) {
  LaunchInfo info;
  const auto text_of = [&](const char* name) { return std::string(environment.find(name).value_or("")); };
  if (environment.find("TUTTI_JOB_ID")) {
    TUTTI_RETURN_IF_ERROR(read_place(environment, kTuttiRun, info));
    TUTTI_RETURN_IF_ERROR(check_agreement(environment));
    const Result<std::string> secret = require(environment, "TUTTI_SECRET", info.launcher);
    if (!secret) return secret.status();
    info.secret = *secret;
    info.job = make_job("run", text_of("TUTTI_JOB_ID"));
    if (text_of("TUTTI_ADDRESS") != "local") info.host = text_of("TUTTI_ADDRESS");
    return info;
  }
  if (!environment.find("RANK") && !environment.find("WORLD_SIZE")) {
    info.launcher = "none";
    return info;
  }
  TUTTI_RETURN_IF_ERROR(read_place(environment, kTorchrun, info));
  const Result<std::string> address = require(environment, "MASTER_ADDR", info.launcher);
  if (!address) return address.status();
  const Result<std::string> port_text = require(environment, "MASTER_PORT", info.launcher);
  if (!port_text) return port_text.status();
  const Result<int> port = parse_int("MASTER_PORT", *port_text, 1, 65535, "a port");
  if (!port) return port.status();
  info.secret = text_of("TUTTI_SECRET");
  // The restart count keeps a restarted job apart from ranks of its earlier life that are still dying.
  info.host = *address;
  info.job = make_job("torchrun", fmt::format("{}|{}|{}|{}", *address, *port, text_of("TORCHELASTIC_RUN_ID"),
                                              text_of("TORCHELASTIC_RESTART_COUNT")));
  return info;
}

Result<std::string> new_unique_id() {
  if (sodium_init() < 0) return internal_error("libsodium cannot get random numbers");
  std::array<unsigned char, kIdNameDigits / 2> name{};
  std::array<unsigned char, kIdSecretDigits / 2> secret{};
  randombytes_buf(name.data(), name.size());
  randombytes_buf(secret.data(), secret.size());
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {};
  return fmt::format("{}{:02x}-{:02x}@{}", kIdPrefix, fmt::join(name, ""), fmt::join(secret, ""),
                     host.data());
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
  if (size < 1 || size > kMaxSize) {
    return invalid_argument(fmt::format("size={}: expected a number of ranks from 1 to {}", size, kMaxSize));
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
  info.job = make_job("id", id.substr(kIdPrefix.size(), kIdNameDigits));
  return info;
}

}  // namespace tutti
