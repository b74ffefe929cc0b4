// Making the null transport; see plugin.hpp. Knows no message.
#include "tests/transports/null/plugin.hpp"

#include <utility>

#include "tests/transports/null/null_driver.hpp"
#include "transports/message/message_transport.hpp"

namespace tutti {

Result<std::unique_ptr<Transport>> make_null_transport(const TransportSettings&) {
  auto driver = std::make_unique<null::NullDriver>();
  message::WireFacts facts = driver->facts();
  return message::make_message_transport(std::move(driver), std::move(facts));
}

}  // namespace tutti
