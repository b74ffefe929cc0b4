// The program of README.md, in a project of its own: knows tutti as it is installed.
#include <tutti/tutti.hpp>

#include <cstdio>
#include <vector>

int main() {
  tutti::CommGroup world = tutti::init();  // under mpirun, mpiexec, srun, torchrun, `tutti run`, or alone
  std::vector<float> gradient(1 << 20, static_cast<float>(world.rank()));
  tutti::Work work = world.iallreduce(std::span<float>(gradient), tutti::Op::avg);
  // ... compute something else ...
  work.wait();
  if (world.rank() == 0) std::printf("average over %d ranks: %g\n", world.size(), gradient[0]);
}
