// The table of process sets, and the functions by which tutti.horovod.tensorflow fills it. See process_sets.hpp.
#include "bindings/tensorflow/process_sets.hpp"

#include <utility>

#define TUTTI_FOR_PYTHON extern "C" __attribute__((visibility("default")))

namespace tutti::tensorflow {

ProcessSets& ProcessSets::instance() {
  static auto* const kSets = new ProcessSets;
  return *kSets;
}

void ProcessSets::begin_job(JobNumbers numbers) {
  const std::unique_lock lock(mutex_);
  job_ = numbers;
}

void ProcessSets::end_job() {
  const std::unique_lock lock(mutex_);
  job_ = {};
  sets_.clear();
}

void ProcessSets::add(int id, std::shared_ptr<ProcessSet> process_set) {
  const std::unique_lock lock(mutex_);
  sets_[id] = std::move(process_set);
}

void ProcessSets::remove(int id) {
  const std::unique_lock lock(mutex_);
  sets_.erase(id);
}

std::shared_ptr<ProcessSet> ProcessSets::find(int id) const {
  const std::shared_lock lock(mutex_);
  const auto found = sets_.find(id);
  return found == sets_.end() ? nullptr : found->second;
}

JobNumbers ProcessSets::job() const {
  const std::shared_lock lock(mutex_);
  return job_;
}

}  // namespace tutti::tensorflow

using namespace tutti::tensorflow;

TUTTI_FOR_PYTHON void tutti_tensorflow_begin_job(int local_rank, int local_size) {
  ProcessSets::instance().begin_job({true, local_rank, local_size});
}

TUTTI_FOR_PYTHON void tutti_tensorflow_end_job() { ProcessSets::instance().end_job(); }

// rank: this process's in the set, -1 where it is no member. queue: stays valid until the process ends.
TUTTI_FOR_PYTHON void tutti_tensorflow_add_process_set(int id, int rank, int size, void* queue) {
  ProcessSets::instance().add(
      id, std::make_shared<ProcessSet>(rank, size, static_cast<tutti_tensor_queue_t>(queue)));
}

TUTTI_FOR_PYTHON void tutti_tensorflow_remove_process_set(int id) { ProcessSets::instance().remove(id); }
