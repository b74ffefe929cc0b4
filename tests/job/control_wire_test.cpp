// Control connections between nodes under TUTTI_WIRE_SECURITY, with somebody between them. Knows no transport.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/job/control_job.hpp"
#include "tests/support/byte_proxy.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace tutti;
using namespace tutti::test;
using Catch::Matchers::Contains;

constexpr const char* kMarker = "a text that nobody else should read";

// Two nodes of one rank each, whose connection goes through a proxy.
struct WireJob {
  Job job = [] {
    Job made;
    made.node_of = {0, 1};
    return made;
  }();
  ByteProxy proxy;
  std::array<WireSecurity, 2> security;

  WireJob(WireSecurity root, WireSecurity other, std::function<ByteFilter()> make_filter)
      : proxy(job.listener.address, std::move(make_filter)), security{root, other} {
    job.timeout = 20s;
    job.rejoin_time = 2s;
  }
  std::vector<Result<Channel>> open() {
    std::vector<std::future<Result<Channel>>> futures;
    for (int rank = 0; rank < 2; ++rank) {
      futures.push_back(std::async(std::launch::async, [this, rank] {
        ControlOptions options = job.options(rank);
        options.security = security[static_cast<std::size_t>(rank)];
        Listeners listeners;
        if (rank == 0) listeners.sockets.emplace_back(job.listener.fd);
        if (rank != 0) {
          options.find_root = [this]() -> Result<std::vector<SocketAddress>> {
            return std::vector<SocketAddress>{proxy.address()};
          };
        }
        return ControlChannel::open(options, std::move(listeners));
      }));
    }
    std::vector<Result<Channel>> channels;
    for (auto& future : futures) channels.push_back(future.get());
    return channels;
  }
};

// The values that both ranks see, or the first error.
std::string gather(std::vector<Result<Channel>>& channels) {
  std::vector<std::future<Result<std::vector<std::string>>>> futures;
  for (auto& channel : channels) {
    futures.push_back(std::async(std::launch::async,
                                 [&channel] { return (*channel)->allgather(kMarker, Clock::now() + 20s); }));
  }
  std::string problem;
  for (auto& future : futures) {
    const auto values = future.get();
    if (!values) problem = values.status().message();
    if (values && *values != std::vector<std::string>{kMarker, kMarker}) return "a wrong value";
  }
  return problem;
}

}  // namespace

TEST_CASE("control frames pass in every mode, also between ends that ask for different ones") {
  using S = WireSecurity;
  for (const auto& [root, other] : {std::pair{S::off, S::off},
                                    {S::auth, S::auth},
                                    {S::encrypt, S::encrypt},
                                    {S::off, S::encrypt},
                                    {S::encrypt, S::auth}}) {
    CAPTURE(to_string(root), to_string(other));
    WireJob job(root, other, [] { return ByteFilter{}; });
    auto channels = job.open();
    for (const auto& channel : channels) REQUIRE(channel.status().message() == "");
    CHECK(gather(channels).empty());
    // The stricter of both holds for the connection.
    const bool is_hidden = root == S::encrypt || other == S::encrypt;
    CHECK((job.proxy.seen(true).find(kMarker) == std::string::npos) == is_hidden);
    CHECK((job.proxy.seen(false).find(kMarker) == std::string::npos) == is_hidden);
  }
}

TEST_CASE("a changed control record ends the connection and is never taken for a frame") {
  for (const WireSecurity security : {WireSecurity::auth, WireSecurity::encrypt}) {
    for (const bool is_forward : {false, true}) {
      CAPTURE(to_string(security), is_forward);
      std::atomic<bool> is_armed{false};
      // From some time on one bit of whatever passes in one direction.
      const ByteFilter::Pass spoil = [&is_armed](std::string_view bytes) {
        std::string passed(bytes);
        if (is_armed) passed[passed.size() / 2] = static_cast<char>(passed[passed.size() / 2] ^ 1);
        return std::optional<std::string>(std::move(passed));
      };
      WireJob job(security, security, [&] {
        return is_forward ? ByteFilter{spoil, {}} : ByteFilter{{}, spoil};
      });
      auto channels = job.open();
      for (const auto& channel : channels) REQUIRE(channel.status().message() == "");
      is_armed = true;
      const std::string problem = gather(channels);
      CHECK_THAT(problem, Contains("rank"));
      CHECK_THAT(problem, !Contains("wrong value"));
    }
  }
}

TEST_CASE("a changed proof or offer lets nobody in, and weakens nothing") {
  // Any bit of the handshake: the first bytes of either direction.
  for (const bool is_forward : {false, true}) {
    for (const std::size_t place : {30UL, 80UL, 120UL}) {
      CAPTURE(is_forward, place);
      std::atomic<int> count{0};
      WireJob job(WireSecurity::encrypt, WireSecurity::encrypt, [&] {
        // Only the first connection; the next attempt may succeed.
        const bool is_first = count++ == 0;
        const ByteFilter::Pass spoil = [=, at = std::size_t{0}](std::string_view bytes) mutable {
          std::string passed(bytes);
          if (is_first && at <= place && place < at + passed.size())
            passed[place - at] = static_cast<char>(passed[place - at] ^ 1);
          at += bytes.size();
          return std::optional<std::string>(std::move(passed));
        };
        return is_forward ? ByteFilter{spoil, {}} : ByteFilter{{}, spoil};
      });
      job.job.timeout = 2s;
      auto channels = job.open();
      if (channels[0] && channels[1]) CHECK(gather(channels).empty());
      CHECK(job.proxy.seen(true).find(kMarker) == std::string::npos);
      CHECK(job.proxy.seen(false).find(kMarker) == std::string::npos);
    }
  }
}
