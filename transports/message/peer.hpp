// One peer instance: the link to it, shared by all contexts, and whether it is still there.
// Knows no message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"
#include "transports/message/wire_driver.hpp"

namespace tutti::message {

class Peer {
 public:
  Peer(Worker& worker, std::uint64_t instance) : worker_(worker), instance_(instance) {}
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  std::uint64_t instance() const { return instance_; }
  void set_address(std::vector<std::byte> address);

  // The link, made now if there is none; null if the peer cannot be talked to (any more).
  Link* connect();
  // The link, or null.
  Link* link() const { return link_.get(); }

  // Nothing can be sent to it any more, and nothing more comes from it.
  bool is_gone() const { return is_gone_; }
  // It has ended in an orderly way.
  void note_close();
  // It died, or cannot be reached. The link is given up by the worker's next close_failed().
  void note_failure(std::string_view reason);
  bool has_failed() const { return has_failed_; }
  // This process has no room for a connection to it: see Endpoint::trouble(). Before note_failure().
  void note_trouble(const Status& trouble) { trouble_ = trouble; }
  const Status& trouble() const { return trouble_; }

  // Gives the link up at once: what is under way on it completes, within some calls of progress, as failed.
  void disconnect();

  bool has_confirmed_close = false;
  std::uint32_t awaited_count = 0;  // endpoints with receives that are not complete

 private:
  Worker& worker_;
  std::uint64_t instance_;
  std::vector<std::byte> address_;
  std::unique_ptr<Link> link_;
  bool is_gone_ = false;
  bool has_failed_ = false;
  Status trouble_;
};

}  // namespace tutti::message
