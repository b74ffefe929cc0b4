// Speaks PMI-1. Knows no bootstrap.
#include "runtime/launch/pmi1.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <limits>
#include <utility>

#include "runtime/launch/place.hpp"

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMaxLineBytes = std::size_t{1} << 20;
constexpr auto kFarewellPatience = 2s;
// Shorter ones would leave no room for tutti's own marks.
constexpr int kLeastKeyBytes = 48, kLeastValueBytes = 64;

}  // namespace

Pmi1::Pmi1(LauncherSocket socket) : socket_(std::move(socket)), pid_(::getpid()) {}

Result<std::shared_ptr<Pmi1>> Pmi1::open(const Environment& environment, Clock::time_point deadline) {
  const bool has_fd = environment.find("PMI_FD").has_value();
  Result<LauncherSocket> socket = invalid_argument("neither PMI_FD nor PMI_PORT is set");
  LaunchInfo place;
  std::string id;
  if (has_fd) {
    TUTTI_RETURN_IF_ERROR(read_place(environment, {"pmi1", "PMI_RANK", "PMI_SIZE", nullptr, nullptr}, place));
    const Result<int> fd = parse_int("PMI_FD", *environment.find("PMI_FD"), 0,
                                     std::numeric_limits<int>::max(), "an open descriptor");
    if (!fd) return fd.status();
    socket = LauncherSocket::adopt(*fd, fmt::format("PMI_FD={}", *fd));
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

// Over a port the launcher does not know who calls. It answers with four lines.
Status Pmi1::introduce(const std::string& id, Clock::time_point deadline) {
  TUTTI_RETURN_IF_ERROR(socket_.write(fmt::format("cmd=initack pmiid={}\n", id), deadline));
  const Result<PmiRecord> answer = read_record(deadline);
  if (!answer) return answer.status();
  if (answer->command != "initack") {
    return internal_error(fmt::format("{}: '{}' instead of initack", socket_.name(), answer->command));
  }
  size_ = rank_ = -1;
  for (int i = 0; i < 3; ++i) {
    const Result<PmiRecord> setting = read_record(deadline);
    if (!setting) return setting.status();
    if (!setting->field("size").empty()) size_ = setting->number("size");
    if (!setting->field("rank").empty()) rank_ = setting->number("rank");
  }
  if (size_ < 1 || size_ > kMaxSize || rank_ < 0 || rank_ >= size_) {
    return internal_error(fmt::format("{}: rank {} of {} is not a rank", socket_.name(), rank_, size_));
  }
  return {};
}

Status Pmi1::ask_names(Clock::time_point deadline) {
  // Said by MPI_Init once more, before or after; Hydra takes that.
  const Result<PmiRecord> init =
      call("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", deadline);
  if (!init) return init.status();
  if (init->number("rc") != 0) {
    return unsupported(fmt::format("{}: the launcher does not speak PMI 1.1", socket_.name()));
  }
  const Result<PmiRecord> limits = call("cmd=get_maxes", "maxes", deadline);
  if (!limits) return limits.status();
  const int key_bytes = limits->number("keylen_max"), value_bytes = limits->number("vallen_max");
  if (key_bytes < kLeastKeyBytes || value_bytes < kLeastValueBytes) {
    return unsupported(fmt::format("{}: keys of {} and values of {} bytes are too short", socket_.name(),
                                   key_bytes, value_bytes));
  }
  // Hydra counts the zero byte at the end.
  key_limit_bytes_ = static_cast<std::size_t>(key_bytes - 1);
  value_limit_bytes_ = static_cast<std::size_t>(value_bytes - 1);
  const Result<PmiRecord> name = call("cmd=get_my_kvsname", "my_kvsname", deadline);
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

Result<PmiRecord> Pmi1::read_record(Clock::time_point deadline) {
  const Result<std::string> line = socket_.read_line(kMaxLineBytes, deadline);
  if (!line) return line.status();
  return parse_pmi1(*line);
}

Result<PmiRecord> Pmi1::call(const std::string& request, std::string_view expected,
                             Clock::time_point deadline) {
  const std::lock_guard lock(mutex_);
  if (pid_ != ::getpid()) {
    return invalid_argument(fmt::format(
        "{} belongs to the process that the launcher started, not to its child of fork()", socket_.name()));
  }
  const auto explained = [](const Status& status) {
    if (status.code() != StatusCode::peer_failed) return status;
    return status.with_context("MPI_Finalize, or an earlier program of this rank, has ended PMI");
  };
  if (is_answer_owed_) {
    if (const Result<PmiRecord> late = read_record(deadline); !late) return explained(late.status());
    is_answer_owed_ = false;
  }
  if (const Status sent = socket_.write(request + '\n', deadline); !sent) return explained(sent);
  is_answer_owed_ = true;
  Result<PmiRecord> answer = read_record(deadline);
  if (!answer) return explained(answer.status());
  is_answer_owed_ = false;
  if (answer->command != expected) {
    return internal_error(
        fmt::format("{}: the launcher answered '{}' where '{}' was expected; does another "
                    "thread use PMI or MPI_Init at the same time?",
                    socket_.name(), answer->command, expected));
  }
  return answer;
}

Status Pmi1::put(const std::string& key, const std::string& value, Clock::time_point deadline) {
  const Result<PmiRecord> answer = call(
      fmt::format("cmd=put kvsname={} key={} value={}", space_name_, key, value), "put_result", deadline);
  if (!answer) return answer.status();
  if (answer->number("rc") != 0) {
    return internal_error(fmt::format("{}: put of {}: {}", describe(), key, answer->field("msg")));
  }
  return {};
}

Result<std::optional<std::string>> Pmi1::find(const std::string& key, Clock::time_point deadline) {
  const Result<PmiRecord> answer =
      call(fmt::format("cmd=get kvsname={} key={}", space_name_, key), "get_result", deadline);
  if (!answer) return answer.status();
  if (answer->number("rc") != 0) return std::optional<std::string>();
  return std::optional<std::string>(answer->field("value"));
}

Status Pmi1::fence(Clock::time_point deadline) {
  const Result<PmiRecord> answer = call("cmd=barrier_in", "barrier_out", deadline);
  if (answer.status().code() == StatusCode::timeout) {
    return Status(
        StatusCode::timeout,
        fmt::format("{}: rank {} is in the fence, but not all of the {} ranks have come; PMI does not "
                    "say who is missing",
                    describe(), rank_, size_));
  }
  return answer.status();
}

std::string Pmi1::describe() const { return fmt::format("PMI-1 ({}, {})", socket_.name(), space_name_); }

void Pmi1::finalize() {
  const std::lock_guard lock(mutex_);
  // With an answer owed, the launcher would take it for one to something else.
  if (is_finalized_ || is_answer_owed_ || pid_ != ::getpid() || is_mpi_running()) return;
  is_finalized_ = true;
  const Clock::time_point deadline = Clock::now() + kFarewellPatience;
  // If MPI_Finalize has said farewell, the connection is closed and this fails, which is as well.
  if (socket_.write("cmd=finalize\n", deadline)) static_cast<void>(read_record(deadline));
}

}  // namespace tutti::detail
