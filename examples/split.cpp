// Groups: even and odd ranks add up by themselves, then the first of each half meet in a group of their own.
#include <cstdio>
#include <numeric>
#include <vector>

#include "tutti/tutti.hpp"

int main() {
  const tutti::CommGroup world = tutti::init();
  const tutti::CommGroup half = world.split(world.rank() % 2);
  std::vector<int> value{world.rank()};
  half.allreduce(std::span(value));
  if (half.rank() == 0 && world.size() > 1) {
    const std::vector<int> leaders{0, 1};  // only these two ranks call create
    const tutti::CommGroup pair = world.create(leaders);
    std::vector<int> sums(2);
    pair.allgather(std::span(value), std::span(sums));
    std::printf("even ranks add up to %d, odd ones to %d\n", sums[0], sums[1]);
  }
  world.barrier();
  return 0;
}
