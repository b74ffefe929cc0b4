// The NCCL calls of each collective: its own where NCCL has one, else grouped sends and receives.
#include "backends/nccl/issue.hpp"

#include <algorithm>
#include <vector>

#include "backends/cuda/driver.hpp"
#include "backends/cuda/memory.hpp"
#include "backends/nccl/mapping.hpp"

namespace tutti::nccl {
namespace {

// The blocks of a vector, in bytes from its start.
class Blocks {
 public:
  Blocks(std::uint64_t count, std::span<const std::uint64_t> counts,
         std::span<const std::uint64_t> displacements, std::size_t element_bytes)
      : block_bytes_(count * element_bytes),
        counts_(counts),
        displacements_(displacements),
        element_bytes_(element_bytes) {
    if (counts_.empty() || !displacements_.empty()) return;
    std::uint64_t start = 0;
    for (const std::uint64_t one : counts_) {
      starts_.push_back(start);
      start += one;
    }
    displacements_ = starts_;
  }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  std::size_t bytes(std::size_t block) const {
    return counts_.empty() ? block_bytes_ : counts_[block] * element_bytes_;
  }
  std::size_t offset(std::size_t block) const {
    return counts_.empty() ? block * block_bytes_ : displacements_[block] * element_bytes_;
  }
  std::uint64_t count(std::size_t block) const { return bytes(block) / element_bytes_; }

 private:
  std::size_t block_bytes_;
  std::span<const std::uint64_t> counts_, displacements_;
  std::vector<std::uint64_t> starts_;
  std::size_t element_bytes_;
};

// A block that goes to a rank or comes from one.
struct Piece {
  std::size_t rank;
  void* data;
  std::size_t bytes;
};

void* at(const void* base, std::size_t offset) {
  return const_cast<std::byte*>(static_cast<const std::byte*>(base) + offset);
}

// Moves send elements as bytes, whatever their dtype.
constexpr ncclDataType_t kBytes = ncclInt8;

class Issue {
 public:
  Issue(Communicator& communicator, const Call& call, const NcclReduction& reduction, void* scratch)
      : communicator_(communicator),
        nccl_(communicator.library()),
        call_(call),
        reduction_(reduction),
        scratch_(scratch),
        stream_(static_cast<CUstream>(call.stream)),
        rank_(static_cast<std::size_t>(communicator.rank())),
        size_(static_cast<std::size_t>(communicator.size())),
        element_bytes_(element_bytes(call)),
        input_blocks_(call.count, call.counts, call.displacements, element_bytes_),
        output_blocks_(
            call.count, call.collective == Collective::alltoall ? call.output_counts : call.counts,
            call.collective == Collective::alltoall ? call.output_displacements : call.displacements,
            element_bytes_) {}

  Status put() {
    switch (call_.collective) {
      case Collective::allreduce:
      case Collective::reduce:
      case Collective::reduce_scatter:
        return reduction();
      case Collective::broadcast:
        return one("ncclBroadcast", [&](ncclComm_t c) {
          return nccl_.ncclBroadcast(call_.input, call_.output, total_bytes(), kBytes, root(), c, stream_);
        });
      case Collective::allgather:
        return allgather();
      case Collective::gather:
        return gather();
      case Collective::scatter:
        return scatter();
      case Collective::alltoall:
        return alltoall();
      case Collective::barrier:
        return one("ncclAllReduce", [&](ncclComm_t c) {
          return nccl_.ncclAllReduce(scratch_, scratch_, 1, ncclInt8, ncclSum, c, stream_);
        });
      case Collective::send_recv:
        return message();
      case Collective::scan:
      case Collective::exscan:
        break;
    }
    return internal_error("a call that NCCL was found not to have");
  }

 private:
  using Function = std::function<ncclResult_t(ncclComm_t)>;
  Status one(std::string_view what, const Function& function) { return communicator_.call(what, function); }
  // Several calls that progress together. The group is ended also where a call in it fails.
  Status grouped(std::string_view what, const Function& function) {
    return communicator_.call(what, [&](ncclComm_t c) {
      if (const ncclResult_t begun = nccl_.ncclGroupStart(); begun != ncclSuccess) return begun;
      const ncclResult_t result = function(c);
      const ncclResult_t ended = nccl_.ncclGroupEnd();
      return result == ncclSuccess || result == ncclInProgress ? ended : result;
    });
  }
  int root() const { return static_cast<int>(call_.root); }
  bool is_root() const { return call_.root == rank_; }
  std::size_t total_bytes() const { return call_.count * element_bytes_; }

