// The smallest program: every rank contributes a vector, every rank gets the sum. Run it with
//   tutti run -n 4 build/examples/example_allreduce
#include <cstdio>
#include <vector>

#include "tutti/tutti.hpp"

int main() {
  tutti::CommGroup world = tutti::init();
  std::vector<float> gradient(1000, static_cast<float>(world.rank() + 1));
  world.allreduce(std::span(gradient));
  std::printf("rank %d of %d: every element is %g\n", world.rank(), world.size(), gradient[0]);
  return 0;
}
