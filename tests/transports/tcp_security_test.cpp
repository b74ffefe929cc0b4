// The tcp transport with somebody between its ends who changes, drops, repeats, reorders, cuts and records what passes.
// Both ends are driven by one thread.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/net/records.hpp"
#include "tests/support/byte_proxy.hpp"
#include "tests/support/catch.hpp"
#include "tests/transports/world.hpp"
#include "transports/message/address.hpp"
#include "transports/message/tcp/address.hpp"
#include "transports/message/tcp/plugin.hpp"
#include "transports/registry.hpp"

namespace {

using namespace tutti;
using namespace tutti::test;
using Catch::Matchers::Contains;

constexpr WireKey kKey{7, 7, 7};

Result<std::unique_ptr<Transport>> make(WireSecurity security) {
  TransportSettings settings;
  settings.interface = "lo";
  settings.security = security;
  settings.wire_key = kKey;
  return make_tcp_transport(settings);
}

// Record `index` of a direction, and those behind it, as the man in the middle passes them on.
using Change = std::function<std::optional<std::string>(std::size_t index, const std::string& record)>;

// Passes the greetings, cuts what follows into records and asks `change` about each.
ByteFilter::Pass by_record(std::size_t greeting_bytes, Change change) {
  return [plain = greeting_bytes, change = std::move(change), index = std::size_t{0},
          rest = std::string()](std::string_view bytes) mutable -> std::optional<std::string> {
    std::string passed(bytes.substr(0, std::min(plain, bytes.size())));
    bytes.remove_prefix(passed.size());
    plain -= passed.size();
    rest += bytes;
    while (rest.size() >= kRecordHeadBytes) {
      std::uint64_t length = 0;
      std::memcpy(&length, rest.data(), sizeof length);
      const std::size_t whole = length + kRecordExtraBytes;
      if (rest.size() < whole) break;
      const std::optional<std::string> record = change(index++, rest.substr(0, whole));
      if (!record) return std::nullopt;
      passed += *record;
      rest.erase(0, whole);
    }
    return passed;
  };
}

// Two transports that meet through proxies, whichever of them connects.
class Pair {
 public:
  Pair(WireSecurity security, const std::function<ByteFilter()>& make_filter) {
    for (Side& side : sides_) {
      auto made = make(security);
      REQUIRE(made.status().message() == "");
      side.transport = *std::move(made);
      auto outer = message::parse_address(side.transport->address());
      REQUIRE(outer);
      auto inner = tcp::parse_address(outer->driver_address);
      REQUIRE(inner);
      side.proxy = std::make_unique<ByteProxy>(inner->places.front(), make_filter);
      inner->places = {side.proxy->address()};
      side.address = side.transport->address();  // the driver's part lies at its end
      const std::vector<std::byte> changed = tcp::to_bytes(*inner);
      std::copy(changed.begin(), changed.end(),
                side.address.end() - static_cast<std::ptrdiff_t>(changed.size()));
    }
    for (std::size_t i = 0; i < 2; ++i) {
      auto opened = sides_[i].transport->open(sides_[1 - i].address, 1);
      REQUIRE(opened.status().message() == "");
      sides_[i].peer = *std::move(opened);
    }
  }

