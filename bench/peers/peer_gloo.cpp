// The peer program of Gloo: forks its own ranks and carries out the six collectives over Gloo's TCP
// transport, on one host or across namespaces. Knows nothing of the loop, the statistics and the protocol
// (peer_main.hpp), and nothing of tutti's runtime.
#include <gloo/allgather.h>
#include <gloo/allgather_ring.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/barrier_all_to_one.h>
#include <gloo/broadcast.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bench/peers/forked_ranks.hpp"
#include "bench/peers/peer_main.hpp"

namespace tutti::bench {
namespace {

struct Options {
  ForkedRanks ranks;
  // Gloo's "synchronous, busy-polling" pairs: no I/O thread takes part. Only the older algorithm classes can
  // use them.
  bool is_polling = false;
};

// The op in the two forms that Gloo's two interfaces want.
struct Reduction {
  const gloo::ReductionFunction<float>* old_form;
  void (*new_form)(void*, const void*, const void*, size_t);
};

Reduction reduction_of(Op op) {
  using Function = gloo::ReductionFunction<float>;
  switch (op) {
    case Op::sum:
      return {Function::sum, &gloo::sum<float>};
    case Op::prod:
      return {Function::product, &gloo::product<float>};
    case Op::min:
      return {Function::min, &gloo::min<float>};
    case Op::max:
      return {Function::max, &gloo::max<float>};
    default:
      throw std::invalid_argument("op not measured with Gloo: " + std::string(to_string(op)));
  }
}

// The ranks' connections, made anew for every request. After many small messages the receive window of a
// connection can stay below a loopback segment; larger messages then wait tens of milliseconds for window
// updates, which tells nothing about Gloo.
std::shared_ptr<gloo::rendezvous::Context> connect(const Options& options, SharedPage& page,
                                                   const std::string& directory,
                                                   std::shared_ptr<gloo::transport::Device>& device) {
  // The files through which the ranks find each other exist only meanwhile.
  if (page.rank() == 0 && ::mkdir(directory.c_str(), 0700) != 0)
    throw std::runtime_error("cannot create " + directory);
  page.barrier();
  auto context = std::make_shared<gloo::rendezvous::Context>(page.rank(), options.ranks.count);
  gloo::rendezvous::FileStore store(directory);
  context->connectFullMesh(store, device);
  for (int peer = 0; options.is_polling && peer < options.ranks.count; ++peer) {
    if (peer != page.rank()) context->getPair(peer)->setSync(true, true);
  }
  page.barrier();
  std::error_code ignored;
  if (page.rank() == 0) std::filesystem::remove_all(directory, ignored);
  return context;
}

class GlooLibrary final : public PeerLibrary {
 public:
  GlooLibrary(const Options& options, SharedPage& page, std::string directory)
      : options_(options), page_(page), directory_(std::move(directory)), is_polling_(options.is_polling) {
    name = "gloo";
    setting = "default";
    transport = is_polling_ ? "tcp, polling" : "tcp";
    version = "Gloo " TUTTI_PEER_VERSION;
    const gloo::transport::tcp::attr attributes(options.ranks.address(page.rank()).c_str());
    device_ = gloo::transport::tcp::CreateDevice(attributes);
  }

  // Old algorithm classes carry the prefix old_; they exchange through buffers that they register once, here.
  std::function<void()> prepare(const Request& request, const CallBuffers& buffers) override {
    if (request.shape.dtype != Dtype::f32) throw std::invalid_argument("the Gloo program measures f32 only");
    if (request.shape.count > INT_MAX) throw std::invalid_argument("more elements than an int counts");
    const bool is_old = request.algorithm.substr(0, 4) == "old_";
    if (is_polling_ && !is_old) throw std::invalid_argument("polling works with Gloo's old_ algorithms only");
    const Call call{static_cast<float*>(buffers.input), static_cast<float*>(buffers.output),
                    static_cast<int>(request.shape.count), static_cast<int>(request.shape.block_count())};
    page_.barrier();  // nobody closes a connection that another rank still uses
    context_.reset();
    context_ = connect(options_, page_, directory_, device_);
    switch (request.shape.collective) {
      case Collective::allreduce:
        return is_old ? old_allreduce(request, call) : new_allreduce(request, call);
      case Collective::broadcast:
        return broadcast(request, call);
      case Collective::allgather:
        return allgather(request, call);
      case Collective::reduce_scatter:
        return reduce_scatter(request, call);
      case Collective::alltoall:
        return alltoall(request, call);
      default:
        return barrier(request);
    }
  }