  // -- reductions
  Status reduction() {
    ncclRedOp_t used = reduction_.op;
    const bool is_scaled = call_.op.op == Op::premul_sum;
    if (is_scaled) {
      Scalar scalar = scalar_of(call_.op, call_.dtype);
      TUTTI_RETURN_IF_ERROR(one("ncclRedOpCreatePreMulSum", [&](ncclComm_t c) {
        return nccl_.ncclRedOpCreatePreMulSum(&used, scalar.bytes, reduction_.type, ncclScalarHostImmediate,
                                              c);
      }));
    }
    Status status = reduce_with(reduction_.type, used);
    if (!is_scaled) return status;
    // Enqueued calls keep their operation.
    const Status destroyed =
        one("ncclRedOpDestroy", [&](ncclComm_t c) { return nccl_.ncclRedOpDestroy(used, c); });
    return status ? destroyed : status;
  }

  Status reduce_with(ncclDataType_t type, ncclRedOp_t op) {
    if (call_.collective == Collective::allreduce) {
      return one("ncclAllReduce", [&](ncclComm_t c) {
        return nccl_.ncclAllReduce(call_.input, call_.output, call_.count, type, op, c, stream_);
      });
    }
    if (call_.collective == Collective::reduce) {
      return one("ncclReduce", [&](ncclComm_t c) {
        return nccl_.ncclReduce(call_.input, call_.output, call_.count, type, op, root(), c, stream_);
      });
    }
    // In place, the output is this rank's block of the input.
    void* const output = call_.in_place ? at(call_.input, input_blocks_.offset(rank_)) : call_.output;
    if (call_.counts.empty()) {
      return one("ncclReduceScatter", [&](ncclComm_t c) {
        return nccl_.ncclReduceScatter(call_.input, output, call_.count, type, op, c, stream_);
      });
    }
    return grouped("ncclReduce of each block", [&](ncclComm_t c) {
      ncclResult_t result = ncclSuccess;
      for (std::size_t block = 0; block < size_ && result == ncclSuccess; ++block) {
        if (input_blocks_.count(block) == 0) continue;
        result =
            nccl_.ncclReduce(at(call_.input, input_blocks_.offset(block)), block == rank_ ? output : nullptr,
                             input_blocks_.count(block), type, op, static_cast<int>(block), c, stream_);
      }
      return result;
    });
  }

  // -- moves
  Status allgather() {
    void* const mine = own_contribution();
    if (call_.counts.empty()) {
      return one("ncclAllGather", [&](ncclComm_t c) {
        return nccl_.ncclAllGather(mine, call_.output, total_bytes(), kBytes, c, stream_);
      });
    }
    for (std::size_t peer = 0; peer < size_; ++peer) {
      send(peer, mine, output_blocks_.bytes(rank_));
      receive_block(peer);
    }
    return exchange();
  }

  Status gather() {
    void* const mine = own_contribution();
    if (call_.counts.empty() && nccl_.gather != nullptr) {
      return one("ncclGather", [&](ncclComm_t c) {
        return nccl_.gather(mine, call_.output, total_bytes(), kBytes, root(), c, stream_);
      });
    }
    send(call_.root, mine, output_blocks_.bytes(rank_));
    for (std::size_t peer = 0; is_root() && peer < size_; ++peer) receive_block(peer);
    return exchange();
  }

  Status scatter() {
    // In place (at the root), the output is the root's block of the input.
    void* const output =
        call_.in_place && is_root() ? at(call_.input, input_blocks_.offset(rank_)) : call_.output;
    if (call_.counts.empty() && nccl_.scatter != nullptr) {
      return one("ncclScatter", [&](ncclComm_t c) {
        return nccl_.scatter(call_.input, output, total_bytes(), kBytes, root(), c, stream_);
      });
    }
    for (std::size_t peer = 0; is_root() && peer < size_; ++peer) send_block(call_.input, peer);
    receive(call_.root, output, input_blocks_.bytes(rank_));
    return exchange();
  }

