// Ranks as threads over a memory transport: the smallest world in which whole collectives run, below the
// public API.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "backends/native/native_backend.hpp"
#include "runtime/scheduler/engine.hpp"
#include "runtime/scheduler/group_context.hpp"
#include "runtime/selection/selection.hpp"
#include "transports/memory/inproc/plugin.hpp"
#include "transports/memory/shm/plugin.hpp"

namespace tutti::test {

enum class WorldTransport { inproc, shm };

// The state of one rank. Members are used by their own thread only.
struct Member {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<GroupContext> group;
  std::unique_ptr<Selector> selector;
  std::unique_ptr<Backend> backend;

  // Carries out a call to its end. A deadline of its own, so that no test hangs.
  Status run(const Call& call, std::string_view algorithm = {}) const {
    auto work = backend->start(call, {algorithm});
    if (!work) return work.status();
    return (*work)->wait(Clock::now() + std::chrono::seconds(60));
  }
};

class World {
 public:
  // Decorates each rank's transport, for fault injection; may be empty.
  using Decorate = std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>, std::uint32_t rank)>;

  // Changes what ranks are made with, by rank; each may be empty.
  struct Adjust {
    std::function<void(std::uint32_t rank, MemoryOptions&)> memory;
    std::function<void(std::uint32_t rank, GroupContext::Options&)> group;
    Hierarchy hierarchy;         // of all ranks, or none: flat
    std::optional<Reach> reach;  // or none: one node
    WireSetting wire;
  };

  World(WorldTransport kind, std::uint32_t size, const Engine::Options& options = oversubscribed(),
        const Decorate& decorate = {}, const Adjust& adjust = {}) {
    std::vector<std::unique_ptr<Transport>> transports;
    const auto fabric = make_inproc_fabric();
    for (std::uint32_t r = 0; r < size; ++r) {
      std::unique_ptr<Transport> made;
      MemoryOptions memory;
      if (adjust.memory) adjust.memory(r, memory);
      if (kind == WorldTransport::inproc) {
        made = *make_inproc_transport(fabric, memory);
      } else {
        ShmOptions shm;
        shm.memory = memory;
        shm.registry = fabric;
        made = *make_shm_transport(shm);
      }
      transports.push_back(decorate ? decorate(std::move(made), r) : std::move(made));
    }
    std::vector<std::vector<std::byte>> addresses;
    for (const auto& transport : transports) addresses.push_back(transport->address());
    for (std::uint32_t r = 0; r < size; ++r) {
      auto member = std::make_unique<Member>();
      member->rank = r;
      member->size = size;
      Transport* const transport = transports[r].get();
      std::vector<std::unique_ptr<Transport>> own;
      own.push_back(std::move(transports[r]));
      member->engine = std::make_unique<Engine>(std::move(own), options);
      GroupContext::Options group;
      group.context = 7;
      group.rank = r;
      PeerList peers;
      for (std::uint32_t q = 0; q < size; ++q) peers.emplace_back(transport, addresses[q]);
      group.peers = std::make_shared<const PeerList>(std::move(peers));
      if (adjust.group) adjust.group(r, group);
      member->group = std::make_unique<GroupContext>(*member->engine, std::move(group));
      member->selector = std::make_unique<Selector>(*Selector::make({}));
      member->backend =
          make_native_backend(*member->group, *member->selector, std::size_t{64} << 20U, adjust.hierarchy,
                              adjust.reach.value_or(Reach::node), false, adjust.wire);
      members_.push_back(std::move(member));
    }
  }

  static Engine::Options oversubscribed() {
    Engine::Options options;
    options.waiting.spin_polls = 2;
    options.waiting.line_polls = 1;
    return options;
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(members_.size()); }
  Member& member(std::uint32_t rank) { return *members_[rank]; }

  // Runs `body` on every rank at once, each in a thread of its own; returns what the ranks report ("" is
  // success), joined.
  std::string run(const std::function<std::string(Member&)>& body) {
    std::vector<std::string> reports(members_.size());
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < members_.size(); ++r) {
      threads.emplace_back([&, r] {
        reports[r] = body(*members_[r]);
        // The others still need this rank only if it went wrong: then its group's failure lets them go.
        if (!reports[r].empty()) members_[r]->group->fail(Status(StatusCode::aborted, reports[r]));
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::string all;
    for (std::size_t r = 0; r < reports.size(); ++r) {
      if (!reports[r].empty()) all += fmt::format("rank {}: {}\n", r, reports[r]);
    }
    return all;
  }

 private:
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace tutti::test