 private:
  struct Call {
    float* input;
    float* output;
    int count;
    int block;
  };

  [[noreturn]] static void unknown_algorithm(const Request& request) {
    throw std::invalid_argument("Gloo has no such algorithm for " +
                                std::string(to_string(request.shape.collective)) + ": " + request.algorithm);
  }

  // The old classes work in place only, so out of place starts with a copy, as their users write it.
  std::function<void()> old_allreduce(const Request& request, const Call& call) {
    const auto* fn = reduction_of(request.op).old_form;
    const std::vector<float*> pointers{call.output};
    std::shared_ptr<gloo::Algorithm> algorithm;
    if (request.algorithm == "old_ring") {
      algorithm = std::make_shared<gloo::AllreduceRing<float>>(context_, pointers, call.count, fn);
    } else if (request.algorithm == "old_ring_chunked") {
      algorithm = std::make_shared<gloo::AllreduceRingChunked<float>>(context_, pointers, call.count, fn);
    } else if (request.algorithm == "old_halving_doubling") {
      algorithm = std::make_shared<gloo::AllreduceHalvingDoubling<float>>(context_, pointers, call.count, fn);
    } else if (request.algorithm == "old_bcube") {
      algorithm = std::make_shared<gloo::AllreduceBcube<float>>(context_, pointers, call.count, fn);
    } else {
      unknown_algorithm(request);
    }
    if (request.in_place) return [algorithm] { algorithm->run(); };
    return [algorithm, call] {
      std::memcpy(call.output, call.input, static_cast<std::size_t>(call.count) * sizeof(float));
      algorithm->run();
    };
  }

  std::function<void()> new_allreduce(const Request& request, const Call& call) {
    auto options = std::make_shared<gloo::AllreduceOptions>(context_);
    const auto count = static_cast<std::size_t>(call.count);
    if (!request.in_place) options->setInput(call.input, count);
    options->setOutput(call.output, count);
    options->setReduceFunction(reduction_of(request.op).new_form);
    if (request.algorithm == "bcube") {
      options->setAlgorithm(gloo::AllreduceOptions::Algorithm::BCUBE);
    } else if (request.algorithm == "ring" || request.algorithm.empty()) {
      options->setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    } else {
      unknown_algorithm(request);
    }
    return [options] { gloo::allreduce(*options); };
  }

  std::function<void()> broadcast(const Request& request, const Call& call) {
    if (request.algorithm == "old_one_to_all") {
      const std::vector<float*> pointers{call.output};
      auto algorithm = std::make_shared<gloo::BroadcastOneToAll<float>>(
          context_, pointers, static_cast<std::size_t>(call.count), request.shape.root);
      return [algorithm] { algorithm->run(); };
    }
    if (!request.algorithm.empty()) unknown_algorithm(request);
    auto options = std::make_shared<gloo::BroadcastOptions>(context_);
    options->setOutput(call.output, static_cast<std::size_t>(call.count));
    options->setRoot(request.shape.root);
    return [options] { gloo::broadcast(*options); };
  }

  std::function<void()> allgather(const Request& request, const Call& call) {
    if (request.algorithm == "old_ring") {
      const std::vector<const float*> pointers{call.input};
      auto algorithm =
          std::make_shared<gloo::AllgatherRing<float>>(context_, pointers, call.output, call.block);
      return [algorithm] { algorithm->run(); };
    }
    if (!request.algorithm.empty()) unknown_algorithm(request);
    auto options = std::make_shared<gloo::AllgatherOptions>(context_);
    if (!request.in_place) options->setInput(call.input, static_cast<std::size_t>(call.block));
    options->setOutput(call.output, static_cast<std::size_t>(call.count));
    return [options] { gloo::allgather(*options); };
  }

