// Error feedback of named tensors: the losses of a tensor's roundings, kept until its next step. Knows no operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tutti {

// For one thread; elements are written by whoever holds them.
class Residuals {
 public:
  explicit Residuals(std::size_t capacity) : capacity_(capacity) {}

  // `count` elements, which are zero at first and where the tensor had another length. They are kept for so many
  // tensors as the capacity says: the least recently used one is forgotten.
  std::shared_ptr<float> of(const std::string& name, std::uint64_t count);

 private:
  struct Slot {
    std::shared_ptr<std::vector<float>> values;
    std::uint64_t last_use = 0;
  };
  void make_room();

  const std::size_t capacity_;
  std::map<std::string, Slot> slots_;
  std::uint64_t uses_ = 0;
};

// One that nobody keeps. A rank that has joined takes part in a tensor's next step before it has ended the last one.
std::shared_ptr<float> make_residual(std::uint64_t count);
// Adds a residual to a vector, and empties it.
void apply_residual(float* vector, float* residual, std::uint64_t count);

}  // namespace tutti
