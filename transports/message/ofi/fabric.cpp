// Choosing a provider, and making and ending an endpoint. Knows no packet; see fabric.hpp.
#include "transports/message/ofi/fabric.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace tutti::ofi {

namespace {

constexpr std::uint32_t kApi = FI_VERSION(1, 17);

// In order of preference. `tcp` stands for what libfabric has for datagrams over TCP: its own since 1.18,
// ofi_rxm above it before. Others work if they are named; `sockets` and `udp` are nobody's first choice.
constexpr std::array<const char*, 7> kProviders = {"cxi",  "efa",           "opx", "psm2",
                                                   "psm3", "verbs;ofi_rxm", "tcp"};

Status check(long result, const char* what) {
  if (result >= 0) return {};
  if (result == -FI_EADDRINUSE) return Status(StatusCode::resource_exhausted, "its port is taken");
  return unsupported(fmt::format("{}: {}", what, fi_strerror(static_cast<int>(-result))));
}

struct InfoDeleter {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, InfoDeleter>;

bool is_over_tcp(std::string_view provider) {
  return provider.starts_with("tcp") || provider == "net" || provider.starts_with("sockets");
}

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

// Has the user said which interface the providers over TCP are to use? Then that is how it is.
bool has_user_interface() {
  return is_set("FI_TCP_IFACE") || is_set("FI_NET_IFACE") || is_set("FI_SOCKETS_IFACE");
}

// The less the better. All ranks must have the same kind of address, so IPv4 comes first; one that is valid
// on its link only is the last resort.
int rank_of(const fi_info& info) {
  if (info.addr_format != FI_SOCKADDR_IN6 || info.src_addr == nullptr) return 0;
  sockaddr_in6 address{};
  std::memcpy(&address, info.src_addr, std::min(info.src_addrlen, sizeof(address)));
  return IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr) ? 2 : 1;
}

// Of what a provider offers, the best on the interface; a copy.
fi_info* choose(const fi_info* list, const std::string& interface) {
  const fi_info* best = nullptr;
  for (const fi_info* info = list; info != nullptr; info = info->next) {
    const bool is_asked_for = interface.empty() || !is_over_tcp(info->fabric_attr->prov_name) ||
                              interface == info->domain_attr->name;
    if (is_asked_for && (best == nullptr || rank_of(*info) < rank_of(*best))) best = info;
  }
  return best == nullptr ? nullptr : fi_dupinfo(best);
}

Info hints_for(const std::string& provider) {
  Info hints(fi_allocinfo());
  if (!hints) return hints;
  hints->caps = FI_TAGGED | FI_SEND | FI_RECV;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->tx_attr->msg_order = FI_ORDER_SAS;
  hints->rx_attr->msg_order = FI_ORDER_SAS;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;  // the owner of a worker may change, one at a time
  hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->mr_mode =
      FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  if (!provider.empty()) hints->fabric_attr->prov_name = ::strdup(provider.c_str());
  return hints;
}

// Errors: unsupported with libfabric's reason.
Result<fi_info*> find_provider(const std::string& provider, const std::string& interface) {
  const Info hints = hints_for(provider);
  if (!hints) return Status(StatusCode::resource_exhausted, "no memory for libfabric");
  fi_info* list = nullptr;
  const int result = fi_getinfo(kApi, nullptr, nullptr, 0, hints.get(), &list);
  if (result != 0) return unsupported(fmt::format("{}: {}", provider, fi_strerror(-result)));
  const Info owner(list);
  fi_info* chosen = choose(list, interface);
  if (chosen == nullptr) return unsupported(fmt::format("{}: it has no interface {}", provider, interface));
  return chosen;
}

Result<fi_info*> find_any_provider(const std::string& interface) {
  std::string reasons;
  for (const char* provider : kProviders) {
    Result<fi_info*> found = find_provider(provider, interface);
    if (found) return found;
    reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", found.status().message());
  }
  // One that nobody would choose, but somebody has.
  if (const char* provider = std::getenv("FI_PROVIDER"); provider != nullptr && *provider != '\0') {
    Result<fi_info*> found = find_provider(provider, interface);
    if (found) return found;
  }
  return unsupported("no provider can be used: " + reasons);
}

// libfabric says "No data available" where it got no descriptor, and has closed some again by then.
Status with_limit(const Status& failure) {
  const std::string lack = describe_lack_of_descriptors();
  if (lack.empty()) return failure;
  return Status(failure.code(), fmt::format("{}; it may lack descriptors: {}", failure.message(), lack));
}

// Ports of the user, whom libfabric's variables tell it directly.
constexpr const char* kLowPort = "FI_TCP_PORT_LOW_RANGE";
constexpr const char* kHighPort = "FI_TCP_PORT_HIGH_RANGE";

bool has_user_ports() { return is_set(kLowPort) || is_set(kHighPort); }

// Errors: invalid_argument, where the user's variables and TUTTI_PORTS contradict each other.
Status check_user_ports(const PortRange& ports) {
  if (!has_user_ports()) return {};
  const auto text_of = [](const char* name) { return std::string(is_set(name) ? std::getenv(name) : ""); };
  const std::string low = text_of(kLowPort), high = text_of(kHighPort);
  const Result<PortRange> own = parse_port_range(low + "-" + high);
  if (own && own->first >= ports.first && own->last <= ports.last) return {};
  return Status(StatusCode::invalid_argument,
                fmt::format("{}='{}' and {}='{}' are not within TUTTI_PORTS={}; unset them, or set both to "
                            "ports of that range",
                            kLowPort, low, kHighPort, high, to_text(ports)));
}

// The endpoint listens at the port of its source address. False where that has none.
bool set_port(fi_info& info, std::uint16_t port) {
  const bool is_ip = info.addr_format == FI_SOCKADDR_IN || info.addr_format == FI_SOCKADDR_IN6;
  if (!is_ip || info.src_addr == nullptr || info.src_addrlen < sizeof(sockaddr_in)) return false;
  // The port lies in the same place in both families.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  const std::uint16_t in_network_order = htons(port);
  std::memcpy(static_cast<std::byte*>(info.src_addr) + offsetof(sockaddr_in, sin_port), &in_network_order,
              sizeof(in_network_order));
  return true;
}

void close(fid* what) {
  if (what != nullptr) fi_close(what);
}

}  // namespace

