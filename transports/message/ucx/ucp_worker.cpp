// Making and ending a UCX worker. Knows no peer; see ucp_worker.hpp.
#include "transports/message/ucx/ucp_worker.hpp"

#include <sys/eventfd.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "transports/message/ucx/library.hpp"

namespace tutti::ucx {

namespace {

constexpr std::size_t kAlignment = 64;  // of messages in UCX's memory: kernels read them where they lie

Status check(ucs_status_t status, const char* what) {
  if (status == UCS_OK) return {};
  if (status == UCS_ERR_BUSY) return Status(StatusCode::resource_exhausted, "its port is taken");
  return unsupported(std::string(what) + ": " + explain(status));
}

// `item`: the beginning of one in the list, or all of it and a comma.
bool has_resource(const std::string& resources, const std::string& item) {
  return (", " + resources + ",").find(", " + item) != std::string::npos;
}

// A connection is not waited for: a peer that is cut off would stop everything for minutes. Nor can UCX 1.13 wait for
// it safely. It uses an accepted connection for the way back. If the peer has ended by then, the endpoint fails while
// it is still being made, and an assertion aborts the process.
constexpr UcpWorker::Setting kTcpConnecting{"CONN_NB", "UCX_TCP_CONN_NB", "y"};
// Over TCP, UCX's own choice (some 20 KiB) costs more than it saves up to here. A rendezvous is two more messages
// through the kernel, and the copies that it saves lie in the cache.
constexpr UcpWorker::Setting kTcpRendezvous{"RNDV_THRESH", "UCX_RNDV_THRESH", "256k"};
// Long vectors are cut into messages of 64 KiB. With its headers such a message is one fragment then, and need not be
// put together in memory of the system. (UCX 1.13 knows settings of its networks without their prefix; a name that
// a release does not know changes nothing.)
constexpr UcpWorker::Setting kTcpFragment{"RX_SEG_SIZE", "UCX_TCP_RX_SEG_SIZE", "96k"};

// UCX leaves a file in /dev/shm or a segment of System V behind for ever, if its rank is killed at the wrong time.
// Our own shared memory carries messages within a node.
constexpr UcpWorker::Setting kNoSharedFiles{"TLS", "UCX_TLS", "^posix,sysv"};

// Where the system gives UCX 1.13 none of these for its threads, it aborts the process by an assertion.
constexpr std::size_t kStartDescriptors = 8;

Status check_descriptors() {
  std::array<int, kStartDescriptors> held{};
  std::size_t count = 0;
  while (count < held.size() && (held[count] = ::eventfd(0, EFD_CLOEXEC)) >= 0) ++count;
  const int error = errno;
  for (std::size_t i = 0; i < count; ++i) ::close(held[i]);
  if (count == held.size()) return {};
  return Status(StatusCode::resource_exhausted, "UCX needs " + std::to_string(kStartDescriptors) +
                                                    " descriptors to start: " + describe_system_error(error));
}

bool is_adapter(std::string_view item) {
  // "rc_verbs/mlx5_0:1" has a port; memory and interfaces have none.
  return item.find(':') != std::string_view::npos && !item.starts_with("tcp/");
}

// Visits the items of what describe_resources() says.
template <class F>
void for_each_item(std::string_view resources, const F& visit) {
  while (!resources.empty()) {
    const std::string_view item = resources.substr(0, resources.find(", "));
    resources.remove_prefix(std::min(item.size() + 2, resources.size()));
    visit(item);
  }
}

bool has_adapter(std::string_view resources) {
  bool is_there = false;
  for_each_item(resources, [&](std::string_view item) { is_there = is_there || is_adapter(item); });
  return is_there;
}

// UCX has one list for the devices of all networks: those that are no TCP interface, by what
// describe_resources() says, stay in it.
std::string devices_with(const std::string& interface, std::string_view resources) {
  std::string devices = interface;
  for_each_item(resources, [&](std::string_view item) {
    const std::string_view device = item.substr(std::min(item.find('/') + 1, item.size()));
    if (is_adapter(item) && devices.find(device) == std::string::npos) devices.append(",").append(device);
  });
  return devices;
}

constexpr const char* kPortVariable = "UCX_TCP_PORT_RANGE";

// Errors: invalid_argument, where the user's variable and TUTTI_PORTS contradict each other.
Status check_user_ports(const PortRange& ports) {
  const std::string text = std::getenv(kPortVariable);
  const Result<PortRange> own = parse_port_range(text);
  if (own && own->first >= ports.first && own->last <= ports.last) return {};
  return Status(StatusCode::invalid_argument, std::string(kPortVariable) + "='" + text +
                                                  "' is not within TUTTI_PORTS=" + to_text(ports) +
                                                  "; unset it, or set it to ports of that range");
}

// How many workers this process has. In a child of fork() the count is the parent's at first. The child does not
// have UCX's threads, and UCX does not start them again.
struct OpenWorkers {
  pid_t process = ::getpid();
  int count = 0;
  bool has_lost_threads = false;

