// The frame of every peer's program around its library: reads commands, sleeps between them, verifies, times,
// answers in JSON. Knows no library: an adapter (peer_mpi.cpp, peer_gloo.cpp) supplies the calls. README.md
// describes the protocol.
#pragma once

#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/harness/buffer.hpp"
#include "bench/harness/checked_call.hpp"
#include "bench/harness/harness.hpp"
#include "bench/harness/inputs.hpp"
#include "bench/harness/record.hpp"
#include "bench/harness/shared_page.hpp"
#include "runtime/base/types.hpp"

namespace tutti::bench {

// The calls between a sweep's pieces of arithmetic: whole calls, calls that are submitted and waited for at
// the end, or none.
enum class Calls : std::uint8_t { blocking, submitted, none };
inline constexpr std::string_view kCallsNames[] = {"blocking", "submitted", "none"};
constexpr std::string_view to_string(Calls calls) { return kCallsNames[static_cast<std::size_t>(calls)]; }
inline std::optional<Calls> parse_calls(std::string_view name) {
  for (const Calls calls : {Calls::blocking, Calls::submitted, Calls::none}) {
    if (to_string(calls) == name) return calls;
  }
  return std::nullopt;
}

// One "run" command.
struct Request {
  Shape shape;
  Op op = Op::sum;
  bool in_place = false;
  Pages pages = Pages::small;
  LoopPlan plan;
  std::string algorithm;   // empty: the library's own choice
  bool is_checked = true;  // verify results before and after timing
  // A sweep: the elements of calls that are timed as one; `shape` is their sum. Empty: one call.
  std::vector<std::size_t> counts;
  Calls calls = Calls::blocking;
  double compute_us = 0;  // of arithmetic in front of the calls, in equal shares
  // The call is followed by one of this collective, of the same size, and both are timed as one.
  std::optional<Collective> then = {};
};

// The memory of one call.
struct CallBuffers {
  void* input = nullptr;
  void* output = nullptr;
  std::span<unsigned char> output_memory;      // CheckedCall::output_memory
  std::vector<std::shared_ptr<void>> keepers;  // what keeps the memory alive
};

// A call in two parts.
struct SubmittedCall {
  std::function<void()> submit, wait;
};

// The calls of a library under test. All ranks call the same functions in the same order.
class PeerLibrary {
 public:
  virtual ~PeerLibrary() = default;
  // Builds the call of this request; whatever a program does once per size (plans, registration) belongs
  // here. Throws std::invalid_argument, on all ranks alike, for what the library cannot do.
  virtual std::function<void()> prepare(const Request& request, const CallBuffers& buffers) = 0;
  // The same for who computes meanwhile.
  virtual SubmittedCall prepare_submitted(const Request&, const CallBuffers&) {
    throw std::invalid_argument(name + ": submitted calls are not measured");
  }
  // The calls of a sweep with their memory, which `keeper` owns.
  virtual std::vector<CheckedCall> prepare_all(std::span<const Request> requests, int rank,
                                               std::shared_ptr<void>* keeper);
  // The memory of the request's call. By default anonymous memory, in place after MPI's rules. allreduce,
  // broadcast and alltoall: one buffer; allgather: this rank's block is already in its place in the output;
  // reduce_scatter: the result is at the front of the input.
  virtual CallBuffers make_buffers(const Request& request, int rank) const;
  // Where the buffers lie that this library makes; null: in the host's memory.
  virtual RemoteMemory* memory() const { return nullptr; }
  // The algorithm that a result reports; asked after the call.
  virtual std::string algorithm_of(const Request& request) const {
    return request.algorithm.empty() ? setting : request.algorithm;
  }

  CheckedCall call_of(const Request& request, const CallBuffers& buffers);

