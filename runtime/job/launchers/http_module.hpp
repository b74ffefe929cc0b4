// The HTTP client as a module: its library, cpp-httplib, brings OpenSSL, which only jobs of Horovod shall
// load. Interface between the module and its loader. Knows no store.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace tutti::detail {

struct HttpRequest {
  std::string host;  // name or address, without brackets
  int port = 0;
  bool is_put = false;                   // else GET
  std::string path;                      // "/scope/key", in characters that need no encoding
  std::string body;                      // of PUT
  std::size_t max_body_bytes = 0;        // of the answer
  std::chrono::milliseconds timeout{0};  // of connecting, and of each read and write
};

struct HttpAnswer {
  int status = 0;  // 0: no answer
  std::string body;
  std::string error;  // the reason for status 0
};

// Sends one request over a connection of its own. Any thread.
using HttpClient = HttpAnswer (*)(const HttpRequest& request);

// The export of the module, under the name of kHttpModuleEntry: returns the module's binary_id(), and sets
// `client` if it is equal to `loader_id`: another build may have other structures.
using HttpModuleEntry = const char*(const char* loader_id, HttpClient* client);
inline constexpr const char* kHttpModuleEntry = "tutti_http_module";
inline constexpr const char* kHttpModuleFile = "libtutti_http.so";

}  // namespace tutti::detail
