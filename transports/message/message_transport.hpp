// A message transport as the seam wants it, over any driver: capabilities, addresses, opening.
// Knows no message and no library.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.hpp"
#include "transports/message/address.hpp"
#include "transports/message/wire_driver.hpp"
#include "transports/transport.hpp"

namespace tutti::message {

// Errors: unsupported with the library's reason.
Result<std::unique_ptr<Transport>> make_message_transport(std::unique_ptr<WireDriver> driver,
                                                          WireFacts facts);

}  // namespace tutti::message
