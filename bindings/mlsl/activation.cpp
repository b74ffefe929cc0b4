// Communication between connected activations. See activation.hpp.
#include "bindings/mlsl/activation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bindings/mlsl/data_types.hpp"
#include "bindings/mlsl/environment.hpp"
#include "bindings/mlsl/failure.hpp"
#include "bindings/mlsl/operation.hpp"

namespace tutti::mlsl {
namespace {

constexpr std::size_t kAlignment = 64;

void submit(Request& request, const CommGroup& group, const Transfer& transfer, const void* input,
            void* output, Dtype dtype) {
  switch (transfer.pattern) {
    case Pattern::none:
      return;
    case Pattern::allreduce:
      return add_allreduce(request, group, input, output, transfer.sent_count, dtype, Op::sum);
    case Pattern::reduce_scatter:
      return request.add(group.ireduce_scatterv(input, output, transfer.sent, dtype, Op::sum));
    case Pattern::allgather:
      return request.add(group.iallgatherv(input, output, transfer.received, {}, dtype));
    case Pattern::exchange:
      return request.add(group.ialltoallv(input, transfer.sent, {}, output, transfer.received, {}, dtype));
  }
}

// As seen by the model group of `holder`, one of both distributions.
Connection connection_of(const ActivationImpl& output, const ActivationImpl& input,
                         const DistributionImpl& holder) {
  const DistributionImpl& from = *output.operation.distribution;
  const DistributionImpl& to = *input.operation.distribution;
  Connection made;
  for (const int member : holder.model_members) {
    made.outputs.push_back(from.places[static_cast<std::size_t>(member)]);
    made.inputs.push_back(to.places[static_cast<std::size_t>(member)]);
  }
  made.self = holder.place().model_index;
  made.minibatch = output.operation.session.minibatch;
  made.unit_size = std::min(output.maps.size, input.maps.size);
  made.output_maps = output.maps.count;
  made.output_units = output.maps.size / made.unit_size;
  made.input_maps = input.maps.count;
  made.input_units = input.maps.size / made.unit_size;
  made.needs_reduction = output.needs_reduction();
  return made;
}

}  // namespace

ActivationImpl::ActivationImpl(OperationImpl& owner, const FeatureMaps& described, bool makes_input)
    : operation(owner),
      maps(described),
      is_input(makes_input),
      request(fmt::format("{} {}: StartComm", owner.name, makes_input ? "input" : "output")) {}

bool ActivationImpl::needs_reduction() const {
  return !is_input && operation.type == MLSL::OT_CC && operation.distribution->place().model_count > 1;
}

Range ActivationImpl::local_maps() const {
  if (!is_input && operation.type == MLSL::OT_CC) return {0, maps.count};
  const Place& place = operation.distribution->place();
  return part_of(maps.count, place.model_count, place.model_index);
}

std::size_t ActivationImpl::buffer_bytes() const {
  if (!communicates()) return 0;
  const std::size_t element = bytes_of(maps.type);
  const std::size_t sent = transfer.sent_count * element;
  if (transfer.pattern == Pattern::allreduce) return sent;  // the sums replace their input
  // The receive area follows.
  return (sent + kAlignment - 1) / kAlignment * kAlignment + transfer.received_count * element;
}

void* ActivationImpl::own_buffer() {
  if (communicates() && buffer == nullptr) buffer = environment().allocate_owned(buffer_bytes());
  return buffer.get();
}

void ActivationImpl::set_transfer(Transfer planned, const CommGroup& holder) {
  transfer = std::move(planned);
  group = holder;
  packed.clear();
  unpacked.clear();
  for (const Block& block : transfer.packed) packed.emplace_back(block, maps);
  for (const Block& block : transfer.unpacked) unpacked.emplace_back(block, peer->maps);
}

void ActivationImpl::start(void* sent) {
  if (!communicates()) return;
  if (sent == nullptr) fail(request.name() + ": the buffer is null");
  request.begin();
  const bool is_in_place = transfer.pattern == Pattern::allreduce;
  received = static_cast<char*>(sent) +
             (is_in_place ? 0 : buffer_bytes() - transfer.received_count * bytes_of(maps.type));
  guarded(request.name().c_str(),
          [&] { submit(request, group, transfer, sent, received, dtype_of(maps.type)); });
}

void* ActivationImpl::receive() {
  if (peer == nullptr || !peer->communicates()) return nullptr;
  peer->request.wait();
  return peer->received;
}

void connect(ActivationImpl& output, ActivationImpl& input) {
  const std::string name = fmt::format("{} to {}", output.operation.name, input.operation.name);
  const auto refuse = [&](const char* rule) {
    fail(fmt::format("{}: the output has {} feature maps of {} elements, the input {} of {}; {}", name,
                     output.maps.count, output.maps.size, input.maps.count, input.maps.size, rule));
  };
  if (output.maps.count * output.maps.size != input.maps.count * input.maps.size ||
      output.maps.type != input.maps.type)
    refuse("numbers of elements and data types must be equal");
  const DistributionImpl& from = *output.operation.distribution;
  const DistributionImpl& to = *input.operation.distribution;
  if (from.places.size() == 1) return;
  if (!output.needs_reduction() && from.places == to.places) {
    if (output.local_maps().count * output.maps.size != input.local_maps().count * input.maps.size)
      refuse("let the number of maps divide by the model partitions, so that both have equal parts");
    return;
  }
  if (std::max(output.maps.size, input.maps.size) % std::min(output.maps.size, input.maps.size) != 0)
    refuse("the size of one must be a multiple of the other's");
  const DistributionImpl& holder = from.place().model_count > 1 ? from : to;
  const Connection connection = connection_of(output, input, holder);
  Transfers planned;
  if (const auto problem = plan_transfers(connection, planned)) fail(name + ": " + *problem);
  if (moves_samples(connection))
    warn(name +
         ": the input's data partition is another than the output's. Its samples stay where they are; use "
         "CreateDistributionWithColors to give both the same one");
  const CommGroup& group = holder.group(MLSL::GT_MODEL);
  output.set_transfer(std::move(planned.forward), group);
  input.set_transfer(std::move(planned.backward), group);
}

}  // namespace tutti::mlsl
