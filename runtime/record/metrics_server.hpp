// Serves the statistics of the ranks of this machine as Prometheus' text, on a unix socket (TUTTI_METRICS). Knows no
// group; it reads the records that the ranks write.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "runtime/base/running_clock.hpp"
#include "runtime/base/status.hpp"

namespace tutti::record {

class MetricsServer {
 public:
  // Listens at `path`, with mode 0600, and answers each connection with the records of that world in the folder. A
  // client has a second to ask and one to read; later ones wait for it. A socket at which nobody listens any more is
  // replaced. Errors: invalid_argument with path and reason.
  static Result<std::unique_ptr<MetricsServer>> open(const std::string& path, std::string folder,
                                                     std::string world);
  ~MetricsServer();  // removes the socket; waits for no client
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

 private:
  MetricsServer(std::string path, std::string folder, std::string world)
      : path_(std::move(path)), folder_(std::move(folder)), world_(std::move(world)) {}
  Status start();
  Status listen();
  void serve() const;
  void answer(int connection) const;
  // Until the connection is ready, the client has had its time, or the server ends. True: it is ready.
  bool wait_for(int connection, short events, Clock::time_point deadline) const;
  void read_request(int connection, Clock::time_point deadline) const;
  void send_all(int connection, std::string_view text, Clock::time_point deadline) const;
  bool is_own_socket() const;

  const std::string path_, folder_, world_;
  int listener_ = -1, stop_ = -1;  // a socket; an event that ends the thread
  bool is_bound_ = false;
  dev_t device_ = 0;  // of the socket's file
  ino_t file_ = 0;
  std::thread thread_;
};

}  // namespace tutti::record
