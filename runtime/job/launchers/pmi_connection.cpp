// Carries out PMI's requests. Knows no command.
#include "runtime/job/launchers/pmi_connection.hpp"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <limits>
#include <utility>

#include "runtime/job/launchers/rank_variables.hpp"
#include "runtime/job/launchers/session.hpp"

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMaxRecordBytes = std::size_t{1} << 20;
constexpr std::size_t kLengthBytes = 6;
constexpr auto kFinalizePatience = 2s;

}  // namespace

Result<LauncherSocket> PmiConnection::open_descriptor(const Environment& environment) {
  const Result<std::string> text = require(environment, "PMI_FD", "PMI");
  if (!text) return text.status();
  const Result<int> fd = parse_int("PMI_FD", *text, 0, std::numeric_limits<int>::max(), "an open descriptor");
  if (!fd) return fd.status();
  return LauncherSocket::adopt(*fd, fmt::format("PMI_FD={}", *fd));
}

Result<PmiRecord> PmiConnection::read_record(Clock::time_point deadline) {
  if (!is_framed_) {
    const Result<std::string> line = socket_.read_line(kMaxRecordBytes, deadline);
    if (!line) return line.status();
    return parse_pmi1(*line);
  }
  const Result<std::string> head = socket_.read_bytes(kLengthBytes, deadline);
  if (!head) return head.status();
  std::string_view digits = *head;
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  std::size_t length = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), length);
  if (error != std::errc{} || end != digits.data() + digits.size() || length > kMaxRecordBytes) {
    return internal_error(fmt::format("{}: '{}' is not the length of a record", name(), *head));
  }
  const Result<std::string> body = socket_.read_bytes(length, deadline);
  if (!body) return body.status();
  return parse_pmi2(*body);
}

Result<PmiRecord> PmiConnection::call(std::string request, std::string_view expected,
                                      Clock::time_point deadline) {
  const std::lock_guard lock(mutex_);
  if (socket_.is_inherited()) {
    return invalid_argument(fmt::format(
        "{} belongs to the process that the launcher started, not to its child of fork()", name()));
  }
  const auto explained = [](const Status& status) {
    if (status.code() != StatusCode::peer_failed) return status;
    return status.with_context("MPI_Finalize, or an earlier program of this rank, has ended PMI");
  };
  if (is_answer_owed_) {
    if (const Result<PmiRecord> late = read_record(deadline); !late) return explained(late.status());
    is_answer_owed_ = false;
  }
  if (!is_framed_) request += '\n';
  if (const Status sent = socket_.write(request, deadline); !sent) return explained(sent);
  is_answer_owed_ = true;
  Result<PmiRecord> answer = read_record(deadline);
  if (!answer) return explained(answer.status());
  is_answer_owed_ = false;
  if (answer->command != expected) {
    return internal_error(
        fmt::format("{}: the launcher answered '{}' where '{}' was expected; does another "
                    "thread use PMI or MPI_Init at the same time?",
                    name(), answer->command, expected));
  }
  return answer;
}

void PmiConnection::finalize(const std::string& request) {
  const std::lock_guard lock(mutex_);
  // With an answer owed, the reply to this request could not be told from it.
  if (is_over_ || is_answer_owed_ || socket_.is_inherited() || is_mpi_running()) return;
  is_over_ = true;
  const Clock::time_point deadline = Clock::now() + kFinalizePatience;
  // If MPI_Finalize has finalized PMI, the connection is closed and this fails harmlessly.
  if (socket_.write(is_framed_ ? request : request + '\n', deadline)) {
    static_cast<void>(read_record(deadline));
  }
}

}  // namespace tutti::detail
