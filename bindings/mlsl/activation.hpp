// Inputs and outputs of operations, and the communication between connected ones.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>

#include "bindings/mlsl/include/mlsl.hpp"
#include "bindings/mlsl/layout.hpp"
#include "bindings/mlsl/requests.hpp"

namespace tutti::mlsl {

struct OperationImpl;

struct FeatureMaps {
  std::size_t count = 0, size = 0;
  MLSL::DataType type = MLSL::DT_FLOAT;
};

struct BlockImpl : MLSL::CommBlockInfo {
  BlockImpl(const Block& placed, const FeatureMaps& activation) : block(placed), maps(activation) {}
  Block block;
  FeatureMaps maps;
};

struct ActivationImpl : MLSL::Activation {
  ActivationImpl(OperationImpl& owner, const FeatureMaps& described, bool makes_input);

  // Of an output: whether each rank of the model group has a partial sum of all feature maps.
  bool needs_reduction() const;
  Range local_maps() const;
  // To the activation's peer. Starts nothing if there is none, or nothing to communicate.
  void start(void* buffer);
  // Waits for the peer; returns the blocks that it has sent, or null.
  void* receive();
  bool communicates() const { return transfer.pattern != Pattern::none; }
  std::size_t buffer_bytes() const;
  void* own_buffer();
  void set_transfer(Transfer planned, const CommGroup& holder);

  OperationImpl& operation;
  FeatureMaps maps;
  bool is_input;
  ActivationImpl* peer = nullptr;

  // Of what this activation sends.
  Transfer transfer;
  CommGroup group;
  std::deque<BlockImpl> packed, unpacked;  // unpacked: by the peer
  void* received = nullptr;
  std::shared_ptr<void> buffer;
  Request request;  // the last: its end waits for what uses the others
};

inline ActivationImpl& impl(MLSL::Activation* activation) {
  return *static_cast<ActivationImpl*>(activation);
}

// Plans both ways between an output and the input it is connected to. Errors: end the job.
void connect(ActivationImpl& output, ActivationImpl& input);

}  // namespace tutti::mlsl
