// The socket of a connection, as frames are written to and read from it: plain, or in sealed records.
// Knows no frame; of the records it knows nothing but how many bytes they are.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>

#include "runtime/net/records.hpp"

namespace tutti::tcp {

class Channel {
 public:
  Channel();
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Does not own the descriptor.
  void open(int fd, const WireSession& session);
  void close();
  bool is_open() const { return fd_ >= 0; }
  bool is_writable() const { return fd_ >= 0 && !is_shut_; }
  // Nothing is written any more; the peer and our own reading find the end.
  void shut_down();

  // As sendmsg(2) and recvmsg(2) without waiting: bytes of the stream, or -1 with errno. EBADMSG: a record does not verify,
  // and nothing more will be read. A short read means that the socket is empty.
  ssize_t write(std::span<iovec> pieces);
  ssize_t read(std::span<iovec> pieces);

  // Bytes that write() has taken and the socket has not.
  bool has_unsent() const { return sealed_ != nullptr && has_unsent_records(); }
  // Writes them. True if something moved.
  bool flush() { return sealed_ != nullptr && flush_records(); }
  // Would read() find something although nothing comes?
  bool has_unread() const { return sealed_ != nullptr && has_unread_records(); }

 private:
  struct Sealed;
  ssize_t write_records(std::span<iovec> pieces);
  ssize_t read_records(std::span<iovec> pieces);
  bool has_unsent_records() const;
  bool flush_records();
  bool has_unread_records() const;

  int fd_ = -1;
  bool is_shut_ = false;
  std::unique_ptr<Sealed> sealed_;  // null: plain
};

}  // namespace tutti::tcp
