// A message transport as the seam wants it, over any carrier: capabilities, addresses, opening.
// Knows no message and no library.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.hpp"
#include "transports/message/card.hpp"
#include "transports/message/carrier.hpp"
#include "transports/transport.hpp"

namespace tutti::message {

// What a plug-in says about the carrier that it has made.
struct CarrierFacts {
  std::string_view name;           // of the transport; a literal
  std::string detail;              // TransportCaps::detail
  std::string dialect;             // Card::dialect
  std::vector<std::byte> address;  // how peers reach this carrier
};

// Errors: unsupported with the library's reason.
Result<std::unique_ptr<Transport>> make_message_transport(std::unique_ptr<Carrier> carrier,
                                                          CarrierFacts facts);

}  // namespace tutti::message
