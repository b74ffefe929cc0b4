// The ranks of one communicator: how they meet, and what they move and reduce when all have come.
// Knows no stream and no handle; the functions here run on the threads of streams.
#pragma once

#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace nccl_stand_in {

enum class Kind : std::uint8_t {
  allreduce,
  broadcast,
  reduce,
  allgather,
  reduce_scatter,
  alltoall,
  gather,
  scatter,
  send,
  receive
};

// A reduction operation as ncclRedOpCreatePreMulSum makes it, or a built-in one.
struct Reduction {
  ncclRedOp_t op = ncclSum;
  bool is_scaled = false;
  double scalar = 1;
  std::int64_t integer_scalar = 1;
};

// The call of one rank; `root` is also the peer of a message.
struct Request {
  Kind kind = Kind::allreduce;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclInt8;
  Reduction reduction;
  int root = 0;
};

// Ends every wait of one rank: its communicator was aborted.
using Aborted = std::atomic<bool>;

class Clique {
 public:
  explicit Clique(int size) : devices_(static_cast<std::size_t>(size), -1) {}
  int size() const { return static_cast<int>(devices_.size()); }

  // A rank with its device has come.
  void join(int rank, int device);
  bool is_complete();
  // Do two of those that have come share a device?
  bool has_duplicates();

  // Carries the requests of one group of calls out, in order; messages all at once. Returns when this rank's
  // part is done. False: aborted, or the ranks asked for different things.
  bool run(int rank, const std::vector<Request>& requests, const Aborted& aborted);
  void wake();

 private:
  struct Meeting {
    std::vector<const Request*> requests;
    int arrived = 0, left = 0;
    bool is_done = false;
    bool is_deserted = false;  // a rank was aborted while it waited: its buffers may be gone
  };
  struct Message {
    const Request* send;
    bool is_taken = false;
  };
  bool meet(int rank, const Request& request, const Aborted& aborted);
  bool exchange(int rank, const std::vector<const Request*>& messages, const Aborted& aborted);
  // Takes back what nobody has taken.
  void take_back(int rank, const std::vector<std::shared_ptr<Message>>& sent);
  template <class Condition>
  bool wait(std::unique_lock<std::mutex>& lock, const Aborted& aborted, Condition condition);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> devices_;
  std::map<int, std::uint64_t> turns_;  // by rank: how many collectives it has begun
  std::map<std::uint64_t, Meeting> meetings_;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> mail_;  // (from, to)
};

// By the project's serial reference, for the requests of all ranks; false if they disagree.
bool carry_out(const std::vector<const Request*>& requests);

}  // namespace nccl_stand_in
