// MASTER_ADDR and MASTER_PORT: where the ranks of a job meet that a program joins by torch's env://. Knows
// nothing of tutti's own meeting point.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tutti {

class MasterAddress {
 public:
  MasterAddress() = default;
  // On one machine: a free port of the loopback interface, which nobody is given as long as this lives.
  static MasterAddress on_this_machine();
  // On several: what follows from the address of rank 0's host (the first of a list) and the job, on all
  // alike.
  static MasterAddress on_host(std::string_view addresses, std::string_view job_id);
  ~MasterAddress();
  MasterAddress(MasterAddress&& other) noexcept;
  MasterAddress& operator=(MasterAddress&& other) noexcept;

  // Of this process; what the user has set stays. Nothing where no port is free.
  void set_environment() const;

 private:
  std::string host_;
  std::uint16_t port_ = 0;
  int reserved_ = -1;  // bound, so that the port is taken, and not listening, so that rank 0 can
};

}  // namespace tutti
