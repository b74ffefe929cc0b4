// PUT and GET of a rendezvous server, by the module of the HTTP client. Knows no launcher.
#include "runtime/job/launchers/http_store.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/base/module_folders.hpp"
#include "runtime/base/version.hpp"
#include "runtime/job/launchers/http_module.hpp"
#include "runtime/job/launchers/pmi_text.hpp"

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;

constexpr auto kHttpPutPatience = 60s;
constexpr std::size_t kMaxBodyBytes = std::size_t{1} << 20;
constexpr std::string_view kScope = "tutti";

// Loaded once and never unloaded: OpenSSL leaves handlers behind.
Result<HttpClient> load_client(const std::string& module_path) {
  static std::mutex mutex;
  static HttpClient loaded = nullptr;
  const std::lock_guard lock(mutex);
  if (loaded != nullptr) return loaded;
  const std::vector<std::string> folders = module_folders(module_path);
  for (const std::string& folder : folders) {
    const std::string file = fmt::format("{}/{}", folder, kHttpModuleFile);
    if (::access(file.c_str(), F_OK) != 0) continue;
    void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return unsupported(fmt::format("{} cannot be loaded: {}", file, ::dlerror()));
    auto* const entry = reinterpret_cast<HttpModuleEntry*>(::dlsym(library, kHttpModuleEntry));
    if (entry == nullptr) return unsupported(fmt::format("{} is no module of tutti", file));
    const char* const id = entry(binary_id().data(), &loaded);
    if (loaded == nullptr)
      return unsupported(fmt::format("{} is of another build: {}; this is {}", file, id, binary_id()));
    return loaded;
  }
  return unsupported(fmt::format("{} is in none of {} (to build it: Debian's libcpp-httplib-dev)",
                                 kHttpModuleFile, fmt::join(folders, ", ")));
}

class HttpStore final : public Store {
 public:
  HttpStore(std::string host, int port, std::string module_path)
      : host_(std::move(host)), port_(port), module_path_(std::move(module_path)) {}

  Status put(const std::string& key, const std::string& value) override {
    const Result<HttpAnswer> answer = request(true, key, value, Clock::now() + kHttpPutPatience);
    if (!answer) return answer.status();
    if (answer->status / 100 == 2) return {};
    return Status(StatusCode::refused, fmt::format("{}: PUT of {}: {}", describe(), key, answer->status));
  }

  Status commit(Clock::time_point) override { return {}; }

  Result<std::string> get(const std::string& key, Clock::time_point deadline) override {
    for (auto pause = 1ms;; pause = std::min(pause * 2, 128ms)) {
      Result<HttpAnswer> answer = request(false, key, "", deadline);
      if (!answer) return answer.status();
      if (answer->status == 200) return std::move(answer->body);
      if (answer->status != 404) {
        return Status(StatusCode::refused, fmt::format("{}: GET of {}: {}", describe(), key, answer->status));
      }
      if (Clock::now() + pause >= deadline) {
        return Status(StatusCode::timeout, fmt::format("{}: rank 0 has not put {} in time", describe(), key),
                      0);
      }
      std::this_thread::sleep_for(pause);
    }
  }

  std::string describe() const override {
    const bool is_ipv6 = host_.find(':') != std::string::npos;
    return fmt::format("HTTP (http://{}{}{}:{}/{})", is_ipv6 ? "[" : "", host_, is_ipv6 ? "]" : "", port_,
                       kScope);
  }

 private:
  Result<HttpAnswer> request(bool is_put, const std::string& key, const std::string& body,
                             Clock::time_point deadline) const {
    const Result<HttpClient> client = load_client(module_path_);
    if (!client) return client.status().with_context(describe());
    std::string name = escape_pmi(key);
    std::replace(name.begin(), name.end(), '/', '!');  // the server takes one slash, behind the scope
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    HttpAnswer answer = (*client)({host_, port_, is_put, fmt::format("/{}/{}", kScope, name), body,
                                   kMaxBodyBytes, std::max(left, 1ms)});
    if (answer.status != 0) return answer;
    if (Clock::now() >= deadline)
      return Status(StatusCode::timeout, fmt::format("{}: the server did not answer in time", describe()));
    return Status(StatusCode::peer_failed, fmt::format("{}: {}", describe(), answer.error));
  }

  std::string host_;
  int port_;
  std::string module_path_;
};

}  // namespace

std::shared_ptr<Store> make_http_store(std::string host, int port, std::string module_path) {
  return std::make_shared<HttpStore>(std::move(host), port, std::move(module_path));
}

}  // namespace tutti::detail
