// Speaks PMI-1. Knows no bootstrap.
#include "runtime/job/launchers/pmi1.hpp"

#include <fmt/format.h>

#include <utility>

#include "runtime/job/launchers/rank_variables.hpp"

namespace tutti::detail {
namespace {

// Shorter ones would leave no room for tutti's own marks.
constexpr int kLeastKeyBytes = 48, kLeastValueBytes = 64;

}  // namespace

Result<std::shared_ptr<Pmi1>> Pmi1::open(const Environment& environment, Clock::time_point deadline) {
  const bool has_fd = environment.find("PMI_FD").has_value();
  Result<LauncherSocket> socket = invalid_argument("neither PMI_FD nor PMI_PORT is set");
  LaunchInfo place;
  std::string id;
  if (has_fd) {
    TUTTI_RETURN_IF_ERROR(read_rank(environment, {"pmi1", "PMI_RANK", "PMI_SIZE", nullptr, nullptr}, place));
    socket = PmiConnection::open_descriptor(environment);
  } else if (const auto address = environment.find("PMI_PORT")) {
    Result<std::string> asked = require(environment, "PMI_ID", "pmi1");
    if (!asked) return asked.status();
    id = *std::move(asked);
    socket = LauncherSocket::connect(*address, deadline, "PMI_PORT");
  }
  if (!socket) return socket.status();
  const std::shared_ptr<Pmi1> session(new Pmi1(*std::move(socket)));
  session->rank_ = place.rank;
  session->size_ = place.size;
  if (!has_fd) TUTTI_RETURN_IF_ERROR(session->introduce(id, deadline));
  TUTTI_RETURN_IF_ERROR(session->ask_names(deadline));
  return session;
}

Result<std::shared_ptr<Pmi1>> Pmi1::of_process(const Environment& environment, Clock::time_point deadline) {
  static SessionOfProcess<Pmi1> session;
  std::string key;
  for (const char* name : {"PMI_FD", "PMI_PORT", "PMI_ID", "PMI_RANK"}) {
    key += fmt::format("{}|", environment.find(name).value_or(""));
  }
  return session.get(key, [&] { return open(environment, deadline); });
}

// Over a port the launcher cannot tell its processes apart, so each names itself. The answer has four lines.
Status Pmi1::introduce(const std::string& id, Clock::time_point deadline) {
  const Result<PmiRecord> answer =
      connection_.call(fmt::format("cmd=initack pmiid={}", id), "initack", deadline);
  if (!answer) return answer.status();
  size_ = rank_ = -1;
  for (int i = 0; i < 3; ++i) {
    const Result<PmiRecord> setting = connection_.read_record(deadline);
    if (!setting) return setting.status();
    if (!setting->field("size").empty()) size_ = setting->number("size");
    if (!setting->field("rank").empty()) rank_ = setting->number("rank");
  }
  if (size_ < 1 || size_ > kMaxSize || rank_ < 0 || rank_ >= size_) {
    return internal_error(fmt::format("{}: rank {} of {} is not a rank", connection_.name(), rank_, size_));
  }
  return {};
}

Status Pmi1::ask_names(Clock::time_point deadline) {
  // MPI_Init sends it once more, before or after; Hydra accepts that.
  const Result<PmiRecord> init =
      connection_.call("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", deadline);
  if (!init) return init.status();
  if (init->number("rc") != 0) {
    return unsupported(fmt::format("{}: the launcher does not speak PMI 1.1", connection_.name()));
  }
  const Result<PmiRecord> limits = connection_.call("cmd=get_maxes", "maxes", deadline);
  if (!limits) return limits.status();
  const int key_bytes = limits->number("keylen_max"), value_bytes = limits->number("vallen_max");
  if (key_bytes < kLeastKeyBytes || value_bytes < kLeastValueBytes) {
    return unsupported(fmt::format("{}: keys of {} and values of {} bytes are too short", connection_.name(),
                                   key_bytes, value_bytes));
  }
  // Hydra counts the zero byte at the end.
  key_limit_bytes_ = static_cast<std::size_t>(key_bytes - 1);
  value_limit_bytes_ = static_cast<std::size_t>(value_bytes - 1);
  const Result<PmiRecord> name = connection_.call("cmd=get_my_kvsname", "my_kvsname", deadline);
  if (!name) return name.status();
  space_name_ = name->field("kvsname");
  const Result<std::optional<std::string>> mapping = find("PMI_process_mapping", deadline);
  if (!mapping) return mapping.status();
  if (mapping->has_value()) {
    Result<std::vector<int>> nodes = parse_process_mapping(**mapping, size_);
    if (!nodes) return nodes.status();
    node_of_rank_ = *std::move(nodes);
  }
  return {};
}

Status Pmi1::put(const std::string& key, const std::string& value, Clock::time_point deadline) {
  const Result<PmiRecord> answer = connection_.call(
      fmt::format("cmd=put kvsname={} key={} value={}", space_name_, key, value), "put_result", deadline);
  if (!answer) return answer.status();
  if (answer->number("rc") != 0) {
    return internal_error(fmt::format("{}: put of {}: {}", describe(), key, answer->field("msg")));
  }
  return {};
}

Result<std::optional<std::string>> Pmi1::find(const std::string& key, Clock::time_point deadline) {
  const Result<PmiRecord> answer =
      connection_.call(fmt::format("cmd=get kvsname={} key={}", space_name_, key), "get_result", deadline);
  if (!answer) return answer.status();
  if (answer->number("rc") != 0) return std::optional<std::string>();
  return std::optional<std::string>(answer->field("value"));
}

Status Pmi1::fence(Clock::time_point deadline) {
  const Result<PmiRecord> answer = connection_.call("cmd=barrier_in", "barrier_out", deadline);
  return explain_fence(answer.status(), describe(), rank_, size_);
}

std::string Pmi1::describe() const { return fmt::format("PMI-1 ({}, {})", connection_.name(), space_name_); }

}  // namespace tutti::detail
