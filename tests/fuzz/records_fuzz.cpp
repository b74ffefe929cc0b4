// Fuzzes what comes over a protected connection: records that a man in the middle has changed, dropped, repeated or made up,
// for the channel of tcp's connections and for control connections. Whatever is handed on must be a beginning of what was
// sent. The first byte chooses mode, cipher and the size of pieces; each following group of four bytes is one change.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "runtime/job/frame_socket.hpp"
#include "transports/message/tcp/channel.hpp"

using namespace tutti;

namespace {

constexpr WireKey kKey{9, 9, 9};
constexpr std::size_t kRecords = 6;

// The records of a sender, with the changes of the input.
std::string spoil(std::vector<std::string> records, std::span<const std::uint8_t> changes) {
  for (; changes.size() >= 4; changes = changes.subspan(4)) {
    std::string& record = records[changes[1] % records.size()];
    std::string& other = records[changes[2] % records.size()];
    const std::size_t at = record.empty() ? 0 : changes[2] * std::size_t{257} % record.size();
    switch (changes[0] % 7) {
      case 0:
        if (!record.empty()) record[at] = static_cast<char>(record[at] ^ changes[3]);
        break;
      case 1:
        record.clear();
        break;
      case 2:
        record = record.substr(0, 400) + record.substr(0, 400);
        break;
      case 3:
        std::swap(record, other);
        break;
      case 4:
        record.resize(at);
        break;
      case 5:
        record.insert(at, changes[3], static_cast<char>(changes[2]));
        break;
      case 6:
        record.assign(changes.begin(), changes.end());
        break;
    }
  }
  std::string all;
  for (const std::string& record : records) all += record;
  return all;
}

struct Wire {
  Wire() {
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()) != 0) std::abort();
  }
  std::array<int, 2> fds{};
};

void check_channel(const WireSession& session, std::span<const std::uint8_t> changes,
                   std::size_t piece_bytes) {
  RecordKeys keys(session.terms, session.receiving);
  std::string sent;
  std::vector<std::string> records;
  for (std::size_t i = 0; i < kRecords; ++i) {
    const std::string text(1 + i * i * 311, static_cast<char>('a' + i));
    sent += text;
    std::string record = std::string(kRecordHeadBytes, '\0') + text + std::string(kRecordTagBytes, '\0');
    keys.seal(std::as_writable_bytes(std::span(record)));
    records.push_back(std::move(record));
  }
  const std::string stream = spoil(std::move(records), changes);
  Wire wire;
  tcp::Channel channel;
  channel.open(wire.fds[0], session);
  std::string got;
  std::array<char, 1000> buffer{};
  bool is_over = false;
  for (std::size_t at = 0; at < stream.size() && !is_over; at += piece_bytes) {
    const std::string piece = stream.substr(at, piece_bytes);
    if (::send(wire.fds[1], piece.data(), piece.size(), MSG_NOSIGNAL) < 0) break;
    for (;;) {
      iovec to{buffer.data(), buffer.size()};
      const ssize_t bytes = channel.read({&to, 1});
      is_over = bytes < 0 && errno == EBADMSG;
      if (bytes <= 0) break;
      got.append(buffer.data(), static_cast<std::size_t>(bytes));
    }
  }
  if (!sent.starts_with(got)) std::abort();
  channel.close();
  for (const int fd : wire.fds) ::close(fd);
}

void check_frames(const WireSession& session, std::span<const std::uint8_t> changes) {
  RecordKeys keys(session.terms, session.receiving);
  std::vector<std::string> records;
  for (std::size_t i = 0; i < kRecords; ++i) {
    std::string record(kRecordHeadBytes, '\0');
    append_frame(record,
                 Frame{FrameType::message, static_cast<std::int32_t>(i), 0, std::string(i * 50, 'x')});
    record.append(kRecordTagBytes, '\0');
    keys.seal(std::as_writable_bytes(std::span(record)));
    records.push_back(std::move(record));
  }
  const std::string stream = spoil(std::move(records), changes);
  Wire wire;
  FrameSocket socket(wire.fds[0]);
  socket.protect(session);
  static_cast<void>(::send(wire.fds[1], stream.data(), stream.size(), MSG_NOSIGNAL));
  std::vector<Frame> frames;
  static_cast<void>(socket.receive(frames));
  for (std::size_t i = 0; i < frames.size(); ++i) {
    if (frames[i].source != static_cast<std::int32_t>(i) || frames[i].payload != std::string(i * 50, 'x'))
      std::abort();
  }
  ::close(wire.fds[1]);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::uint8_t> changes(data + 1, size - 1);
  const WireSecurity security = (data[0] & 1U) != 0 ? WireSecurity::encrypt : WireSecurity::auth;
  const WireTerms terms{security, (data[0] & 2U) != 0 && make_offer(security).has_aes};
  const WireSession session = make_session(terms, kKey, "transcript", true);
  if ((data[0] & 4U) != 0) {
    check_frames(session, changes);
  } else {
    check_channel(session, changes, 1 + (data[0] >> 3U) * std::size_t{611});
  }
  return 0;
}
