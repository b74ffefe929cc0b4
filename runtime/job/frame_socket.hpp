// A control connection: a non-blocking unix or TCP socket for frames. Knows no rank and no protocol state.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/job/control_frame.hpp"
#include "runtime/net/records.hpp"

namespace tutti {

// Owns its descriptor, which a child of fork() closes at once. Used by one thread at a time.
class FrameSocket {
 public:
  FrameSocket() = default;
  explicit FrameSocket(int fd);
  FrameSocket(FrameSocket&& other) noexcept;
  FrameSocket& operator=(FrameSocket&& other) noexcept;
  ~FrameSocket() { close(); }

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  bool has_output() const { return sent_ < out_.size(); }
  void set_limit(std::size_t max_payload_bytes) { parser_.set_limit(max_payload_bytes); }

  // All bytes that follow, in both directions, are records of this session. The peer does so at the same place, behind
  // a welcome. So receive() hands out no frame behind a proof or a welcome: the next call of parse() does.
  void protect(const WireSession& session);
  // Appends frames that have come already. Errors: refused for bytes that are no frame.
  Status parse(std::vector<Frame>& frames);

  void send(const Frame& frame);
  // Writes what the socket takes. Errors: peer_failed when the connection is gone, timeout when the other
  // host has been silent for too long, aborted when it has reset the connection.
  Status flush();
  // Appends the frames that have arrived, also before an error. Errors: those of flush(), peer_failed at end
  // of file, refused for bytes that are no frame, aborted for a record that does not verify.
  Status receive(std::vector<Frame>& frames);
  void close();

 private:
  int fd_ = -1;
  struct Records {
    RecordKeys sending;
    RecordKeys receiving;
    std::string in;  // of an incomplete record
  };
  Status open_records(std::string_view bytes);

  FrameParser parser_;
  std::unique_ptr<Records> records_;  // null: plain
  std::string out_;
  std::size_t sent_ = 0;
  Status broken_;  // the error of writing that ended the connection
};

// Both: an abstract unix socket of this name, or one at this path if it begins with a slash. Non-blocking and
// closed on exec. Errors: resource_exhausted when the name is taken, internal with the system's reason.
Result<int> listen_at(const std::string& name);
// The connected descriptor, or -1 while no process listens there. Errors: refused if the listener is of
// another user; resource_exhausted if no descriptor is left.
Result<int> try_connect(const std::string& name);
bool is_path_name(const std::string& name);
// Whether a process listens there. `unknown`: its queue is full, or the system gives no answer.
enum class Listening : std::uint8_t { no, yes, unknown };
// With `yes` also the connected descriptor.
std::pair<Listening, int> ask_listener(const std::string& name);
// If it is a path: makes its directory, for this user alone, and removes a socket that an earlier run has
// left there. Errors: refused if the directory belongs to another user or is open to others.
Status prepare_name(const std::string& name);
void remove_name(const std::string& name);  // if it is a path
// Is the process at the other end of the same user?
bool is_same_user(int fd, int* pid);

}  // namespace tutti
