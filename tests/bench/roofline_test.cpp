// The bounds: demands by hand, curves, the choice of the term, and that nothing decreases with size. The
// measurement runs once over two threads, for its form and not for its times.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/roofline/bound.hpp"
#include "bench/roofline/cache_share.hpp"
#include "bench/roofline/measure.hpp"
#include "tests/support/catch.hpp"

namespace tutti::bench {
namespace {

constexpr std::uint64_t kMiB = 1U << 20U;

// Equal but for rounding. (Catch2's own word for it lies in other places in its versions 2 and 3.)
bool is_close(double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(b); }

// Every movement of n bytes takes n / rate at any size; a line takes 0.5 us.
Ceilings flat(int ranks, double fresh_gbs, double own_gbs) {
  Ceilings c;
  c.ranks = ranks;
  c.line_us = 0.5;
  c.l2_bytes = kMiB;
  c.last_level_bytes = 16 * kMiB;
  for (std::size_t kind = 0; kind < kCeilingNames.size(); ++kind) {
    const auto ceiling = static_cast<Ceiling>(kind);
    const double rate = is_fresh(ceiling) ? fresh_gbs : own_gbs;
    for (const double bytes : {1024.0, 64.0 * 1024, 64.0 * kMiB})
      c.of(ceiling).add(static_cast<std::uint64_t>(bytes), bytes / (rate * 1e3));
  }
  return c;
}

TEST_CASE("a curve is straight between its points and never falls") {
  Curve curve;
  curve.add(1000, 1);
  curve.add(3000, 5);
  curve.add(9000, 4);  // cannot be: more bytes in less time
  CHECK(is_close(curve.time_us(500), 0.5));
  CHECK(is_close(curve.time_us(1000), 1));
  CHECK(is_close(curve.time_us(2000), 3));
  CHECK(is_close(curve.time_us(3000), 5));
  CHECK(is_close(curve.time_us(9000), 5));
  CHECK(is_close(curve.time_us(18000), 10));
  CHECK(is_close(curve.us_of(2), 5));
}

TEST_CASE("demands of two ranks, by hand") {
  const std::uint64_t m = 1000;
  const auto check = [&](Collective collective, double crossing, double load, double store, double set,
                         bool in_place = false) {
    const Demand d = demand_of(collective, 2, m, in_place);
    INFO(to_string(collective) << (in_place ? " in place" : ""));
    CHECK(d.crossing == crossing);
    CHECK(d.load == load);
    CHECK(d.store == store);
    CHECK(d.working_set == set);
  };
  check(Collective::allreduce, 1000, 1000, 1000, 2000);
  check(Collective::allreduce, 1000, 1000, 1000, 1000, true);
  check(Collective::reduce_scatter, 500, 1000, 500, 1500);
  check(Collective::allgather, 500, 500, 1000, 1500);
  check(Collective::allgather, 500, 500, 500, 500, true);
  check(Collective::broadcast, 1000, 500, 500, 1000);
  check(Collective::reduce, 1000, 1000, 500, 1500);
  check(Collective::alltoall, 500, 1000, 1000, 2000);
  check(Collective::alltoall, 500, 500, 500, 500, true);
  check(Collective::gather, 500, 500, 500, 1000);
  check(Collective::scatter, 500, 500, 500, 1000);
  check(Collective::scan, 1000, 1000, 1000, 2000);
  check(Collective::exscan, 1000, 500, 500, 1000);
  check(Collective::barrier, 0, 0, 0, 0);
  CHECK(demand_of(Collective::allreduce, 8, 800).crossing == 1400);
  CHECK(demand_of(Collective::gather, 4, 400).load == 100);
}

TEST_CASE("bounds of two ranks, by hand") {
  // Fresh bytes at 10 GB/s; own copies at 20 GB/s load and store 40 GB/s, own sums 60 GB/s.
  const Ceilings c = flat(2, 10, 20);
  // 100 kB cross: 10 us. Traffic of 200 kB: 3.3 us.
  const Bound allreduce = bound_of(Collective::allreduce, 2, 100000, c);
  CHECK(is_close(allreduce.us, 0.5 + 10));
  CHECK(is_close(allreduce.us, bound_us(Collective::allreduce, 2, 100000, c)));
  CHECK(allreduce.formula == "line 0.50 us + 2m(p-1)/p crossing at 10.0 GB/s (L2)");
  CHECK(is_close(bound_us(Collective::allgather, 2, 100000, c), 0.5 + 5));
  CHECK(is_close(bound_us(Collective::broadcast, 2, 100000, c), 0.5 + 10));
  const Bound barrier = bound_of(Collective::barrier, 2, 0, c);
  CHECK(is_close(barrier.us, 0.5));
  CHECK(barrier.formula == "line 0.50 us");
  CHECK(bound_of(Collective::allreduce, 2, 4 * kMiB, c).formula ==
        "line 0.50 us + 2m(p-1)/p crossing at 10.0 GB/s (LLC)");

  // Beyond the caches 8 MiB of each 16 MiB that are touched can come from one; the traffic goes on.
  const double cached_us = 8.0 * kMiB / 10e3;
  const Bound large = bound_of(Collective::allreduce, 2, 20 * kMiB, c);
  CHECK(is_close(large.us, 0.5 + cached_us));
  CHECK(large.formula == "line 0.50 us + 8.4 MB of 2m(p-1)/p crossing at 10.0 GB/s (DRAM)");
  const Bound largest = bound_of(Collective::allreduce, 2, 64 * kMiB, c);
  CHECK(is_close(largest.us, 0.5 + 2.0 * 64 * kMiB / 60e3));
  CHECK(largest.formula == "line 0.50 us + 2m traffic at 60.0 GB/s (DRAM)");

  // The kernel's reading counts where it is best; an unmeasured ceiling does not count.
  Ceilings other = c;
  other.of(Ceiling::copy_fresh) = other.of(Ceiling::add_fresh) = {};
  CHECK(is_close(bound_us(Collective::allreduce, 2, 100000, other), 0.5 + 10));
  other.of(Ceiling::vm_read) = {};
  CHECK(is_close(bound_us(Collective::allreduce, 2, 100000, other), 0.5 + 200000 / 60e3));
  other.l2_bytes = other.last_level_bytes = 0;
  CHECK(bound_of(Collective::allreduce, 2, 100000, other).formula.find("caches unknown") !=
        std::string::npos);
}

TEST_CASE("a call that waits for all ranks cannot be faster than an exchange") {
  Ceilings c = flat(2, 10, 5);
  c.exchange_us = 0.75;
  CHECK(is_close(bound_us(Collective::barrier, 2, 0, c), 0.75));
  CHECK(is_close(
      bound_us(Collective::allreduce, 2, 1, c) - bound_us(Collective::allreduce, 2, 1, flat(2, 10, 5)),
      0.25));
  CHECK(bound_of(Collective::allgather, 2, 4096, c).formula.starts_with("exchange 0.75 us + "));
  CHECK(bound_of(Collective::broadcast, 2, 4096, c).formula.starts_with("line 0.50 us + "));
}

TEST_CASE("one rank crosses nothing") {
  const Ceilings c = flat(1, 10, 20);
  CHECK(is_close(bound_us(Collective::allreduce, 1, 60000, c), 2));
  CHECK(bound_of(Collective::allreduce, 1, 60000, c).formula == "2m traffic at 60.0 GB/s (L2)");
  CHECK(bound_of(Collective::allreduce, 1, 60000, c, true).us == 0);
  CHECK(bound_of(Collective::broadcast, 1, 60000, c).formula.empty());
  CHECK(bound_us(Collective::barrier, 1, 0, c) == 0);
}

TEST_CASE("bounds never decrease with size") {
  // Curves with the steps of a real machine, and with the noise of one.
  Ceilings c = flat(2, 10, 20);
  const std::array<double, 9> fresh = {0.14, 0.32, 0.65, 1.97, 7.3, 29.7, 127, 782, 3901};
  const std::array<double, 9> own = {0.01, 0.04, 0.1, 0.5, 0.4, 17.6, 66, 583, 4152};
  for (std::size_t kind = 0; kind < kCeilingNames.size(); ++kind) {
    Curve curve;
    std::uint64_t bytes = 1024;
    for (std::size_t i = 0; i < fresh.size(); ++i, bytes *= 4)
      curve.add(bytes, is_fresh(static_cast<Ceiling>(kind)) ? fresh[i] : own[i]);
    c.curves[kind] = curve;
  }
  for (const int ranks : {1, 2, 3, 8}) {
    for (int i = 0; i < kCollectiveCount; ++i) {
      for (const bool in_place : {false, true}) {
        double previous = 0;
        for (std::uint64_t bytes = 4; bytes < (1U << 30U); bytes += bytes / 3 + 1) {
          const Bound bound = bound_of(static_cast<Collective>(i), ranks, bytes, c, in_place);
          INFO(kCollectiveNames[static_cast<std::size_t>(i)] << " of " << bytes << " over " << ranks);
          REQUIRE(bound.us >= previous * (1 - 1e-12));
          REQUIRE((bound.us > 0) != bound.formula.empty());
          previous = bound.us;
        }
      }
    }
  }
}

TEST_CASE("a bound needs the curves at the sizes that matter, and nowhere else") {
  using Sizes = std::vector<std::uint64_t>;
  const Ceilings c = flat(2, 10, 20);  // caches of 1 MiB, 16 MiB
  const auto sizes = [&](Collective collective, std::uint64_t bytes) {
    return sizes_that_matter(demand_of(collective, 2, bytes), c);
  };
  CHECK(sizes(Collective::barrier, 0).empty());
  CHECK(sizes(Collective::allreduce, 4) == Sizes{1024});
  CHECK(sizes(Collective::allreduce, 100000) == Sizes{100032});  // a multiple of 64
  CHECK(sizes(Collective::allreduce, 64 * kMiB) == Sizes{8 * kMiB, 64 * kMiB});
  CHECK(sizes(Collective::reduce_scatter, 64 * kMiB) == Sizes{8 * kMiB, 48 * kMiB});

  Ceilings unknown;
  CHECK(sizes_that_matter(demand_of(Collective::allreduce, 2, 64 * kMiB), unknown) == Sizes{64 * kMiB});
  for (const std::uint64_t bytes : {4UL << 10U, kMiB, 64 * kMiB}) {
    for (int i = 0; i < kCollectiveCount; ++i) {
      const auto collective = static_cast<Collective>(i);
      Ceilings whole = c, needed = c;
      const Sizes needed_sizes = sizes(collective, bytes);
      for (std::size_t kind = 0; kind < kCeilingNames.size(); ++kind) {
        // Rates that fall with the size, so that a point elsewhere would tell another time.
        const auto us_of = [&](double size) { return std::pow(size, 1.1) / static_cast<double>(kind + 3); };
        needed.curves[kind] = whole.curves[kind] = {};
        for (const std::uint64_t size : needed_sizes)
          needed.curves[kind].add(size, us_of(static_cast<double>(size)));
        Sizes all = needed_sizes;
        for (std::uint64_t size = 1024; size <= 128 * kMiB; size *= 4) all.push_back(size);
        std::sort(all.begin(), all.end());
        for (const std::uint64_t size : all) whole.curves[kind].add(size, us_of(static_cast<double>(size)));
      }
      INFO(kCollectiveNames[static_cast<std::size_t>(i)] << " of " << bytes);
      CHECK(bound_of(collective, 2, bytes, needed).formula == bound_of(collective, 2, bytes, whole).formula);
      CHECK(is_close(bound_us(collective, 2, bytes, needed), bound_us(collective, 2, bytes, whole)));
    }
  }
}

TEST_CASE("ranks share caches") {
  // Two sockets; in each an L3 of 8 MB over two cores, with L2s of 1 MB and 2 MB.
  auto parsed = parse_summary(
      "topology1 cores=1x4 pus=0,2,1,3 sockets=2x2 numa= "
      "caches=2:1000000:64:0:1x3,2:2000000:64:3:1x1,3:8000000:64:0:2x2");
  REQUIRE(parsed.is_ok());
  const Topology& t = *parsed;
  const auto share = [&](std::vector<int> cpus) {
    const CacheShare found = share_caches(t, cpus);
    return std::pair(found.l2_bytes, found.last_level_bytes);
  };
  using Pair = std::pair<std::uint64_t, std::uint64_t>;
  CHECK(share({0, 2}) == Pair(1000000, 4000000));
  CHECK(share({0, 1}) == Pair(1000000, 8000000));  // of two sockets
  CHECK(share({3}) == Pair(2000000, 8000000));
  CHECK(share({0, 1, 3}) == Pair(1000000, 4000000));
  CHECK(share({-1, -1}) == Pair(1000000, 4000000));  // not bound: a core's share
  CHECK(share({0, 9}) == Pair(1000000, 4000000));
  CHECK(share({}) == Pair(1000000, 4000000));
}

TEST_CASE("ceilings are measured by ranks together") {
  CeilingsPlan plan;
  plan.last_bytes = 64 << 10;
  plan.factor = 8;
  plan.round_count = 2;
  plan.budget_seconds = 0.004;
  for (const int rank_count : {1, 3}) {
    std::vector<Ceilings> results(static_cast<std::size_t>(rank_count));
    std::size_t steps = 0, total = 0;
    SharedPage page = SharedPage::create(rank_count);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < rank_count; ++rank) {
      threads.emplace_back([&, rank] {
        SharedPage mine = page.with_rank(rank);
        results[static_cast<std::size_t>(rank)] =
            measure_ceilings(plan, mine, [&](std::size_t, std::size_t of, const std::string&) {
              if (rank == 0) ++steps, total = of;
            });
      });
    }
    for (std::thread& thread : threads) thread.join();
    const Ceilings& first = results[0];
    CHECK(first.ranks == rank_count);
    CHECK((first.line_us > 0) == (rank_count > 1));
    CHECK((first.exchange_us > 0) == (rank_count > 1));
    CHECK(steps >= total);
    CHECK(total > 0);
    for (std::size_t kind = 0; kind < kCeilingNames.size(); ++kind) {
      const Curve& curve = first.curves[kind];
      INFO(kCeilingNames[kind] << " over " << rank_count);
      if (is_fresh(static_cast<Ceiling>(kind)) && rank_count == 1) {
        CHECK(curve.is_empty());
        continue;
      }
      if (static_cast<Ceiling>(kind) == Ceiling::vm_read && !first.vm_read_missing.empty()) continue;
      REQUIRE(curve.point_count() == 3);
      CHECK(curve.bytes_of(2) == plan.last_bytes);
      CHECK(curve.us_of(0) > 0);
      CHECK(results.back().curves[kind].us_of(1) == curve.us_of(1));
    }
  }
}

}  // namespace
}  // namespace tutti::bench
