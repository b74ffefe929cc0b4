// Making the ucx transport. Knows no message.
#include "transports/message/ucx/plugin.hpp"

#include <fmt/format.h>

#include <utility>

#include "transports/message/message_transport.hpp"
#include "transports/message/ucx/driver.hpp"
#include "transports/message/ucx/library.hpp"

namespace tutti {

Result<std::unique_ptr<Transport>> make_ucx_transport(const TransportSettings& settings) {
  Result<std::unique_ptr<ucx::UcpWorker>> ucp_worker =
      ucx::UcpWorker::make(settings.interface, settings.ports);
  if (!ucp_worker) return ucp_worker.status().with_context("ucx");
  const ucx::Version version = ucx::library_version();
  message::WireFacts facts;
  facts.name = "ucx";
  facts.detail = fmt::format("UCX {}: {}", version.text, (*ucp_worker)->describe_resources());
  // UCX does not promise that worker addresses of different releases can be read.
  facts.dialect = fmt::format("UCX {}.{}", version.major, version.minor);
  facts.address = (*ucp_worker)->address();
  facts.event_fd = (*ucp_worker)->event_fd();
  if (facts.address.empty()) return unsupported("ucx: UCX's worker has no address");
  return message::make_message_transport(std::make_unique<ucx::UcxDriver>(*std::move(ucp_worker)),
                                         std::move(facts));
}

}  // namespace tutti