  struct Outcome {
    std::size_t right = 0, wrong = 0, failed = 0;
    std::string trouble;  // as the receiver's end knows it
  };
  // Sends messages of many sizes from one side to the other until all have come or some have failed.
  Outcome send_all(std::size_t from) {
    Side& sender = sides_[from];
    Side& receiver = sides_[1 - from];
    const std::array<std::size_t, 8> sizes{8, 100, 5000, 20000, 300000, 64, 900000, 8};
    std::array<std::vector<std::byte>, 8> out, in;
    std::array<ConstByteRange, 8> sources;
    std::array<ByteRange, 8> targets;
    std::array<Post, 8> received{};
    std::size_t pending = 0;  // of the sender
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      out[i] = pattern(sizes[i], sizes[i]);
      in[i].resize(sizes[i]);
      sources[i] = out[i];
      targets[i] = in[i];
      received[i] = receiver.peer->recv(0, 1, {{&targets[i], 1}, sizes[i], nullptr, nullptr}, i);
      pending += sender.peer->send(0, 1, {&sources[i], 1}, 100 + i) == Post::pending ? 1 : 0;
    }
    const auto is_received = [&](std::size_t i) {
      return received[i] == Post::done || has(receiver, i, Event::Kind::received);
    };
    const auto is_over = [&] {
      std::size_t count = 0;
      for (std::size_t i = 0; i < sizes.size(); ++i)
        count += is_received(i) || has(receiver, i, Event::Kind::failed) ? 1 : 0;
      return count == sizes.size() && sender.events.size() == pending;
    };
    REQUIRE(drive(is_over));
    Outcome outcome;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      std::size_t& count = !is_received(i) ? outcome.failed : in[i] == out[i] ? outcome.right : outcome.wrong;
      ++count;
    }
    outcome.trouble = receiver.peer->trouble().message();
    receiver.events.clear();
    sender.events.clear();
    return outcome;
  }
  std::string seen() {
    std::string all;
    for (Side& side : sides_) all += side.proxy->seen(true) + side.proxy->seen(false);
    return all;
  }

 private:
  struct Side {
    std::unique_ptr<Transport> transport;
    std::unique_ptr<ByteProxy> proxy;
    std::vector<std::byte> address;
    std::unique_ptr<Endpoint> peer;
    std::vector<Event> events;
  };
  static bool has(const Side& side, RequestId request, Event::Kind kind) {
    return std::any_of(side.events.begin(), side.events.end(),
                       [=](const Event& event) { return event.request == request && event.kind == kind; });
  }
  bool drive(const std::function<bool()>& condition) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition()) {
      for (Side& side : sides_) {
        std::array<Event, 4> batch;
        const std::size_t count = side.transport->progress(batch);
        side.events.insert(side.events.end(), batch.begin(),
                           batch.begin() + static_cast<std::ptrdiff_t>(count));
      }
      if (std::chrono::steady_clock::now() > until) return false;
    }
    return true;
  }
  std::array<Side, 2> sides_;
};

// The same change in both directions.
std::function<ByteFilter()> change_records(const std::function<Change()>& make_change) {
  // A connector greets twice, an acceptor once.
  return [make_change] { return ByteFilter{by_record(128, make_change()), by_record(64, make_change())}; };
}

std::string flip(std::string record, std::size_t at) {
  record[at] = static_cast<char>(record[at] ^ 4);
  return record;
}

constexpr std::size_t kVictim = 3;

struct Attack {
  const char* name;
  std::function<Change()> make;
  bool is_cut = false;  // looks like a peer that is gone
};

std::vector<Attack> attacks() {
  const auto once = [](std::function<std::string(const std::string&)> change) {
    return [change = std::move(change)]() -> Change {
      return [change](std::size_t index, const std::string& record) -> std::optional<std::string> {
        return index == kVictim ? change(record) : record;
      };
    };
  };
  const auto swap = []() -> Change {
    return [held = std::string()](std::size_t index,
                                  const std::string& record) mutable -> std::optional<std::string> {
      if (index == kVictim) return held = record, std::string();
      return index == kVictim + 1 ? record + held : record;
    };
  };
  const auto cut = []() -> Change {
    return [](std::size_t index, const std::string& record) -> std::optional<std::string> {
      if (index == kVictim) return std::nullopt;
      return record;
    };
  };
  return {
      {"a bit of the text", once([](const std::string& r) { return flip(r, kRecordHeadBytes + 20); })},
      {"a bit of the length", once([](const std::string& r) { return flip(r, 1); })},
      {"a bit of the length's check", once([](const std::string& r) { return flip(r, 9); })},
      {"a bit of the tag", once([](const std::string& r) { return flip(r, r.size() - 1); })},
      {"a record is lost", once([](const std::string&) { return std::string(); })},
      {"a record is repeated", once([](const std::string& r) { return r + r; })},
      {"bytes are added", once([](const std::string& r) { return r + std::string(40, 'x'); })},
      {"two records change places", swap},
      {"the connection is cut", cut, true},
  };
}

}  // namespace

TEST_CASE("records pass a man in the middle who changes nothing, and hide what they carry") {
  const auto pattern_text = [] {
    const std::vector<std::byte> bytes = pattern(5000, 5000);
    return std::string(reinterpret_cast<const char*>(bytes.data()), 48);
  };
  for (const WireSecurity security : {WireSecurity::off, WireSecurity::auth, WireSecurity::encrypt}) {
    CAPTURE(to_string(security));
    Pair pair(security, [] { return ByteFilter{}; });
    CHECK(pair.send_all(0).right == 8);
    CHECK(pair.send_all(1).right == 8);
    const bool is_readable = pair.seen().find(pattern_text()) != std::string::npos;
    CHECK(is_readable == (security != WireSecurity::encrypt));
  }
}

