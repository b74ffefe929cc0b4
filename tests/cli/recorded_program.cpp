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
  const std::size_t count = fault == "mismatch" && world.rank() == 1 ? 3 : 2;
  world.allreduce(large.data(), large.data(), count, tutti::Dtype::f32);
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
