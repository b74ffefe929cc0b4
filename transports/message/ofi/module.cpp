// The entry point of the module that the ofi transport is. Knows only how to make it.
#include "transports/message/ofi/plugin.hpp"
#include "transports/module_side.hpp"

const char* tutti_transport_module(const char* loader_id, const tutti::ModuleHost* host,
                                   tutti::TransportMaker* maker) {
  return tutti::answer_loader(loader_id, host, maker, &tutti::make_ofi_transport);
}
