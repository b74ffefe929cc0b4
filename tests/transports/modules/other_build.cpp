// A module as another build would have it: the entry point answers with another id, and touches nothing.
// Knows nothing of tutti's structures.
#include "transports/module_side.hpp"

const char* tutti_transport_module(const char*, const tutti::ModuleHost*, tutti::TransportMaker*) {
  return "0.0.0 older, another compiler";
}
