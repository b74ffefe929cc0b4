// Fuzzes the active messages of the ucx transport: the driver as it is, above a worker that has no library
// and no network. The input says which messages and notices arrive, with headers of any length, how fetches
// end, and what is sent.
#include <ucp/api/ucp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/fuzz_input.hpp"
#include "transports/message/endpoint.hpp"
#include "transports/message/ucx/driver.hpp"
#include "transports/message/ucx/library.hpp"
#include "transports/message/worker.hpp"

namespace {

using tutti::message::Notice;

constexpr std::uint64_t kOwnInstance = 1, kPeer = 2, kContext = 3, kMatchHeader = 4;
constexpr std::size_t kBytes = 5000;
constexpr unsigned kMessage = 1, kNotice = 2;  // identifiers of the active messages

// The worker: its handlers, what it has lent to them, and what is under way.
struct Library {
  struct Handler {
    ucp_am_recv_callback_t call;
    void* argument;
  };
  struct Request {
    ucp_request_param_t param;
    std::size_t bytes = 0;
    bool is_receive = false;
    bool is_over = false;
    bool is_free = false;
  };
  std::map<unsigned, Handler> handlers;
  std::map<void*, std::vector<std::byte>> lent;
  std::map<void*, std::unique_ptr<Request>> requests;
  std::deque<Request*> under_way;
  std::deque<Notice> close_acks;
  bool is_slow = false;  // operations complete at the next progress
  bool fails = false;

  // Exactly as long as it says, so that a sanitizer sees who reads further.
  void bring(unsigned id, std::span<const std::byte> header, std::span<const std::byte> data,
             std::uint64_t attributes) {
    const std::vector<std::byte> own_header(header.begin(), header.end());
    std::vector<std::byte> own_data(data.begin(), data.end());
    own_data.reserve(1);
    void* const memory = own_data.data();
    ucp_am_recv_param_t param{};
    param.recv_attr = attributes;
    lent.emplace(memory, std::move(own_data));
    const ucs_status_t status = handlers.at(id).call(handlers.at(id).argument, own_header.data(),
                                                     own_header.size(), memory, data.size(), &param);
    if (status == UCS_OK && lent.count(memory) != 0) lent.erase(memory);
  }
  ucs_status_ptr_t start(const ucp_request_param_t& param, std::size_t bytes, bool is_receive) {
    if (!is_slow) return fails ? UCS_STATUS_PTR(UCS_ERR_CONNECTION_RESET) : nullptr;
    auto request = std::make_unique<Request>();
    request->param = param;
    request->bytes = bytes;
    request->is_receive = is_receive;
    under_way.push_back(request.get());
    void* const name = request.get();
    requests.emplace(name, std::move(request));
    return name;
  }
  bool progress() {
    const bool has_ack = !close_acks.empty();
    if (has_ack) {
      const Notice notice = close_acks.front();
      close_acks.pop_front();
      bring(kNotice, std::as_bytes(std::span(&notice, 1)), {}, 0);
    }
    if (under_way.empty()) return has_ack;
    Request& request = *under_way.front();
    under_way.pop_front();
    request.is_over = true;
    const ucs_status_t status = fails ? UCS_ERR_CONNECTION_RESET : UCS_OK;
    if ((request.param.op_attr_mask & UCP_OP_ATTR_FIELD_CALLBACK) == 0) return true;
    if (request.is_receive) {
      request.param.cb.recv_am(&request, status, request.bytes, request.param.user_data);
    } else {
      request.param.cb.send(&request, status, request.param.user_data);
    }
    return true;
  }
};
Library* library = nullptr;  // of the input that runs

}  // namespace

// -- what the driver calls of the library ------------------------------------------------------------------

