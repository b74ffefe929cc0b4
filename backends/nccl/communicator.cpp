// A communicator's life, by polling.
#include "backends/nccl/communicator.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "runtime/base/work.hpp"

namespace tutti::nccl {
namespace {

constexpr std::chrono::microseconds kLongestNap{500};

// NCCL wants its calls for one device from one thread at a time; and ranks may be threads of one process.
std::mutex& calls() {
  static std::mutex mutex;
  return mutex;
}

ncclConfig_t config_without_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::create(const Library& library, const ncclUniqueId& id,
                                                           Member member, WaitLimit limit) {
  std::unique_ptr<Communicator> made(new Communicator(library, member, std::move(limit)));
  constexpr std::string_view kWhat = "ncclCommInitRankConfig";
  {
    ncclConfig_t config = config_without_blocking();
    const std::lock_guard one_call(calls());
    const std::lock_guard lock(made->mutex_);
    const ncclResult_t result =
        library.ncclCommInitRankConfig(&made->handle_, member.size, id, member.rank, &config);
    TUTTI_RETURN_IF_ERROR(to_status(library, result, kWhat, made->handle_));
  }
  TUTTI_RETURN_IF_ERROR(made->settle(kWhat, made->wait_limit_.timeout));
  return made;
}

Communicator::~Communicator() { abort(Status(StatusCode::aborted, "the communicator has ended")); }

Result<std::unique_ptr<Communicator>> Communicator::split(int color, int key) {
  ncclConfig_t config = config_without_blocking();
  TUTTI_RETURN_IF_ERROR(call("ncclCommSplit", [&](ncclComm_t parent) {
    part_ = nullptr;
    return library_.ncclCommSplit(parent, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &part_, &config);
  }));
  if (part_ == nullptr) return std::unique_ptr<Communicator>();
  std::unique_ptr<Communicator> made(new Communicator(library_, member_, wait_limit_));
  made->handle_ = part_;
  TUTTI_RETURN_IF_ERROR(made->settle("making a communicator of another", wait_limit_.timeout));
  TUTTI_RETURN_IF_ERROR(made->call("asking a communicator for its size", [&](ncclComm_t child) {
    const ncclResult_t result = library_.ncclCommUserRank(child, &made->member_.rank);
    return result == ncclSuccess ? library_.ncclCommCount(child, &made->member_.size) : result;
  }));
  return made;
}

Result<void*> Communicator::register_memory(const void* memory, std::size_t bytes) {
  void* handle = nullptr;
  TUTTI_RETURN_IF_ERROR(call("ncclCommRegister", [&](ncclComm_t communicator) {
    return library_.register_memory(communicator, const_cast<void*>(memory), bytes, &handle);
  }));
  return handle;
}

void Communicator::deregister_memory(void* handle) {
  if (handle == nullptr) return;
  static_cast<void>(call("ncclCommDeregister", [&](ncclComm_t communicator) {
    return library_.deregister_memory(communicator, handle);
  }));
}

Status Communicator::call(std::string_view what, const std::function<ncclResult_t(ncclComm_t)>& function) {
  return call_within(wait_limit_.timeout, what, function);
}

Status Communicator::call_within(std::chrono::milliseconds timeout, std::string_view what,
                                 const std::function<ncclResult_t(ncclComm_t)>& function) {
  ncclResult_t result = ncclSuccess;
  {
    const std::lock_guard one_call(calls());
    const std::lock_guard lock(mutex_);
    if (handle_ == nullptr) return ended_;
    result = function(handle_);
    TUTTI_RETURN_IF_ERROR(to_status(library_, result, what, handle_));
  }
  return result == ncclInProgress ? settle(what, timeout) : Status();
}

Result<bool> Communicator::poll(std::string_view what) {
  const std::lock_guard lock(mutex_);
  if (handle_ == nullptr) return ended_;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = library_.ncclCommGetAsyncError(handle_, &state);
  TUTTI_RETURN_IF_ERROR(to_status(library_, asked, "ncclCommGetAsyncError", handle_));
  TUTTI_RETURN_IF_ERROR(to_status(library_, state, what, handle_));
  return state == ncclSuccess;
}

Status Communicator::settle(std::string_view what, std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  for (std::chrono::microseconds nap(1);; nap = std::min(nap * 2, kLongestNap)) {
    const Result<bool> is_through = poll(what);
    if (!is_through) return is_through.status();
    if (*is_through) return {};
    TUTTI_RETURN_IF_ERROR(wait_limit_.failure());
    if (Clock::now() >= deadline) {
      return Status(
          StatusCode::timeout,
          fmt::format("{} of rank {} has not come to an end within {} ms: NCCL is still waiting for "
                      "another rank, and does not say for which",
                      what, member_.rank, timeout.count()));
    }
    std::this_thread::sleep_for(nap);
  }
}

Status Communicator::async_error() {
  const Result<bool> is_through = poll("an operation that NCCL had begun");
  return is_through ? Status() : is_through.status();
}

void Communicator::abort(const Status& cause) {
  const std::lock_guard lock(mutex_);
  if (handle_ == nullptr) return;
  ended_ = cause;
  // Its result says nothing that could still be acted upon; "in progress" is as good as done.
  static_cast<void>(library_.ncclCommAbort(std::exchange(handle_, nullptr)));
}

void Communicator::close(std::chrono::milliseconds timeout) {
  Status status = call_within(timeout, "ncclCommFinalize",
                              [this](ncclComm_t handle) { return library_.ncclCommFinalize(handle); });
  if (status) status = settle("ncclCommFinalize", timeout);
  if (!status) return abort(status);
  const std::lock_guard one_call(calls());
  const std::lock_guard lock(mutex_);
  if (handle_ == nullptr) return;
  ended_ = Status(StatusCode::aborted, "the communicator has ended");
  static_cast<void>(library_.ncclCommDestroy(std::exchange(handle_, nullptr)));
}

}  // namespace tutti::nccl
