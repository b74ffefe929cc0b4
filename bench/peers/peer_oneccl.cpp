// The peer program of oneCCL, for buffers in the host's memory: carries out the six collectives as ranks that
// Intel MPI's launcher started. Knows nothing of the loop, the statistics and the protocol (peer_main.hpp),
// and nothing of tutti's runtime.
#include <mpi.h>

#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include <oneapi/ccl.hpp>

#include "bench/peers/mpi_main.hpp"
#include "bench/peers/peer_main.hpp"

namespace tutti::bench {
namespace {

ccl::datatype ccl_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::i8:
      return ccl::datatype::int8;
    case Dtype::u8:
      return ccl::datatype::uint8;
    case Dtype::i16:
      return ccl::datatype::int16;
    case Dtype::u16:
      return ccl::datatype::uint16;
    case Dtype::i32:
      return ccl::datatype::int32;
    case Dtype::u32:
      return ccl::datatype::uint32;
    case Dtype::i64:
      return ccl::datatype::int64;
    case Dtype::u64:
      return ccl::datatype::uint64;
    case Dtype::f16:
      return ccl::datatype::float16;
    case Dtype::bf16:
      return ccl::datatype::bfloat16;
    case Dtype::f32:
      return ccl::datatype::float32;
    case Dtype::f64:
      return ccl::datatype::float64;
    default:
      throw std::invalid_argument("oneCCL has no such dtype: " + std::string(to_string(dtype)));
  }
}

ccl::reduction ccl_reduction(Op op) {
  switch (op) {
    case Op::sum:
      return ccl::reduction::sum;
    case Op::prod:
      return ccl::reduction::prod;
    case Op::min:
      return ccl::reduction::min;
    case Op::max:
      return ccl::reduction::max;
    default:
      throw std::invalid_argument("op not measured with oneCCL: " + std::string(to_string(op)));
  }
}

// MPI carries the address of rank 0's store, as oneCCL's examples do.
ccl::communicator make_communicator(int rank, int ranks) {
  ccl::kvs::address_type address{};
  ccl::shared_ptr_class<ccl::kvs> store;
  if (rank == 0) {
    store = ccl::create_main_kvs();
    address = store->get_address();
  }
  broadcast_from_first(address.data(), address.size());
  if (rank != 0) store = ccl::create_kvs(address);
  return ccl::create_communicator(ranks, rank, store);
}

class OneCclLibrary final : public PeerLibrary {
 public:
  OneCclLibrary(int rank, int ranks) : rank_(rank), communicator_(make_communicator(rank, ranks)) {
    name = "oneccl";
    setting = "default";
    const ccl::library_version found = ccl::get_library_version();
    version = "oneCCL " + std::to_string(found.major) + "." + std::to_string(found.minor) + "." +
              std::to_string(found.update);
  }

  std::function<void()> prepare(const Request& request, const CallBuffers& buffers) override {
    SubmittedCall parts = submitted(request, buffers);
    return [parts = std::move(parts)] {
      parts.submit();
      parts.wait();
    };
  }

  SubmittedCall prepare_submitted(const Request& request, const CallBuffers& buffers) override {
    if (request.shape.collective != Collective::allreduce)
      throw std::invalid_argument("submitted calls are measured for allreduce only");
    return submitted(request, buffers);
  }

 private:
  SubmittedCall submitted(const Request& request, const CallBuffers& buffers) {
    const auto pending = std::make_shared<ccl::event>();
    const std::size_t block_bytes = request.shape.block_count() * size_of(request.shape.dtype);
    if (request.shape.collective == Collective::reduce_scatter && request.in_place) {
      // oneCCL leaves the result in this rank's block; the harness, as MPI, wants it at the front.
      auto* const own =
          static_cast<unsigned char*>(buffers.output) + static_cast<std::size_t>(rank_) * block_bytes;
      return {[=, call = call_of_library(request, buffers.input, own)] { *pending = call(); },
              [=, output = buffers.output] {
                pending->wait();
                if (own != output) std::memcpy(output, own, block_bytes);
              }};
    }
    return {[=, call = call_of_library(request, buffers.input, buffers.output)] { *pending = call(); },
            [=] { pending->wait(); }};
  }

  std::function<ccl::event()> call_of_library(const Request& request, void* input, void* output) {
    const ccl::datatype type = ccl_type(request.shape.dtype);
    const ccl::reduction op = ccl_reduction(request.op);
    const std::size_t count = request.shape.count;
    const std::size_t block = request.shape.block_count();
    const int root = request.shape.root;
    ccl::communicator& ranks = communicator_;
    switch (request.shape.collective) {
      case Collective::allreduce:
        return [=, &ranks] { return ccl::allreduce(input, output, count, type, op, ranks); };
      case Collective::broadcast:
        return [=, &ranks] { return ccl::broadcast(output, count, type, root, ranks); };
      case Collective::allgather:
        return [=, &ranks] { return ccl::allgather(input, output, block, type, ranks); };
      case Collective::reduce_scatter:
        return [=, &ranks] { return ccl::reduce_scatter(input, output, block, type, op, ranks); };
      case Collective::alltoall:
        if (request.in_place) throw std::invalid_argument("oneCCL has no alltoall in place");
        return [=, &ranks] { return ccl::alltoall(input, output, block, type, ranks); };
      default:
        return [&ranks] { return ccl::barrier(ranks); };
    }
  }

  int rank_;
  ccl::communicator communicator_;
};

}  // namespace
}  // namespace tutti::bench

int main(int argc, char** argv) {
  // The level that oneCCL asks for.
  return tutti::bench::run_under_mpi("oneccl", argc, argv, MPI_THREAD_MULTIPLE, [](int rank, int ranks) {
    ccl::init();
    return tutti::bench::OneCclLibrary(rank, ranks);
  });
}
