// The MPI functions that XLA's collectives for CPUs call, over the C interface. jaxlib finds them by MPITRAMPOLINE_LIB.
// Knows MPItrampoline's binary interface (handles are words, constants are data) and no Python.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

#include "bindings/jax/large_pages.hpp"
#include "bindings/jax/mpi_stub.hpp"
#include "tutti/tutti.h"

using Handle = std::uintptr_t;
// Makes the group of all processes, or returns null; called once, by MPI_Init_thread.
using WorldFunction = tutti_group_t (*)();

// NOLINTBEGIN(readability-identifier-naming): XLA names these.
#pragma GCC visibility push(default)
extern "C" {
extern const Handle MPIABI_COMM_WORLD, MPIABI_STATUS_IGNORE, MPIABI_UNDEFINED, MPIABI_THREAD_MULTIPLE;
extern const Handle MPIABI_INT8_T, MPIABI_UINT8_T, MPIABI_INT16_T, MPIABI_UINT16_T, MPIABI_INT32_T,
    MPIABI_UINT32_T, MPIABI_INT64_T, MPIABI_UINT64_T, MPIABI_FLOAT, MPIABI_DOUBLE, MPIABI_C_COMPLEX,
    MPIABI_C_DOUBLE_COMPLEX, MPIABI_BYTE;
extern const Handle MPIABI_SUM, MPIABI_PROD, MPIABI_MIN, MPIABI_MAX;
// The ABI's version that this library has the names of.
extern const int mpiabi_version_major = 2, mpiabi_version_minor = 10, mpiabi_version_patch = 0;
extern const int mpiwrapper_version_major = 2, mpiwrapper_version_minor = 11, mpiwrapper_version_patch = 0;
}
#pragma GCC visibility pop
// NOLINTEND(readability-identifier-naming)

namespace {

constexpr int kFailed = 1;  // any code but MPI_SUCCESS
constexpr int kMaxErrorString = 1024;

// Set by tutti.jax before XLA starts; without it the launcher is recognised.
WorldFunction make_world = nullptr;
tutti_group_t world = nullptr;
bool owns_world = false;

thread_local std::string last_failure;

// XLA ignores how MPI_Comm_split ended: calls on the communicator then report it.
std::mutex split_mutex;
std::string split_failure = "MPI_Comm_split has failed";

int fail(const char* call, const std::string& why) {
  last_failure = std::string("tutti: ") + call + ": " + why;
  return kFailed;
}

int ended(const char* call, tutti_status_t status) {
  return status == TUTTI_OK ? 0 : fail(call, tutti_last_error());
}

tutti_group_t group_of(Handle comm) {
  return comm == MPIABI_COMM_WORLD ? world : reinterpret_cast<tutti_group_t>(comm);
}

template <class Value>
struct Row {
  const Handle* handle;
  Value value;
};

// False for a handle that is not in the table.
template <class Value, std::size_t kRows>
bool find(const Row<Value> (&rows)[kRows], Handle handle, Value* value) {
  const auto* row = std::find_if(std::begin(rows), std::end(rows),
                                 [handle](const Row<Value>& each) { return *each.handle == handle; });
  if (row == std::end(rows)) return false;
  *value = row->value;
  return true;
}

constexpr Row<tutti_dtype_t> kMpiDtypes[] = {
    {&MPIABI_INT8_T, TUTTI_I8},    {&MPIABI_UINT8_T, TUTTI_U8},    {&MPIABI_INT16_T, TUTTI_I16},
    {&MPIABI_UINT16_T, TUTTI_U16}, {&MPIABI_INT32_T, TUTTI_I32},   {&MPIABI_UINT32_T, TUTTI_U32},
    {&MPIABI_INT64_T, TUTTI_I64},  {&MPIABI_UINT64_T, TUTTI_U64},  {&MPIABI_FLOAT, TUTTI_F32},
    {&MPIABI_DOUBLE, TUTTI_F64},   {&MPIABI_C_COMPLEX, TUTTI_C64}, {&MPIABI_C_DOUBLE_COMPLEX, TUTTI_C128},
    {&MPIABI_BYTE, TUTTI_U8},
};
constexpr Row<tutti_op_t> kOps[] = {
    {&MPIABI_SUM, TUTTI_SUM}, {&MPIABI_PROD, TUTTI_PROD}, {&MPIABI_MIN, TUTTI_MIN}, {&MPIABI_MAX, TUTTI_MAX}};

// The arguments of one call in their form of the C interface.
struct Call {
  Call(const char* given_name, Handle comm, Handle type) : name(given_name), group(group_of(comm)) {
    if (group == nullptr) {
      const std::lock_guard<std::mutex> lock(split_mutex);
      status = fail(name, split_failure);
    } else if (!find(kMpiDtypes, type, &dtype)) {
      status = fail(name, "the data type is not supported");
    }
  }
  void take_op(Handle handle) {
    if (status == 0 && !find(kOps, handle, &op)) status = fail(name, "the operation is not supported");
  }
  // Where the result of so many elements goes.
  void prepare_result(void* output, std::size_t count) const {
    if (status == 0) tutti::jax::prefer_large_pages(output, count * tutti_dtype_bytes(dtype));
  }
  // Runs `function` unless an argument is wrong; returns the code of MPI.
  template <class Function>
  int run(const Function& function) {
    return status != 0 ? status : ended(name, function());
  }

