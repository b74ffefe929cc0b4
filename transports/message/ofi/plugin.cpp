// Making the ofi transport. Knows no message.
#include "transports/message/ofi/plugin.hpp"

#include <utility>

#include "transports/message/message_transport.hpp"
#include "transports/message/ofi/driver.hpp"
#include "transports/message/ofi/fabric.hpp"

namespace tutti {

Result<std::unique_ptr<Transport>> make_ofi_transport(const TransportSettings& settings) {
  Result<std::unique_ptr<ofi::Fabric>> fabric =
      ofi::Fabric::make({settings.ofi_provider, settings.interface, settings.ports});
  if (!fabric) return fabric.status().with_context("ofi");
  message::WireFacts facts;
  facts.name = "ofi";
  facts.detail = (*fabric)->describe();
  facts.dialect = (*fabric)->dialect();
  facts.address = (*fabric)->address();
  facts.event_fd = (*fabric)->event_fd();
  facts.fetch = message::Fetch::piecewise;
  if (facts.address.empty()) return unsupported("ofi: libfabric's endpoint has no address");
  return message::make_message_transport(std::make_unique<ofi::OfiDriver>(*std::move(fabric)),
                                         std::move(facts));
}

}  // namespace tutti
