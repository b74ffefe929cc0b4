// Built into every transport module: the answer to the loader.
// Knows no transport; never part of the core.
#pragma once

#include "transports/module.hpp"

namespace tutti {

// The body of a module's entry point; see ModuleEntry.
const char* answer_loader(const char* loader_id, const ModuleHost* host, TransportMaker* maker,
                          TransportMaker own_maker);

}  // namespace tutti

// Every module defines it: the only name that it exports.
extern "C" [[gnu::visibility("default")]] const char* tutti_transport_module(const char* loader_id,
                                                                             const tutti::ModuleHost* host,
                                                                             tutti::TransportMaker* maker);
