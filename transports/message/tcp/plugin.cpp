// Making the tcp transport: where it listens, what it says of itself. Knows no message.
#include "transports/message/tcp/plugin.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/net/network.hpp"
#include "transports/message/message_transport.hpp"
#include "transports/message/tcp/address.hpp"
#include "transports/message/tcp/driver.hpp"

namespace tutti {

namespace {

// Another host would need to know which of its own interfaces leads to such an address.
bool needs_scope(const SocketAddress& address) { return address.host_text().find('%') != std::string::npos; }

}  // namespace

Result<std::unique_ptr<Transport>> make_tcp_transport(const TransportSettings& settings) {
  const Result<std::vector<Interface>> all = list_interfaces();
  if (!all) return all.status().with_context("tcp");
  const Result<std::vector<Interface>> selected = select_interfaces(*all, settings.interface);
  if (!selected) return selected.status().with_context("tcp");
  std::vector<SocketAddress> addresses;
  std::string text;
  for (const Interface& interface : *selected) {
    if (needs_scope(interface.address)) continue;
    addresses.push_back(interface.address);
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", interface.name, interface.address.host_text());
  }
  const bool is_sealed = settings.security != WireSecurity::off;
  if (is_sealed && !settings.wire_key) {
    return unsupported(
        fmt::format("tcp: TUTTI_WIRE_SECURITY={} needs a secret of the job: set TUTTI_SECRET to the same "
                    "random text on all ranks, or use a launcher that carries one",
                    to_string(settings.security)));
  }
  Result<tcp::Poller> poller = tcp::Poller::make();
  if (!poller) return poller.status().with_context("tcp");
  message::WireFacts facts;
  facts.event_fd = poller->fd();
  auto driver = std::make_unique<tcp::TcpDriver>(
      *std::move(poller), settings.silence,
      tcp::Security{settings.security, settings.wire_key.value_or(WireKey{})});
  TUTTI_RETURN_IF_ERROR(driver->greeter().listen(addresses, settings.ports).with_context("tcp"));
  facts.name = "tcp";
  facts.detail = fmt::format("connections of our own through {}{}", text,
                             is_sealed ? fmt::format(", {}", describe(settings.security)) : "");
  facts.dialect = "TCP";
  facts.address = tcp::to_bytes(driver->greeter().address());
  facts.fetch = message::Fetch::piecewise;
  return message::make_message_transport(std::move(driver), std::move(facts));
}

}  // namespace tutti
