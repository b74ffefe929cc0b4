// The cause of a group's abort, as members tell each other over the group's own endpoints. Causes travel over
// the control tree as well; a frozen rank there holds them up. Knows no group.
#pragma once

#include <optional>
#include <vector>

#include "runtime/base/status.hpp"
#include "transports/transport.hpp"

namespace tutti {

// At most Endpoint::control()'s 256 bytes: a longer text is cut.
std::vector<std::byte> encode_abort_notice(const Status& cause);
// By their first bytes; other control messages begin with a small number.
bool is_abort_notice(ConstByteRange bytes);
// None: the bytes are no such message. Ranks are those of the group, or Status::kNoPeer; a rank that a group
// of `size` does not have is read as none.
std::optional<Status> decode_abort_notice(ConstByteRange bytes, std::uint32_t size);

}  // namespace tutti
