// Fuzzes what strangers can send to the control socket: the frame parser and every payload decoder.
// The first byte chooses the size of the pieces in which the rest arrives.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "runtime/job/control_frame.hpp"

using namespace tutti;

namespace {

// Whatever decodes must encode to the very same bytes.
template <class Payload>
void check_payload(std::string_view bytes) {
  Payload payload;
  if (decode(bytes, payload) && encode(payload) != bytes) std::abort();
}

void check_frame(const Frame& frame) {
  check_payload<HelloPayload>(frame.payload);
  check_payload<ChallengePayload>(frame.payload);
  check_payload<ProofPayload>(frame.payload);
  check_payload<ClaimPayload>(frame.payload);
  check_payload<StatusPayload>(frame.payload);
  check_payload<GatherPayload>(frame.payload);
  check_payload<ArrivedPayload>(frame.payload);
  check_payload<GonePayload>(frame.payload);
  check_payload<EntriesPayload>(frame.payload);
  check_payload<RanksPayload>(frame.payload);
  check_payload<PathPayload>(frame.payload);
  check_payload<TracePayload>(frame.payload);
  check_payload<FailurePayload>(frame.payload);
  check_payload<MembershipPayload>(frame.payload);
  check_payload<ProposalPayload>(frame.payload);
  check_payload<Invitation>(frame.payload);
  check_payload<RoundPayload>(frame.payload);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t piece_bytes = data[0] + std::size_t{1};
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  FrameParser parser;
  while (!rest.empty()) {
    parser.feed(rest.substr(0, piece_bytes));
    rest.remove_prefix(std::min(piece_bytes, rest.size()));
    for (;;) {
      const auto frame = parser.next();
      if (!frame) return 0;
      if (!frame->has_value()) break;
      if ((*frame)->payload.size() > kMaxStrangerPayloadBytes) std::abort();
      check_frame(**frame);
    }
  }
  return 0;
}
