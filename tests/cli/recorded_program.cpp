// A rank whose record doctor_test.py reads. Its argument says what goes wrong after some calls.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "tutti/tutti.hpp"

namespace {

constexpr int kCalls = 300, kLateCalls = 20;

// Until somebody ends this process.
void wait_for_the_end() {
  for (;;) ::pause();
}

// Rank 1 calls with a count of its own, after the others have called: each record ends with that operation.
void differ(const tutti::CommGroup& world, std::vector<float>& value, std::vector<float>& large) {
  constexpr int kOdd = 1;
  if (world.rank() == kOdd) {
    for (int peer = 0; peer < world.size(); ++peer) {
      if (peer != kOdd) world.recv(value.data(), 1, tutti::Dtype::f32, peer);
    }
    world.allreduce(large.data(), large.data(), 3, tutti::Dtype::f32);
    return;
  }
  tutti::Work call = world.iallreduce(large.data(), large.data(), 2, tutti::Dtype::f32);
  world.send(value.data(), 1, tutti::Dtype::f32, kOdd);
  call.wait();
}

void run(const std::string& fault) {
  const tutti::CommGroup world = tutti::init();
  std::vector<float> value(1, 1.0F), large(1 << 20, 1.0F);
  for (int i = 0; i < kCalls; ++i) world.allreduce(value.data(), value.data(), 1, tutti::Dtype::f32);
  world.allreduce(large.data(), large.data(), large.size(), tutti::Dtype::f32);
  if (fault == "none") return;
  if (fault == "late") {
    for (int i = 0; i < kLateCalls; ++i) {
      if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      world.allreduce(large.data(), large.data(), large.size(), tutti::Dtype::f32);
    }
    return;
  }
  while (fault == "busy") world.allreduce(large.data(), large.data(), large.size(), tutti::Dtype::f32);
  if (fault == "absent" && world.rank() == 1) wait_for_the_end();
  if (fault == "message") {
    if (world.rank() == 0) world.recv(value.data(), 1, tutti::Dtype::f32, 1);
    wait_for_the_end();
  }
  if (fault == "killed" && world.rank() == 1) ::raise(SIGKILL);
  if (fault == "mismatch") return differ(world, value, large);
  world.allreduce(large.data(), large.data(), 2, tutti::Dtype::f32);
}

}  // namespace

int main(int, char** argv) {
  try {
    run(argv[1]);
  } catch (const tutti::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
  return 0;
}