  const char* name;
  tutti_group_t group;
  tutti_dtype_t dtype = TUTTI_U8;
  tutti_op_t op = TUTTI_SUM;
  int status = 0;
};

// XLA creates communicators when they are first used, which need not be in the same order on all ranks. MPI_Comm_split
// matches calls by order, so it can put ranks together that asked for different ones. Then their keys, which are ranks
// of the asked one, do not fit. All ranks learn it.
tutti_status_t check_keys(int key, tutti_group_t part, tutti_group_t whole) {
  std::int32_t is_right = key == tutti_group_rank(part) ? 1 : 0;
  const tutti_status_t status =
      tutti_allreduce(&is_right, &is_right, 1, TUTTI_I32, TUTTI_MIN, whole, nullptr);
  return status == TUTTI_OK && is_right == 0 ? TUTTI_MISMATCH : status;
}

void remember_split_failure(tutti_status_t status) {
  const std::lock_guard<std::mutex> lock(split_mutex);
  split_failure =
      status == TUTTI_MISMATCH
          ? "ranks used the axes of the mesh for the first time in different orders, so XLA asked for "
            "communicators in different orders; use each axis once in a computation of its own first"
          : tutti_last_error();
  std::fprintf(stderr, "tutti: MPI_Comm_split: %s\n", split_failure.c_str());
}

}  // namespace

int tutti::jax::refuse_function(const char* name) {
  fail(name, "tutti.jax does not have this MPI function, which no XLA was known to call; please report it");
  std::fprintf(stderr, "%s\n", last_failure.c_str());
  return kFailed;
}

