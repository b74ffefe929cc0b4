// The connection of a PMI client: requests and answers of both versions, one after the other. Knows no
// command.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/config.hpp"
#include "runtime/job/launchers/launcher_socket.hpp"
#include "runtime/job/launchers/pmi_text.hpp"

namespace tutti::detail {

// Not to be used while another thread is in MPI_Init or MPI_Finalize, which speak over the same socket. Any
// thread otherwise.
class PmiConnection {
 public:
  explicit PmiConnection(LauncherSocket socket) : socket_(std::move(socket)) {}
  // Of the descriptor that PMI_FD names. Errors: invalid_argument.
  static Result<LauncherSocket> open_descriptor(const Environment& environment);

  // Later records are frames with their length in front (PMI-2) instead of lines.
  void use_frames() { is_framed_ = true; }
  // Sends a request (a line without its newline, or the result of write_pmi2()) and reads the answer, which
  // must be `expected`. A late answer to a call that ended by its deadline is dropped. Errors: timeout;
  // peer_failed; invalid_argument in a child of fork(); internal for another answer.
  Result<PmiRecord> call(std::string request, std::string_view expected, Clock::time_point deadline);
  // Reads a record that the launcher sends without a request.
  Result<PmiRecord> read_record(Clock::time_point deadline);
  // The last call. Does nothing while an answer is owed, or where MPI will make it.
  void finalize(const std::string& request);
  const std::string& name() const { return socket_.name(); }

 private:
  LauncherSocket socket_;
  std::mutex mutex_;
  bool is_framed_ = false;
  bool is_answer_owed_ = false;
  bool is_over_ = false;
};

}  // namespace tutti::detail
