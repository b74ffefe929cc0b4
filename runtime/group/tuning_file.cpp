// Finds, reads and judges the tuning file. Knows no rank; world_agreement.cpp makes the ranks agree.
#include "runtime/group/tuning_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "runtime/group/cache_limits.hpp"

namespace tutti {
namespace {

// Far more than any rules take; protects against reading an endless device.
constexpr std::size_t kMostFileBytes = std::size_t{16} << 20U;

Result<std::string> read_text(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return invalid_argument("it is a folder");
  std::ifstream file(path, std::ios::binary);
  if (!file) return invalid_argument(fmt::format("it cannot be read ({})", std::strerror(errno)));
  std::string text(kMostFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (file.bad()) return invalid_argument("it cannot be read to its end");
  if (text.size() > kMostFileBytes) return invalid_argument("it is longer than any tuning file");
  return text;
}

Result<Tuning> read_fitting(const std::string& path, const Fingerprint& here) {
  const auto text = read_text(path);
  if (!text) return text.status().with_context(path);
  auto tuning = parse_tuning(*text, path);
  if (!tuning) return tuning.status();
  const std::string difference = describe_difference(tuning->fingerprint, here);
  if (!difference.empty()) return invalid_argument(fmt::format("{}: {}", path, difference));
  return tuning;
}

Status failed(const std::string& path, std::string_view what) {
  return invalid_argument(fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
}

}  // namespace

void TuningFile::refuse(std::string reason) {
  tuning = {};
  refusal = std::move(reason);
}

std::string default_tuning_path(const Environment& environment) {
  if (const auto folder = environment.find("XDG_CONFIG_HOME"))
    return std::string(*folder) + "/tutti/tuning.json";
  if (const auto home = environment.find("HOME")) return std::string(*home) + "/.config/tutti/tuning.json";
  return {};
}

Fingerprint fingerprint_of(const Topology& topology) {
  Fingerprint fingerprint;
  if (!topology.cpu_model.empty()) fingerprint.emplace_back("cpu", topology.cpu_model);
  const auto counted = [](std::size_t count, std::string_view what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  };
  fingerprint.emplace_back(
      "machine", fmt::format("{}, {}, {}; {}", counted(topology.sockets.size(), "socket"),
                             counted(topology.cores.size(), "core"), counted(topology.pus.size(), "CPU"),
                             describe(caches_of(topology))));
  return fingerprint;
}

void append_job(Fingerprint& fingerprint, const JobShape& job) {
  if (!job.node_transport.empty()) fingerprint.emplace_back("node", job.node_transport);
  if (job.network_transport.empty()) return;
  fingerprint.emplace_back("network", job.network_transport);
  const std::uint32_t least = job.least_ranks_per_node, most = job.most_ranks_per_node;
  fingerprint.emplace_back("ranks_per_node",
                           least == most ? fmt::format("{}", most) : fmt::format("{}-{}", least, most));
}

Result<Tuning> read_for_extension(const std::string& path, const Fingerprint& here, std::string* what) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return Tuning();
  std::ifstream file(path, std::ios::binary);
  if (!file) return failed(path, "cannot be read");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  auto tuning = parse_tuning(text, path);
  if (!tuning) return tuning.status().with_context("not overwritten, since it is no tuning file");
  const std::string difference = describe_difference(tuning->fingerprint, here);
  if (difference.empty() && !tuning->fingerprint.empty()) return tuning;
  // Imported rules fit anywhere; measured ones do not, so the two cannot share a file.
  *what = difference.empty() ? "it holds no measured rules" : difference;
  return Tuning();
}

Status write_tuning(const std::string& path, const Tuning& tuning) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) return invalid_argument(fmt::format("{}: cannot be made: {}", folder.string(), error.message()));
  const std::string draft = fmt::format("{}.{}", path, ::getpid());
  {
    std::ofstream file(draft, std::ios::binary);
    file << to_text(tuning);
    file.flush();
    if (!file) return failed(draft, "cannot be written");
  }
  std::filesystem::rename(draft, path, error);
  if (error) return invalid_argument(fmt::format("{}: cannot be written: {}", path, error.message()));
  return {};
}

Status save_fusion(const std::string& path, const Fingerprint& here, std::uint32_t rank_count,
                   const FusionTuning& setting) {
  std::string other;
  auto tuning = read_for_extension(path, here, &other);
  if (!tuning) return tuning.status();
  if (!other.empty()) return invalid_argument(fmt::format("{}: not overwritten: {}", path, other));
  tuning->fingerprint = here;
  if (tuning->origin.empty()) tuning->origin = "TUTTI_AUTOTUNE";
  tuning->fusion[rank_count] = setting;
  return write_tuning(path, *tuning);
}

std::string describe(const TuningFile& file) {
  if (!file.refusal.empty()) return "not used: " + file.refusal;
  if (file.path.empty()) return "none";
  return file.tuning.origin.empty() ? file.path : fmt::format("{} ({})", file.path, file.tuning.origin);
}

Result<TuningFile> load_tuning(const Environment& environment, const Fingerprint& here) {
  const auto setting = get_text(environment, "TUTTI_TUNING_FILE");
  if (!setting) return setting.status();
  const std::string value = setting->value_or("auto");
  TuningFile file;
  if (value == "off") return file;
  file.is_named = value != "auto";
  file.path = file.is_named ? value : default_tuning_path(environment);
  file.save_path = file.path;
  const auto is_autotuned = get_flag(environment, "TUTTI_AUTOTUNE");
  if (!is_autotuned) return is_autotuned.status();
  std::error_code error;
  const bool may_lack = !file.is_named || *is_autotuned;
  if (may_lack && !file.path.empty() && !std::filesystem::exists(file.path, error)) file.path.clear();
  if (file.path.empty()) return file;
  auto tuning = read_fitting(file.path, here);
  if (tuning) {
    file.tuning = *std::move(tuning);
  } else if (file.is_named) {
    return tuning.status().with_context("TUTTI_TUNING_FILE");
  } else {
    file.refuse(tuning.status().message());
  }
  return file;
}

}  // namespace tutti
