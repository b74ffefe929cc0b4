// A module that needs a library. Knows nothing of tutti.
#include "transports/module_side.hpp"

extern "C" const char* absent_library_name();

const char* tutti_transport_module(const char*, const tutti::ModuleHost*, tutti::TransportMaker*) {
  return absent_library_name();
}
