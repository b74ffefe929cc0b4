// MLSL's Session, Operation, OperationRegInfo and Statistics, in terms of operation.hpp and statistics.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "bindings/mlsl/environment.hpp"
#include "bindings/mlsl/failure.hpp"
#include "bindings/mlsl/operation.hpp"
#include "bindings/mlsl/quantizer.hpp"

namespace {

using tutti::mlsl::ActivationImpl;
using tutti::mlsl::DistributionImpl;
using tutti::mlsl::environment;
using tutti::mlsl::fail;
using tutti::mlsl::impl;
using tutti::mlsl::OperationImpl;
using tutti::mlsl::RegInfoImpl;
using tutti::mlsl::SessionImpl;

void join(ActivationImpl& output, ActivationImpl& input) {
  if (output.operation.session.is_committed)
    fail(output.operation.name + ": SetPrev or SetNext after Commit");
  output.peer = &input;
  input.peer = &output;
}

// Of an input, output or parameter set.
void check_counts(const RegInfoImpl& info, const char* kind, std::size_t count, std::size_t size) {
  constexpr std::size_t kMost = std::numeric_limits<int>::max();
  if (count == 0 || size == 0 || count > kMost || size > kMost)
    fail(fmt::format("{}: {} of {} times {} elements; both numbers must be from 1 to {}",
                     info.name.empty() ? "operation without a name" : info.name, kind, count, size, kMost));
}

}  // namespace

