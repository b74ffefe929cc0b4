// A module's answer to its loader, and its log, which is the host's. Knows no transport; see module_side.hpp.
#include "transports/module_side.hpp"

#include <fmt/format.h>

#include <atomic>
#include <string>

#include "runtime/base/log.hpp"
#include "runtime/base/version.hpp"

namespace tutti {
namespace {

std::atomic<const ModuleHost*> module_host{nullptr};

}  // namespace

const char* answer_loader(const char* loader_id, const ModuleHost* host, TransportMaker* maker,
                          TransportMaker own_maker) {
  if (loader_id == binary_id()) {
    module_host.store(host, std::memory_order_release);
    *maker = own_maker;
  }
  return binary_id().data();
}

// In place of runtime/base/log.cpp. The module's own level is never set, so each question goes to the host,
// whose level may change.
int detail::read_log_level() {
  const ModuleHost* host = module_host.load(std::memory_order_acquire);
  return host == nullptr ? static_cast<int>(LogLevel::error) : host->log_limit();
}

void detail::write_log_line(LogLevel level, fmt::string_view format, fmt::format_args arguments) {
  const ModuleHost* host = module_host.load(std::memory_order_acquire);
  if (host == nullptr) return;
  const std::string text = fmt::vformat(format, arguments);
  host->write_log(static_cast<int>(level), text.data(), text.size());
}

}  // namespace tutti
