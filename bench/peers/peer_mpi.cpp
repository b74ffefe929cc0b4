// The peer program of Open MPI, MPICH and Intel MPI: compiled once against each, it carries out the six
// collectives with MPI. Knows nothing of the loop, the statistics and the protocol (peer_main.hpp), and nothing of
// tutti's runtime.
#include <mpi.h>

#include <algorithm>
#include <climits>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "bench/peers/mpi_main.hpp"
#include "bench/peers/peer_main.hpp"

#ifndef TUTTI_PEER_LIBRARY
#error "define TUTTI_PEER_LIBRARY as the name of the library, in quotes"
#endif

namespace tutti::bench {
namespace {

MPI_Datatype mpi_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::i8:
      return MPI_INT8_T;
    case Dtype::u8:
      return MPI_UINT8_T;
    case Dtype::i16:
      return MPI_INT16_T;
    case Dtype::u16:
      return MPI_UINT16_T;
    case Dtype::i32:
      return MPI_INT32_T;
    case Dtype::u32:
      return MPI_UINT32_T;
    case Dtype::i64:
      return MPI_INT64_T;
    case Dtype::u64:
      return MPI_UINT64_T;
    case Dtype::f32:
      return MPI_FLOAT;
    case Dtype::f64:
      return MPI_DOUBLE;
    default:
      throw std::invalid_argument("MPI has no such dtype: " + std::string(to_string(dtype)));
  }
}

MPI_Op mpi_op(Op op) {
  switch (op) {
    case Op::sum:
      return MPI_SUM;
    case Op::prod:
      return MPI_PROD;
    case Op::min:
      return MPI_MIN;
    case Op::max:
      return MPI_MAX;
    default:
      throw std::invalid_argument("op not measured with MPI: " + std::string(to_string(op)));
  }
}

// Of "Open MPI v4.1.4, package: ..." or "MPICH Version:\t4.0.2\nMPICH Release date: ...": library and version,
// with one blank between words.
std::string first_words(std::string text) {
  text.erase(std::min(text.size(), text.find_first_of(",\n")));
  std::string words;
  for (const char c : text) {
    const bool is_blank = c == ' ' || c == '\t';
    if (!is_blank) {
      words += c;
    } else if (!words.empty() && words.back() != ' ') {
      words += ' ';
    }
  }
  return words;
}

class MpiLibrary final : public PeerLibrary {
 public:
  MpiLibrary() {
    name = TUTTI_PEER_LIBRARY;
    setting = "default";
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    version = first_words(std::string(text, static_cast<std::size_t>(length)));
  }

  std::function<void()> prepare(const Request& request, const CallBuffers& buffers) override {
    const MPI_Datatype type = mpi_type(request.shape.dtype);
    const MPI_Op op = mpi_op(request.op);
    if (request.shape.count > INT_MAX) throw std::invalid_argument("more elements than an int counts");
    const int count = static_cast<int>(request.shape.count);
    const int block = static_cast<int>(request.shape.block_count());
    const void* input = request.in_place ? MPI_IN_PLACE : buffers.input;
    void* output = buffers.output;
    const int root = request.shape.root;
    // Errors end the job: MPI_ERRORS_ARE_FATAL is the default of the standard.
    switch (request.shape.collective) {
      case Collective::allreduce:
        return [=] { MPI_Allreduce(input, output, count, type, op, MPI_COMM_WORLD); };
      case Collective::broadcast:
        return [=] { MPI_Bcast(output, count, type, root, MPI_COMM_WORLD); };
      case Collective::allgather:
        return [=] { MPI_Allgather(input, block, type, output, block, type, MPI_COMM_WORLD); };
      case Collective::reduce_scatter:
        return [=] { MPI_Reduce_scatter_block(input, output, block, type, op, MPI_COMM_WORLD); };
      case Collective::alltoall:
        return [=] { MPI_Alltoall(input, block, type, output, block, type, MPI_COMM_WORLD); };
      default:
        return [] { MPI_Barrier(MPI_COMM_WORLD); };
    }
  }

  SubmittedCall prepare_submitted(const Request& request, const CallBuffers& buffers) override {
    if (request.shape.collective != Collective::allreduce)
      throw std::invalid_argument("submitted calls are measured for allreduce only");
    const MPI_Datatype type = mpi_type(request.shape.dtype);
    const MPI_Op op = mpi_op(request.op);
    if (request.shape.count > INT_MAX) throw std::invalid_argument("more elements than an int counts");
    const int count = static_cast<int>(request.shape.count);
    const void* input = request.in_place ? MPI_IN_PLACE : buffers.input;
    void* output = buffers.output;
    const auto pending = std::make_shared<MPI_Request>(MPI_REQUEST_NULL);
    return {[=] { MPI_Iallreduce(input, output, count, type, op, MPI_COMM_WORLD, pending.get()); },
            [=] { MPI_Wait(pending.get(), MPI_STATUS_IGNORE); }};
  }
};

}  // namespace
}  // namespace tutti::bench

int main(int argc, char** argv) {
  return tutti::bench::run_under_mpi(TUTTI_PEER_LIBRARY, argc, argv, MPI_THREAD_SINGLE,
                                     [](int, int) { return tutti::bench::MpiLibrary(); });
}
