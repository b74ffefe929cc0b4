// MLSL's Activation, CommBlockInfo and ParameterSet, in terms of activation.hpp and parameter_set.hpp.
#include <fmt/format.h>

#include <deque>

#include "bindings/mlsl/activation.hpp"
#include "bindings/mlsl/data_types.hpp"
#include "bindings/mlsl/failure.hpp"
#include "bindings/mlsl/operation.hpp"
#include "bindings/mlsl/parameter_set.hpp"

namespace {

using tutti::mlsl::ActivationImpl;
using tutti::mlsl::BlockImpl;
using tutti::mlsl::bytes_of;
using tutti::mlsl::fail;
using tutti::mlsl::impl;
using tutti::mlsl::ParameterSetImpl;
using Call = tutti::mlsl::StatisticsImpl::Call;

BlockImpl& impl(MLSL::CommBlockInfo* block) { return *static_cast<BlockImpl*>(block); }

std::deque<BlockImpl>& unpacked(MLSL::Activation* activation) {
  static std::deque<BlockImpl> none;
  ActivationImpl* const peer = impl(activation).peer;
  return peer == nullptr ? none : peer->unpacked;
}

BlockImpl* block_at(std::deque<BlockImpl>& blocks, std::size_t index) {
  if (index >= blocks.size())
    fail(fmt::format("block {} does not exist; there are {}", index, blocks.size()));
  return &blocks[index];
}

}  // namespace

namespace MLSL {

std::size_t CommBlockInfo::GetMbOffset() { return impl(this).block.part.samples.first; }
std::size_t CommBlockInfo::GetMbCount() { return impl(this).block.part.samples.count; }
std::size_t CommBlockInfo::GetFmOffset() { return impl(this).block.part.maps.first; }
std::size_t CommBlockInfo::GetFmCount() { return impl(this).block.part.maps.count; }
std::size_t CommBlockInfo::GetFmSize() { return impl(this).maps.size; }
DataType CommBlockInfo::GetDataType() { return impl(this).maps.type; }
std::size_t CommBlockInfo::GetBufOffset() { return impl(this).block.buffer_index; }

std::size_t Activation::GetGlobalFmCount() { return impl(this).maps.count; }
std::size_t Activation::GetGlobalFmOffset() { return impl(this).local_maps().first; }
std::size_t Activation::GetLocalFmCount() { return impl(this).local_maps().count; }
std::size_t Activation::GetPackBlockCount() { return impl(this).packed.size(); }
std::size_t Activation::GetUnpackBlockCount() { return unpacked(this).size(); }
CommBlockInfo* Activation::GetPackBlock(std::size_t idx) { return block_at(impl(this).packed, idx); }
CommBlockInfo* Activation::GetUnpackBlock(std::size_t idx) { return block_at(unpacked(this), idx); }
DataType Activation::GetDataType() { return impl(this).maps.type; }
std::size_t Activation::GetFmSize() { return impl(this).maps.size; }
void* Activation::GetCommBuf() { return impl(this).own_buffer(); }
std::size_t Activation::GetCommBufSize() { return impl(this).buffer_bytes(); }

void Activation::StartComm(void* buf) {
  ActivationImpl& self = impl(this);
  const Call call(self.operation, self.transfer.sent_count * bytes_of(self.maps.type));
  self.start(buf);
}

void* Activation::WaitComm() {
  const Call call(impl(this).operation, 0);
  return impl(this).receive();
}

std::size_t ParameterSet::GetGlobalKernelCount() { return impl(this).kernels.count; }
std::size_t ParameterSet::GetGlobalKernelOffset() { return impl(this).global.first; }
std::size_t ParameterSet::GetLocalKernelCount() { return impl(this).local_count; }
std::size_t ParameterSet::GetOwnedKernelCount() { return impl(this).owned_count; }
std::size_t ParameterSet::GetOwnedKernelOffset() { return impl(this).owned_first; }
DataType ParameterSet::GetDataType() { return impl(this).kernels.type; }
std::size_t ParameterSet::GetKernelSize() { return impl(this).kernels.size; }
bool ParameterSet::IsDistributedUpdate() { return impl(this).kernels.has_distributed_update; }

void ParameterSet::StartGradientComm(void* buf) {
  ParameterSetImpl& self = impl(this);
  const Call call(self.operation, self.communicates() ? self.gradient_bytes() : 0);
  self.start_gradients(buf);
}

void ParameterSet::StartIncrementComm(void* buf) {
  ParameterSetImpl& self = impl(this);
  const bool sends = self.communicates() && self.kernels.has_distributed_update;
  const Call call(self.operation, sends ? self.gradient_bytes() : 0);
  self.start_increments(buf);
}

void* ParameterSet::WaitGradientComm() {
  const Call call(impl(this).operation, 0);
  impl(this).gradient_request.wait();
  return impl(this).gradient_result;
}

void* ParameterSet::TestGradientComm(bool* is_completed) {
  const Call call(impl(this).operation, 0);
  *is_completed = impl(this).gradient_request.test();
  return *is_completed ? impl(this).gradient_result : nullptr;
}

void* ParameterSet::WaitIncrementComm() {
  const Call call(impl(this).operation, 0);
  impl(this).increment_request.wait();
  return impl(this).increment_result;
}

}  // namespace MLSL
