// The least recently used residual is forgotten. See residuals.hpp.
#include "runtime/training/residuals.hpp"

#include <algorithm>
#include <utility>

namespace tutti {

std::shared_ptr<float> Residuals::of(const std::string& name, std::uint64_t count) {
  const auto found = slots_.find(name);
  if (found == slots_.end() && slots_.size() >= capacity_) make_room();
  Slot& slot = found != slots_.end() ? found->second : slots_[name];
  slot.last_use = ++uses_;
  if (slot.values == nullptr || slot.values->size() != count)
    slot.values = std::make_shared<std::vector<float>>(count, 0.0F);
  return {slot.values, slot.values->data()};
}

void Residuals::make_room() {
  const auto oldest = std::min_element(slots_.begin(), slots_.end(), [](const auto& a, const auto& b) {
    return a.second.last_use < b.second.last_use;
  });
  if (oldest != slots_.end()) slots_.erase(oldest);
}

std::shared_ptr<float> make_residual(std::uint64_t count) {
  const auto values = std::make_shared<std::vector<float>>(count, 0.0F);
  return {values, values->data()};
}

void apply_residual(float* vector, float* residual, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) vector[i] += std::exchange(residual[i], 0.0F);
}

}  // namespace tutti
