// tutti behind the interface that every library under test has, and a rendezvous made of its own operations.
// Knows the public interface of tutti, and looks behind it for the names of algorithms only.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/peers/peer_main.hpp"
#include "tools/cli/bench/gpu_memory.hpp"
#include "tools/cli/bench/options.hpp"
#include "tutti/tutti.hpp"

namespace tutti::tool {

class TuttiLibrary : public bench::PeerLibrary {
 public:
  // The group outlives this object, and so does `gpu`, where buffers are in its memory; null: in the host's.
  // Rank 0's words are what is reported.
  TuttiLibrary(const CommGroup& group, Allocation allocation, std::string forced_algorithm,
               GpuMemory* gpu = nullptr);

  // In place as tutti.hpp says, which for reduce_scatter is not MPI's way.
  bench::CallBuffers make_buffers(const bench::Request& request, int rank) const override;
  std::function<void()> prepare(const bench::Request& request, const bench::CallBuffers& buffers) override;
  bench::SubmittedCall prepare_submitted(const bench::Request& request,
                                         const bench::CallBuffers& buffers) override;
  std::string algorithm_of(const bench::Request& request) const override;
  bench::RemoteMemory* memory() const override { return gpu_; }

  // In one piece of memory, one call behind the other, as a framework's gradients lie.
  std::vector<bench::CheckedCall> prepare_all(std::span<const bench::Request> requests, int rank,
                                              std::shared_ptr<void>* keeper) override;

 private:
  std::shared_ptr<void> allocate(std::size_t bytes, bench::Pages pages) const;
  CallOptions options_of(const bench::Request& request) const;
  std::function<void()> call_on(const bench::Request& request, const bench::CallBuffers& buffers) const;
  std::string engine_of_last_call() const;

  const CommGroup& group_;
  Allocation allocation_;
  std::string forced_algorithm_;
  GpuMemory* gpu_;
};

// For ranks that share no memory page: the benchmark then meets through the library that it measures.
class GroupRendezvous {
 public:
  explicit GroupRendezvous(const CommGroup& group) : group_(group) {}
  int rank_count() const { return group_.size(); }
  void barrier() { group_.barrier(); }
  void gather(std::span<const double> mine, std::span<double> all) {
    group_.allgather(mine.data(), all.data(), mine.size(), Dtype::f64);
  }

 private:
  const CommGroup& group_;
};

}  // namespace tutti::tool
