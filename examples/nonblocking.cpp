// Several allreduces under way while the program computes, as a training step does with its gradients.
#include <array>
#include <cstdio>
#include <vector>

#include "tutti/tutti.hpp"

int main() {
  tutti::CommGroup world = tutti::init();
  std::vector<std::vector<float>> layers(4, std::vector<float>(50000, 1.0F));
  std::vector<tutti::Work> pending;
  for (auto layer = layers.rbegin(); layer != layers.rend();
       ++layer) {  // the last layer's gradient is ready first
    pending.push_back(world.iallreduce(std::span(*layer), tutti::Op::avg));
    double busy = 0;  // the computation of the layer before it; test() moves the communication on
    for (int i = 0; i < 100000; ++i) busy += static_cast<double>(i) * 1e-9;
    if (!pending.front().test() && busy < 0) return 1;
  }
  for (const tutti::Work& work : pending) work.wait();
  std::printf("rank %d of %d: average %g\n", world.rank(), world.size(), layers[0][0]);
  return 0;
}
