// One peer instance: the UCX endpoint to it, shared by all contexts, and whether it is still there.
// Knows no message.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::ucx {

class Lane;

class Peer {
 public:
  Peer(Lane& lane, std::uint64_t instance) : lane_(lane), instance_(instance) {}
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  std::uint64_t instance() const { return instance_; }
  void set_address(std::vector<std::byte> address);

  // The UCX endpoint, made now if there is none; null if the peer cannot be talked to (any more).
  ucp_ep_h connect();
  // The UCX endpoint, or null.
  ucp_ep_h endpoint() const { return endpoint_; }

  // Nothing can be sent to it any more, and nothing more comes from it.
  bool is_gone() const { return is_gone_; }
  // It has ended in an orderly way.
  void note_goodbye();
  // It died, or cannot be reached; `status` is UCX's reason. The UCX endpoint is closed by the lane's next
  // close_failed().
  void note_failure(ucs_status_t status);
  bool has_failed() const { return has_failed_; }

  // Gives the UCX endpoint up at once: what is under way on it completes, within some calls of progress, as
  // failed.
  void disconnect();
  // Does UCX still work on that?
  bool is_disconnecting();

  bool has_said_farewell = false;

 private:
  Lane& lane_;
  std::uint64_t instance_;
  std::vector<std::byte> address_;
  ucp_ep_h endpoint_ = nullptr;
  void* closing_ = nullptr;  // UCX's request
  bool is_gone_ = false;
  bool has_failed_ = false;
};

}  // namespace tutti::ucx