  // Works in place, result at the front; out of place pays for both copies, as its users do.
  std::function<void()> reduce_scatter(const Request& request, const Call& call) {
    if (!request.algorithm.empty() && request.algorithm != "old_halving_doubling") unknown_algorithm(request);
    const auto* fn = reduction_of(request.op).old_form;
    const std::vector<int> blocks(static_cast<std::size_t>(request.shape.ranks), call.block);
    auto make = [&](float* work) {
      return std::make_shared<gloo::ReduceScatterHalvingDoubling<float>>(context_, std::vector<float*>{work},
                                                                         call.count, blocks, fn);
    };
    if (request.in_place) {
      auto algorithm = make(call.output);
      return [algorithm] { algorithm->run(); };
    }
    auto work = std::make_shared<Buffer>(request.shape.bytes(), request.pages);
    auto* scratch = reinterpret_cast<float*>(work->data());
    auto algorithm = make(scratch);
    return [work, algorithm, scratch, call] {
      std::memcpy(scratch, call.input, static_cast<std::size_t>(call.count) * sizeof(float));
      algorithm->run();
      std::memcpy(call.output, scratch, static_cast<std::size_t>(call.block) * sizeof(float));
    };
  }

  std::function<void()> alltoall(const Request& request, const Call& call) {
    if (request.in_place) throw std::invalid_argument("Gloo has no alltoall in place");
    if (!request.algorithm.empty()) unknown_algorithm(request);
    auto options = std::make_shared<gloo::AlltoallOptions>(context_);
    options->setInput(call.input, static_cast<std::size_t>(call.count));
    options->setOutput(call.output, static_cast<std::size_t>(call.count));
    return [options] { gloo::alltoall(*options); };
  }

  std::function<void()> barrier(const Request& request) {
    if (request.algorithm == "old_all_to_one") {
      auto algorithm = std::make_shared<gloo::BarrierAllToOne>(context_);
      return [algorithm] { algorithm->run(); };
    }
    if (!request.algorithm.empty()) unknown_algorithm(request);
    auto options = std::make_shared<gloo::BarrierOptions>(context_);
    return [options] { gloo::barrier(*options); };
  }

  Options options_;
  SharedPage& page_;
  std::string directory_;
  bool is_polling_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
};

Options parse_options(int argc, char** argv, std::vector<std::string>& common) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (options.ranks.take(argument)) continue;
    if (argument == "--poll") {
      options.is_polling = true;
    } else {
      common.emplace_back(argument);
    }
  }
  return options;
}

// A path that no other program uses; only rank 0 creates and removes it.
std::string rendezvous_directory() {
  const char* base = std::getenv("TMPDIR");
  return std::string(base != nullptr && *base != '\0' ? base : "/tmp") + "/tutti_gloo_" +
         std::to_string(::getpid());
}

void run(int argc, char** argv) {
  std::vector<std::string> common;
  const Options options = parse_options(argc, argv, common);
  SharedPage first_page = SharedPage::create(options.ranks.count);
  const std::string directory = rendezvous_directory();
  const int rank = options.ranks.start();
  SharedPage page = first_page.with_rank(rank);
  // Gloo's I/O thread needs the processor on which a rank would otherwise spin for the others.
  page.set_wait(options.is_polling ? BarrierWait::spin : BarrierWait::block);
  {
    GlooLibrary library(options, page, directory);
    for (const std::string& argument : common) {
      if (!parse_common_argument(library, argument))
        throw std::invalid_argument("unknown argument: " + argument);
    }
    serve(library, page);
    if (rank == 0) options.ranks.expect_end();
    page.barrier();
  }
  std::cout.flush();
  options.ranks.end(rank);
}

}  // namespace
}  // namespace tutti::bench

int main(int argc, char** argv) {
  try {
    tutti::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "gloo: " << error.what() << std::endl;
    ::_exit(1);
  }
  return 0;
}
