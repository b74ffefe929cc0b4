// Loading transports at run time: what is found where, and what is said when there is nothing to load.
// Knows modules made for this test, and of real ones only that they are listed.
#include <signal.h>
#include <stdlib.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/log.hpp"
#include "runtime/base/version.hpp"
#include "tests/support/catch.hpp"
#include "transports/module.hpp"
#include "transports/registry.hpp"

namespace {

using namespace tutti;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

// A folder that goes away with what lies in it.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "tutti_modules_XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string text() const { return path_.string(); }
  fs::path file(std::string_view transport) const { return path_ / module_file_name(transport); }

 private:
  fs::path path_;
};

std::string reason(std::string_view transport, const std::vector<std::string>& folders) {
  const auto maker = load_transport_module(transport, folders);
  if (maker) return "loaded";
  CHECK(maker.status().code() == StatusCode::unsupported);
  return maker.status().message();
}

bool is_mapped(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(name) != std::string::npos) return true;
  }
  return false;
}

std::vector<void (*)(int)> signal_handlers() {
  std::vector<void (*)(int)> handlers;
  for (int signal = 1; signal < 32; ++signal) {
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    handlers.push_back(now.sa_handler);
  }
  return handlers;
}

}  // namespace

// First of all: what comes later loads it.
TEST_CASE("a process that has not asked for a module has neither it nor its library") {
  for (const TransportEntry& entry : transport_entries()) {
    if (entry.is_module) CHECK_FALSE(is_mapped(module_file_name(entry.name)));
  }
  CHECK_FALSE(is_mapped("libucp.so"));
  CHECK_FALSE(is_mapped("libfabric.so"));
}

TEST_CASE("a module that is nowhere is missing, with the folders that were looked at") {
  const Folder empty;
  CHECK(reason("other", {empty.text(), "/no/such/folder"}) ==
        "libtutti_transport_other.so is in none of " + empty.text() + ", /no/such/folder");
}

TEST_CASE("a module of another build is refused, with both builds, and is not used") {
  const std::string folder = MODULES;
  CHECK(
      reason("other_build", {"/no/such/folder", folder}) ==
      folder +
          "/libtutti_transport_other_build.so is of another build: 0.0.0 older, another compiler; this is " +
          std::string(binary_id()));
}

TEST_CASE("a module whose library is missing is refused with the linker's reason") {
  const Folder apart;
  const std::string present = "libtutti_absent.so", nowhere = "libtutti_nobody.so";
  std::ifstream whole(std::string(MODULES) + "/" + module_file_name("needs_absent"), std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(whole), {});
  REQUIRE(bytes.find(present) != std::string::npos);
  bytes.replace(bytes.find(present), present.size(), nowhere);
  std::ofstream(apart.file("moved"), std::ios::binary) << bytes;
  CHECK_THAT(reason("moved", {apart.text()}), Contains("cannot be loaded: " + nowhere + ": cannot open"));
  CHECK_THAT(reason("needs_absent", {MODULES}), Contains("of another build: absent"));  // beside its library
}

TEST_CASE("what is no module is refused") {
  const Folder folder;
  std::ofstream(folder.file("text"))
      << "hello, I am no library, however long I get and whatever you call me\n";
  CHECK_THAT(reason("text", {folder.text()}), Contains("cannot be loaded") && Contains("invalid ELF header"));
  std::ofstream(folder.file("empty"));
  CHECK_THAT(reason("empty", {folder.text()}), Contains("cannot be loaded") && Contains("too short"));
  fs::create_directory(folder.file("folder"));
  CHECK_THAT(reason("folder", {folder.text()}), Contains("cannot be loaded"));
  fs::copy_file(std::string(MODULES) + "/libtutti_absent.so", folder.file("library"));
  CHECK_THAT(reason("library", {folder.text()}), Contains("no module of tutti") && Contains(kModuleEntry));
}

TEST_CASE("the first folder that has the module decides, and a path replaces the usual folders") {
  const Folder broken;
  std::ofstream(broken.file("other_build")) << "no library\n";
  CHECK_THAT(reason("other_build", {broken.text(), MODULES}), Contains("cannot be loaded"));
  CHECK(module_folders("/a::/b c:") == std::vector<std::string>{"/a", "/b c"});
  const std::vector<std::string> usual = module_folders("");
  REQUIRE(usual.size() >= 3);
  CHECK(usual.front() == fs::read_symlink("/proc/self/exe").parent_path().string());
  CHECK(fs::path(usual.back()).filename() == "tutti");
}

TEST_CASE("every module that was built is found from the build folder, and only its path can hide it") {
  const Folder empty;
  TransportSettings hidden;
  hidden.module_path = empty.text();
  for (const TransportEntry& entry : transport_entries()) {
    if (!entry.is_module || !entry.missing.empty()) continue;
    INFO(entry.name);
    const auto made = make_transport(entry.name, hidden);
    REQUIRE_FALSE(made);
    CHECK(made.status().code() == StatusCode::unsupported);
    CHECK_THAT(made.status().message(), Contains("is in none of " + empty.text()));
    const auto handlers = signal_handlers();
    const auto maker = load_transport_module(entry.name, module_folders(""));
    CHECK(maker.status().message() == "");
    CHECK(signal_handlers() == handlers);  // vendor libraries like to install their own
    CHECK(is_mapped(module_file_name(entry.name)));
    // Again: it is there already.
    CHECK(load_transport_module(entry.name, module_folders("")));
  }
}

TEST_CASE("TCP uses the interface that the settings name, unless the library was told another") {
  const std::array<const char*, 2> own_variables{"UCX_NET_DEVICES", "FI_TCP_IFACE"};
  for (const TransportEntry& entry : transport_entries()) {
    if (!entry.is_module || !make_transport(entry.name, {})) continue;
    INFO(entry.name);
    for (const char* variable : own_variables) ::unsetenv(variable);
    TransportSettings settings;
    settings.interface = "lo";
    const auto made = make_transport(entry.name, settings);
    REQUIRE(made.status().message() == "");
    CHECK_THAT((*made)->caps().detail, Contains(entry.name == "ucx" ? "tcp/lo" : "on lo"));
    CHECK_THAT((*made)->caps().detail, !Contains("tcp/e") && !Contains("on e"));
    settings.interface = "absent0";
    const auto absent = make_transport(entry.name, settings);
    REQUIRE_FALSE(absent);
    CHECK(absent.status().code() == StatusCode::unsupported);
    CHECK_THAT(absent.status().message(), Contains("absent0"));
    for (const char* variable : own_variables) ::setenv(variable, "lo", 1);
    CHECK(make_transport(entry.name, settings).status().message() == "");
    for (const char* variable : own_variables) ::unsetenv(variable);
  }
}

TEST_CASE(
    "a module is told the settings, and what it logs is a line of the host's log, at the host's level") {
  const auto maker = load_transport_module("echo", std::vector<std::string>{MODULES});
  REQUIRE(maker.status().message() == "");
  TransportSettings settings;
  settings.node_id = "somewhere";
  std::vector<std::string> lines;
  for (const LogLevel level : {LogLevel::debug, LogLevel::info, LogLevel::trace}) {
    const LogCapture capture(level);
    CHECK((*maker)(settings).status().message() == "echo of somewhere");
    for (const std::string& line : capture.lines()) lines.push_back(line);
  }
  CHECK(lines == std::vector<std::string>(2, "tutti debug: echo: somewhere"));
}