TEST_CASE("whatever happens to a record is noticed, and nothing wrong is delivered") {
  for (const WireSecurity security : {WireSecurity::auth, WireSecurity::encrypt}) {
    for (const Attack& attack : attacks()) {
      for (const std::size_t from : {0UL, 1UL}) {
        CAPTURE(to_string(security), attack.name, from);
        Pair pair(security, change_records(attack.make));
        const Pair::Outcome outcome = pair.send_all(from);
        CHECK(outcome.wrong == 0);
        CHECK(outcome.failed > 0);
        if (!attack.is_cut) CHECK_THAT(outcome.trouble, Contains("was changed, lost or repeated on the way"));
      }
    }
  }
}

TEST_CASE("without protection a changed byte is not noticed: the changes above are real ones") {
  Pair pair(WireSecurity::off, [] {
    const auto change = [at = std::size_t{0}](std::string_view bytes) mutable {
      std::string passed(bytes);
      // In the payload of the message of 20,000 bytes: behind greetings and three messages.
      constexpr std::size_t kPlace = 128 + 128 + 192 + 5056 + 64 + 10000;
      if (at <= kPlace && kPlace < at + passed.size()) {
        passed[kPlace - at] = static_cast<char>(passed[kPlace - at] ^ 4);
      }
      at += bytes.size();
      return std::optional<std::string>(std::move(passed));
    };
    return ByteFilter{change, change};
  });
  const Pair::Outcome outcome = pair.send_all(0);
  CHECK(outcome.wrong == 1);
}

TEST_CASE("records of one connection mean nothing in another") {
  // The bytes of a connection are played again, to the same listener.
  auto target = make(WireSecurity::auth);
  REQUIRE(target);
  std::string recorded;
  {
    Pair pair(WireSecurity::auth, [] { return ByteFilter{}; });
    REQUIRE(pair.send_all(0).right == 8);
    recorded = pair.seen();
  }
  const auto outer = message::parse_address((*target)->address());
  const auto inner = tcp::parse_address(outer->driver_address);
  REQUIRE(inner);
  const int fd = *start_connect(inner->places.front());
  pollfd on{fd, POLLOUT, 0};
  REQUIRE(::poll(&on, 1, 10000) == 1);
  REQUIRE(::send(fd, recorded.data(), 128, MSG_NOSIGNAL) == 128);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  bool is_cut_off = false;
  while (!is_cut_off && std::chrono::steady_clock::now() < until) {
    std::array<Event, 4> batch;
    (*target)->progress(batch);
    char byte = 0;
    const ssize_t got = ::recv(fd, &byte, 1, MSG_DONTWAIT);
    REQUIRE(got <= 0);  // no answer
    is_cut_off = got == 0 || errno == ECONNRESET;
  }
  CHECK(is_cut_off);
  ::close(fd);
}

TEST_CASE("ends with different keys do not meet") {
  std::array<std::unique_ptr<Transport>, 2> sides;
  for (std::size_t i = 0; i < 2; ++i) {
    TransportSettings settings;
    settings.interface = "lo";
    settings.security = WireSecurity::auth;
    settings.wire_key = WireKey{static_cast<unsigned char>(i)};
    auto made = make_tcp_transport(settings);
    REQUIRE(made);
    sides[i] = *std::move(made);
  }
  auto peer = sides[0]->open(sides[1]->address(), 1);
  REQUIRE(peer);
  const std::vector<std::byte> out(8);
  const ConstByteRange source = out;
  REQUIRE((*peer)->send(0, 1, {&source, 1}, 1) == Post::pending);
  std::vector<Event> events;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (events.empty() && std::chrono::steady_clock::now() < until) {
    for (const auto& side : sides) {
      std::array<Event, 4> batch;
      const std::size_t count = side->progress(batch);
      events.insert(events.end(), batch.begin(), batch.begin() + static_cast<std::ptrdiff_t>(count));
    }
  }
  REQUIRE(events.size() == 1);
  CHECK(events[0].kind == Event::Kind::failed);
}

TEST_CASE("protection that a transport cannot give is refused") {
  TransportSettings settings;
  settings.interface = "lo";
  settings.security = WireSecurity::encrypt;
  CHECK_THAT(make_transport("tcp", settings).status().message(), Contains("set TUTTI_SECRET"));
  settings.wire_key = kKey;
  CHECK(make_transport("tcp", settings));
  for (const TransportEntry& entry : transport_entries()) {
    if (!entry.connects_nodes || entry.has_wire_security || !entry.missing.empty()) continue;
    const Status refused = make_transport(entry.name, settings).status();
    CHECK(refused.code() == StatusCode::unsupported);
    CHECK_THAT(refused.message(),
               Contains("TUTTI_WIRE_SECURITY=encrypt") && Contains("TUTTI_TRANSPORTS=shm,tcp"));
  }
}
