// Serves the statistics of the ranks of this machine as Prometheus' text, on a unix socket (TUTTI_METRICS). Knows no
// group; it reads the records that the ranks write.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "runtime/base/status.hpp"

namespace tutti::record {

class MetricsServer {
 public:
  // Listens at `path`, with mode 0600, and answers each connection with the records of that world in the folder. A
  // socket at which nobody listens any more is replaced. Errors: invalid_argument with path and reason.
  static Result<std::unique_ptr<MetricsServer>> open(const std::string& path, std::string folder,
                                                     std::string world);
  ~MetricsServer();  // removes the socket
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

 private:
  MetricsServer(std::string path, std::string folder, std::string world)
      : path_(std::move(path)), folder_(std::move(folder)), world_(std::move(world)) {}
  Status start();
  Status listen();
  void serve() const;
  void answer(int connection) const;

  const std::string path_, folder_, world_;
  int listener_ = -1, stop_ = -1;  // a socket; an event that ends the thread
  bool is_bound_ = false;
  std::thread thread_;
};

}  // namespace tutti::record
