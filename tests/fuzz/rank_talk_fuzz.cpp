// Fuzzes what ranks tell each other about stalls: reports of calls, questions and answers. A world of one
// rank hears them from itself, as it would from another one.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "runtime/group/comm_group.hpp"
#include "runtime/group/world.hpp"

using namespace tutti;

namespace {

CommGroup make_world() {
  ::setenv("TUTTI_LAUNCHER", "none", 1);
  ::setenv("TUTTI_TRANSPORTS", "inproc", 1);
  CommGroup world = init();
  std::vector<std::int32_t> one(1, 1);
  world.allreduce(std::span(one));  // reports are compared with it
  return world;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A report that contradicts the world's own call ends it.
  constexpr int kInputsOfWorld = 64;
  static std::optional<CommGroup> world;
  static int inputs = 0;
  if (!world || ++inputs % kInputsOfWorld == 0) world = make_world();
  ControlChannel& control = CommGroup::Impl::of(*world, "fuzz").world().control();
  control.tell(0, std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
