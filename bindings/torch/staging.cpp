// Copies where tensors cannot be used in place. Knows no group and no dtype of tutti.
#include "bindings/torch/staging.hpp"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <optional>

namespace tutti::torch_binding {
namespace {

std::uintptr_t address_of(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.data_ptr());
}

// The elements as memory has them: neither conjugated nor negated on the way.
bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

// Plain, and with memory of its own.
at::Tensor plain_copy(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach().resolve_conj().resolve_neg().contiguous();
  return plain.is_alias_of(tensor) ? plain.clone() : plain;
}

at::Tensor plain_memory(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().requires_grad(false));
}

struct Stretch {
  std::uintptr_t first = 0;
  std::size_t bytes = 0;
};

// The range of tensors that follow each other in memory, as chunks of one tensor do. Tensors without elements
// have none.
std::optional<Stretch> find_stretch(const std::vector<at::Tensor>& tensors) {
  Stretch stretch;
  const at::Tensor* before = nullptr;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    if (!is_plain(tensor)) return std::nullopt;
    if (before == nullptr) {
      stretch.first = address_of(tensor);
    } else if (address_of(tensor) != stretch.first + stretch.bytes || !tensor.is_alias_of(*before)) {
      return std::nullopt;
    }
    before = &tensor;
    stretch.bytes += tensor.nbytes();
  }
  return stretch;
}

at::Tensor flat_memory(const std::vector<at::Tensor>& tensors) {
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += tensor.numel();
  return at::empty({count}, tensors.front().options().requires_grad(false));
}

template <class Function>
void for_each_part(const at::Tensor& flat, const std::vector<at::Tensor>& tensors, const Function& function) {
  std::int64_t first = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() > 0) function(flat.narrow(0, first, tensor.numel()).view(tensor.sizes()), tensor);
    first += tensor.numel();
  }
}

}  // namespace

std::vector<Staging::Range>::iterator Staging::first_ending_behind(std::uintptr_t address) {
  return std::upper_bound(written_.begin(), written_.end(), address,
                          [](std::uintptr_t wanted, const Range& range) { return wanted < range.end; });
}

bool Staging::is_written(std::uintptr_t first, std::size_t bytes) {
  const auto found = first_ending_behind(first);
  return bytes > 0 && found != written_.end() && found->first < first + bytes;
}

bool Staging::claim(std::uintptr_t first, std::size_t bytes) {
  if (is_written(first, bytes)) return false;
  if (bytes > 0) written_.insert(first_ending_behind(first), {first, first + bytes});
  return true;
}

void* Staging::keep(const at::Tensor& tensor) {
  submitted_->buffers.push_back(tensor);
  return tensor.data_ptr();
}

void Staging::keep_all(const std::vector<at::Tensor>& tensors) {
  submitted_->buffers.insert(submitted_->buffers.end(), tensors.begin(), tensors.end());
}

void* Staging::output(const at::Tensor& tensor) {
  if (is_plain(tensor) && claim(address_of(tensor), tensor.nbytes())) return keep(tensor);
  const at::Tensor staged = plain_memory(tensor);
  submitted_->finishers.emplace_back([staged, tensor] { tensor.copy_(staged); });
  return keep(staged);
}

void* Staging::in_place(const at::Tensor& tensor) {
  if (is_plain(tensor) && claim(address_of(tensor), tensor.nbytes())) return keep(tensor);
  const at::Tensor staged = plain_copy(tensor);
  submitted_->finishers.emplace_back([staged, tensor] { tensor.copy_(staged); });
  return keep(staged);
}

const void* Staging::input(const at::Tensor& tensor, std::uintptr_t place) {
  const bool is_usable =
      is_plain(tensor) && (address_of(tensor) == place || !is_written(address_of(tensor), tensor.nbytes()));
  return keep(is_usable ? tensor : plain_copy(tensor));
}

void* Staging::outputs(const std::vector<at::Tensor>& tensors) {
  const std::optional<Stretch> stretch = find_stretch(tensors);
  if (stretch && claim(stretch->first, stretch->bytes)) {
    keep_all(tensors);
    return reinterpret_cast<void*>(stretch->first);  // NOLINT(performance-no-int-to-ptr): an address it was
  }
  const at::Tensor flat = flat_memory(tensors);
  submitted_->finishers.emplace_back([flat, tensors] {
    for_each_part(flat, tensors,
                  [](const at::Tensor& part, const at::Tensor& tensor) { tensor.copy_(part); });
  });
  return keep(flat);
}

const void* Staging::inputs(const std::vector<at::Tensor>& tensors, std::uintptr_t place) {
  const std::optional<Stretch> stretch = find_stretch(tensors);
  if (stretch && (stretch->first == place || !is_written(stretch->first, stretch->bytes))) {
    keep_all(tensors);
    return reinterpret_cast<const void*>(stretch->first);  // NOLINT(performance-no-int-to-ptr): as above
  }
  const c10::NoGradGuard no_grad;
  const at::Tensor flat = flat_memory(tensors);
  for_each_part(flat, tensors, [](const at::Tensor& part, const at::Tensor& tensor) { part.copy_(tensor); });
  return keep(flat);
}

}  // namespace tutti::torch_binding
