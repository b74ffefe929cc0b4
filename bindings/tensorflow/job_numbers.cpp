// Looks the numbers up in the table of process sets. See job_numbers.hpp.
#include "bindings/tensorflow/job_numbers.hpp"

#include <optional>
#include <string>

#include "bindings/tensorflow/process_sets.hpp"

namespace tutti::tensorflow {
namespace {

// Answers of is_included without a job or a set, as Horovod numbers them.
constexpr int kNoJob = -1;
constexpr int kUnknownSet = -2;

std::optional<int> find(Number number, int process_set, const JobNumbers& job) {
  if (number == Number::is_included && !job.is_running) return kNoJob;
  if (number == Number::local_rank) return job.local_rank;
  if (number == Number::local_size) return job.local_size;
  return ProcessSets::instance().with(process_set,
                                      [&](const std::shared_ptr<ProcessSet>& set) -> std::optional<int> {
                                        if (number == Number::is_included)
                                          return set == nullptr ? kUnknownSet : set->rank >= 0 ? 1 : 0;
                                        if (set == nullptr) return std::nullopt;
                                        return number == Number::rank ? set->rank : set->size;
                                      });
}

}  // namespace

Failure put_job_number(TF_OpKernelContext* context, Number number, int process_set) {
  const JobNumbers job = ProcessSets::instance().job();
  if (!job.is_running && number != Number::is_included) {
    return {TF_FAILED_PRECONDITION, "Horovod has not been initialized; use hvd.init()."};
  }
  const std::optional<int> value = find(number, process_set, job);
  if (!value)
    return {TF_INVALID_ARGUMENT, "process set " + std::to_string(process_set) + " is not registered"};
  Status status;
  TF_Tensor* tensor = TF_AllocateOutput(context, 0, TF_INT32, nullptr, 0, sizeof(std::int32_t), status);
  if (!status.is_ok()) return {TF_RESOURCE_EXHAUSTED, status.message()};
  *static_cast<std::int32_t*>(TF_TensorData(tensor)) = *value;
  TF_DeleteTensor(tensor);
  return {};
}

}  // namespace tutti::tensorflow
