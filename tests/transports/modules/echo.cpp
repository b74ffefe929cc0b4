// A module of this build, made as real ones are: its transport is never there, but it says so in the log.
// Knows no library.
#include "runtime/base/log.hpp"
#include "transports/module_side.hpp"

namespace {

tutti::Result<std::unique_ptr<tutti::Transport>> echo(const tutti::TransportSettings& settings) {
  tutti::log_debug("echo: {}", settings.node_id);
  return tutti::unsupported("echo of " + settings.node_id);
}

}  // namespace

const char* tutti_transport_module(const char* loader_id, const tutti::ModuleHost* host,
                                   tutti::TransportMaker* maker) {
  return tutti::answer_loader(loader_id, host, maker, &echo);
}
