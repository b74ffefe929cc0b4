// Allreduce by shots among processes: areas by handles for other processes, vectors through staging memory.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "backends/cuda/memory.hpp"
#include "backends/cuda/peer_allreduce.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/cuda_stand_in/peer_exercise.hpp"
#include "tests/support/cuda_stand_in/shared_services.hpp"
#include "tests/support/test_fraction.hpp"

namespace {

using namespace tutti;
using namespace tutti::cuda;

std::string run_rank(test::SharedPlace& place, std::uint32_t rank, std::uint32_t size) {
  test::SharedServices services(place, rank, size);
  const auto context = ContextScope::enter(0);
  if (!context) return context.status().to_string();
  const std::size_t staging_bytes = 64 << 10;
  auto peers = PeerAllreduce::create(services, 0, staging_bytes);
  if (!peers) return peers.status().to_string();
  std::vector<test::PeerCase> cases;
  std::uint64_t number = 0;
  for (const test::PeerCase& one : test::peer_cases()) {
    if (number++ % 4 == 0 && test::is_selected(number)) cases.push_back(one);
  }
  // Longer than the staging memory: in pieces.
  cases.push_back({Dtype::u8, Op::sum, 3 * staging_bytes + 12345, 1, false, Shots::two});
  std::string failure = test::exercise_peers(**peers, cases, services, 0);
  // An area is freed when nobody reads it any more.
  char done = 0;
  std::vector<char> all(size);
  if (const Status met = services.allgather(&done, all.data(), 1); !met) failure += met.to_string();
  return failure;
}

}  // namespace

// The parent never uses CUDA: what was initialised before a fork does not work after it.
TEST_CASE("processes reduce each other's device memory through handles") {
  REQUIRE(::setenv("TUTTI_CUDA_LIBRARY", STAND_IN_FILE, 1) == 0);
  const std::uint32_t size = 3;
  test::SharedPlace place;
  std::vector<pid_t> children;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      const std::string failure = run_rank(place, rank, size);
      if (!failure.empty()) std::fprintf(stderr, "rank %u: %s\n", rank, failure.c_str());
      ::_exit(failure.empty() ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
}
