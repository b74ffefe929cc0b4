// Accepting and making connections. Knows no frame; see greeter.hpp.
#include "transports/message/tcp/greeter.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/log.hpp"
#include "runtime/net/tcp_socket.hpp"

namespace tutti::tcp {

namespace {

// Bounds on connections that have not proved the secret: their number and their time. A further one replaces
// the oldest, since a rank of the job proves it at once.
constexpr std::ptrdiff_t kMostPending = 64;
// Connections of one instance that have said hello: an attempt for each address, twice. Anybody who has seen a hello may
// repeat it.
constexpr std::ptrdiff_t kMostOfInstance = 2 * kMaxPlaces;
constexpr std::chrono::seconds kLongestHello{10};
// Accepting pauses for so long when no descriptor is free.
constexpr std::chrono::milliseconds kPause{100};

// A socket from which one greeting is read.
class Correspondent : public Watcher {
 public:
  Correspondent(Poller& poller, Socket socket) : poller_(poller), socket_(std::move(socket)) {}
  ~Correspondent() override { take(); }
  Correspondent(const Correspondent&) = delete;
  Correspondent& operator=(const Correspondent&) = delete;

  bool watch(bool wants_write) { return poller_.add(socket_.fd(), *this, wants_write); }
  void watch_reading() { poller_.change(socket_.fd(), *this, false); }
  Socket take() {
    if (socket_.is_open()) poller_.remove(socket_.fd(), *this);
    return std::move(socket_);
  }
  int fd() const { return socket_.fd(); }

  // A greeting fits into every socket that has just been connected.
  bool say(const Greeting& greeting) const {
    return ::send(fd(), &greeting, sizeof greeting, MSG_NOSIGNAL) == ssize_t{sizeof greeting};
  }
  enum class Heard : std::uint8_t { part, all, end };
  Heard hear() {
    const ssize_t got = ::recv(fd(), reinterpret_cast<std::byte*>(&heard_) + got_, sizeof heard_ - got_, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Heard::part;
    if (got <= 0) return Heard::end;
    got_ += static_cast<std::size_t>(got);
    return got_ == sizeof heard_ ? Heard::all : Heard::part;
  }
  const Greeting& heard() const { return heard_; }
  void forget_heard() { got_ = 0; }

 private:
  Poller& poller_;
  Socket socket_;
  Greeting heard_;
  std::size_t got_ = 0;
};

}  // namespace

class Greeter::Listener final : public Watcher {
 public:
  Listener(Greeter& greeter, Socket socket) : greeter_(greeter), socket_(std::move(socket)) {}
  void on_ready() override { greeter_.accept_from(*this); }
  int fd() const { return socket_.fd(); }

 private:
  Greeter& greeter_;
  Socket socket_;
};

class Greeter::PendingConnection final : public Correspondent {
 public:
  enum class State : std::uint8_t {
    stranger,
    answered,
    waiting,  // for what becomes of our own call to it
  };
  PendingConnection(Greeter& greeter, Socket socket)
      : Correspondent(greeter.poller_, std::move(socket)),
        chain(greeter.security_, greeter.address_.secret),
        greeter_(greeter) {}
  void on_ready() override { greeter_.hear(*this); }

  State state = State::stranger;
  std::uint64_t instance = 0;  // once it has proved the secret
  GreetingChain chain;
  Clock::time_point deadline = Clock::now() + kLongestHello;

 private:
  Greeter& greeter_;
};

class Greeter::Attempt final : public Correspondent {
 public:
  Attempt(Greeter& greeter, Socket socket, std::uint64_t target, const Secret& secret, std::string to)
      : Correspondent(greeter.poller_, std::move(socket)),
        chain(greeter.security_, secret),
        instance(target),
        place(std::move(to)),
        deadline(Clock::now() + greeter.silence_),
        greeter_(greeter) {}
  void on_ready() override { greeter_.advance(*this); }

  GreetingChain chain;
  const std::uint64_t instance;
  const std::string place;
  bool is_connected = false;
  const Clock::time_point deadline;  // for the kernel; a peer may take its time