Result<std::unique_ptr<Fabric>> Fabric::make(const FabricChoice& choice) {
  Result<std::unique_ptr<Fabric>> made = try_to_make(choice);
  if (!made) return with_limit(made.status());
  return made;
}

Result<std::unique_ptr<Fabric>> Fabric::try_to_make(const FabricChoice& choice) {
  const std::string interface = has_user_interface() ? "" : choice.interface;
  Result<fi_info*> info =
      choice.provider.empty() ? find_any_provider(interface) : find_provider(choice.provider, interface);
  if (!info) return info.status();
  const Info chosen(*info);
  const bool is_confined = choice.ports && is_over_tcp(chosen->fabric_attr->prov_name);
  if (!is_confined) return open_at(*chosen, 0);
  TUTTI_RETURN_IF_ERROR(check_user_ports(*choice.ports));
  if (has_user_ports()) return open_at(*chosen, 0);
  return open_within(*chosen, *choice.ports);
}

Result<std::unique_ptr<Fabric>> Fabric::open_within(const fi_info& info, const PortRange& ports) {
  for (const std::uint16_t port : ports_to_try(ports)) {
    Result<std::unique_ptr<Fabric>> made = open_at(info, port);
    if (made || made.status().code() != StatusCode::resource_exhausted) return made;
  }
  return unsupported(fmt::format("{}: all ports of {} are taken; widen TUTTI_PORTS",
                                 info.fabric_attr->prov_name, to_text(ports)));
}

// Port 0: any.
Result<std::unique_ptr<Fabric>> Fabric::open_at(const fi_info& info, std::uint16_t port) {
  fi_info* own = fi_dupinfo(&info);
  if (own == nullptr) return unsupported("no memory for libfabric");
  std::unique_ptr<Fabric> fabric(new Fabric);
  fabric->info_ = own;
  if (port != 0 && !set_port(*own, port)) {
    return unsupported(fmt::format(
        "{}: it has no address whose port can be chosen; for TUTTI_PORTS set FI_TCP_PORT_LOW_RANGE and "
        "FI_TCP_PORT_HIGH_RANGE too",
        fabric->provider()));
  }
  const Status opened = fabric->open();
  if (!opened) return opened.with_context(fabric->provider());
  return fabric;
}

