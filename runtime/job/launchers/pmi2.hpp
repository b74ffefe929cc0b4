// The PMI-2 protocol of Slurm with the processes of srun --mpi=pmi2: rank, node and a key-value space. Knows
// no bootstrap. An MPI library cannot share the connection: Slurm accepts one initialisation.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/config.hpp"
#include "runtime/job/launchers/piecewise_store.hpp"
#include "runtime/job/launchers/pmi_connection.hpp"
#include "runtime/job/launchers/session.hpp"

namespace tutti::detail {

// Values are seen after a fence. Any thread.
class Pmi2 final : public KeyValueSpace, public LauncherSession {
 public:
  // Of PMI_FD with PMI_RANK and PMI_JOBID. Errors: invalid_argument, naming the variable; timeout;
  // peer_failed; unsupported where the launcher speaks another version.
  static Result<std::shared_ptr<Pmi2>> open(const Environment& environment, Clock::time_point deadline);
  // The one session of this process.
  static Result<std::shared_ptr<Pmi2>> of_process(const Environment& environment, Clock::time_point deadline);
  ~Pmi2() override { finalize(); }

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& space_name() const { return job_; }                  // unlike that of any other job
  const std::vector<int>& node_of_rank() const { return node_of_rank_; }  // empty: not given by the launcher

  Status put(const std::string& key, const std::string& value, Clock::time_point deadline) override;
  Result<std::optional<std::string>> find(const std::string& key, Clock::time_point deadline) override;
  Status fence(Clock::time_point deadline) override;
  // Fixed by the protocol, with the zero byte at the end.
  std::size_t key_limit_bytes() const override { return 63; }
  std::size_t value_limit_bytes() const override { return 1023; }
  std::string describe() const override;
  void finalize() override;

 private:
  explicit Pmi2(LauncherSocket socket) : connection_(std::move(socket)) {}
  Status introduce(const std::string& rank, const std::string& job, Clock::time_point deadline);

  PmiConnection connection_;
  int rank_ = 0, size_ = 1;
  std::string job_;
  std::vector<int> node_of_rank_;
};

}  // namespace tutti::detail
