// Writes failures as JSON; see error_file.hpp.
#include "runtime/group/error_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "runtime/base/rank_path.hpp"
#include "runtime/base/verdict.hpp"

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(int number, bool is_known) { return is_known ? Json(number) : Json(); }
Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json call_to_json(std::uint32_t sequence, const std::string& call) {
  if (sequence == 0) return {};
  return {{"sequence", sequence}, {"call", text_or_null(call)}};
}

Json completed_to_json(const RankVerdict& verdict) {
  Json call = call_to_json(verdict.completed_sequence, verdict.completed_call);
  if (verdict.completed_is_report) call["is_report"] = true;
  return call;
}

Json verdict_to_json(const RankVerdict& verdict) {
  return {{"verdict", to_string(verdict.kind)},
          {"rank", number_or_null(verdict.group_rank, verdict.group_rank >= 0)},
          {"world_rank", number_or_null(verdict.world_rank, verdict.world_rank >= 0)},
          {"host", text_or_null(verdict.host)},
          {"pid", number_or_null(verdict.pid, verdict.pid != 0)},
          {"reason", text_or_null(verdict.reason)},
          {"signal", number_or_null(verdict.signal, verdict.signal != 0)},
          {"exit_status", number_or_null(verdict.exit_status, verdict.exit_status >= 0)},
          {"last_completed", completed_to_json(verdict)},
          {"operation", text_or_null(verdict.operation)},
          {"missed_in", text_or_null(verdict.awaited)},
          {"consequence_of", number_or_null(verdict.cause_rank, verdict.cause_rank >= 0)}};
}

Status refused(const std::string& path, const char* what) {
  return invalid_argument(
      fmt::format("TUTTI_ERROR_FILE: cannot {} '{}': {}", what, path, std::strerror(errno)));
}

}  // namespace

std::string failure_to_json(const WorldInfo& world, const FailedGroup& group, const Status& cause) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const int peer = cause.peer();
  const bool has_peer = peer >= 0 && peer < static_cast<int>(group.world_ranks.size());
  const int culprit = has_peer ? group.world_ranks[static_cast<std::size_t>(peer)] : -1;
  Json call;
  if (!group.calls.empty()) {
    const SubmittedCall& last = group.calls.back();
    call = call_to_json(last.sequence, describe_contract(last.kind, last.count));
  }
  Json root_cause, consequences = Json::array();
  for (const RankVerdict& verdict : cause.verdicts()) {
    (root_cause.is_null() ? root_cause : consequences.emplace_back()) = verdict_to_json(verdict);
  }
  const auto rank = static_cast<std::size_t>(world.rank);
  const Json record = {
      {"format", "tutti-failure-1"},
      {"time", std::chrono::duration<double>(now).count()},
      {"code", to_string(cause.code())},
      {"message", cause.message()},
      {"is_consequence", culprit != world.rank},
      {"world", {{"rank", world.rank}, {"size", world.size}}},
      {"host", world.host_of_rank[rank]},
      {"pid", world.pid_of_rank[rank]},
      {"group", {{"rank", group.rank}, {"world_ranks", group.world_ranks}}},
      {"last_call", call},
      {"peer", {{"rank", number_or_null(peer, has_peer)}, {"world_rank", number_or_null(culprit, has_peer)}}},
      {"root_cause", root_cause},
      {"others", consequences}};
  return record.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

Status write_error_file(const std::string& pattern, const WorldInfo& world, const std::string& json) {
  const std::string path = path_of_rank(pattern, world.rank, world.size);
  const std::string fresh = fmt::format("{}.{}", path, ::getpid());
  ::unlink(fresh.c_str());  // of an earlier process with this pid
  const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return refused(fresh, "make");
  const bool is_written = ::write(fd, json.data(), json.size()) == static_cast<ssize_t>(json.size());
  Status status = is_written ? Status() : refused(fresh, "write");
  ::close(fd);
  if (status && ::rename(fresh.c_str(), path.c_str()) != 0) return refused(path, "replace");
  if (!status) ::unlink(fresh.c_str());
  return status;
}

}  // namespace tutti
