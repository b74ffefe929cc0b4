// Which transports were built. Knows of each only how to make it.
#include "transports/registry.hpp"

#include <fmt/format.h>

#include <array>

#include "tutti_config.hpp"

#include "runtime/base/fork_guard.hpp"
#include "transports/memory/inproc/plugin.hpp"
#include "transports/memory/shm/plugin.hpp"
#include "transports/message/tcp/plugin.hpp"
#include "transports/module.hpp"

namespace tutti {
namespace {

// Ranks that are threads of this process find each other here, whichever world they belong to. Its id says
// that they are of one process, so a child of fork() has another one.
struct ProcessFabric {
  std::shared_ptr<InprocFabric> fabric = make_inproc_fabric();
};
const std::shared_ptr<InprocFabric>& process_fabric() { return detail::of_process<ProcessFabric>().fabric; }

Result<std::unique_ptr<Transport>> make_inproc_transport(const TransportSettings& settings) {
  return tutti::make_inproc_transport(process_fabric(), settings.memory);
}

#if TUTTI_HAVE_TRANSPORT_SHM
Result<std::unique_ptr<Transport>> make_shm_transport(const TransportSettings& settings) {
  return tutti::make_shm_transport({settings.memory, settings.node_id, process_fabric()});
}
#endif

// One row a transport: name, why it is not built, connects nodes, is a module, can authenticate and encrypt, maker.
constexpr std::array kEntries = {
    TransportEntry{"shm", TUTTI_REASON_TRANSPORT_SHM, false, false, false, TUTTI_MAKER_TRANSPORT_SHM},
    TransportEntry{"inproc", TUTTI_REASON_TRANSPORT_INPROC, false, false, false,
                   TUTTI_MAKER_TRANSPORT_INPROC},
    TransportEntry{"tcp", TUTTI_REASON_TRANSPORT_TCP, true, false, true, TUTTI_MAKER_TRANSPORT_TCP},
    TransportEntry{"ucx", TUTTI_REASON_TRANSPORT_UCX, true, true},
    TransportEntry{"ofi", TUTTI_REASON_TRANSPORT_OFI, true, true},
};

}  // namespace

std::span<const TransportEntry> transport_entries() { return kEntries; }

void prepare_process() {
#if TUTTI_HAVE_TRANSPORT_SHM
  prepare_shm_process();
#endif
}

Result<std::unique_ptr<Transport>> make_transport(std::string_view name, const TransportSettings& settings) {
  std::string known;
  for (const TransportEntry& entry : kEntries) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.name);
    if (entry.name != name) continue;
    if (!entry.missing.empty()) {
      return unsupported(fmt::format("transport {} is not in this build: {}", name, entry.missing));
    }
    if (entry.connects_nodes && !entry.has_wire_security && settings.security != WireSecurity::off) {
      return unsupported(
          fmt::format("{}: TUTTI_WIRE_SECURITY={}: tutti can neither authenticate nor encrypt the traffic of "
                      "this library; "
                      "use TUTTI_TRANSPORTS=shm,tcp, or TUTTI_WIRE_SECURITY=off in a trusted network",
                      name, to_string(settings.security)));
    }
    if (!entry.is_module) return entry.make(settings);
    const Result<TransportMaker> maker = load_transport_module(name, module_folders(settings.module_path));
    if (!maker) return maker.status();
    return (*maker)(settings);
  }
  return invalid_argument(fmt::format("there is no transport '{}'; known are {}", name, known));
}

}  // namespace tutti
