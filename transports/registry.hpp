// The list of transports: which were built, and how one is made from settings.
// The one place that knows every plug-in; knows nothing of one but how to make it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/status.hpp"
#include "transports/options.hpp"
#include "transports/transport.hpp"

namespace tutti {

struct TransportEntry {
  std::string_view name;
  std::string_view missing;        // why it was not built; empty if it was
  bool connects_nodes = false;     // may carry what goes from one node to another
  bool is_module = false;          // loaded when it is asked for
  bool has_wire_security = false;  // TransportSettings::security
  TransportMaker make = nullptr;   // of one that is built in
};

// Every transport of this source tree, also those left out of this build.
std::span<const TransportEntry> transport_entries();

// Makes the first opening of a transport faster. Best called before the process has threads. Nobody has to call it.
void prepare_process();

// Errors: invalid_argument for an unknown name, listing the known ones; unsupported with the reason if it is
// not in this build, its module cannot be loaded, or it cannot work here; resource_exhausted. All inproc
// instances of a process belong to one fabric.
Result<std::unique_ptr<Transport>> make_transport(std::string_view name, const TransportSettings& settings);

}  // namespace tutti
