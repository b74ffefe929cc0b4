// Shared by the files of the C interface: handles, error returns, options and enumerations in their C++ form.
// Knows the public C++ interface and no group, transport or schedule.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "tutti/call_plan.hpp"
#include "tutti/tensors.hpp"
#include "tutti/tutti.h"
#include "tutti/tutti.hpp"

struct TuttiGroup {
  tutti::CommGroup group;
};

struct TuttiBuffer {
  tutti::RegisteredBuffer held;
};

struct TuttiPlan {
  tutti::CallPlan plan;
};

struct TuttiTensorQueue {
  tutti::TensorQueue tensors;
};

struct TuttiWork {
  tutti::Work work;
  int* source = nullptr;  // receives the source of a complete receive; may be null
};

struct TuttiQueue {
  struct Added {
    void* context = nullptr;
    int* source = nullptr;  // as TuttiWork::source
  };
  tutti::CompletionQueue queue;
  std::mutex mutex;  // of the two that follow
  std::map<std::uint64_t, Added> added;
  std::uint64_t next_tag = 0;
  std::string message;  // of the completion that was handed out last
};

namespace tutti::c {

[[noreturn]] void refuse(const std::string& message);  // throws invalid_argument

// The status of the current exception; keeps its message for tutti_last_error(). Inside a catch.
tutti_status_t record_failure() noexcept;

// Runs the body of an exported function.
template <class Body>
tutti_status_t guarded(Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return TUTTI_OK;
  } catch (...) {
    return record_failure();
  }
}

// NULL is a closed group, whose functions report that.
const CommGroup& group_of(tutti_group_t handle);

// One number per rank; empty without a list, or without a group that gives its length.
inline Counts list_of(const CommGroup& group, const std::uint64_t* numbers) {
  if (numbers == nullptr || !group.is_open()) return {};
  return {numbers, static_cast<std::size_t>(group.size())};
}

// Throws invalid_argument if an exported function got no pointer for its result.
template <class T>
void check_place(const char* call, const char* what, const T* place) {
  if (place == nullptr)
    refuse(std::string(call) + ": " + what + ": a null pointer, nowhere to put the result");
}

// Throws invalid_argument if an exported function got no pointer for an argument that it reads.
template <class T>
void check_given(const char* call, const char* what, const T* argument) {
  if (argument == nullptr) refuse(std::string(call) + ": " + what + ": a null pointer");
}

// Limits a time to a century, because clocks count in 64 bits; a program may pass a huge number for "for
// ever".
std::chrono::milliseconds duration_of(std::int64_t milliseconds);

// Options of a program that knows `given->struct_bytes` of them, the rest zero. `first_bytes`: the size of
// the first version. Throws invalid_argument, or unsupported for a member of a later version.
template <class Options>
Options known_options(const char* call, const Options* given, std::size_t first_bytes) {
  Options known{};
  if (given == nullptr) return known;
  if (given->struct_bytes < first_bytes) {
    refuse(std::string(call) + ": options: struct_bytes is " + std::to_string(given->struct_bytes) +
           "; start with the initialiser of tutti/c_types.h");
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (std::any_of(bytes + std::min(sizeof known, given->struct_bytes), bytes + given->struct_bytes,
                  [](unsigned char byte) { return byte != 0; })) {
    throw Error(StatusCode::unsupported, -1,
                std::string(call) + ": options: one is set that this version of tutti does not have");
  }
  std::memcpy(&known, given, std::min(sizeof known, given->struct_bytes));
  return known;
}

// The arguments of one call in their C++ form. Its functions throw invalid_argument, naming the call.
class CallArguments {
 public:
  CallArguments(const char* call, const tutti_call_options_t* options) : call_(call) {
    if (options != nullptr) read(*options);
  }
  CallOptions options() const {
    CallOptions options;
    if (options_.algorithm != nullptr) options.algorithm = options_.algorithm;
    options.will_wait = options_.will_wait != 0;
    options.cuda_stream = options_.cuda_stream;
    options.memory = memory(options_.memory);
    // The types differ in noexcept, which C lacks; by contract no exception leaves the function.
    options.while_waiting = reinterpret_cast<WaitFunction>(options_.while_waiting);
    options.while_waiting_context = options_.while_waiting_context;
    if (options_.wire_dtype != 0)
      options.wire_dtype = dtype(static_cast<tutti_dtype_t>(options_.wire_dtype), "wire_dtype");
    options.residual = options_.residual;
    return options;
  }
  Dtype dtype(tutti_dtype_t number, const char* argument = "dtype") const {
    if (number < TUTTI_I8 || number > TUTTI_OPAQUE) refuse_number(argument, number);
    return static_cast<Dtype>(number);
  }
  Memory memory(tutti_memory_t number) const {
    if (number < TUTTI_MEMORY_DETECT || number > TUTTI_MEMORY_DEVICE) refuse_number("memory", number);
    return static_cast<Memory>(number);
  }
  Collective collective(tutti_collective_t number) const {
    if (number < TUTTI_ALLREDUCE || number > TUTTI_SEND_RECV) refuse_number("collective", number);
    return static_cast<Collective>(number);
  }
  Reduction reduction(tutti_op_t op, tutti_dtype_t dtype) const {
    if (op >= TUTTI_SUM && op <= TUTTI_MAXLOC && op != TUTTI_PREMUL_SUM && op != TUTTI_USER)
      return static_cast<Op>(op);
    return special_reduction(op, dtype);
  }

 private:
  void read(const tutti_call_options_t& options);
  Reduction special_reduction(tutti_op_t op, tutti_dtype_t dtype) const;
  [[noreturn]] void refuse_number(const char* what, int number) const;

  const char* call_;
  tutti_call_options_t options_{};
};

// The program's exchange, store or id in its C++ form.
InitOptions init_options_of(const tutti_init_options_t& options);

}  // namespace tutti::c
