// The response cache: tensors that all ranks have agreed on before, each with a number. Equal on all ranks at all times: every
// rank makes the same changes in the same order. Knows no rank and no buffer.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/training/tensor_request.hpp"

namespace tutti {

class ResponseCache {
 public:
  explicit ResponseCache(std::size_t capacity) : capacity_(capacity) {}

  // The number of a request that equals the remembered one, rows of this rank included. `is_stale`: the name
  // is known with something else, and has to be evicted on all ranks. Does not count as a use.
  std::optional<std::uint32_t> find(const TensorRequest& request, std::uint32_t rank, bool* is_stale) const;
  std::optional<std::uint32_t> find_name(std::string_view name) const;
  const TensorResponse& at(std::uint32_t number) const { return slots_[number]->response; }
  bool contains(std::uint32_t number) const { return number < slots_.size() && slots_[number].has_value(); }

  // Remembers it, and forgets the least recently used ones where there is no room. Numbers are reused, the
  // least first. Returns its number; nothing where it, or the batch that it belongs to, has no room.
  std::optional<std::uint32_t> insert(const TensorResponse& response);
  // Counts as a use. Call in the same order on all ranks.
  void touch(std::uint32_t number);
  // Also the other tensors of its batch: one that is half known could never be complete.
  void evict(std::uint32_t number);
  void clear();

  // One more than the greatest number in use: the length of a bit vector over them.
  std::uint32_t number_count() const { return static_cast<std::uint32_t>(slots_.size()); }
  std::size_t size() const { return by_name_.size(); }

 private:
  struct Slot {
    TensorResponse response;
    std::list<std::uint32_t>::iterator use;
  };
  void evict_one(std::uint32_t number);

  std::size_t capacity_;
  std::vector<std::optional<Slot>> slots_;
  std::unordered_map<std::string, std::uint32_t> by_name_;
  std::list<std::uint32_t> uses_;  // the least recent one first
};

}  // namespace tutti