unsigned ucp_worker_progress(ucp_worker_h) { return library->progress() ? 1 : 0; }
ucs_status_t ucp_worker_arm(ucp_worker_h) { return UCS_OK; }
void ucp_am_data_release(ucp_worker_h, void* data) {
  if (library->lent.erase(data) != 1) std::abort();
}
ucs_status_t ucp_ep_create(ucp_worker_h, const ucp_ep_params_t*, ucp_ep_h* endpoint) {
  *endpoint = reinterpret_cast<ucp_ep_h>(library);
  return UCS_OK;
}
ucs_status_ptr_t ucp_ep_close_nbx(ucp_ep_h, const ucp_request_param_t* param) {
  return library->start(*param, 0, false);
}
ucs_status_ptr_t ucp_ep_flush_nbx(ucp_ep_h, const ucp_request_param_t* param) {
  return library->start(*param, 0, false);
}
ucs_status_ptr_t ucp_worker_flush_nbx(ucp_worker_h, const ucp_request_param_t* param) {
  return library->start(*param, 0, false);
}
ucs_status_t ucp_request_check_status(void* request) {
  return library->requests.at(request)->is_over ? UCS_OK : UCS_INPROGRESS;
}
void ucp_request_free(void* request) {
  Library::Request& self = *library->requests.at(request);
  if (std::exchange(self.is_free, true)) std::abort();
}
ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h, unsigned id, const void* header, std::size_t bytes, const void*,
                                 std::size_t, const ucp_request_param_t* param) {
  if (id == kNotice) {
    Notice notice;
    if (bytes != sizeof(notice)) std::abort();
    std::memcpy(&notice, header, sizeof(notice));
    // A peer answers `closing`, which the close handshake waits for.
    if (notice.kind == Notice::Kind::closing)
      library->close_acks.push_back({Notice::Kind::closing_ack, kPeer, 0, 0});
  }
  return library->start(*param, 0, false);
}
ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h, void* data, void*, std::size_t,
                                      const ucp_request_param_t* param) {
  const auto found = library->lent.find(data);
  if (found == library->lent.end()) std::abort();
  const std::size_t bytes = found->second.size();
  library->lent.erase(found);
  return library->start(*param, bytes, true);
}

namespace tutti::ucx {

std::string explain(ucs_status_t) { return "an error"; }

// The worker without a library: what ucp_worker.cpp is elsewhere.
Result<std::unique_ptr<UcpWorker>> UcpWorker::make(const std::string&, const std::optional<PortRange>&) {
  return std::unique_ptr<UcpWorker>(new UcpWorker);
}
UcpWorker::~UcpWorker() = default;
Status UcpWorker::set_handler(unsigned id, ucp_am_recv_callback_t handler, void* argument) {
  library->handlers[id] = {handler, argument};
  return {};
}

namespace {

void run(fuzz::Input input) {
  message::Worker worker(std::make_unique<UcxDriver>(std::move(*UcpWorker::make({}, {}))), "ucx",
                         message::Fetch::whole, kOwnInstance);
  if (!worker.start()) std::abort();
  std::vector<std::byte> memory(2 * kBytes);
  const std::array<ByteRange, 2> to{ByteRange(memory).first(kBytes), ByteRange(memory).subspan(kBytes)};
  message::Inbox& inbox = worker.find_inbox(kPeer, kContext);
  inbox.peer.set_address({std::byte{1}});
  message::MessageEndpoint endpoint(worker, inbox);
  for (std::uint32_t i = 0; i < to.size(); ++i)
    endpoint.recv(i, kMatchHeader, {{&to[i], 1}, kBytes, nullptr, nullptr}, i + 1);
  std::array<Event, 8> events;
  while (!input.rest.empty()) {
    const auto choice = input.take<std::uint8_t>();
    switch (choice % 4) {
      case 0:
      case 1: {
        const auto header =
            input.take_bytes(choice % 4 == 0 ? sizeof(message::MessageHeader) : input.take<std::uint8_t>());
        const bool is_remote = (choice & 4U) != 0;
        const std::vector<std::byte> remote((choice & 8U) != 0 ? kBytes : std::size_t{choice});
        const auto data = is_remote ? std::span(remote) : input.take_bytes(input.take<std::uint8_t>());
        library->bring(kMessage, header, data, is_remote ? UCP_AM_RECV_ATTR_FLAG_RNDV : 0);
        break;
      }
      case 2: {
        const auto header =
            input.take_bytes((choice & 4U) != 0 ? input.take<std::uint8_t>() : sizeof(Notice));
        library->bring(kNotice, header, {}, (choice & 8U) != 0 ? UCP_AM_RECV_ATTR_FIELD_REPLY_EP : 0);
        break;
      }
      default: {
        library->is_slow = (choice & 4U) != 0;
        library->fails = (choice & 8U) != 0;
        const ConstByteRange range(memory.data(), choice);
        if ((choice & 16U) != 0) endpoint.send(0, kMatchHeader, {&range, 1}, 9);
        break;
      }
    }
    worker.progress(events);
  }
  library->fails = false;
  while (worker.progress(events) != 0 || !library->under_way.empty()) {
  }
  library->is_slow = false;
  endpoint.close(false);
}

}  // namespace
}  // namespace tutti::ucx

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Library own;
  library = &own;
  tutti::ucx::run({{reinterpret_cast<const std::byte*>(data), size}});
  if (!own.lent.empty()) std::abort();  // somebody keeps what is the library's
  for (const auto& [name, request] : own.requests)
    if (!request->is_free) std::abort();
  library = nullptr;
  return 0;
}
