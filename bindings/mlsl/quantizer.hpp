// The program's library that compresses gradients.
#pragma once

#include <cstddef>
#include <string>

#include "bindings/mlsl/include/mlsl.hpp"
#include "tutti/tutti.hpp"

namespace tutti::mlsl {

class Quantizer {
 public:
  // Loads the library and finds its functions. Errors: throws std::invalid_argument with the loader's reason. The
  // library stays loaded, because operations may use it until the process ends.
  explicit Quantizer(const MLSL::QuantParams& params);

  // Points to strings of this object.
  MLSL::QuantParams* params() { return &params_; }
  std::size_t block_count(std::size_t count) const {
    return (count + params_.elem_in_block - 1) / params_.elem_in_block;
  }
  std::size_t bytes_of(std::size_t count) const { return block_count(count) * params_.block_size; }
  // `residual`: count floats that compression has left out before; updated. Errors: throws std::runtime_error.
  void compress(void* values, void* blocks, std::size_t count, void* residual) const;
  void restore(void* blocks, void* values, std::size_t count) const;
  // Of blocks, as elements of Dtype::opaque. Refers to this object.
  Reduction sum() const;

 private:
  static void add(void* context, void* dst, const void* a, const void* b, std::size_t count) noexcept;

  using Compress = int(void*, void*, std::size_t, void*, int, std::size_t, int);
  using Restore = int(void*, void*, std::size_t);
  using Sum = int(const void*, void*, std::size_t);
  std::string library_, compress_name_, restore_name_, sum_name_;
  MLSL::QuantParams params_{};
  Compress* compress_ = nullptr;
  Restore* restore_ = nullptr;
  Sum* sum_ = nullptr;
};

}  // namespace tutti::mlsl
