// Loads and calls the functions of a compression library. See quantizer.hpp.
#include "bindings/mlsl/quantizer.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>
#include <stdexcept>

#include "bindings/mlsl/failure.hpp"

namespace tutti::mlsl {
namespace {

// Arguments of the library's quant function, as MLSL passes them.
constexpr int kFloat32 = 2;
constexpr std::size_t kRatio = 4;  // 32 bits to 8
constexpr int kDynamicFixedPoint = 1;

std::string text_of(const char* text, const char* field) {
  if (text == nullptr || *text == '\0')
    throw std::invalid_argument(fmt::format("QuantParams::{} is empty", field));
  return text;
}

template <class Function>
Function* find(void* library, const std::string& path, const std::string& name) {
  void* const address = ::dlsym(library, name.c_str());
  if (address == nullptr) throw std::invalid_argument(fmt::format("{} has no function '{}'", path, name));
  return reinterpret_cast<Function*>(address);
}

}  // namespace

Quantizer::Quantizer(const MLSL::QuantParams& params)
    : library_(text_of(params.lib_path, "lib_path")),
      compress_name_(text_of(params.quant_buffer_func_name, "quant_buffer_func_name")),
      restore_name_(text_of(params.dequant_buffer_func_name, "dequant_buffer_func_name")),
      sum_name_(text_of(params.reduce_sum_func_name, "reduce_sum_func_name")),
      params_{library_.data(),  compress_name_.data(), restore_name_.data(),
              sum_name_.data(), params.block_size,     params.elem_in_block} {
  constexpr std::size_t kMostBytes = 65536;  // of an element of Dtype::opaque
  if (params.block_size == 0 || params.block_size > kMostBytes || params.elem_in_block == 0)
    throw std::invalid_argument(fmt::format(
        "QuantParams: block_size is {}, elem_in_block {}; expected 1 to {} bytes and 1 element or more",
        params.block_size, params.elem_in_block, kMostBytes));
  void* const library = ::dlopen(library_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = ::dlerror();
    throw std::invalid_argument(reason != nullptr ? reason : library_ + " cannot be loaded");
  }
  compress_ = find<Compress>(library, library_, compress_name_);
  restore_ = find<Restore>(library, library_, restore_name_);
  sum_ = find<Sum>(library, library_, sum_name_);
}

void Quantizer::compress(void* values, void* blocks, std::size_t count, void* residual) const {
  if (const int error = compress_(values, blocks, count, residual, kFloat32, kRatio, kDynamicFixedPoint);
      error != 0)
    throw std::runtime_error(fmt::format("{} of {} returned {}", compress_name_, library_, error));
}

void Quantizer::restore(void* blocks, void* values, std::size_t count) const {
  if (const int error = restore_(blocks, values, count); error != 0)
    fail(fmt::format("{} of {} returned {}", restore_name_, library_, error));
}

Reduction Quantizer::sum() const {
  return Reduction::user(&Quantizer::add, const_cast<Quantizer*>(this), true,
                         static_cast<std::uint32_t>(params_.block_size));
}

// The library adds to its second argument; tutti wants dst = a + b, where dst may be one of both.
void Quantizer::add(void* context, void* dst, const void* a, const void* b, std::size_t count) noexcept {
  const auto& self = *static_cast<const Quantizer*>(context);
  const void* other = dst == a ? b : a;
  if (dst != a && dst != b) std::memcpy(dst, b, count * self.params_.block_size);
  if (const int error = self.sum_(other, dst, count); error != 0)
    fail(fmt::format("{} of {} returned {}", self.sum_name_, self.library_, error));
}

}  // namespace tutti::mlsl
