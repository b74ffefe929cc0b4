// The stand-in's communicators: made, split, asked, ended; memory registered with them.
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda.h>

#include "tests/support/nccl_stand_in/state.hpp"

namespace nccl_stand_in {

State& state() {
  static auto* const one = new State;
  return *one;
}

int version() {
  const char* text = std::getenv("NCCL_STAND_IN_VERSION");
  return text != nullptr && *text != '\0' ? std::atoi(text) : NCCL_VERSION_CODE;
}

ncclResult_t enter(const char* function, int since) {
  const std::lock_guard lock(state().mutex);
  ++state().calls[function];
  if (version() < since) return ncclInternalError;
  const auto found = state().failures.find(function);
  if (found == state().failures.end()) return ncclSuccess;
  const ncclResult_t error = found->second;
  state().failures.erase(found);
  return error;
}

std::shared_ptr<ncclComm> find(ncclComm* handle) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().communicators.find(handle);
  return found == state().communicators.end() ? nullptr : found->second;
}

bool is_ready(ncclComm& communicator) {
  {
    const std::lock_guard lock(state().mutex);
    if (state().hangs_init) return false;
  }
  return communicator.clique->is_complete();
}

namespace {

// The clique of a name, made by whoever asks first.
std::shared_ptr<Clique> clique_of(const std::string& name, int size) {
  const std::lock_guard lock(state().mutex);
  auto clique = state().cliques[name].lock();
  if (clique == nullptr) state().cliques[name] = clique = std::make_shared<Clique>(size);
  return clique;
}

std::string name_of(const ncclUniqueId& id) { return {id.internal, sizeof id.internal}; }

ncclComm* make(const std::string& name, int size, int rank, int device, bool is_blocking) {
  auto made = std::make_shared<ncclComm>();
  made->clique = clique_of(name, size);
  made->rank = rank;
  made->device = device;
  made->is_blocking = is_blocking;
  made->clique->join(rank, device);
  const std::lock_guard lock(state().mutex);
  state().communicators[made.get()] = made;
  return made.get();
}

// Color and key that each rank of a split wishes, by the split's name.
std::map<std::string, std::map<int, std::pair<int, int>>>& splits() {
  static auto* const all = new std::map<std::string, std::map<int, std::pair<int, int>>>;
  return *all;
}

// Makes what a split asks for, if all ranks have asked by now.
bool has_split(ncclComm& parent) {
  if (parent.split.empty()) return true;
  int rank = 0, size = 0;
  {
    const std::lock_guard lock(state().mutex);
    const auto& wishes = splits()[parent.split];
    if (static_cast<int>(wishes.size()) != parent.clique->size()) return false;
    for (const auto& [other, wish] : wishes) {
      if (wish.first != parent.color) continue;
      ++size;
      if (std::pair(wish.second, other) < std::pair(parent.key, parent.rank)) ++rank;
    }
  }
  const std::string name = parent.split + " " + std::to_string(parent.color);
  parent.split.clear();
  if (parent.color != NCCL_SPLIT_NOCOLOR) *parent.split_result = make(name, size, rank, parent.device, false);
  return true;
}

std::string next_name(const char* what, ncclComm& parent) {
  return std::string(what) + " " + std::to_string(reinterpret_cast<std::uintptr_t>(parent.clique.get())) +
         " " + std::to_string(parent.splits++);
}

}  // namespace
}  // namespace nccl_stand_in

using namespace nccl_stand_in;

NCCL_STAND_IN_API void nccl_stand_in_break(ncclResult_t error, const char* text) {
  const std::lock_guard lock(state().mutex);
  state().error = error;
  state().text = text;
}

NCCL_STAND_IN_API void nccl_stand_in_hang_init(bool hangs) {
  const std::lock_guard lock(state().mutex);
  state().hangs_init = hangs;
}

NCCL_STAND_IN_API void nccl_stand_in_fail(const char* function, ncclResult_t error) {
  const std::lock_guard lock(state().mutex);
  state().failures[function] = error;
}

NCCL_STAND_IN_API unsigned long nccl_stand_in_calls(const char* function) {
  const std::lock_guard lock(state().mutex);
  return state().calls[function];
}

NCCL_STAND_IN_API long nccl_stand_in_alive() {
  const std::lock_guard lock(state().mutex);
  return static_cast<long>(state().communicators.size());
}

NCCL_STAND_IN_API long nccl_stand_in_registered() {
  const std::lock_guard lock(state().mutex);
  std::size_t count = 0;
  for (const auto& [handle, communicator] : state().communicators) count += communicator->registered.size();
  return static_cast<long>(count);
}

NCCL_STAND_IN_API ncclResult_t ncclGetVersion(int* code) {
  *code = version();
  return ncclSuccess;
}

NCCL_STAND_IN_API const char* ncclGetErrorString(ncclResult_t result) {
  switch (static_cast<int>(result)) {
    case ncclSuccess:
      return "no error";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclInternalError:
      return "internal error";
    default:
      return "an error of the stand-in";
  }
}

NCCL_STAND_IN_API const char* ncclGetLastError(ncclComm_t) {
  const std::lock_guard lock(state().mutex);
  static thread_local std::string text;
  text = state().text;
  return text.c_str();
}

