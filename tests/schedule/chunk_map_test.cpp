// Chunk maps cover every element once, keep to granules and windows, and count beyond 2^32.
#include "runtime/schedule/chunk_map.hpp"

#include "tests/schedule/support.hpp"

using namespace tutti;

namespace {

Schedule grid(Collective collective, std::uint32_t rank, std::uint32_t p, std::uint32_t blocks,
              std::uint32_t segments = 1, bool in_place = false, std::uint32_t root = 0) {
  Schedule s;
  s.collective = collective;
  s.rank = rank;
  s.size = p;
  s.blocks = blocks;
  s.segments = segments;
  s.in_place = in_place;
  s.root = root;
  return s;
}

}  // namespace

TEST_CASE("a vector is covered without gaps, in granules, with the longest atom first") {
  for (const std::uint64_t count : {0ULL, 1ULL, 15ULL, 16ULL, 17ULL, 100ULL, 4097ULL, (1ULL << 33) + 5}) {
    for (const std::uint32_t blocks : {1U, 3U, 7U, 64U}) {
      for (const std::uint32_t segments : {1U, 4U}) {
        for (const std::uint64_t granule : {1ULL, 16ULL}) {
          ChunkMap map(grid(Collective::allreduce, 0, 4, blocks, segments));
          map.bind_vector(count, granule);
          std::uint64_t next = 0, longest = 0;
          for (std::uint32_t a = 0; a < blocks * segments; ++a) {
            const Range r = map.range(Buffer::output, a);
            INFO("count " << count << " blocks " << blocks << " segments " << segments << " atom " << a);
            REQUIRE(r.first == next);
            REQUIRE((r.count == 0 || r.first % granule == 0));
            REQUIRE(map.range(Buffer::input, a) == r);
            REQUIRE((map.range(Buffer::scratch, a) == Range{0, r.count}));
            next += r.count;
            longest = std::max(longest, r.count);
          }
          REQUIRE(next == count);
          REQUIRE(map.max_atom_count() == longest);
          REQUIRE(map.extent(Buffer::output) == count);
        }
      }
    }
  }
}

TEST_CASE("a short vector leaves the trailing blocks empty") {
  ChunkMap map(grid(Collective::allreduce, 0, 8, 8));
  map.bind_vector(40, 16);
  CHECK((map.range(Buffer::output, 0) == Range{0, 16}));
  CHECK((map.range(Buffer::output, 2) == Range{32, 8}));
  for (std::uint32_t a = 3; a < 8; ++a) CHECK((map.range(Buffer::output, a) == Range{40, 0}));
}

TEST_CASE("windows: a buffer with the own block only has it at offset 0, in place all are at their place") {
  ChunkMap gathered(grid(Collective::allgather, 2, 4, 4));
  gathered.bind_equal(10);
  CHECK((gathered.range(Buffer::input, 2) == Range{0, 10}));
  CHECK((gathered.range(Buffer::output, 2) == Range{20, 10}));
  CHECK((gathered.range_at(3, Buffer::input, 3) == Range{0, 10}));
  CHECK(gathered.extent(Buffer::input) == 10);
  CHECK(gathered.extent(Buffer::output) == 40);

  ChunkMap scattered(grid(Collective::reduce_scatter, 2, 4, 4, 2));
  scattered.bind_equal(10, 4);
  CHECK((scattered.range(Buffer::input, 5) == Range{28, 2}));
  CHECK((scattered.range(Buffer::output, 5) == Range{8, 2}));
  ChunkMap in_place(grid(Collective::reduce_scatter, 2, 4, 4, 2, true));
  in_place.bind_equal(10, 4);
  CHECK((in_place.range(Buffer::output, 5) == Range{28, 2}));

  ChunkMap leaf(grid(Collective::gather, 1, 4, 4, 1, true, 0));
  leaf.bind_equal(10);
  CHECK((leaf.range(Buffer::output, 1) == Range{0, 10}));
  CHECK((leaf.range_at(0, Buffer::output, 1) == Range{10, 10}));
}

TEST_CASE("listed counts, with and without displacements, and one rank alone") {
  const std::vector<std::uint64_t> counts = {3, 0, 1ULL << 32, 7};
  ChunkMap map(grid(Collective::allgather, 3, 4, 4));
  map.bind_counts(counts);
  CHECK((map.range(Buffer::output, 3) == Range{3 + (1ULL << 32), 7}));
  CHECK((map.range(Buffer::input, 3) == Range{0, 7}));
  CHECK(map.max_atom_count() == 1ULL << 32);
  const std::vector<std::uint64_t> places = {100, 50, 200, 0};
  map.bind_counts(counts, places);
  CHECK((map.range(Buffer::output, 0) == Range{100, 3}));
  CHECK((map.range(Buffer::output, 3) == Range{0, 7}));
  CHECK(map.extent(Buffer::output) == 200 + (1ULL << 32));

  const std::vector<std::uint64_t> one = {5}, far = {9};
  ChunkMap alone(grid(Collective::allgather, 0, 1, 1));
  alone.bind_counts(one, far);
  CHECK((alone.range(Buffer::input, 0) == Range{0, 5}));
  CHECK((alone.range(Buffer::output, 0) == Range{9, 5}));
}

TEST_CASE("alltoallv has a map for each side") {
  const std::vector<std::uint64_t> send = {1, 2, 3}, receive = {4, 5, 6}, none;
  ChunkMap map(grid(Collective::alltoall, 1, 3, 3));
  map.bind_alltoall(send, none, receive, none);
  CHECK((map.range(Buffer::input, 2) == Range{3, 3}));
  CHECK((map.range(Buffer::output, 2) == Range{9, 6}));
  CHECK(map.max_atom_count() == 6);
}

TEST_CASE("segments agree on both ends of a message, whatever the place of the block") {
  const std::vector<std::uint64_t> counts = {33, 0, 5, 1000};
  for (std::uint32_t block = 0; block < 4; ++block) {
    ChunkMap owner(grid(Collective::allgather, block, 4, 4, 3)),
        other(grid(Collective::allgather, 1, 4, 4, 3));
    owner.bind_counts(counts, {}, 16);
    other.bind_counts(counts, {}, 16);
    for (std::uint32_t s = 0; s < 3; ++s)
      CHECK(owner.range(Buffer::input, block * 3 + s).count ==
            other.range(Buffer::output, block * 3 + s).count);
  }
}
