// Reads Horovod's variables. Knows no protocol.
#include "runtime/job/launchers/horovod.hpp"

#include <fmt/format.h>

#include "runtime/job/launchers/http_store.hpp"
#include "runtime/job/launchers/rank_variables.hpp"

namespace tutti::detail {

Result<LaunchInfo> launch_from_horovod(const Environment& environment, Clock::time_point) {
  LaunchInfo info;
  TUTTI_RETURN_IF_ERROR(read_rank(
      environment, {"horovod", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"},
      info));
  if (info.size == 1) return info;
  // Horovod numbers the nodes for each local rank separately. These are numbers of nodes only where all nodes
  // have equally many ranks, so they are not used.
  const Result<std::string> host = require(environment, "HOROVOD_GLOO_RENDEZVOUS_ADDR", info.launcher);
  if (!host) return host.status();
  const Result<std::string> port_text = require(environment, "HOROVOD_GLOO_RENDEZVOUS_PORT", info.launcher);
  if (!port_text) return port_text.status();
  const Result<int> port = parse_int("HOROVOD_GLOO_RENDEZVOUS_PORT", *port_text, 1, 65535, "a port");
  if (!port) return port.status();
  const std::string address = host->find(':') == std::string::npos ? fmt::format("{}:{}", *host, *port)
                                                                   : fmt::format("[{}]:{}", *host, *port);
  info.job = make_job("horovod", address);
  info.secret = environment.find("TUTTI_SECRET").value_or("");
  info.store = make_http_store(*host, *port, std::string(environment.find("TUTTI_MODULE_PATH").value_or("")));
  return info;
}

}  // namespace tutti::detail