NCCL_STAND_IN_API ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  NCCL_STAND_IN_ENTER(ncclGetUniqueId, 0)
  const std::lock_guard lock(state().mutex);
  std::memset(id->internal, 0, sizeof id->internal);
  std::memcpy(id->internal, &state().next_id, sizeof state().next_id);
  id->internal[sizeof id->internal - 1] = 'x';
  ++state().next_id;
  return ncclSuccess;
}

NCCL_STAND_IN_API ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int size, ncclUniqueId id, int rank,
                                                      ncclConfig_t* config) {
  NCCL_STAND_IN_ENTER(ncclCommInitRankConfig, 0)
  if (config->magic != NCCL_API_MAGIC || rank < 0 || rank >= size) return ncclInvalidArgument;
  CUdevice device = 0;
  if (cuCtxGetDevice(&device) != CUDA_SUCCESS) return ncclUnhandledCudaError;
  if (config->blocking != 0) return ncclInvalidUsage;  // what only waits in vain is not stood in for
  *made = make(name_of(id), size, rank, device, false);
  return ncclInProgress;
}

NCCL_STAND_IN_API ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  const auto communicator = find(handle);
  if (communicator == nullptr) return ncclInvalidArgument;
  if (communicator->clique->has_duplicates()) {
    *error = ncclInvalidUsage;
    return ncclSuccess;
  }
  {
    const std::lock_guard lock(state().mutex);
    *error = state().error;
  }
  if (*error != ncclSuccess) return ncclSuccess;
  const bool is_idle = !communicator->is_finalized || communicator->outstanding == 0;
  const bool is_through = communicator->polls.fetch_add(1) >= kPolls && is_ready(*communicator) && is_idle &&
                          has_split(*communicator);
  *error = communicator->is_confused ? ncclInvalidUsage : is_through ? ncclSuccess : ncclInProgress;
  return ncclSuccess;
}

NCCL_STAND_IN_API ncclResult_t ncclCommCuDevice(const ncclComm_t handle, int* device) {
  const auto communicator = find(handle);
  if (communicator == nullptr) return ncclInvalidArgument;
  *device = communicator->device;
  return ncclSuccess;
}

NCCL_STAND_IN_API ncclResult_t ncclCommUserRank(const ncclComm_t handle, int* rank) {
  const auto communicator = find(handle);
  if (communicator == nullptr) return ncclInvalidArgument;
  *rank = communicator->rank;
  return ncclSuccess;
}

NCCL_STAND_IN_API ncclResult_t ncclCommCount(const ncclComm_t handle, int* size) {
  const auto communicator = find(handle);
  if (communicator == nullptr) return ncclInvalidArgument;
  *size = communicator->clique->size();
  return ncclSuccess;
}

// The result is there when the parent is through, as NCCL has it.
NCCL_STAND_IN_API ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t* made,
                                             ncclConfig_t*) {
  NCCL_STAND_IN_ENTER(ncclCommSplit, 21800)
  const auto parent = find(handle);
  if (parent == nullptr || !is_ready(*parent)) return ncclInvalidArgument;
  *made = nullptr;
  parent->polls = 0;
  parent->split = next_name("split", *parent);
  parent->color = color;
  parent->key = key;
  parent->split_result = made;
  const std::lock_guard lock(state().mutex);
  splits()[parent->split][parent->rank] = {color, key};
  return ncclInProgress;
}

NCCL_STAND_IN_API ncclResult_t ncclCommRegister(const ncclComm_t handle, void* memory, std::size_t bytes,
                                                void** made) {
  NCCL_STAND_IN_ENTER(ncclCommRegister, 21900)
  const auto communicator = find(handle);
  if (communicator == nullptr || !is_ready(*communicator) || memory == nullptr || bytes == 0)
    return ncclInvalidArgument;
  const std::lock_guard lock(state().mutex);
  *made = memory;
  communicator->registered.insert(memory);
  return ncclSuccess;
}

NCCL_STAND_IN_API ncclResult_t ncclCommDeregister(const ncclComm_t handle, void* made) {
  NCCL_STAND_IN_ENTER(ncclCommDeregister, 21900)
  const auto communicator = find(handle);
  if (communicator == nullptr) return ncclInvalidArgument;
  const std::lock_guard lock(state().mutex);
  const auto found = communicator->registered.find(made);
  if (found == communicator->registered.end()) return ncclInvalidArgument;
  communicator->registered.erase(found);
  return ncclSuccess;
}

NCCL_STAND_IN_API ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  NCCL_STAND_IN_ENTER(ncclCommFinalize, 21400)
  const auto communicator = find(handle);
  if (communicator == nullptr) return ncclInvalidArgument;
  communicator->is_finalized = true;
  communicator->polls = 0;
  return ncclInProgress;
}

namespace {

ncclResult_t end(ncclComm_t handle, bool aborts) {
  const auto communicator = find(handle);
  if (communicator == nullptr) return ncclInvalidArgument;
  if (aborts) communicator->aborted = true;
  communicator->clique->wake();
  const std::lock_guard lock(state().mutex);
  state().communicators.erase(handle);
  return ncclSuccess;
}

}  // namespace

NCCL_STAND_IN_API ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  NCCL_STAND_IN_ENTER(ncclCommDestroy, 0)
  return end(handle, false);
}

NCCL_STAND_IN_API ncclResult_t ncclCommAbort(ncclComm_t handle) {
  NCCL_STAND_IN_ENTER(ncclCommAbort, 0)
  return end(handle, true);
}
