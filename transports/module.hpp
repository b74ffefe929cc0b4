// Transports that are modules: shared libraries that are loaded when somebody asks for one, so that a missing
// vendor library disables nothing else. Holds both sides: the exported function and the loader.
// Knows no transport but its name.
//
// A module links its own copy of the few files of runtime/base that it needs; none of them has state that
// must be one. The log has, so the module writes through its host. A loaded module is never unloaded: vendor
// libraries leave threads, handlers and fork hooks behind.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"
#include "transports/options.hpp"
#include "transports/transport.hpp"

namespace tutti {

// Services of the loading side for a module, as long as the process lives. Any thread.
struct ModuleHost {
  int (*log_limit)() = nullptr;  // the highest LogLevel that is written
  void (*write_log)(int level, const char* text, std::size_t bytes) = nullptr;
  // Vendor libraries install handlers of signals when they are loaded. How a program dies is its own affair,
  // so they are taken out again, unless the entry point calls this because the user has asked for them.
  void (*keep_signals)() = nullptr;
};

// The one thing that a module exports, under the name of kModuleEntry: returns the module's binary_id(), and
// sets `maker` if it is equal to `loader_id`. Of the arguments it touches nothing else before it has
// compared: another build may have other structures.
using ModuleEntry = const char*(const char* loader_id, const ModuleHost* host, TransportMaker* maker);
inline constexpr const char* kModuleEntry = "tutti_transport_module";

// "libtutti_transport_ucx.so"
std::string module_file_name(std::string_view transport);

// Where modules are looked for. `path`, if it is not empty, is all there is: folders separated by colons.
// Otherwise: beside the library or program that holds this function, the build folder if that lies in it,
// and where modules are installed, seen from there: an installation may be moved as a whole.
std::vector<std::string> module_folders(std::string_view path);

// Loads the module from the first of the folders that has it. Errors: unsupported with the reason: no such
// file, the dynamic linker's words (a library that is missing), no module, or another build. Any thread.
Result<TransportMaker> load_transport_module(std::string_view transport,
                                             std::span<const std::string> folders);

}  // namespace tutti
