// This process's part in the job: its groups, requests, memory and settings.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "bindings/mlsl/distribution.hpp"
#include "bindings/mlsl/include/mlsl.hpp"
#include "bindings/mlsl/requests.hpp"
#include "bindings/mlsl/settings.hpp"
#include "tutti/tutti.hpp"

namespace tutti::mlsl {

class Quantizer;

class EnvironmentImpl : public MLSL::Environment {
 public:
  bool is_initialized() const { return global_.is_open(); }
  const Settings& settings() const { return settings_; }
  const CommGroup& global() const { return global_; }
  // 0 before the start.
  int rank() const { return rank_; }
  // Errors: ends the job if Init was not called.
  void require_initialized(const char* call) const;

  void start(int* argc, char*** argv);
  // Waits for requests under way.
  void leave();
  void configure(const std::string& config);
  // Fails the group, so that others do not wait for this rank.
  void abandon(const std::string& why) noexcept;
  DistributionImpl* make_distribution(const std::vector<Colors>& colors);

  // Null before SetQuantizationParams.
  std::shared_ptr<const Quantizer> quantizer() const { return quantizer_; }
  MLSL::QuantParams* quantization_params() const;
  void load_quantizer(const MLSL::QuantParams& params);

  // Keys are never used again: a program may still ask for a request that was released.
  MLSL::CommReq* keep(std::unique_ptr<Request> request);
  // Both release a complete request. One that is not known was released before.
  void wait(MLSL::CommReq* key);
  bool test(MLSL::CommReq* key);

  // Memory that other ranks of the node can map, a multiple of `alignment`. It may outlive the job.
  std::shared_ptr<void> allocate_owned(std::size_t bytes);
  void* allocate(std::size_t bytes, std::size_t alignment);
  void release(void* memory);

 private:
  std::unique_ptr<Request> take(MLSL::CommReq* key);

  Settings settings_;
  CommGroup world_, global_;
  std::optional<std::string> early_config_;
  int rank_ = 0;
  pid_t owner_ = 0;
  bool ends_mpi_ = false;
  std::shared_ptr<Quantizer> quantizer_;
  std::mutex mutex_;  // of the following
  std::uintptr_t last_key_ = 0;
  std::unordered_map<MLSL::CommReq*, std::unique_ptr<Request>> requests_;
  std::unordered_map<void*, std::shared_ptr<void>> memory_;
};

EnvironmentImpl& environment();

}  // namespace tutti::mlsl
