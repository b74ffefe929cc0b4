// Looks the numbers up in the table of process sets. See job_numbers.hpp.
#include "bindings/tensorflow/job_numbers.hpp"

#include <optional>

#include "bindings/tensorflow/process_sets.hpp"
#include "bindings/tensorflow/tensors.hpp"

namespace tutti::tensorflow {
namespace {

// Answers of is_included without a job or a set, as Horovod numbers them.
constexpr int kNoJob = -1;
constexpr int kUnknownSet = -2;

std::optional<int> find(Number number, int process_set, const JobNumbers& job) {
  if (number == Number::is_included && !job.is_running) return kNoJob;
  if (number == Number::local_rank) return job.local_rank;
  if (number == Number::local_size) return job.local_size;
  const std::shared_ptr<ProcessSet> set = ProcessSets::instance().find(process_set);
  if (number == Number::is_included) return set == nullptr ? kUnknownSet : set->rank >= 0 ? 1 : 0;
  if (set == nullptr) return std::nullopt;
  return number == Number::rank ? set->rank : set->size;
}

}  // namespace

Failure put_job_number(TF_OpKernelContext* context, Number number, int process_set) {
  const JobNumbers job = ProcessSets::instance().job();
  if (!job.is_running && number != Number::is_included) return not_initialized();
  const std::optional<int> value = find(number, process_set, job);
  if (!value) return unknown_process_set(process_set);
  return put_integers(context, 0, {}, {*value});
}

}  // namespace tutti::tensorflow
