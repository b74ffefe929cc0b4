// Calls of tutti on benchmark memory. Knows no clock.
#include "tools/cli/bench/tutti_library.hpp"

#include <fmt/format.h>

#include <utility>

#include "runtime/base/ops.hpp"
#include "runtime/group/comm_group.hpp"
#include "runtime/group/device_calls.hpp"

namespace tutti::tool {
namespace {

constexpr int kPremulFactor = 2;  // what bench::Inputs assumes

// Where a call's buffers lie: each offset counts from the start of one of two pieces of memory.
struct Layout {
  std::size_t input_bytes = 0;   // of the first piece; 0 if the input lies in the output's piece
  std::size_t output_bytes = 0;  // of the second piece
  bool is_one_piece = false;
  std::size_t input_offset = 0, output_offset = 0;  // in the one piece
};

Layout lay_out(const bench::Request& request, int rank) {
  const bench::Shape& shape = request.shape;
  const std::size_t element = size_of(shape.dtype);
  const std::size_t own_block = static_cast<std::size_t>(rank) * shape.block_count() * element;
  const bool is_root = rank == shape.root;
  Layout layout{shape.input_count(rank) * element, shape.output_count(rank) * element, false, 0, 0};
  switch (shape.collective) {
    case Collective::broadcast:
      return {0, shape.bytes(), true, 0, 0};
    case Collective::allgather:
      if (request.in_place) return {0, shape.bytes(), true, own_block, 0};
      break;
    case Collective::gather:
      if (request.in_place && is_root) return {0, shape.bytes(), true, own_block, 0};
      break;
    case Collective::reduce_scatter:
      if (request.in_place) return {0, shape.bytes(), true, 0, own_block};
      break;
    case Collective::scatter:
      if (request.in_place && is_root) return {0, shape.bytes(), true, 0, own_block};
      break;
    case Collective::reduce:
      if (request.in_place && is_root) return {0, shape.bytes(), true, 0, 0};
      break;
    default:
      if (request.in_place) return {0, shape.bytes(), true, 0, 0};
      break;
  }
  return layout;
}

bench::CallBuffers buffers_of(const Layout& layout, unsigned char* input, unsigned char* output) {
  bench::CallBuffers buffers;
  if (layout.is_one_piece) input = output;
  // Ranks without an input or output pass null, as a program would.
  buffers.input = layout.is_one_piece || layout.input_bytes > 0 ? input + layout.input_offset : nullptr;
  buffers.output = layout.output_bytes > 0 ? output + layout.output_offset : nullptr;
  buffers.output_memory = {output, layout.output_bytes};
  return buffers;
}

Reduction reduction_of(const bench::Request& request) {
  if (request.op != Op::premul_sum) return request.op;
  return class_of(request.shape.dtype) == DtypeClass::integer
             ? Reduction::premul_sum_integer(kPremulFactor)
             : Reduction::premul_sum(static_cast<double>(kPremulFactor));
}

}  // namespace

TuttiLibrary::TuttiLibrary(const CommGroup& group, Allocation allocation, std::string forced_algorithm,
                           GpuMemory* gpu)
    : group_(group), allocation_(allocation), forced_algorithm_(std::move(forced_algorithm)), gpu_(gpu) {
  name = "tutti";
}

std::shared_ptr<void> TuttiLibrary::allocate(std::size_t bytes, bench::Pages pages) const {
  if (bytes == 0) return nullptr;
  if (gpu_ != nullptr) return gpu_->allocate(bytes);
  if (allocation_ == Allocation::tutti_heap) {
    return {alloc(group_, bytes), [this](void* memory) { free(group_, memory); }};
  }
  const auto buffer = std::make_shared<bench::Buffer>(bytes, pages);
  return {buffer, buffer->data()};
}

bench::CallBuffers TuttiLibrary::make_buffers(const bench::Request& request, int rank) const {
  const Layout layout = lay_out(request, rank);
  const std::shared_ptr<void> input =
      layout.is_one_piece ? nullptr : allocate(layout.input_bytes, request.pages);
  const std::shared_ptr<void> output = allocate(layout.output_bytes, request.pages);
  bench::CallBuffers buffers =
      buffers_of(layout, static_cast<unsigned char*>(input.get()), static_cast<unsigned char*>(output.get()));
  buffers.keepers = {input, output};
  return buffers;
}

std::vector<bench::CheckedCall> TuttiLibrary::prepare_all(std::span<const bench::Request> requests, int rank,
                                                          std::shared_ptr<void>* keeper) {
  if (requests.size() == 1) return PeerLibrary::prepare_all(requests, rank, keeper);
  constexpr std::size_t kLine = 64;
  const auto rounded = [](std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; };
  // All inputs first, then all outputs.
  std::size_t input_total = 0, output_total = 0;
  for (const bench::Request& request : requests) {
    const Layout layout = lay_out(request, rank);
    input_total += layout.is_one_piece ? 0 : rounded(layout.input_bytes);
    output_total += rounded(layout.output_bytes);
  }
  *keeper = allocate(input_total + output_total, requests.front().pages);
  auto* input = static_cast<unsigned char*>(keeper->get());
  unsigned char* output = input + input_total;
  std::vector<bench::CheckedCall> calls;
  for (const bench::Request& request : requests) {
    const Layout layout = lay_out(request, rank);
    const bench::CallBuffers buffers = buffers_of(layout, input, output);
    calls.push_back(call_of(request, buffers));
    input += layout.is_one_piece ? 0 : rounded(layout.input_bytes);
    output += rounded(layout.output_bytes);
  }
  return calls;
}

CallOptions TuttiLibrary::options_of(const bench::Request& request) const {
  CallOptions how;
  how.algorithm = request.algorithm.empty() ? forced_algorithm_ : request.algorithm;
  if (gpu_ == nullptr) return how;
  how.memory = Memory::device;
  how.cuda_stream = gpu_->stream();
  return how;
}

std::function<void()> TuttiLibrary::prepare(const bench::Request& request,
                                            const bench::CallBuffers& buffers) {
  std::function<void()> call = call_on(request, buffers);
  if (gpu_ == nullptr) return call;
  const std::size_t bytes =
      buffers.output_memory.size() + request.shape.input_count(group_.rank()) * size_of(request.shape.dtype);
  return [call = std::move(call), bytes, this] {
    call();
    gpu_->note_call(bytes);
  };
}

std::function<void()> TuttiLibrary::call_on(const bench::Request& request,
                                            const bench::CallBuffers& buffers) const {
  const CommGroup& g = group_;
  const Dtype d = request.shape.dtype;
  const std::size_t n = bench::call_count(request.shape);
  const int root = request.shape.root;
  const Reduction op = reduction_of(request);
  const CallOptions how = options_of(request);
  const void* const in = buffers.input;
  void* const out = buffers.output;
  switch (request.shape.collective) {
    case Collective::allreduce:
      return [=, &g] { g.allreduce(in, out, n, d, op, how); };
    case Collective::broadcast:
      return [=, &g] { g.broadcast(out, n, d, root, how); };
    case Collective::reduce:
      return [=, &g] { g.reduce(in, out, n, d, op, root, how); };
    case Collective::allgather:
      return [=, &g] { g.allgather(in, out, n, d, how); };
    case Collective::reduce_scatter:
      return [=, &g] { g.reduce_scatter(in, out, n, d, op, how); };
    case Collective::alltoall:
      return [=, &g] { g.alltoall(in, out, n, d, how); };
    case Collective::gather:
      return [=, &g] { g.gather(in, out, n, d, root, how); };
    case Collective::scatter:
      return [=, &g] { g.scatter(in, out, n, d, root, how); };
    case Collective::barrier:
      return [=, &g] { g.barrier(how); };
    case Collective::scan:
      return [=, &g] { g.scan(in, out, n, d, op, how); };
    case Collective::exscan:
      return [=, &g] { g.exscan(in, out, n, d, op, how); };
    case Collective::send_recv:
      break;
  }
  throw std::invalid_argument(fmt::format("{} is not measured", to_string(request.shape.collective)));
}

bench::SubmittedCall TuttiLibrary::prepare_submitted(const bench::Request& request,
                                                     const bench::CallBuffers& buffers) {
  if (request.shape.collective != Collective::allreduce)
    throw std::invalid_argument("submitted calls are measured for allreduce only");
  const CommGroup& g = group_;
  const Dtype d = request.shape.dtype;
  const std::size_t n = bench::call_count(request.shape);
  const Reduction op = reduction_of(request);
  const CallOptions how{forced_algorithm_};
  const void* const in = buffers.input;
  void* const out = buffers.output;
  const auto work = std::make_shared<Work>();
  return {[=, &g] { *work = g.iallreduce(in, out, n, d, op, how); },
          [=] {
            work->wait();
            *work = {};
          }};
}

// The row of the catalogue: the forced item without its parameters, or what the group would choose.
std::string TuttiLibrary::algorithm_of(const bench::Request& request) const {
  if (gpu_ != nullptr) return engine_of_last_call();
  const std::string& forced = request.algorithm.empty() ? forced_algorithm_ : request.algorithm;
  std::string text = forced;
  if (text.empty()) {
    text = group_.explain_algorithm(request.shape.collective, bench::call_count(request.shape),
                                    request.shape.dtype, reduction_of(request));
  }
  // Buffers of the heap are shared on all ranks alike.
  constexpr std::string_view kShared = "shared buffers: ";
  const std::size_t shared = text.find(kShared);
  if (allocation_ == Allocation::tutti_heap && shared != std::string::npos)
    text.erase(0, shared + kShared.size());
  return text.substr(0, text.find_first_of("(): "));
}

// The device engine of the last call: "nccl", "one_shot", "staged", or "staged+ring" with its algorithm.
std::string TuttiLibrary::engine_of_last_call() const {
  const DeviceBackend::Route last = CommGroup::Impl::of(group_, "bench").device_calls()->backend().last();
  const std::string_view algorithm = last.algorithm.substr(0, last.algorithm.find('('));
  return algorithm.empty() ? std::string(last.engine) : fmt::format("{}+{}", last.engine, algorithm);
}

}  // namespace tutti::tool
