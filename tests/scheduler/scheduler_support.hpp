// Shared by the scheduler's tests: small calls, further groups over the engines of a world, a patience.
// Knows no algorithm.
#pragma once

#include <memory>
#include <vector>

#include "tests/support/world.hpp"

namespace tutti::test {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kPatience = seconds(60);  // so that a hang becomes a report

inline Call allreduce_of(std::vector<std::int32_t>& input, std::vector<std::int32_t>& output) {
  Call call;
  call.dtype = Dtype::i32;
  call.input = input.data();
  call.output = output.data();
  call.count = input.size();
  return call;
}

inline Call barrier_call() {
  Call call;
  call.collective = Collective::barrier;
  return call;
}

// One more group over the same engines, as a split would make it.
struct Group {
  std::unique_ptr<GroupContext> context;
  std::unique_ptr<Backend> backend;

  Status run(const Call& call, std::string_view algorithm = {}) const {
    auto work = backend->start(call, {algorithm});
    return work ? (*work)->wait(Clock::now() + kPatience) : work.status();
  }
};

inline std::vector<Group> make_groups(World& world, std::uint64_t number) {
  std::vector<Group> groups;
  for (std::uint32_t r = 0; r < world.size(); ++r) {
    Member& member = world.member(r);
    GroupContext::Options options;
    options.context = number;
    options.rank = r;
    PeerList peers;
    for (std::uint32_t q = 0; q < world.size(); ++q) {
      peers.emplace_back(&member.engine->transport(0), world.member(q).engine->transport(0).address());
    }
    options.peers = std::make_shared<const PeerList>(std::move(peers));
    Group group;
    group.context = std::make_unique<GroupContext>(*member.engine, std::move(options));
    group.backend = make_native_backend(*group.context, *member.selector, std::size_t{1} << 20U);
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace tutti::test
