// Least recently used, by number. See response_cache.hpp.
#include "runtime/training/response_cache.hpp"

#include <algorithm>
#include <utility>

namespace tutti {
std::optional<std::uint32_t> ResponseCache::find(const TensorRequest& request, std::uint32_t rank,
                                                 bool* is_stale) const {
  *is_stale = false;
  const auto number = find_name(request.name);
  if (!number) return std::nullopt;
  const TensorResponse& known = at(*number);
  const bool has_equal_rows = known.rows.empty() || known.rows[rank] == request.rows;
  if (known.signature == request.signature && has_equal_rows) return number;
  *is_stale = true;
  return std::nullopt;
}

std::optional<std::uint32_t> ResponseCache::find_name(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::uint32_t> ResponseCache::insert(const TensorResponse& response) {
  if (std::max<std::size_t>(response.signature.batch_size, 1) > capacity_) return std::nullopt;
  if (const auto known = find_name(response.name)) evict(*known);
  if (by_name_.size() == capacity_) evict(uses_.front());
  const auto free =
      std::find_if(slots_.begin(), slots_.end(), [](const auto& slot) { return !slot.has_value(); });
  const auto number = static_cast<std::uint32_t>(free - slots_.begin());
  if (free == slots_.end()) slots_.emplace_back();
  slots_[number] = Slot{response, uses_.insert(uses_.end(), number)};
  by_name_.emplace(response.name, number);
  return number;
}

void ResponseCache::touch(std::uint32_t number) { uses_.splice(uses_.end(), uses_, slots_[number]->use); }

void ResponseCache::evict(std::uint32_t number) {
  const std::string batch = slots_[number]->response.signature.batch;
  if (batch.empty()) {
    evict_one(number);
    return;
  }
  for (std::uint32_t other = 0; other < number_count(); ++other) {
    if (contains(other) && slots_[other]->response.signature.batch == batch) evict_one(other);
  }
}

void ResponseCache::evict_one(std::uint32_t number) {
  by_name_.erase(slots_[number]->response.name);
  uses_.erase(slots_[number]->use);
  slots_[number].reset();
}

void ResponseCache::clear() {
  slots_.clear();
  by_name_.clear();
  uses_.clear();
}

}  // namespace tutti
