// How operations are divided, connected and committed. See operation.hpp.
#include "bindings/mlsl/operation.hpp"

#include <fmt/format.h>

#include "bindings/mlsl/failure.hpp"

namespace tutti::mlsl {
namespace {

template <class Items>
auto& checked(Items& items, std::size_t position, const std::string& owner, const char* kind) {
  if (position >= items.size())
    fail(fmt::format("{}: {} {} does not exist; there are {}", owner, kind, position, items.size()));
  return *items[position];
}

}  // namespace

OperationImpl::OperationImpl(SessionImpl& owner, std::size_t position, const RegInfoImpl& described)
    : session(owner),
      index(position),
      first_set(owner.operations.empty()
                    ? 0
                    : owner.operations.back()->first_set + owner.operations.back()->kernels.size()),
      type(described.type),
      name(described.name.empty() ? fmt::format("operation {}", position) : described.name),
      kernels(described.parameter_sets) {
  for (const FeatureMaps& maps : described.inputs)
    inputs.push_back(std::make_unique<ActivationImpl>(*this, maps, true));
  for (const FeatureMaps& maps : described.outputs)
    outputs.push_back(std::make_unique<ActivationImpl>(*this, maps, false));
}

void OperationImpl::distribute(DistributionImpl& chosen) {
  if (session.is_committed) fail(name + ": SetDistribution after Commit");
  const std::size_t parts = chosen.place().data_count;
  if (session.minibatch == 0) fail(name + ": call SetGlobalMinibatchSize before operations are added");
  if (session.minibatch % parts != 0)
    fail(fmt::format("{}: a global mini-batch of {} does not divide by {} data partitions", name,
                     session.minibatch, parts));
  distribution = &chosen;
  parameter_sets.clear();
  for (std::size_t position = 0; position < kernels.size(); ++position)
    parameter_sets.push_back(std::make_unique<ParameterSetImpl>(*this, position, kernels[position]));
}

ActivationImpl& OperationImpl::activation(bool is_input, std::size_t position) {
  distributed();
  return is_input ? checked(inputs, position, name, "input") : checked(outputs, position, name, "output");
}

ParameterSetImpl& OperationImpl::parameter_set(std::size_t position) {
  distributed();
  return checked(parameter_sets, position, name, "parameter set");
}

DistributionImpl& OperationImpl::distributed() const {
  if (distribution == nullptr) fail(name + ": it has no distribution; call SetDistribution first");
  return *distribution;
}

std::size_t OperationImpl::local_minibatch() const {
  return session.minibatch / distributed().place().data_count;
}

OperationImpl& SessionImpl::operation(std::size_t position) {
  return checked(operations, position, "session", "operation");
}

void SessionImpl::commit() {
  if (is_committed) fail("Commit was called twice");
  for (const auto& made : operations) {
    made->distributed();
    for (const auto& output : made->outputs) {
      if (output->peer == nullptr) continue;
      output->peer->operation.distributed();
      connect(*output, *output->peer);
    }
  }
  is_committed = true;
  statistics.measure_isolated();
}

}  // namespace tutti::mlsl
