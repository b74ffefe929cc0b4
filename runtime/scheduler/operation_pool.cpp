// Taking operations and giving them back.
#include "runtime/scheduler/operation_pool.hpp"

#include <algorithm>

#include "runtime/scheduler/operation.hpp"

namespace tutti {
namespace {

constexpr std::size_t kFewest = 64;  // of an engine that has any

}  // namespace

OperationPool::OperationPool(Engine& engine) : engine_(engine) {}
OperationPool::~OperationPool() = default;

Operation* OperationPool::take() {
  // The one that was given back last first: it has grown to what is called most, and is in the cache.
  if (returned_.load(std::memory_order_relaxed) != nullptr) {
    Operation* const newest = returned_.exchange(nullptr, std::memory_order_acquire);
    Operation* oldest = newest;
    while (oldest->pooled().next_free != nullptr) oldest = oldest->pooled().next_free;
    oldest->pooled().next_free = free_;
    free_ = newest;
  }
  if (free_ == nullptr) make();
  Operation* const operation = free_;
  free_ = operation->pooled().next_free;
  ++operation->pooled().generation;
  return operation;
}

// Many at a time, so that calls after the first find one whatever number of them is under way.
void OperationPool::make() {
  const std::size_t made = operations_.size(), count = std::max(kFewest, made);
  operations_.reserve(made + count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto id = static_cast<std::uint32_t>(made + i);
    Operation& operation = *operations_.emplace_back(std::make_unique<Operation>(engine_, id));
    operation.reserve_lists(list_blocks_);
    take_back(operation);
  }
}

void OperationPool::reserve_lists(std::uint32_t blocks) {
  if (blocks <= list_blocks_) return;
  list_blocks_ = blocks;
  for (const auto& operation : operations_) operation->reserve_lists(blocks);
}

void OperationPool::take_back(Operation& operation) {
  operation.pooled().next_free = free_;
  free_ = &operation;
}

void OperationPool::give_back(Operation& operation) {
  Operation*& next = operation.pooled().next_free;
  next = returned_.load(std::memory_order_relaxed);
  while (!returned_.compare_exchange_weak(next, &operation, std::memory_order_release,
                                          std::memory_order_relaxed)) {
  }
}

Operation* OperationPool::find(RequestId request_id) const {
  const std::size_t id = Operation::id_of(request_id);
  if (id >= operations_.size()) return nullptr;
  Operation* const operation = operations_[id].get();
  return operation->request_id(0) == (request_id & ~RequestId{0xffffffffU}) ? operation : nullptr;
}

}  // namespace tutti
