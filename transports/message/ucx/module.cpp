// The entry point of the module that the ucx transport is. Knows only how to make it, and whether the
// user wants UCX's signal handlers.
#include "transports/message/ucx/library.hpp"
#include "transports/message/ucx/plugin.hpp"
#include "transports/module_side.hpp"

const char* tutti_transport_module(const char* loader_id, const tutti::ModuleHost* host,
                                   tutti::TransportMaker* maker) {
  const char* own_id = tutti::answer_loader(loader_id, host, maker, &tutti::make_ucx_transport);
  if (*maker != nullptr && tutti::ucx::has_user_signals()) host->keep_signals();
  return own_id;
}
