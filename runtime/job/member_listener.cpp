// Listening sockets and probes of members; see member_listener.hpp.
#include "runtime/job/member_listener.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <utility>

#include "runtime/net/tcp_socket.hpp"

namespace tutti {
namespace {

constexpr std::chrono::milliseconds kProbePause{5};

// Nobody can guess it, so nobody takes it first.
std::string random_name() {
  std::array<unsigned char, 16> bytes{};
  randombytes_buf(bytes.data(), bytes.size());
  return fmt::format("tutti/{}/member/{:02x}", ::getuid(), fmt::join(bytes, ""));
}

// Discards what has arrived; false at the end of the connection.
bool is_still_open(int fd) {
  std::array<char, 4096> ignored;
  ssize_t got = 0;
  while ((got = ::recv(fd, ignored.data(), ignored.size(), 0)) > 0) {
  }
  return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

}  // namespace

std::string boot_identity() {
  std::string id;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::getline(file, id);
  return id;
}

std::string namespace_scope(const char* kind) {
  std::array<char, 64> name{};
  const ssize_t length = ::readlink(fmt::format("/proc/self/ns/{}", kind).c_str(), name.data(), name.size());
  return boot_identity() + "/" + std::string(name.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
}

std::string network_scope() { return namespace_scope("net"); }

Result<std::shared_ptr<MemberListener>> MemberListener::open() {
  if (sodium_init() < 0) return internal_error("libsodium cannot get random numbers");
  auto made = std::make_shared<MemberListener>();
  made->place_.scope = network_scope();
  made->place_.name = random_name();
  const Result<int> fd = listen_at(made->place_.name);
  if (!fd) return fd.status();
  made->local_ = FrameSocket(*fd);
  return made;
}

Status MemberListener::open_network(const std::function<Result<Listeners>()>& open_listeners) {
  if (!remote_.empty()) return {};
  if (!open_listeners) return unsupported("nothing leads to other nodes");
  Result<Listeners> network = open_listeners();
  if (!network) return network.status();
  place_.addresses = join_addresses(network->addresses);
  remote_ = std::move(network->sockets);
  return {};
}

Status MemberListener::lend_to(ChildConnections& connections) const {
  const auto lend = [&](const FrameSocket& socket, bool is_remote) -> Status {
    const int copy = ::fcntl(socket.fd(), F_DUPFD_CLOEXEC, 0);
    if (copy < 0) {
      return {StatusCode::resource_exhausted,
              "no descriptor for the members of the group: " + describe_system_error(errno)};
    }
    return connections.listen(FrameSocket(copy), is_remote);
  };
  TUTTI_RETURN_IF_ERROR(lend(local_, false));
  for (const FrameSocket& socket : remote_) TUTTI_RETURN_IF_ERROR(lend(socket, true));
  return {};
}

// -- probes -------------------------------------------------------------------------------------------------

MemberProbe::MemberProbe(const MemberPlace& place, std::chrono::milliseconds silence)
    : place_(place), silence_(silence), silent_since_(Clock::now()) {
  begin();
}

void MemberProbe::begin() {
  next_try_ = Clock::now() + kProbePause;
  if (place_.scope != network_scope()) return begin_remote();
  const auto [listening, fd] = ask_listener(place_.name);
  if (listening == Listening::no) verdict_ = Verdict::gone;
  if (listening != Listening::yes) return;
  verdict_ = Verdict::alive;
  attempts_.push_back({FrameSocket(fd), true});
}

void MemberProbe::begin_remote() {
  const auto addresses = split_addresses(place_.addresses);
  if (!addresses) return;
  is_refused_everywhere_ = !addresses->empty();
  for (const SocketAddress& address : *addresses) {
    const Result<int> fd = start_connect(address);
    if (fd) {
      attempts_.push_back({FrameSocket(*fd), false});
    } else {
      is_refused_everywhere_ = false;
    }
  }
}

std::size_t MemberProbe::append_fds(std::vector<pollfd>& fds) const {
  for (const Attempt& attempt : attempts_)
    fds.push_back({attempt.socket.fd(), static_cast<short>(attempt.is_connected ? POLLIN : POLLOUT), 0});
  return attempts_.size();
}

void MemberProbe::on_connected(Attempt& attempt) {
  const int error = connect_error(attempt.socket.fd());
  if (error == 0) {
    attempt.is_connected = true;
    verdict_ = Verdict::alive;
    silent_since_ = Clock::now();
    limit_silence_strictly(attempt.socket.fd(), silence_);
    return;
  }
  is_refused_everywhere_ = is_refused_everywhere_ && error == ECONNREFUSED;
  attempt.socket.close();
}

void MemberProbe::serve(std::span<const pollfd> fds) {
  if (verdict_ == Verdict::gone) return;
  const Clock::time_point now = Clock::now();
  if (attempts_.empty() && now >= next_try_) return begin();
  for (std::size_t i = 0; i < fds.size(); ++i) {
    Attempt& attempt = attempts_[i];
    if (fds[i].revents == 0) continue;
    if (!attempt.is_connected) {
      on_connected(attempt);
    } else if (!is_still_open(attempt.socket.fd())) {  // dead, or it has closed a process that says nothing
      attempt.socket.close();
      verdict_ = Verdict::unknown;
      is_refused_everywhere_ = false;
      next_try_ = now + kProbePause;
    }
  }
  const bool had_attempts = !attempts_.empty();
  std::erase_if(attempts_, [](const Attempt& attempt) { return !attempt.socket.is_open(); });
  if (had_attempts && attempts_.empty() && is_refused_everywhere_) verdict_ = Verdict::gone;
  if (verdict_ == Verdict::unknown && !place_.addresses.empty() && now - silent_since_ >= silence_)
    verdict_ = Verdict::gone;
}

}  // namespace tutti
