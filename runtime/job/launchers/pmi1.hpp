// The PMI-1 protocol of Hydra (MPICH, Intel MPI) with the processes it starts: rank, node and a key-value
// space. Knows no bootstrap. An MPI library may use the same connection.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/config.hpp"
#include "runtime/job/launchers/piecewise_store.hpp"
#include "runtime/job/launchers/pmi_connection.hpp"
#include "runtime/job/launchers/session.hpp"

namespace tutti::detail {

// Values are seen after a fence. MPI_Init may come before or after. After MPI_Finalize the launcher has
// closed the connection, and every call reports that.
class Pmi1 final : public KeyValueSpace, public LauncherSession {
 public:
  // Of PMI_FD with PMI_RANK and PMI_SIZE, or of PMI_PORT with PMI_ID. Errors: invalid_argument, naming the
  // variable; timeout; peer_failed.
  static Result<std::shared_ptr<Pmi1>> open(const Environment& environment, Clock::time_point deadline);
  // The one session of this process.
  static Result<std::shared_ptr<Pmi1>> of_process(const Environment& environment, Clock::time_point deadline);
  ~Pmi1() override { finalize(); }

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& space_name() const { return space_name_; }           // unlike that of any other job
  const std::vector<int>& node_of_rank() const { return node_of_rank_; }  // empty: not given by the launcher

  Status put(const std::string& key, const std::string& value, Clock::time_point deadline) override;
  Result<std::optional<std::string>> find(const std::string& key, Clock::time_point deadline) override;
  Status fence(Clock::time_point deadline) override;
  std::size_t key_limit_bytes() const override { return key_limit_bytes_; }
  std::size_t value_limit_bytes() const override { return value_limit_bytes_; }
  std::string describe() const override;
  void finalize() override { connection_.finalize("cmd=finalize"); }

 private:
  explicit Pmi1(LauncherSocket socket) : connection_(std::move(socket)) {}
  Status introduce(const std::string& id, Clock::time_point deadline);
  Status ask_names(Clock::time_point deadline);

  PmiConnection connection_;
  int rank_ = 0, size_ = 1;
  std::string space_name_;
  std::size_t key_limit_bytes_ = 0, value_limit_bytes_ = 0;
  std::vector<int> node_of_rank_;
};

}  // namespace tutti::detail
