// The entry point of the module that the ucx transport is. Knows only how to make it.
#include "transports/module_side.hpp"
#include "transports/ucx/plugin.hpp"

const char* tutti_transport_module(const char* loader_id, const tutti::ModuleHost* host,
                                   tutti::TransportMaker* maker) {
  return tutti::answer_loader(loader_id, host, maker, &tutti::make_ucx_transport);
}