  void enter_process() {
    if (process == ::getpid()) return;
    process = ::getpid();
    has_lost_threads = has_lost_threads || count > 0;
    count = 0;
  }
};
OpenWorkers open_workers;  // under library_mutex()

}  // namespace

Result<std::unique_ptr<UcpWorker>> UcpWorker::make(const std::string& interface,
                                                   const std::optional<PortRange>& ports) {
  TUTTI_RETURN_IF_ERROR(check_descriptors());
  take_over_messages();
  static_cast<void>(explain(UCS_OK));  // forgets what earlier attempts said
  std::unique_ptr<UcpWorker> worker(new UcpWorker);
  Status started;
  {
    const std::lock_guard lock(library_mutex());
    open_workers.enter_process();
    if (open_workers.has_lost_threads) {
      return unsupported(
          "the process that this one was forked from had UCX open, which cannot be used after fork; let the "
          "child exec, fork before the first world, or use TUTTI_TRANSPORTS=tcp");
    }
    ++open_workers.count;
    worker->is_counted_ = true;
    started = worker->start(interface, ports);
  }
  if (!started) return started;
  return worker;
}

// An empty `devices`, and settings whose variable is set, are left to UCX.
Status UcpWorker::make_context(const std::string& devices, std::span<const Setting> settings) {
  ucp_config_t* config = nullptr;
  TUTTI_RETURN_IF_ERROR(check(ucp_config_read(nullptr, nullptr, &config), "UCX's configuration"));
  Status made;
  if (!devices.empty()) {
    made = check(ucp_config_modify(config, "NET_DEVICES", devices.c_str()), "UCX's network devices");
  }
  for (const Setting& setting : settings) {
    if (made && !is_set(setting.variable))
      made = check(ucp_config_modify(config, setting.name, setting.value), setting.variable);
  }
  if (made) {
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    made = check(ucp_init(&params, config, &context_), "no UCX context");
  }
  ucp_config_release(config);
  return made;
}

Status UcpWorker::start(const std::string& interface, const std::optional<PortRange>& ports) {
  TUTTI_RETURN_IF_ERROR(make_context({}, {&kNoSharedFiles, 1}));
  const std::string resources = describe_resources();
  if (has_resource(resources, "tcp/")) {
    const bool chooses_devices = !interface.empty() && !has_user_devices();
    // Of a device that is not there UCX would only warn.
    if (chooses_devices && !has_resource(resources, "tcp/" + interface + ",")) {
      return unsupported("no TCP on the interface " + interface + ", only " + resources);
    }
    // The first one beside adapters, too.
    constexpr std::array kForTcp{kNoSharedFiles, kTcpConnecting, kTcpRendezvous, kTcpFragment};
    const std::vector<Setting> settings(kForTcp.begin(),
                                        has_adapter(resources) ? kForTcp.begin() + 2 : kForTcp.end());
    return start_within(ports, chooses_devices ? devices_with(interface, resources) : "", settings);
  }
  return make_worker();
}

// UCX tries the ports of a range for ever where all are taken (1.13 does): it gets one at a time.
Status UcpWorker::start_within(const std::optional<PortRange>& ports, const std::string& devices,
                               std::vector<Setting> settings) {
  const bool chooses_ports = ports && !is_set(kPortVariable);
  if (ports && !chooses_ports) TUTTI_RETURN_IF_ERROR(check_user_ports(*ports));
  std::string text;
  if (chooses_ports) settings.push_back({"PORT_RANGE", kPortVariable, nullptr});
  for (const std::uint16_t port : ports_to_try(chooses_ports ? ports : std::nullopt)) {
    text = std::to_string(port) + "-" + std::to_string(port);
    if (chooses_ports) settings.back().value = text.c_str();
    ucp_cleanup(std::exchange(context_, nullptr));
    TUTTI_RETURN_IF_ERROR(make_context(devices, settings));
    Status made = make_worker();
    if (made || made.code() != StatusCode::resource_exhausted || !chooses_ports) return made;
  }
  return unsupported("all ports of " + to_text(*ports) + " are taken; widen TUTTI_PORTS");
}

Status UcpWorker::make_worker() {
  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT;
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // the owner of a worker may change, one at a time
  worker_params.am_alignment = kAlignment;
  TUTTI_RETURN_IF_ERROR(check(ucp_worker_create(context_, &worker_params, &worker_), "no UCX worker"));
  return check(ucp_worker_get_efd(worker_, &event_fd_), "UCX's worker cannot wake a sleeper");
}

UcpWorker::~UcpWorker() {
  if (is_abandoned_) return;
  const std::lock_guard lock(library_mutex());
  if (is_counted_) --open_workers.count;
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

std::vector<std::byte> UcpWorker::address() const {
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  if (ucp_worker_get_address(worker_, &address, &bytes) != UCS_OK) return {};
  const auto* first = reinterpret_cast<const std::byte*>(address);
  std::vector<std::byte> copy(first, first + bytes);
  ucp_worker_release_address(worker_, address);
  return copy;
}

// UCX has no query for this: the list is the last words of the lines "resource ..." of what it prints.
std::string UcpWorker::describe_resources() const {
  char* text = nullptr;
  std::size_t bytes = 0;
  FILE* stream = ::open_memstream(&text, &bytes);
  if (stream == nullptr) return {};
  ucp_context_print_info(context_, stream);
  std::fclose(stream);
  std::string list;
  for (std::string_view rest(text, bytes); !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(line.size() < rest.size() ? line.size() + 1 : line.size());
    if (line.find(" resource ") == std::string_view::npos) continue;
    list.append(list.empty() ? "" : ", ").append(line.substr(line.rfind(' ') + 1));
  }
  std::free(text);
  return list;
}

Status UcpWorker::set_handler(unsigned id, ucp_am_recv_callback_t handler, void* argument) {
  ucp_am_handler_param_t param{};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                     UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  param.id = id;
  param.flags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA;
  param.cb = handler;
  param.arg = argument;
  return check(ucp_worker_set_am_recv_handler(worker_, &param), "no handler for UCX's active messages");
}

}  // namespace tutti::ucx