// NOLINTBEGIN(readability-identifier-naming): XLA names these.
#pragma GCC visibility push(default)
extern "C" {

void tutti_jax_set_world(WorldFunction function) { make_world = function; }

void mpiwrapper_export_fortran_constants_() {}
int MPIXABI_Query_cuda_support() { return 0; }
int MPIXABI_Query_hip_support() { return 0; }
int MPIXABI_Query_ze_support() { return 0; }

int MPIABI_Init_thread(int*, char***, int, int* provided) {
  *provided = static_cast<int>(MPIABI_THREAD_MULTIPLE);
  if (make_world != nullptr) {
    world = make_world();
    return world != nullptr ? 0 : fail("MPI_Init_thread", "the world could not be made");
  }
  owns_world = true;
  const int status = ended("MPI_Init_thread", tutti_init(nullptr, &world));
  if (status != 0) std::fprintf(stderr, "%s\n", last_failure.c_str());  // XLA ignores the code
  return status;
}

// XLA refuses communicators on other threads, for the sake of MPI libraries that need that.
int MPIABI_Is_thread_main(int* flag) {
  *flag = 1;
  return 0;
}

int MPIABI_Finalize() {
  if (owns_world) tutti_group_close(&world);
  return 0;
}

int MPIABI_Comm_rank(Handle comm, int* rank) {
  *rank = tutti_group_rank(group_of(comm));
  return *rank < 0 ? ended("MPI_Comm_rank", TUTTI_INVALID_ARGUMENT) : 0;
}

int MPIABI_Comm_size(Handle comm, int* size) {
  *size = tutti_group_size(group_of(comm));
  return *size < 0 ? ended("MPI_Comm_size", TUTTI_INVALID_ARGUMENT) : 0;
}

int MPIABI_Comm_split(Handle comm, int colour, int key, Handle* made) {
  const bool is_member = colour != static_cast<int>(MPIABI_UNDEFINED);
  tutti_group_t whole = group_of(comm);
  tutti_group_t part = nullptr;
  tutti_status_t status = tutti_group_split(whole, is_member ? colour : -1, key, &part);
  if (status == TUTTI_OK) status = check_keys(is_member ? key : -1, part, whole);
  if (status != TUTTI_OK) {
    remember_split_failure(status);
    tutti_group_close(&part);
  }
  *made = reinterpret_cast<Handle>(part);
  return ended("MPI_Comm_split", status);
}

int MPIABI_Comm_free(Handle* comm) {
  tutti_group_t group = group_of(*comm);
  tutti_group_close(&group);
  *comm = 0;
  return 0;
}

int MPIABI_Error_string(int, char* text, int* length) {
  *length = std::snprintf(text, kMaxErrorString, "%s", last_failure.c_str());
  *length = std::min(*length, kMaxErrorString - 1);
  return 0;
}

int MPIABI_Allreduce(const void* input, void* output, int count, Handle type, Handle op, Handle comm) {
  Call call("MPI_Allreduce", comm, type);
  call.take_op(op);
  if (output != input) call.prepare_result(output, static_cast<std::size_t>(count));
  return call.run([&] {
    return tutti_allreduce(input, output, static_cast<std::size_t>(count), call.dtype, call.op, call.group,
                           nullptr);
  });
}

int MPIABI_Allgather(const void* input, int count, Handle type, void* output, int, Handle, Handle comm) {
  Call call("MPI_Allgather", comm, type);
  if (call.status == 0) {
    call.prepare_result(
        output, static_cast<std::size_t>(count) * static_cast<std::size_t>(tutti_group_size(call.group)));
  }
  return call.run([&] {
    return tutti_allgather(input, output, static_cast<std::size_t>(count), call.dtype, call.group, nullptr);
  });
}

int MPIABI_Reduce_scatter(const void* input, void* output, const int* counts, Handle type, Handle op,
                          Handle comm) {
  Call call("MPI_Reduce_scatter", comm, type);
  call.take_op(op);
  return call.run([&] {
    const std::vector<std::uint64_t> parts(counts, counts + tutti_group_size(call.group));
    if (std::equal(parts.begin() + 1, parts.end(), parts.begin()))
      return tutti_reduce_scatter(input, output, parts[0], call.dtype, call.op, call.group, nullptr);
    return tutti_reduce_scatterv(input, output, parts.data(), call.dtype, call.op, call.group, nullptr);
  });
}

int MPIABI_Isend(const void* buffer, int count, Handle type, int peer, int tag, Handle comm,
                 Handle* request) {
  Call call("MPI_Isend", comm, type);
  tutti_work_t work = nullptr;
  const int status = call.run([&] {
    return tutti_isend(buffer, static_cast<std::size_t>(count), call.dtype, peer, tag, call.group, nullptr,
                       &work);
  });
  *request = reinterpret_cast<Handle>(work);
  return status;
}

int MPIABI_Irecv(void* buffer, int count, Handle type, int peer, int tag, Handle comm, Handle* request) {
  Call call("MPI_Irecv", comm, type);
  tutti_work_t work = nullptr;
  const int status = call.run([&] {
    return tutti_irecv(buffer, static_cast<std::size_t>(count), call.dtype, peer, tag, call.group, nullptr,
                       nullptr, &work);
  });
  *request = reinterpret_cast<Handle>(work);
  return status;
}

int MPIABI_Wait(Handle* request, void* status) {
  if (reinterpret_cast<Handle>(status) != MPIABI_STATUS_IGNORE)
    return fail("MPI_Wait", "MPI_Status is not supported");
  tutti_work_t work = reinterpret_cast<tutti_work_t>(*request);
  *request = 0;
  return ended("MPI_Wait", tutti_wait(&work));
}

int MPIABI_Sendrecv(const void* sent, int sent_count, Handle sent_type, int to, int sent_tag, void* received,
                    int received_count, Handle received_type, int from, int received_tag, Handle comm,
                    void* status) {
  Handle requests[2] = {};
  int code = MPIABI_Irecv(received, received_count, received_type, from, received_tag, comm, &requests[0]);
  if (code == 0) code = MPIABI_Isend(sent, sent_count, sent_type, to, sent_tag, comm, &requests[1]);
  for (Handle& request : requests) {
    const int ended_as = MPIABI_Wait(&request, status);
    if (code == 0) code = ended_as;
  }
  return code;
}

}  // extern "C"
#pragma GCC visibility pop
// NOLINTEND(readability-identifier-naming)