  std::string name;       // "openmpi", "mpich", "gloo"
  std::string version;    // reported as the backend
  std::string transport;  // as the caller named it on the command line
  std::string setting;    // as the caller named it on the command line; reported as the algorithm
};

inline CallBuffers PeerLibrary::make_buffers(const Request& request, int rank) const {
  const Shape& shape = request.shape;
  const std::size_t element = size_of(shape.dtype);
  const bool is_one_buffer = request.in_place || shape.collective == Collective::broadcast;
  CallBuffers buffers;
  const auto allocate = [&](std::size_t bytes) {
    const auto memory = std::make_shared<Buffer>(bytes, request.pages);
    buffers.keepers.push_back(memory);
    return std::span(memory->data(), bytes);
  };
  buffers.output_memory = allocate(is_one_buffer ? shape.bytes() : shape.output_count(rank) * element);
  buffers.output = buffers.output_memory.data();
  if (is_one_buffer) {
    const std::size_t own_block = static_cast<std::size_t>(rank) * shape.block_count() * element;
    buffers.input =
        buffers.output_memory.data() + (shape.collective == Collective::allgather ? own_block : 0);
  } else {
    buffers.input = allocate(shape.input_count(rank) * element).data();
  }
  return buffers;
}

inline CheckedCall PeerLibrary::call_of(const Request& request, const CallBuffers& buffers) {
  CheckedCall call{request.shape, buffers.input, buffers.output, buffers.output_memory, {}, {}};
  if (request.calls == Calls::submitted) {
    SubmittedCall parts = prepare_submitted(request, buffers);
    call.run = std::move(parts.submit);
    call.finish = std::move(parts.wait);
  } else if (request.calls == Calls::blocking) {
    call.run = prepare(request, buffers);
  } else {
    call.run = [] {};
  }
  return call;
}

inline std::vector<CheckedCall> PeerLibrary::prepare_all(std::span<const Request> requests, int rank,
                                                         std::shared_ptr<void>* keeper) {
  const auto kept = std::make_shared<std::vector<CallBuffers>>();
  std::vector<CheckedCall> calls;
  for (const Request& request : requests) {
    kept->push_back(make_buffers(request, rank));
    calls.push_back(call_of(request, kept->back()));
  }
  *keeper = kept;
  return calls;
}

namespace detail {

inline int parse_number(const std::string& key, std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    throw std::invalid_argument(key + ": not a number: " + std::string(text));
  }
  return value;
}

template <class T>
T required(std::optional<T> value, const std::string& key, std::string_view text) {
  if (!value) throw std::invalid_argument(key + ": unknown value: " + std::string(text));
  return *value;
}

inline void apply_option(Request& request, const std::string& key, const std::string& value) {
  if (key == "iters") {
    request.plan.iteration_count = std::max(1, parse_number(key, value));
  } else if (key == "warmup") {
    request.plan.warmup_count = parse_number(key, value);
  } else if (key == "min_iters") {
    request.plan.minimum_count = std::max(1, parse_number(key, value));
  } else if (key == "budget_ms") {
    request.plan.budget_seconds = parse_number(key, value) / 1e3;
  } else if (key == "mode") {
    request.plan.mode = required(parse_mode(value), key, value);
  } else if (key == "in_place") {
    request.in_place = parse_number(key, value) != 0;
  } else if (key == "dtype") {
    request.shape.dtype = required(parse_dtype(value), key, value);
  } else if (key == "op") {
    request.op = required(parse_op(value), key, value);
  } else if (key == "pages") {
    request.pages = required(parse_pages(value), key, value);
  } else if (key == "algorithm") {
    request.algorithm = value;
  } else if (key == "counts") {
    std::istringstream list(value);
    for (std::string count; std::getline(list, count, ',');)
      request.counts.push_back(static_cast<std::size_t>(parse_number(key, count)));
  } else if (key == "calls") {
    request.calls = required(parse_calls(value), key, value);
  } else if (key == "compute_us") {
    request.compute_us = parse_number(key, value);
  } else {
    throw std::invalid_argument("unknown option: " + key);
  }
}

// "run <collective> <bytes> [key=value ...]". Throws std::invalid_argument.
inline Request parse_request(const std::string& line, int ranks) {
  std::istringstream words(line);
  std::string verb;
  std::string collective;
  std::string bytes;
  words >> verb >> collective >> bytes;
  if (verb != "run") throw std::invalid_argument("unknown command: " + verb);
  Request request;
  request.shape.collective = required(parse_collective(collective), "collective", collective);
  const std::size_t requested = required(parse_bytes(bytes), "bytes", bytes);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) throw std::invalid_argument("not key=value: " + word);
    apply_option(request, word.substr(0, equals), word.substr(equals + 1));
  }
  switch (request.shape.collective) {
    case Collective::allreduce:
    case Collective::broadcast:
    case Collective::allgather:
    case Collective::reduce_scatter:
    case Collective::alltoall:
    case Collective::barrier:
      break;
    default:
      throw std::invalid_argument("collective not measured here: " + collective);
  }
  request.shape = make_shape(request.shape.collective, request.shape.dtype, ranks, requested);
  // Nothing is computed that could be verified.
  request.is_checked = request.calls != Calls::none;
  return request;
}

}  // namespace detail

