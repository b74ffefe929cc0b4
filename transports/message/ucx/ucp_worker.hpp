// A UCX context with one worker, and the memory of active messages that it holds for us.
// Knows no peer and no matching.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/net/network.hpp"

namespace tutti::ucx {

class UcpWorker {
 public:
  // One of UCX's, by its name in the library and that of its variable.
  struct Setting {
    const char* name;
    const char* variable;
    const char* value;
  };
  // `interface`: the network interface that TCP must use, among whatever other networks there are; empty: UCX
  // decides. `ports`: those at which TCP may listen. Errors: unsupported with UCX's own reason.
  static Result<std::unique_ptr<UcpWorker>> make(const std::string& interface,
                                                 const std::optional<PortRange>& ports);
  ~UcpWorker();
  UcpWorker(const UcpWorker&) = delete;
  UcpWorker& operator=(const UcpWorker&) = delete;

  ucp_worker_h handle() const { return worker_; }
  std::vector<std::byte> address() const;
  // "tcp/eth0, self/memory": the transports and devices that UCX may use.
  std::string describe_resources() const;
  int event_fd() const { return event_fd_; }

  // Handlers keep what they want to keep by returning UCS_INPROGRESS.
  Status set_handler(unsigned id, ucp_am_recv_callback_t handler, void* argument);
  // True if something moved.
  bool progress() { return ucp_worker_progress(worker_) != 0; }
  // False if something is to be done first.
  bool arm() { return ucp_worker_arm(worker_) == UCS_OK; }
  // Gives back what a handler has kept; an unread rendezvous message completes at its sender.
  void release(void* data) { ucp_am_data_release(worker_, data); }
  // In a child of fork() nothing of it may be touched, nor ended.
  void abandon() { is_abandoned_ = true; }

 private:
  UcpWorker() = default;
  Status start(const std::string& interface, const std::optional<PortRange>& ports);
  Status start_within(const std::optional<PortRange>& ports, const std::string& devices,
                      std::vector<Setting> settings);
  Status make_worker();
  Status make_context(const std::string& devices, std::span<const Setting> settings);

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;
  bool is_abandoned_ = false;
  bool is_counted_ = false;  // among those that are open in this process
};

}  // namespace tutti::ucx
