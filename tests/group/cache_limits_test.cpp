// Sizes of collectives in shared memory: from made-up caches, from recorded machines, and where nothing is
// known.
#include "runtime/group/cache_limits.hpp"

#include <bit>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "runtime/group/comm_group.hpp"
#include "tests/support/catch.hpp"
#include "topology/discovery.hpp"

namespace tutti {
namespace {

constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;

// `cores` cores of `threads` PUs, each with an L1 and an L2 of its own, and one L3 for each `sharing` of
// them.
Topology machine(std::uint32_t cores, std::uint32_t threads, std::uint64_t l1, std::uint64_t l2,
                 std::uint64_t l3, std::uint32_t sharing) {
  Topology t;
  for (std::uint32_t i = 0; i < cores * threads; ++i) t.pus.push_back({i, true});
  for (std::uint32_t i = 0; i < cores; ++i) t.cores.push_back({i * threads, threads});
  t.sockets = {{0, cores * threads}};
  for (const PuRange& core : t.cores) t.caches.push_back({1, l1, 64, core});
  for (const PuRange& core : t.cores) t.caches.push_back({2, l2, 64, core});
  for (std::uint32_t i = 0; i < cores; i += sharing)
    t.caches.push_back({3, l3, 64, {i * threads, sharing * threads}});
  REQUIRE(t.check().is_ok());
  return t;
}

std::vector<std::size_t> sizes(const CacheLimits& limits) {
  const LoweredLimits& lowered = limits.lowered;
  return {limits.small_staging_bytes / kKiB, limits.bulk_staging_bytes / kKiB, lowered.piece_bytes / kKiB,
          lowered.streamed_piece_bytes / kKiB, lowered.stream_bytes / kMiB};
}
using Sizes = std::vector<std::size_t>;  // KiB of small staging, bulk staging, pieces, streamed pieces; MiB

bool has_hwloc() { return make_synthetic_topology("pu:1").is_ok(); }

std::size_t stream_mib(const Topology& topology, std::uint32_t group_size) {
  return limits_for(caches_of(topology), group_size).lowered.stream_bytes / kMiB;
}

TEST_CASE("two cores with 48 KiB, 1 MiB and a common 32 MiB have the limits that were measured there") {
  const Topology t = machine(2, 1, 48 * kKiB, kMiB, 32 * kMiB, 2);
  CHECK(limits_for(caches_of(t), 2) == CacheLimits());
  CHECK(sizes(CacheLimits()) == Sizes{16, 512, 16, 32, 16});
  // Each further rank brings buffers of its own.
  CHECK(stream_mib(t, 1) == 32);
  CHECK(stream_mib(t, 3) == 8);
  CHECK(stream_mib(t, 4) == 8);
  CHECK(stream_mib(t, 8) == 4);
  CHECK(stream_mib(t, 1000) == 1);
}

TEST_CASE("what is not known stays as it is") {
  const CacheLimits usual;
  CHECK(limits_for(NodeCaches(), 2) == usual);
  CHECK(limits_for(NodeCaches(), 64) == usual);
  const auto bare = parse_summary("topology1 cores=1x2 pus=0-1 sockets=2x1 numa= caches=");
  REQUIRE(bare.is_ok());
  CHECK(caches_of(*bare) == NodeCaches());
  // Caches that are there but whose sizes are not known; and a first level with nothing behind it.
  CHECK(limits_for(caches_of(machine(2, 1, 0, 0, 0, 2)), 2) == usual);
  const auto first = parse_summary("topology1 cores=1x2 pus=0-1 sockets=2x1 numa= caches=1:65536:64:0:1x2");
  REQUIRE(first.is_ok());
  CHECK(sizes(limits_for(caches_of(*first), 2)) == Sizes{32, 512, 32, 64, 16});
  // One level alone is unknown.
  CHECK(sizes(limits_for(caches_of(machine(2, 1, 0, 2 * kMiB, 64 * kMiB, 2)), 2)) ==
        Sizes{16, 1024, 16, 32, 32});
  CHECK(sizes(limits_for(caches_of(machine(2, 1, 65536, 0, 64 * kMiB, 2)), 2)) == Sizes{32, 512, 32, 64, 32});
  CHECK(sizes(limits_for(caches_of(machine(2, 1, 65536, 2 * kMiB, 0, 2)), 2)) == Sizes{32, 1024, 32, 64, 16});
}

TEST_CASE("ranks fill one last-level cache after the other") {
  const Topology t = machine(32, 2, 32 * kKiB, 512 * kKiB, 32 * kMiB, 8);
  CHECK(caches_of(t) == NodeCaches{32 * kKiB, 512 * kKiB, 32 * kMiB, 8, 4});
  CHECK(sizes(limits_for(caches_of(t), 2)) == Sizes{16, 256, 16, 32, 16});
  CHECK(stream_mib(t, 8) == 4);
  CHECK(stream_mib(t, 9) == 4);  // 18 buffers in two caches
  CHECK(stream_mib(t, 16) == 4);
  CHECK(stream_mib(t, 32) == 4);
  CHECK(stream_mib(t, 64) == 2);  // two ranks to a core: there is no fifth cache
  CHECK(stream_mib(t, 1) == 32);
}

TEST_CASE("what cores share counts by core, and the smallest of a level counts") {
  Topology t = machine(4, 1, 64 * kKiB, 512 * kKiB, 64 * kMiB, 4);
  t.caches[1].bytes = 32 * kKiB;
  t.caches.erase(t.caches.begin() + 4, t.caches.begin() + 8);
  t.caches.insert(t.caches.begin() + 4, {{2, 4 * kMiB, 64, {0, 2}}, {2, 3 * kMiB, 64, {2, 2}}});
  REQUIRE(t.check().is_ok());
  CHECK(caches_of(t) == NodeCaches{32 * kKiB, 3 * kMiB / 2, 64 * kMiB, 4, 1});
  CHECK(sizes(limits_for(caches_of(t), 2)) == Sizes{16, 512, 16, 32, 32});
}

TEST_CASE("whatever a summary says, limits are powers of two within bounds") {
  const std::uint64_t odd[] = {
      0, 1, 63, 4095, 48 * kKiB, 12345678, std::uint64_t{1} << 40U, ~std::uint64_t{0}};
  for (const std::uint64_t l1 : odd) {
    for (const std::uint64_t l2 : odd) {
      for (const std::uint64_t last : odd) {
        for (const std::uint32_t ranks : {1U, 2U, 64U, 65536U, ~0U}) {
          const NodeCaches caches{l1, l2, last, ranks % 3, ranks % 7};
          CAPTURE(describe(caches), ranks);
          const CacheLimits limits = limits_for(caches, ranks);
          const Sizes found{limits.small_staging_bytes, limits.bulk_staging_bytes, limits.lowered.piece_bytes,
                            limits.lowered.streamed_piece_bytes, limits.lowered.stream_bytes};
          const Sizes least{16 * kKiB, 128 * kKiB, 4 * kKiB, 4 * kKiB, kMiB};
          const Sizes most{32 * kKiB, kMiB, LoweredLimits::kMostPieceBytes, LoweredLimits::kMostPieceBytes,
                           1024 * kMiB};
          for (std::size_t i = 0; i < found.size(); ++i) {
            CAPTURE(i, found[i]);
            REQUIRE(std::has_single_bit(found[i]));
            REQUIRE(found[i] >= least[i]);
            REQUIRE(found[i] <= most[i]);
          }
        }
      }
    }
  }
}

TEST_CASE("recorded machines") {
  if (!has_hwloc()) return;
  const std::string data = TOPOLOGY_DATA;
  const auto xeon = load_topology_xml(data + "/xeon_two_sockets.xml");
  REQUIRE(xeon.is_ok());
  CHECK(describe(caches_of(*xeon)) == "L1 32768, L2 262144, last level 47185920 for 18 cores, 2 of them");
  CHECK(sizes(limits_for(caches_of(*xeon), 2)) == Sizes{16, 128, 16, 32, 16});
  CHECK(stream_mib(*xeon, 18) == 2);
  CHECK(stream_mib(*xeon, 36) == 2);  // the second socket brings its cache
  // Pairs of cores share an L2 and an L3.
  const auto power = load_topology_xml(data + "/power9_two_sockets.xml");
  REQUIRE(power.is_ok());
  CHECK(describe(caches_of(*power)) == "L1 32768, L2 262144, last level 10485760 for 2 cores, 20 of them");
  CHECK(sizes(limits_for(caches_of(*power), 2)) == Sizes{16, 128, 16, 32, 4});
  CHECK(stream_mib(*power, 40) == 4);
  // Without an L3.
  const auto phi = load_topology_xml(data + "/knights_landing_quarters.xml");
  REQUIRE(phi.is_ok());
  CHECK(describe(caches_of(*phi)) == "L1 32768, L2 524288, last level 1048576 for 2 cores, 8 of them");
  CHECK(sizes(limits_for(caches_of(*phi), 16)) == Sizes{16, 256, 16, 32, 1});
}

TEST_CASE("groups run with the limits of the machine that they were told of") {
  if (!has_hwloc()) return;
  const std::string made_up =
      "synthetic:pack:1 l3:1(size=8388608) l2:2(size=262144) l1:1(size=65536) core:1 pu:1";
  const std::string id = make_unique_id();
  ::setenv("TUTTI_TOPOLOGY", made_up.c_str(), 1);
  std::vector<CacheLimits> found(2), found_alone(2);
  const auto limits_of = [](const CommGroup& handle) {
    const GroupContext& group = CommGroup::Impl::of(handle, "test").group();
    return CacheLimits{group.lowered_limits(), group.control_block_shape(BlockKind::small).staging_bytes,
                       group.control_block_shape(BlockKind::bulk).staging_bytes};
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      InitOptions options;
      options.unique_id = id;
      options.rank = rank;
      options.size = 2;
      const CommGroup world = init(options);
      found[static_cast<std::size_t>(rank)] = limits_of(world);
      found_alone[static_cast<std::size_t>(rank)] = limits_of(world.split(rank));
    });
  }
  for (std::thread& thread : threads) thread.join();
  ::unsetenv("TUTTI_TOPOLOGY");
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CHECK(sizes(found[rank]) == Sizes{32, 128, 32, 64, 4});
    CHECK(sizes(found_alone[rank]) == Sizes{32, 128, 32, 64, 8});  // the buffers of one rank only
  }
}

}  // namespace
}  // namespace tutti
