// Operations (layers) and the sessions that hold them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "bindings/mlsl/activation.hpp"
#include "bindings/mlsl/distribution.hpp"
#include "bindings/mlsl/include/mlsl.hpp"
#include "bindings/mlsl/parameter_set.hpp"
#include "bindings/mlsl/statistics.hpp"

namespace tutti::mlsl {

struct RegInfoImpl : MLSL::OperationRegInfo {
  explicit RegInfoImpl(MLSL::OpType described) : type(described) {}

  MLSL::OpType type;
  std::string name;
  std::vector<FeatureMaps> inputs, outputs;
  std::vector<Kernels> parameter_sets;
};

struct SessionImpl;

struct OperationImpl : MLSL::Operation {
  OperationImpl(SessionImpl& owner, std::size_t position, const RegInfoImpl& described);

  // Divides activations and kernels. Errors: ends the job if the mini-batch does not divide.
  void distribute(DistributionImpl& chosen);
  // Errors: ends the job for an index that does not exist, or before there is a distribution.
  ActivationImpl& activation(bool is_input, std::size_t position);
  ParameterSetImpl& parameter_set(std::size_t position);
  DistributionImpl& distributed() const;
  std::size_t local_minibatch() const;

  SessionImpl& session;
  std::size_t index;
  std::size_t first_set;  // parameter sets of the operations before it
  MLSL::OpType type;
  std::string name;
  DistributionImpl* distribution = nullptr;
  std::vector<std::unique_ptr<ActivationImpl>> inputs, outputs;
  std::vector<Kernels> kernels;
  std::vector<std::unique_ptr<ParameterSetImpl>> parameter_sets;
};

struct SessionImpl : MLSL::Session {
  SessionImpl(MLSL::PhaseType chosen, std::size_t count) : phase(chosen), number(count), statistics(*this) {}

  // Errors: ends the job for an index that does not exist.
  OperationImpl& operation(std::size_t position);
  void commit();

  MLSL::PhaseType phase;
  std::size_t number;  // of the sessions that this process has made
  std::size_t minibatch = 0;
  bool is_committed = false;
  std::vector<std::unique_ptr<RegInfoImpl>> reg_infos;
  std::vector<std::unique_ptr<OperationImpl>> operations;
  StatisticsImpl statistics;
};

inline OperationImpl& impl(MLSL::Operation* operation) { return *static_cast<OperationImpl*>(operation); }
inline SessionImpl& impl(MLSL::Session* session) { return *static_cast<SessionImpl*>(session); }
inline RegInfoImpl& impl(MLSL::OperationRegInfo* info) { return *static_cast<RegInfoImpl*>(info); }

}  // namespace tutti::mlsl
