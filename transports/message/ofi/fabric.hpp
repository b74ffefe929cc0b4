// One endpoint of libfabric with everything it needs: provider, domain, address vector, completion queue.
// Knows no packet and no peer.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/net/network.hpp"
#include "transports/transport.hpp"

namespace tutti::ofi {

struct FabricChoice {
  std::string provider;   // as libfabric writes it ("tcp;ofi_rxm"); empty: the best that is known to work
  std::string interface;  // network interface for TCP; empty: the provider's choice
  std::optional<PortRange> ports;  // at which TCP may listen; none: any
};

class Fabric {
 public:
  // Errors: unsupported, with what was looked for and libfabric's reason.
  static Result<std::unique_ptr<Fabric>> make(const FabricChoice& choice);
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  fid_ep* endpoint() const { return endpoint_; }
  fid_cq* queue() const { return queue_; }
  int event_fd() const { return event_fd_; }
  // False if something is to be done before anybody sleeps on event_fd().
  bool try_wait();

  std::string_view provider() const { return info_->fabric_attr->prov_name; }
  std::string describe() const;  // "libfabric 1.17, tcp;ofi_rxm on eth0"
  std::string dialect() const;   // what both ends must have in common
  std::vector<std::byte> address() const;
  // The longest packet that every provider of this kind takes as a whole, and the longest that needs no
  // completion.
  std::size_t packet_bytes() const;
  std::size_t inject_bytes() const { return info_->tx_attr->inject_size; }

  // FI_ADDR_NOTAVAIL if the address is not one of this provider's.
  fi_addr_t insert(std::span<const std::byte> address);
  // Memory that the endpoint sends from and receives into, as long as the fabric lives. Sets what it wants to
  // see beside such memory. Errors: resource_exhausted.
  Status add_memory(ByteRange memory, void** descriptor);

  // In a child of fork() nothing of it may be touched, nor ended.
  void abandon() { is_abandoned_ = true; }

 private:
  Fabric() = default;
  static Result<std::unique_ptr<Fabric>> try_to_make(const FabricChoice& choice);
  static Result<std::unique_ptr<Fabric>> open_at(const fi_info& info, std::uint16_t port);
  static Result<std::unique_ptr<Fabric>> open_within(const fi_info& info, const PortRange& ports);
  Status open();

  fi_info* info_ = nullptr;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_av* addresses_ = nullptr;
  fid_cq* queue_ = nullptr;
  fid_ep* endpoint_ = nullptr;
  std::vector<fid_mr*> memory_;
  std::size_t address_bytes_ = 0;  // of each; 0: they are texts
  int event_fd_ = -1;
  bool is_abandoned_ = false;
};

}  // namespace tutti::ofi