namespace MLSL {

void OperationRegInfo::SetName(const char* name) { impl(this).name = name == nullptr ? "" : name; }

std::size_t OperationRegInfo::AddInput(std::size_t feature_map_count, std::size_t feature_map_size,
                                       DataType data_type) {
  check_counts(impl(this), "AddInput", feature_map_count, feature_map_size);
  impl(this).inputs.push_back({feature_map_count, feature_map_size, data_type});
  return impl(this).inputs.size() - 1;
}

std::size_t OperationRegInfo::AddOutput(std::size_t feature_map_count, std::size_t feature_map_size,
                                        DataType data_type) {
  check_counts(impl(this), "AddOutput", feature_map_count, feature_map_size);
  impl(this).outputs.push_back({feature_map_count, feature_map_size, data_type});
  return impl(this).outputs.size() - 1;
}

std::size_t OperationRegInfo::AddParameterSet(std::size_t kernel_count, std::size_t kernel_size,
                                              DataType data_type, bool distributed_update,
                                              CompressionType compression_type) {
  check_counts(impl(this), "AddParameterSet", kernel_count, kernel_size);
  impl(this).parameter_sets.push_back(
      {kernel_count, kernel_size, data_type, distributed_update, compression_type});
  return impl(this).parameter_sets.size() - 1;
}

void OperationRegInfo::Validate(Distribution* /*dist*/) {}

void Operation::SetDistribution(Distribution* dist) {
  if (dist == nullptr) fail(impl(this).name + ": SetDistribution: the distribution is null");
  impl(this).distribute(impl(dist));
}

Distribution* Operation::GetDistribution() { return impl(this).distribution; }
Session* Operation::GetSession() { return &impl(this).session; }
OpType Operation::GetOpType() { return impl(this).type; }

void Operation::SetPrev(Operation* prev, std::size_t act_idx, std::size_t prev_op_act_idx) {
  if (prev == nullptr) return;
  join(impl(prev).activation(false, prev_op_act_idx), impl(this).activation(true, act_idx));
}

void Operation::SetNext(Operation* next, std::size_t act_idx, std::size_t next_op_act_idx) {
  if (next == nullptr) return;
  join(impl(this).activation(false, act_idx), impl(next).activation(true, next_op_act_idx));
}

const char* Operation::GetName() { return impl(this).name.c_str(); }
std::size_t Operation::GetGlobalMinibatchSize() { return impl(this).session.minibatch; }
std::size_t Operation::GetLocalMinibatchSize() { return impl(this).local_minibatch(); }
std::size_t Operation::GetGlobalMinibatchOffset() {
  return impl(this).local_minibatch() * impl(this).distributed().place().data_index;
}
std::size_t Operation::GetInputCount() { return impl(this).inputs.size(); }
Activation* Operation::GetInput(std::size_t idx) { return &impl(this).activation(true, idx); }
std::size_t Operation::GetOutputCount() { return impl(this).outputs.size(); }
Activation* Operation::GetOutput(std::size_t idx) { return &impl(this).activation(false, idx); }
bool Operation::HasParameterSets() { return !impl(this).kernels.empty(); }
std::size_t Operation::GetParameterSetCount() { return impl(this).kernels.size(); }
ParameterSet* Operation::GetParameterSet(std::size_t idx) { return &impl(this).parameter_set(idx); }

void Session::SetGlobalMinibatchSize(std::size_t global_minibatch_size) {
  SessionImpl& self = impl(this);
  if (self.minibatch != 0 || !self.operations.empty())
    fail("SetGlobalMinibatchSize: call it once, before operations are added");
  if (global_minibatch_size == 0) fail("SetGlobalMinibatchSize: the size is 0");
  self.minibatch = global_minibatch_size;
}

std::size_t Session::GetGlobalMinibatchSize() { return impl(this).minibatch; }
PhaseType Session::GetPhaseType() { return impl(this).phase; }

OperationRegInfo* Session::CreateOperationRegInfo(OpType op_type) {
  impl(this).reg_infos.push_back(std::make_unique<RegInfoImpl>(op_type));
  return impl(this).reg_infos.back().get();
}

void Session::DeleteOperationRegInfo(OperationRegInfo* info) {
  std::erase_if(impl(this).reg_infos, [info](const auto& held) { return held.get() == info; });
}

std::size_t Session::AddOperation(OperationRegInfo* info, Distribution* dist) {
  SessionImpl& self = impl(this);
  if (self.is_committed) fail("AddOperation after Commit");
  if (info == nullptr) fail("AddOperation: the description is null");
  const std::size_t index = self.operations.size();
  self.operations.push_back(std::make_unique<OperationImpl>(self, index, impl(info)));
  if (dist != nullptr) self.operations.back()->distribute(impl(dist));
  return index;
}

void Session::RemoveOperations() {
  impl(this).operations.clear();
  impl(this).statistics.sums.clear();
  impl(this).is_committed = false;
}

std::size_t Session::GetOperationCount() { return impl(this).operations.size(); }
Operation* Session::GetOperation(std::size_t idx) { return &impl(this).operation(idx); }
void Session::Commit() { impl(this).commit(); }
Statistics* Session::GetStats() { return &impl(this).statistics; }

void Statistics::Start() { impl(this).begin(); }
void Statistics::Stop() { impl(this).is_started = false; }
void Statistics::Reset() { impl(this).reset(); }
bool Statistics::IsStarted() { return impl(this).is_started; }
bool Statistics::IsEnabled() { return impl(this).is_enabled(); }
void Statistics::Print() { impl(this).print(); }
unsigned long long Statistics::GetIsolationCommCycles(std::size_t op_idx) {
  return impl(this).of(op_idx).isolated;
}
std::size_t Statistics::GetCommSize(std::size_t op_idx) { return impl(this).of(op_idx).bytes; }
unsigned long long Statistics::GetCommCycles(std::size_t op_idx) {
  return impl(this).of(op_idx).communication;
}
unsigned long long Statistics::GetComputeCycles(std::size_t op_idx) {
  return impl(this).of(op_idx).computation;
}
unsigned long long Statistics::GetTotalIsolationCommCycles() { return impl(this).total().isolated; }
std::size_t Statistics::GetTotalCommSize() { return impl(this).total().bytes; }
unsigned long long Statistics::GetTotalCommCycles() { return impl(this).total().communication; }
unsigned long long Statistics::GetTotalComputeCycles() { return impl(this).total().computation; }

Session* Environment::CreateSession(PhaseType phase_type) {
  environment().require_initialized("CreateSession");
  static std::size_t count = 0;
  return new SessionImpl(phase_type, count++);
}

void Environment::DeleteSession(Session* session) {
  if (session != nullptr) delete &impl(session);
}

void Environment::SetQuantizationParams(QuantParams* params) {
  if (params == nullptr) fail("SetQuantizationParams: the parameters are null");
  environment().load_quantizer(*params);
}

QuantParams* Environment::GetQuantizationParams() { return environment().quantization_params(); }

}  // namespace MLSL