Status Fabric::open() {
  TUTTI_RETURN_IF_ERROR(check(fi_fabric(info_->fabric_attr, &fabric_, nullptr), "no fabric"));
  TUTTI_RETURN_IF_ERROR(check(fi_domain(fabric_, info_, &domain_, nullptr), "no domain"));
  fi_av_attr av_attr{};
  av_attr.type = info_->domain_attr->av_type;
  TUTTI_RETURN_IF_ERROR(check(fi_av_open(domain_, &av_attr, &addresses_, nullptr), "no address vector"));
  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_MSG;
  cq_attr.wait_obj = FI_WAIT_FD;
  cq_attr.size = info_->tx_attr->size + info_->rx_attr->size;
  TUTTI_RETURN_IF_ERROR(check(fi_cq_open(domain_, &cq_attr, &queue_, nullptr), "no completion queue"));
  TUTTI_RETURN_IF_ERROR(check(fi_control(&queue_->fid, FI_GETWAIT, &event_fd_), "it cannot wake a sleeper"));
  TUTTI_RETURN_IF_ERROR(check(fi_endpoint(domain_, info_, &endpoint_, nullptr), "no endpoint"));
  TUTTI_RETURN_IF_ERROR(check(fi_ep_bind(endpoint_, &addresses_->fid, 0), "address vector"));
  TUTTI_RETURN_IF_ERROR(check(fi_ep_bind(endpoint_, &queue_->fid, FI_SEND | FI_RECV), "completion queue"));
  TUTTI_RETURN_IF_ERROR(check(fi_enable(endpoint_), "the endpoint is not enabled"));
  if (info_->addr_format != FI_ADDR_STR) address_bytes_ = address().size();
  return {};
}

Fabric::~Fabric() {
  if (is_abandoned_) return;
  if (endpoint_ != nullptr) close(&endpoint_->fid);
  for (fid_mr* memory : memory_) close(&memory->fid);
  if (queue_ != nullptr) close(&queue_->fid);
  if (addresses_ != nullptr) close(&addresses_->fid);
  if (domain_ != nullptr) close(&domain_->fid);
  if (fabric_ != nullptr) close(&fabric_->fid);
  fi_freeinfo(info_);
}

bool Fabric::try_wait() {
  fid* what = &queue_->fid;
  return fi_trywait(fabric_, &what, 1) == FI_SUCCESS;
}

std::string Fabric::describe() const {
  const std::uint32_t version = fi_version();
  return fmt::format("libfabric {}.{}: {} on {}", FI_MAJOR(version), FI_MINOR(version), provider(),
                     info_->domain_attr->name);
}

// Releases of a provider may talk to each other, but nobody promises it.
std::string Fabric::dialect() const {
  const std::uint32_t version = info_->fabric_attr->prov_version;
  return fmt::format("{} {}.{} with {} addresses", provider(), FI_MAJOR(version), FI_MINOR(version),
                     info_->addr_format == FI_SOCKADDR_IN    ? "IPv4"
                     : info_->addr_format == FI_SOCKADDR_IN6 ? "IPv6"
                                                             : "its own");
}

std::vector<std::byte> Fabric::address() const {
  std::vector<std::byte> address(256);
  std::size_t bytes = address.size();
  if (fi_getname(&endpoint_->fid, address.data(), &bytes) != 0 || bytes > address.size()) return {};
  address.resize(bytes);
  return address;
}

// ofi_rxm copies or fetches what is longer than its buffers, in more round trips.
std::size_t Fabric::packet_bytes() const {
  constexpr std::size_t kOfRxm = std::size_t{16} << 10U;
  constexpr std::size_t kOfOthers = std::size_t{64} << 10U;
  return provider().ends_with("ofi_rxm") ? kOfRxm : kOfOthers;
}

fi_addr_t Fabric::insert(std::span<const std::byte> address) {
  // libfabric is not told how long the address is: it reads as many bytes as its own have.
  if (address.size() < address_bytes_) return FI_ADDR_NOTAVAIL;
  fi_addr_t number = FI_ADDR_NOTAVAIL;
  if (fi_av_insert(addresses_, address.data(), 1, &number, 0, nullptr) != 1) return FI_ADDR_NOTAVAIL;
  return number;
}

Status Fabric::add_memory(ByteRange memory, void** descriptor) {
  *descriptor = nullptr;
  if ((info_->domain_attr->mr_mode & FI_MR_LOCAL) == 0) return {};
  fid_mr* region = nullptr;
  const std::uint64_t key = memory_.size() + 1;
  int result =
      fi_mr_reg(domain_, memory.data(), memory.size(), FI_SEND | FI_RECV, 0, key, 0, &region, nullptr);
  if (result == 0 && region != nullptr) {
    memory_.push_back(region);
    if ((info_->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0) {
      result = fi_mr_bind(region, &endpoint_->fid, 0);
      if (result == 0) result = fi_mr_enable(region);
    }
    *descriptor = fi_mr_desc(region);
  }
  if (result == 0) return {};
  return Status(StatusCode::resource_exhausted,
                fmt::format("{} cannot register memory: {}", provider(), fi_strerror(-result)));
}

}  // namespace tutti::ofi