  Status alltoall() {
    const void* input = call_.input;
    if (call_.in_place) {
      const std::size_t bytes =
          scratch_bytes(call_, static_cast<std::uint32_t>(rank_), static_cast<std::uint32_t>(size_));
      if (bytes > 0) TUTTI_RETURN_IF_ERROR(cuda::copy_async(scratch_, call_.output, bytes, stream_));
      input = scratch_;
    }
    if (call_.counts.empty() && nccl_.alltoall != nullptr) {
      return one("ncclAlltoAll", [&](ncclComm_t c) {
        return nccl_.alltoall(input, call_.output, total_bytes(), kBytes, c, stream_);
      });
    }
    for (std::size_t peer = 0; peer < size_; ++peer) {
      send_block(input, peer);
      receive_block(peer);
    }
    return exchange();
  }

  Status message() {
    return one(call_.is_send ? "ncclSend" : "ncclRecv", [&](ncclComm_t c) {
      return call_.is_send ? nccl_.ncclSend(call_.input, total_bytes(), kBytes, root(), c, stream_)
                           : nccl_.ncclRecv(call_.output, total_bytes(), kBytes, root(), c, stream_);
    });
  }

  void* own_contribution() const {
    const bool is_inside = call_.in_place && (call_.collective == Collective::allgather || is_root());
    return is_inside ? at(call_.output, output_blocks_.offset(rank_)) : const_cast<void*>(call_.input);
  }
  void send(std::size_t peer, void* data, std::size_t bytes) { sends_.push_back({peer, data, bytes}); }
  void receive(std::size_t peer, void* data, std::size_t bytes) { receives_.push_back({peer, data, bytes}); }
  void send_block(const void* base, std::size_t peer) {
    send(peer, at(base, input_blocks_.offset(peer)), input_blocks_.bytes(peer));
  }
  void receive_block(std::size_t peer) {
    receive(peer, at(call_.output, output_blocks_.offset(peer)), output_blocks_.bytes(peer));
  }

  // Copies the own block and exchanges the others in one group of calls. Both sides skip empty blocks.
  Status exchange() {
    TUTTI_RETURN_IF_ERROR(copy_own_block());
    const auto is_skipped = [this](const Piece& piece) { return piece.rank == rank_ || piece.bytes == 0; };
    std::erase_if(sends_, is_skipped);
    std::erase_if(receives_, is_skipped);
    if (sends_.empty() && receives_.empty()) return {};
    return grouped("grouped ncclSend and ncclRecv", [&](ncclComm_t c) {
      ncclResult_t result = ncclSuccess;
      for (const Piece& piece : sends_) {
        if (result != ncclSuccess) break;
        result = nccl_.ncclSend(piece.data, piece.bytes, kBytes, static_cast<int>(piece.rank), c, stream_);
      }
      for (const Piece& piece : receives_) {
        if (result != ncclSuccess) break;
        result = nccl_.ncclRecv(piece.data, piece.bytes, kBytes, static_cast<int>(piece.rank), c, stream_);
      }
      return result;
    });
  }

  Status copy_own_block() const {
    const auto is_own = [this](const Piece& piece) { return piece.rank == rank_; };
    const auto from = std::find_if(sends_.begin(), sends_.end(), is_own);
    const auto to = std::find_if(receives_.begin(), receives_.end(), is_own);
    if (from == sends_.end() || to == receives_.end()) return {};
    if (from->data == to->data || from->bytes == 0) return {};
    return cuda::copy_async(to->data, from->data, from->bytes, stream_);
  }

  Communicator& communicator_;
  const Library& nccl_;
  const Call& call_;
  const NcclReduction& reduction_;
  void* const scratch_;
  const CUstream stream_;
  const std::size_t rank_, size_, element_bytes_;
  const Blocks input_blocks_, output_blocks_;
  std::vector<Piece> sends_, receives_;
};

}  // namespace

Status issue(Communicator& communicator, const Call& call, const NcclReduction& reduction, void* scratch) {
  return Issue(communicator, call, reduction, scratch).put();
}

std::size_t scratch_bytes(const Call& call, std::uint32_t rank, std::uint32_t size) {
  if (call.collective == Collective::barrier) return 1;
  if (call.collective != Collective::alltoall || !call.in_place) return 0;
  // Checked calls have no more bytes than there can be.
  return static_cast<std::size_t>(input_extent(call, rank, size).bytes(element_bytes(call)).value_or(0));
}

}  // namespace tutti::nccl
