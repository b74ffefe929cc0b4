// The module over cpp-httplib. Knows requests and answers only.
#include "runtime/job/launchers/http_module.hpp"

#include <httplib.h>

#include <csignal>
#include <ctime>
#include <exception>
#include <string>

#include "runtime/base/version.hpp"

namespace tutti::detail {
namespace {

// The library writes to sockets without MSG_NOSIGNAL: a server that closes early must not end the process.
class SigpipeBlocked {
 public:
  SigpipeBlocked() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~SigpipeBlocked() {
    const timespec now{0, 0};
    if (!was_pending_) sigtimedwait(&pipe_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SigpipeBlocked(const SigpipeBlocked&) = delete;
  SigpipeBlocked& operator=(const SigpipeBlocked&) = delete;

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

std::string describe(httplib::Error error) {
  switch (error) {
    case httplib::Error::Connection:
      return "cannot connect";
    case httplib::Error::ConnectionTimeout:
      return "cannot connect in time";
    case httplib::Error::Read:
    case httplib::Error::Write:
      return "the server has closed the connection, or does not speak HTTP";
    default:
      return httplib::to_string(error);
  }
}

HttpAnswer send_request(const HttpRequest& request) {
  httplib::Client client(request.host, request.port);
  client.set_connection_timeout(request.timeout);
  client.set_read_timeout(request.timeout);
  client.set_write_timeout(request.timeout);
  HttpAnswer answer;
  bool is_too_long = false;
  const auto take = [&](const char* data, std::size_t bytes) {
    is_too_long = answer.body.size() + bytes > request.max_body_bytes;
    if (!is_too_long) answer.body.append(data, bytes);
    return !is_too_long;
  };
  const httplib::Result result = request.is_put
                                     ? client.Put(request.path, request.body, "application/octet-stream")
                                     : client.Get(request.path, take);
  if (is_too_long) {
    answer.error = "a value of more than " + std::to_string(request.max_body_bytes) + " bytes";
  } else if (!result) {
    answer.error = describe(result.error());
  } else {
    answer.status = result->status;
  }
  return answer;
}

HttpAnswer send_contained(const HttpRequest& request) {
  const SigpipeBlocked blocked;
  try {
    return send_request(request);
  } catch (const std::exception& error) {
    return {0, {}, error.what()};
  }
}

}  // namespace
}  // namespace tutti::detail

extern "C" [[gnu::visibility("default")]] const char* tutti_http_module(const char* loader_id,
                                                                        tutti::detail::HttpClient* client) {
  if (loader_id == tutti::binary_id()) *client = &tutti::detail::send_contained;
  return tutti::binary_id().data();
}