 private:
  Greeter& greeter_;
};

Greeter::Greeter(Poller& poller, Owner& owner, std::chrono::milliseconds silence, const Security& security)
    : poller_(poller), owner_(owner), silence_(silence), security_(security) {
  fill_randomly(address_.secret);
}

Greeter::~Greeter() = default;

// -- listening ----------------------------------------------------------------------------------------------

Status Greeter::listen(const std::vector<SocketAddress>& addresses, const std::optional<PortRange>& ports) {
  std::string reasons;
  for (const SocketAddress& address : addresses) {
    if (address_.places.size() == kMaxPlaces) break;
    const Result<int> fd = listen_in(address, ports);
    SocketAddress bound;
    bound.bytes = sizeof bound.storage;
    if (!fd) {
      reasons += (reasons.empty() ? "" : "; ") + fd.status().message();
      continue;
    }
    listeners_.push_back(std::make_unique<Listener>(*this, Socket(*fd)));
    if (::getsockname(*fd, reinterpret_cast<sockaddr*>(&bound.storage), &bound.bytes) == 0)
      address_.places.push_back(bound);
  }
  if (address_.places.empty()) {
    return unsupported(reasons.empty()
                           ? "no network interface of this machine is up, so there is no address to "
                             "listen at; bring one up (ip link set lo up)"
                           : reasons);
  }
  return {};
}

void Greeter::start(std::uint64_t instance) {
  instance_ = instance;
  for (const auto& listener : listeners_) poller_.add(listener->fd(), *listener, false);
}

void Greeter::listen_again() {
  is_accept_paused_ = false;
  for (const auto& listener : listeners_) poller_.add(listener->fd(), *listener, false);
}

void Greeter::accept_from(Listener& listener) {
  const auto is_stranger = [](const auto& pending) {
    return pending->state == PendingConnection::State::stranger;
  };
  for (;;) {
    Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.is_open()) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        log_warn("tcp: a connection cannot be accepted for now: {}", std::strerror(errno));
        is_accept_paused_ = true;
        accept_paused_until_ = Clock::now() + kPause;
        for (const auto& each : listeners_) poller_.remove(each->fd(), *each);
      }
      return;
    }
    if (std::count_if(pending_.begin(), pending_.end(), is_stranger) >= kMostPending)
      pending_.erase(std::find_if(pending_.begin(), pending_.end(), is_stranger));
    limit_silence(socket.fd(), silence_);
    pending_.push_back(std::make_unique<PendingConnection>(*this, std::move(socket)));
    PendingConnection& pending = *pending_.back();
    if (pending.watch(false)) {
      hear(pending);  // most have said hello by now
    } else {
      remove(pending);
    }
  }
}

void Greeter::hear(PendingConnection& pending) {
  const auto heard = pending.hear();
  if (heard == Correspondent::Heard::part) return;
  const std::uint64_t instance = pending.instance;
  const bool is_answered = pending.state == PendingConnection::State::answered;
  if (heard == Correspondent::Heard::all) {
    if (pending.state == PendingConnection::State::stranger && admit(pending)) return;
    const Greeting& greeting = pending.heard();
    if (is_answered && greeting.kind == Greeting::Kind::begin && greeting.sender == instance &&
        pending.chain.check(greeting) && !owner_.is_connected(instance)) {
      Socket socket = pending.take();
      const WireSession session = pending.chain.session(false);
      forget(instance);
      remove_all_of(instance);
      owner_.on_connected(instance, std::move(socket), session);
      return;
    }
  }
  remove(pending);
  // If a peer's call was awaited instead, ours must begin now.
  const auto call = calls_.find(instance);
  if (is_answered && call != calls_.end() && call->second.attempts.empty() && !has_answered(instance))
    begin_attempts(instance, call->second);
}

bool Greeter::admit(PendingConnection& pending) {
  const Greeting& hello = pending.heard();
  if (hello.kind != Greeting::Kind::hello || hello.target != instance_ || hello.sender == instance_ ||
      !pending.chain.check(hello) || has_many(hello.sender)) {
    return false;
  }
  pending.instance = hello.sender;
  pending.forget_heard();
  const auto call = calls_.find(pending.instance);
  const bool is_calling = call != calls_.end() && !call->second.attempts.empty();
  if (owner_.is_connected(pending.instance) || (is_calling && instance_ < pending.instance)) {
    pending.state = PendingConnection::State::waiting;
  } else {
    answer(pending);
  }
  return true;
}

void Greeter::answer(PendingConnection& pending) {
  pending.state = PendingConnection::State::answered;
  Greeting greeting;
  greeting.kind = Greeting::Kind::answer;
  greeting.sender = instance_;
  greeting.target = pending.instance;
  pending.chain.sign(greeting);
  pending.say(greeting);  // or it is gone, which reading will tell
}

bool Greeter::has_answered(std::uint64_t instance) const {
  return std::any_of(pending_.begin(), pending_.end(), [instance](const auto& pending) {
    return pending->instance == instance && pending->state == PendingConnection::State::answered;
  });
}

bool Greeter::has_many(std::uint64_t instance) const {
  return std::count_if(pending_.begin(), pending_.end(), [instance](const auto& pending) {
           return pending->instance == instance;
         }) >= kMostOfInstance;
}

