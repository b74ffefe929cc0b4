// The operations of an engine, for reuse: so that calls after the first allocate nothing. Knows no plan.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transports/transport.hpp"

namespace tutti {

class Engine;
class Operation;

// With the progress lock held, but for give_back().
class OperationPool {
 public:
  explicit OperationPool(Engine& engine);
  ~OperationPool();
  OperationPool(const OperationPool&) = delete;
  OperationPool& operator=(const OperationPool&) = delete;

  // An operation to bind.
  Operation* take();
  void take_back(Operation& operation);
  // The same from any thread, without the lock.
  void give_back(Operation& operation);
  // The operation that a request names, if it is still in that use; null: an earlier one.
  Operation* find(RequestId request_id) const;
  Operation& at(std::uint32_t id) const { return *operations_[id]; }
  // Lists of counts of so many ranks will be bound.
  void reserve_lists(std::uint32_t blocks);
  std::size_t size() const { return operations_.size(); }

 private:
  void make();

  Engine& engine_;
  std::vector<std::unique_ptr<Operation>> operations_;  // requests name them by number
  Operation* free_ = nullptr;
  std::uint32_t list_blocks_ = 0;              // every operation can bind lists of so many ranks
  std::atomic<Operation*> returned_{nullptr};  // given back since the free list was last empty
};

}  // namespace tutti
