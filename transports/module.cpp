// Finding and loading transport modules. Knows what a module exports, and no transport; see module.hpp.
#include "transports/module.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <mutex>

#include "runtime/base/log.hpp"
#include "runtime/base/version.hpp"
#include "tutti_config.hpp"

namespace tutti {
namespace {

int log_limit() {
  int limit = static_cast<int>(LogLevel::trace);
  while (limit > 0 && !is_log_enabled(static_cast<LogLevel>(limit))) --limit;
  return limit;
}

void write_log(int level, const char* text, std::size_t bytes) {
  log_at(static_cast<LogLevel>(level), "{}", std::string_view(text, bytes));
}

// The handlers of all signals, and whether the module that is being loaded may change them.
class SignalHandlers {
 public:
  static void keep() { keeps_ = true; }

  SignalHandlers() {
    keeps_ = false;
    for (int signal = 1; signal < kSignals; ++signal) ::sigaction(signal, nullptr, &handlers_[signal]);
  }
  ~SignalHandlers() {
    for (int signal = 1; signal < kSignals && !keeps_; ++signal) {
      struct sigaction now {};
      ::sigaction(signal, nullptr, &now);
      if (now.sa_handler != handlers_[signal].sa_handler) ::sigaction(signal, &handlers_[signal], nullptr);
    }
  }
  SignalHandlers(const SignalHandlers&) = delete;
  SignalHandlers& operator=(const SignalHandlers&) = delete;

 private:
  static constexpr int kSignals = 32;
  static inline bool keeps_ = false;  // one module is loaded at a time
  std::array<struct sigaction, kSignals> handlers_{};
};

constexpr ModuleHost kHost{&log_limit, &write_log, &SignalHandlers::keep};

std::string real_path(const std::string& path) {
  char* found = ::realpath(path.c_str(), nullptr);
  std::string text = found == nullptr ? "" : found;
  std::free(found);
  return text;
}

// The library or program that this function was linked into; empty if that cannot be found out.
std::string own_file() {
  Dl_info info{};
  link_map* map = nullptr;
  const int found =
      ::dladdr1(reinterpret_cast<void*>(&own_file), &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP);
  // A program has no name there, and its first argument may be anything.
  if (found != 0 && map != nullptr && map->l_name != nullptr && *map->l_name != '\0') {
    return real_path(map->l_name);
  }
  return real_path("/proc/self/exe");
}

// The dynamic linker's last error.
std::string linker_error() {
  const char* text = ::dlerror();
  return text == nullptr ? "unknown error of the dynamic linker" : text;
}

Result<TransportMaker> open_module(const std::string& file) {
  const SignalHandlers before;
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return unsupported("the module cannot be loaded: " + linker_error());
  auto* entry = reinterpret_cast<ModuleEntry*>(::dlsym(library, kModuleEntry));
  if (entry == nullptr) return unsupported("no module of tutti: " + linker_error());
  TransportMaker maker = nullptr;
  const char* theirs = entry(binary_id().data(), &kHost, &maker);
  if (theirs != binary_id() || maker == nullptr) {
    return unsupported(fmt::format("{} is of another build: {}; this is {}", file, theirs, binary_id()));
  }
  return maker;
}

}  // namespace

std::string module_file_name(std::string_view transport) {
  return fmt::format("libtutti_transport_{}.so", transport);
}

std::vector<std::string> module_folders(std::string_view path) {
  std::vector<std::string> folders;
  if (!path.empty()) {
    for (std::size_t begin = 0; begin <= path.size();) {
      const std::size_t end = std::min(path.find(':', begin), path.size());
      if (end > begin) folders.emplace_back(path.substr(begin, end - begin));
      begin = end + 1;
    }
    return folders;
  }
  const std::string file = own_file();
  const std::size_t slash = file.rfind('/');
  if (slash == std::string::npos) return folders;
  const std::string folder = file.substr(0, slash);
  folders.push_back(folder);
  if (file.starts_with(TUTTI_BUILD_FOLDER "/")) folders.emplace_back(TUTTI_BUILD_FOLDER);
  folders.push_back(fmt::format("{}/tutti", folder));                      // of the installed library
  folders.push_back(fmt::format("{}/../{}/tutti", folder, TUTTI_LIBDIR));  // of an installed program
  return folders;
}

Result<TransportMaker> load_transport_module(std::string_view transport,
                                             std::span<const std::string> folders) {
  const std::string name = module_file_name(transport);
  for (const std::string& folder : folders) {
    const std::string file = fmt::format("{}/{}", folder, name);
    if (::access(file.c_str(), F_OK) != 0) continue;
    static std::mutex mutex;  // dlerror() is about the last call, and signals are the process's
    const std::lock_guard lock(mutex);
    return open_module(file);
  }
  return unsupported(fmt::format("{} is in none of {}", name, fmt::join(folders, ", ")));
}

}  // namespace tutti
