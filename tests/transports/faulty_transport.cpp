// Delays, storms of `again`, and sudden death around another transport; see faulty_transport.hpp.
#include "tests/transports/faulty_transport.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace tutti::test {

namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15U + 1) {}
  std::uint64_t below(std::uint64_t n) {
    state_ ^= state_ << 13U;
    state_ ^= state_ >> 7U;
    state_ ^= state_ << 17U;
    return (state_ >> 11U) % n;
  }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

class FaultyEndpoint;

struct Faults {
  Random random;
  std::uint64_t clock = 0;  // calls of progress
  std::uint64_t storm_until = 0;
  bool is_dead = false;
  std::vector<FaultyEndpoint*> endpoints;
  std::deque<Event> events;

  bool refuses() {
    if (clock < storm_until) return true;
    if (random.one_in(50)) {
      storm_until = clock + 1 + random.below(20);
      return true;
    }
    return random.one_in(8);
  }
};

struct Delayed {
  std::uint64_t due = 0;
  std::uint64_t match_header = 0;
  std::span<const ConstByteRange> ranges;
  RequestId request = 0;
};

class FaultyEndpoint final : public Endpoint {
 public:
  FaultyEndpoint(Faults* faults, std::unique_ptr<Endpoint> inner)
      : faults_(faults), inner_(std::move(inner)) {
    faults_->endpoints.push_back(this);
  }
  ~FaultyEndpoint() override {
    close(false);
    std::erase(faults_->endpoints, this);
  }

  Post send(std::uint32_t channel, std::uint64_t match_header, std::span<const ConstByteRange> ranges,
            RequestId request) override {
    if (faults_->is_dead) return fail(request);
    if (faults_->refuses()) return Post::again;
    std::deque<Delayed>& queue = delayed_[channel];
    if (queue.empty() && !faults_->random.one_in(2))
      return inner_->send(channel, match_header, ranges, request);
    queue.push_back({faults_->clock + faults_->random.below(12), match_header, ranges, request});
    return Post::pending;
  }
  Post recv(std::uint32_t channel, std::uint64_t match_header, const Sink& sink, RequestId request) override {
    if (faults_->is_dead) return fail(request);
    return faults_->refuses() ? Post::again : inner_->recv(channel, match_header, sink, request);
  }
  Post control(ConstByteRange bytes) override {
    if (faults_->is_dead) return Post::done;
    return faults_->refuses() ? Post::again : inner_->control(bytes);
  }
  Status trouble() const override { return inner_->trouble(); }
  void close(bool fence) override {
    if (is_closed_) return;
    is_closed_ = true;
    for (auto& [channel, queue] : delayed_) {
      for (const Delayed& send : queue) fail(send.request);
    }
    delayed_.clear();
    inner_->close(fence);
  }

  void release_due() {
    for (auto& [channel, queue] : delayed_) {
      while (!queue.empty() && queue.front().due <= faults_->clock) {
        const Delayed send = queue.front();
        const Post post = inner_->send(channel, send.match_header, send.ranges, send.request);
        if (post == Post::again) break;
        queue.pop_front();
        if (post == Post::done) {
          Event event;
          event.kind = Event::Kind::sent;
          event.request = send.request;
          event.endpoint = this;
          faults_->events.push_back(event);
        }
      }
    }
  }
  bool has_delayed() const {
    return std::any_of(delayed_.begin(), delayed_.end(),
                       [](const auto& queue) { return !queue.second.empty(); });
  }
  const Endpoint* inner() const { return inner_.get(); }

 private:
  Post fail(RequestId request) {
    Event event;
    event.kind = Event::Kind::failed;
    event.request = request;
    event.endpoint = this;
    faults_->events.push_back(event);
    return Post::pending;
  }

  Faults* faults_;
  std::unique_ptr<Endpoint> inner_;
  std::map<std::uint32_t, std::deque<Delayed>> delayed_;
  bool is_closed_ = false;
};

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(std::unique_ptr<Transport> inner, std::uint64_t seed)
      : inner_(std::move(inner)), faults_{Random(seed), 0, 0, false, {}, {}} {}

  const TransportCaps& caps() const override { return inner_->caps(); }
  std::vector<std::byte> address() const override { return inner_->address(); }
  Result<std::uint64_t> reach(std::span<const std::byte> mine,
                              std::span<const std::byte> theirs) const override {
    return inner_->reach(mine, theirs);
  }
  Result<Contact> meet(std::span<const std::byte> address) override { return inner_->meet(address); }
  Result<std::unique_ptr<Endpoint>> open(std::span<const std::byte> address, std::uint64_t context) override {
    auto opened = inner_->open(address, context);
    if (!opened) return opened.status();
    return std::unique_ptr<Endpoint>(std::make_unique<FaultyEndpoint>(&faults_, std::move(*opened)));
  }

  Result<std::unique_ptr<SharedWindow>> open_window(std::span<const ConstByteRange> addresses,
                                                    std::uint64_t context) override {
    return inner_->open_window(addresses, context);
  }

  std::size_t progress(std::span<Event> events) override {
    ++faults_.clock;
    for (FaultyEndpoint* endpoint : faults_.endpoints) endpoint->release_due();
    // Few events at a time, and some only later. Control data lives until the next progress(): hand it on at
    // once.
    std::array<Event, 2> batch;
    const bool has_room_for_all = events.size() >= batch.size() + 1;
    std::size_t n = 0;
    if (has_room_for_all && !faults_.random.one_in(4)) {
      const std::size_t got = inner_->progress(batch);
      for (std::size_t i = 0; i < got; ++i) {
        Event event = batch[i];
        event.endpoint = outer(event.endpoint);
        if (event.kind == Event::Kind::control) {
          events[n++] = event;
        } else {
          faults_.events.push_back(event);
        }
      }
    }
    while (n < events.size() && !faults_.events.empty() && !faults_.random.one_in(4)) {
      events[n++] = faults_.events.front();
      faults_.events.pop_front();
    }
    return n;
  }
  Waitable waitable() const override { return inner_->waitable(); }
  ArmResult arm() override {
    const bool has_own = !faults_.events.empty() ||
                         std::any_of(faults_.endpoints.begin(), faults_.endpoints.end(),
                                     [](const FaultyEndpoint* endpoint) { return endpoint->has_delayed(); });
    if (has_own || faults_.random.one_in(4)) return {};
    return inner_->arm();
  }
  void leave() override { inner_->leave(); }

  void kill() {
    faults_.is_dead = true;
    for (FaultyEndpoint* endpoint : faults_.endpoints) endpoint->close(false);
  }

 private:
  Endpoint* outer(const Endpoint* inner) const {
    for (FaultyEndpoint* endpoint : faults_.endpoints) {
      if (endpoint->inner() == inner) return endpoint;
    }
    return nullptr;
  }

  std::unique_ptr<Transport> inner_;
  Faults faults_;
};

}  // namespace

std::unique_ptr<Transport> make_faulty_transport(std::unique_ptr<Transport> inner, std::uint64_t seed) {
  return std::make_unique<FaultyTransport>(std::move(inner), seed);
}

void kill(Transport* faulty) { dynamic_cast<FaultyTransport&>(*faulty).kill(); }

}  // namespace tutti::test
