// The process's part in the job, as the Python package tells it: its process sets and the queue of each. Knows no TensorFlow.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "tutti/c_types.h"

namespace tutti::tensorflow {

enum class Kind { allreduce, allgather, broadcast, reducescatter, alltoall, join, barrier };
constexpr std::size_t kKindCount = 7;

struct ProcessSet {
  ProcessSet(int rank_here, int rank_count, tutti_tensor_queue_t tensors)
      : rank(rank_here), size(rank_count), queue(tensors) {}

  const int rank;  // -1: this process is no member
  const int size;
  const tutti_tensor_queue_t queue;  // null for a process that is no member; the Python package keeps it
  std::atomic<int> under_way = 0;    // operations
  // Operations without a name, by kind; see Kernel::name_of.
  std::array<std::atomic<std::uint32_t>, kKindCount> unnamed{};
};

struct JobNumbers {
  bool is_running = false;
  int local_rank = 0;
  int local_size = 0;
};

class ProcessSets {
 public:
  // Never destroyed: threads of TensorFlow may run operations while the process ends.
  static ProcessSets& instance();

  void begin_job(JobNumbers numbers);
  void end_job();
  void add(int id, std::shared_ptr<ProcessSet> process_set);
  // Operations under way keep the ProcessSet.
  void remove(int id);

  JobNumbers job() const;
  // Null for an unknown one. A queue that has ended refuses what is submitted.
  std::shared_ptr<ProcessSet> find(int id) const;
  // Held while the tensors of a group are submitted. Recursive: a call that submits may complete another operation, and TensorFlow goes
  // on in that call, maybe with a group of another set. So all sets share it: two threads would else wait for each other's set.
  std::recursive_mutex& submitting_group() { return submitting_group_; }

 private:
  mutable std::shared_mutex mutex_;
  JobNumbers job_;
  std::map<int, std::shared_ptr<ProcessSet>> sets_;
  std::recursive_mutex submitting_group_;
};

}  // namespace tutti::tensorflow
