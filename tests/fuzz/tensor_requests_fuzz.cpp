// Fuzz target: any bytes are either refused as the requests or the decisions of a tensor queue, or are what
// encoding gives; requests that are read can be merged and decided.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "runtime/training/coordinator.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  constexpr std::uint32_t kRanks = 5;
  tutti::RequestBatch batch;
  if (tutti::decode(bytes, kRanks, batch)) {
    if (tutti::encode(batch) != bytes) std::abort();
    tutti::RequestBatch twice = batch;
    tutti::merge(twice, batch);
    tutti::Coordinator coordinator(kRanks);
    const tutti::RunningClock::time_point now{};
    static_cast<void>(tutti::encode(coordinator.decide(std::move(twice), now)));
    static_cast<void>(coordinator.stalled(now, {}));
  }
  tutti::ResponseList list;
  if (tutti::decode(bytes, kRanks, list) && tutti::encode(list) != bytes) std::abort();
  return 0;
}