void Greeter::remove(const PendingConnection& pending) {
  std::erase_if(pending_, [&pending](const auto& entry) { return entry.get() == &pending; });
}

void Greeter::remove_all_of(std::uint64_t instance) {
  std::erase_if(pending_, [instance](const auto& pending) { return pending->instance == instance; });
}

// -- calling ------------------------------------------------------------------------------------------------

void Greeter::call(std::uint64_t instance, const Address& theirs) {
  Call& call = calls_[instance];
  call.theirs = theirs;
  if (!has_answered(instance)) begin_attempts(instance, call);
}

void Greeter::begin_attempts(std::uint64_t instance, Call& call) {
  for (const SocketAddress& place : call.theirs.places) {
    const Result<int> fd = start_connect(place);
    if (!fd) {
      call.reasons += (call.reasons.empty() ? "" : "; ") + fd.status().message();
      call.has_no_room = call.has_no_room || fd.status().code() == StatusCode::resource_exhausted;
      continue;
    }
    call.attempts.push_back(
        std::make_unique<Attempt>(*this, Socket(*fd), instance, call.theirs.secret, place.to_text()));
    if (!call.attempts.back()->watch(true)) {
      call.reasons += fmt::format("{}: {}", place.to_text(), std::strerror(errno));
      call.attempts.pop_back();
    }
  }
  if (call.attempts.empty()) end_call(instance);
}

void Greeter::advance(Attempt& attempt) {
  if (!attempt.is_connected) {
    if (const int error = connect_error(attempt.fd()); error != 0)
      return give_up(attempt, std::strerror(error));
    attempt.is_connected = true;
    attempt.watch_reading();
    limit_silence(attempt.fd(), silence_);
    Greeting hello;
    hello.sender = instance_;
    hello.target = attempt.instance;
    attempt.chain.sign(hello);
    if (!attempt.say(hello)) give_up(attempt, std::strerror(errno));
    return;
  }
  const auto heard = attempt.hear();
  if (heard == Correspondent::Heard::part) return;
  const Greeting& answer = attempt.heard();
  if (heard == Correspondent::Heard::end || answer.kind != Greeting::Kind::answer ||
      answer.sender != attempt.instance || answer.target != instance_ || !attempt.chain.check(answer)) {
    return give_up(attempt, "the listener there has closed the connection");
  }
  Greeting begin;
  begin.kind = Greeting::Kind::begin;
  begin.sender = instance_;
  begin.target = attempt.instance;
  attempt.chain.sign(begin);
  if (!attempt.say(begin)) return give_up(attempt, std::strerror(errno));
  const std::uint64_t instance = attempt.instance;
  Socket socket = attempt.take();
  const WireSession session = attempt.chain.session(true);
  forget(instance);
  owner_.on_connected(instance, std::move(socket), session);
}

void Greeter::give_up(Attempt& attempt, const std::string& why) {
  const std::uint64_t instance = attempt.instance;
  Call& call = calls_[instance];
  call.reasons += fmt::format("{}{}: {}", call.reasons.empty() ? "" : "; ", attempt.place, why);
  std::erase_if(call.attempts, [&attempt](const auto& entry) { return entry.get() == &attempt; });
  if (call.attempts.empty()) end_call(instance);
}

// No attempt is left. If the peer reaches us, that serves as well.
void Greeter::end_call(std::uint64_t instance) {
  for (const auto& pending : pending_) {
    if (pending->instance == instance && pending->state == PendingConnection::State::waiting)
      answer(*pending);
  }
  if (has_answered(instance)) return;
  const Call& call = calls_[instance];
  const Status why(call.has_no_room ? StatusCode::resource_exhausted : StatusCode::peer_failed,
                   fmt::format("it cannot be reached ({})", call.reasons));
  calls_.erase(instance);
  owner_.on_unreachable(instance, why);
}

void Greeter::forget(std::uint64_t instance) { calls_.erase(instance); }

void Greeter::check_deadlines() {
  const Clock::time_point now = Clock::now();
  std::erase_if(pending_, [now](const auto& pending) {
    return pending->state == PendingConnection::State::stranger && pending->deadline < now;
  });
  if (is_accept_paused_ && now >= accept_paused_until_) listen_again();
  std::vector<Attempt*> late;
  for (const auto& [instance, call] : calls_) {
    for (const auto& attempt : call.attempts) {
      if (!attempt->is_connected && attempt->deadline < now) late.push_back(attempt.get());
    }
  }
  for (Attempt* attempt : late) give_up(*attempt, "no answer");
}

}  // namespace tutti::tcp
