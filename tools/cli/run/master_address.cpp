// Ports for torch's env://. Knows nothing of tutti's own meeting point.
#include "tools/cli/run/master_address.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

namespace tutti {
namespace {

// Below the ports at which tutti's own ranks meet.
constexpr std::uint16_t kFirstPort = 12000, kPortCount = 8000;

}  // namespace

MasterAddress::~MasterAddress() {
  if (reserved_ >= 0) ::close(reserved_);
}

MasterAddress::MasterAddress(MasterAddress&& other) noexcept { *this = std::move(other); }

MasterAddress& MasterAddress::operator=(MasterAddress&& other) noexcept {
  std::swap(host_, other.host_);
  std::swap(port_, other.port_);
  std::swap(reserved_, other.reserved_);
  return *this;
}

MasterAddress MasterAddress::on_this_machine() {
  MasterAddress made;
  made.host_ = "127.0.0.1";
  made.reserved_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (made.reserved_ < 0) return made;
  // Two sockets may be bound to one port if both say so and neither listens yet; torch's store says so.
  const int yes = 1;
  ::setsockopt(made.reserved_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  if (::bind(made.reserved_, reinterpret_cast<const sockaddr*>(&address), bytes) == 0 &&
      ::getsockname(made.reserved_, reinterpret_cast<sockaddr*>(&address), &bytes) == 0)
    made.port_ = ntohs(address.sin_port);
  return made;
}

MasterAddress MasterAddress::on_host(std::string_view addresses, std::string_view job_id) {
  MasterAddress made;
  made.host_ = addresses.substr(0, addresses.find(','));
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const char c : job_id) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  made.port_ = static_cast<std::uint16_t>(kFirstPort + hash % kPortCount);
  return made;
}

void MasterAddress::set_environment() const {
  if (port_ == 0) return;
  ::setenv("MASTER_ADDR", host_.c_str(), 0);
  ::setenv("MASTER_PORT", std::to_string(port_).c_str(), 0);
}

}  // namespace tutti