// The calls that a request stands for.
inline std::vector<Request> calls_of(const Request& request) {
  if (request.then) {
    std::vector<Request> calls(2, request);
    const Shape& shape = request.shape;
    calls[1].shape = make_shape(*request.then, shape.dtype, shape.ranks, shape.bytes(), shape.root);
    return calls;
  }
  if (request.counts.empty()) return {request};
  std::vector<Request> calls;
  for (const std::size_t count : request.counts) {
    calls.push_back(request);
    calls.back().counts.clear();
    calls.back().shape.count = count;
  }
  return calls;
}

// Verifies and times one request; the same on every rank.
template <Rendezvous R>
Record run_request(PeerLibrary& library, R& ranks, int rank, const Request& request) {
  const std::vector<Request> requests = calls_of(request);
  std::shared_ptr<void> keeper;
  const std::vector<CheckedCall> calls = library.prepare_all(requests, rank, &keeper);
  Shape shape = request.shape;
  if (!request.counts.empty()) {
    shape.count = 0;
    for (const Request& one : requests) shape.count += one.shape.count;
  }
  Inputs inputs(shape.dtype, request.op, shape.ranks);
  const CheckedPlan plan{request.plan, request.in_place, request.is_checked, request.compute_us,
                         library.memory()};
  const CheckedResult result = check_and_measure(std::span(calls), inputs, rank, plan, ranks);
  std::set<std::string> algorithms;
  for (const Request& one : requests) algorithms.insert(library.algorithm_of(one));

  Record record;
  record.library = library.name;
  record.shape = shape;
  record.op = request.op;
  record.in_place = request.in_place;
  for (const std::string& algorithm : algorithms)
    record.algorithm += (record.algorithm.empty() ? "" : "+") + algorithm;
  record.transport = library.transport;
  record.backend = library.version;
  record.times = result.times;
  record.is_checked = request.is_checked;
  record.then = request.then;
  record.wrong_count = result.wrong_count;
  return record;
}

// The whole program after the library is initialised: answers commands on rank 0's standard input until
// "quit" or its end. Between commands rank 0 sleeps in read(2) and the others on the page, so that another
// program can be measured meanwhile.
inline void serve(PeerLibrary& library, SharedPage& page) {
  const bool is_first = page.rank() == 0;
  if (is_first) std::cout << "ready" << std::endl;
  for (;;) {
    std::string line;
    if (is_first) {
      if (!std::getline(std::cin, line)) line = "quit";
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      line.resize(std::min(line.size(), SharedPage::kCommandBytes - 1));  // what the others will see
      page.post_command(line);
    } else {
      line = page.wait_command();
    }
    page.barrier();  // the mailbox may be reused from here on
    if (line == "quit") return;
    std::string answer;
    try {
      answer =
          to_json(run_request(library, page, page.rank(), detail::parse_request(line, page.rank_count())));
    } catch (const std::invalid_argument& error) {  // decided alike on all ranks, before anything was sent
      answer = "{\"error\": " + json_quoted(error.what()) + "}";
    }
    if (is_first) std::cout << answer << std::endl;
  }
}

// Options that all programs share; returns false if `argument` is none of them.
inline bool parse_common_argument(PeerLibrary& library, std::string_view argument) {
  for (const auto& [prefix, target] :
       {std::pair<std::string_view, std::string*>{"--setting=", &library.setting},
        std::pair<std::string_view, std::string*>{"--transport=", &library.transport}}) {
    if (argument.substr(0, prefix.size()) == prefix) {
      *target = argument.substr(prefix.size());
      return true;
    }
  }
  return false;
}

}  // namespace tutti::bench
