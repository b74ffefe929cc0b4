// Loads the kernels that compile_kernels.py embedded, and says which kernel and rule an op of a dtype is.
#include "backends/cuda/kernel_table.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "backends/cuda/kernel_bodies.hpp"

namespace tutti::cuda {

extern const std::uint64_t kKernelsImage[];  // made by compile_kernels.py

namespace {

#define TUTTI_KIND_NAME(name, type) #name,
constexpr std::array kKindNames = std::to_array<std::string_view>({TUTTI_DEVICE_ELEMENTS(TUTTI_KIND_NAME)});
static_assert(kKindNames.size() == kKinds);
#undef TUTTI_KIND_NAME

// The name of a kind: that of its dtype, unsigned for integers.
std::string_view kind_name(Dtype dtype) {
  if (class_of(dtype) == DtypeClass::floating) return to_string(dtype);
  switch (size_of(dtype)) {
    case 1:
      return "u8";
    case 2:
      return "u16";
    case 4:
      return "u32";
    default:
      return "u64";
  }
}

Fold fold_of(Op op, Dtype dtype) {
  const bool is_truth = dtype == Dtype::boolean;
  switch (op) {
    case Op::prod:
      return is_truth ? Fold::land : Fold::prod;
    case Op::min:
      return is_truth ? Fold::land : Fold::min;
    case Op::max:
      return is_truth ? Fold::lor : Fold::max;
    case Op::band:
      return is_truth ? Fold::land : Fold::band;
    case Op::bor:
      return is_truth ? Fold::lor : Fold::bor;
    case Op::bxor:
      return is_truth ? Fold::lxor : Fold::bxor;
    case Op::land:
      return Fold::land;
    case Op::lor:
      return Fold::lor;
    case Op::lxor:
      return Fold::lxor;
    default:  // sum, and the sums of avg and premul_sum
      return is_truth ? Fold::lor : Fold::sum;
  }
}

Status find_functions(const Driver& table, std::string_view prefix, CUmodule module, KernelRow& row) {
  for (std::size_t i = 0; i < kKinds; ++i) {
    const std::string name = std::string(prefix) + std::string(kKindNames[i]);
    TUTTI_RETURN_IF_CUDA_ERROR(table, table.cuModuleGetFunction(&row[i], module, name.c_str()), name);
  }
  return {};
}

Status fill(const Driver& table, CUdevice device, DeviceKernels& kernels) {
  TUTTI_RETURN_IF_ERROR(find_functions(table, "tutti_reduce_", kernels.module, kernels.reduce));
  TUTTI_RETURN_IF_ERROR(find_functions(table, "tutti_scale_", kernels.module, kernels.scale));
  TUTTI_RETURN_IF_ERROR(find_functions(table, "tutti_one_shot_", kernels.module, kernels.one_shot));
  TUTTI_RETURN_IF_ERROR(find_functions(table, "tutti_two_shot_", kernels.module, kernels.two_shot));
  int processors = 0;
  int threads = 0;
  TUTTI_RETURN_IF_CUDA_ERROR(
      table, table.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device),
      "cuDeviceGetAttribute");
  TUTTI_RETURN_IF_CUDA_ERROR(
      table, table.cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device),
      "cuDeviceGetAttribute");
  kernels.most_blocks =
      static_cast<std::uint64_t>(std::max(1, processors * (threads / static_cast<int>(kThreads))));
  // Asking loads each kernel now. Loaded by its first launch, one might wait for a peer's kernel that waits for
  // it.
  int fewest = threads / static_cast<int>(kThreads);
  for (const KernelRow& row : {kernels.one_shot, kernels.two_shot}) {
    for (const CUfunction function : row) {
      int blocks = 0;
      TUTTI_RETURN_IF_CUDA_ERROR(
          table, table.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, kThreads, 0),
          "cuOccupancyMaxActiveBlocksPerMultiprocessor");
      fewest = std::min(fewest, blocks);
    }
  }
  kernels.resident_blocks = static_cast<std::uint32_t>(std::max(1, processors * fewest));
  return {};
}

Result<DeviceKernels> load(const Driver& table, CUdevice device) {
  DeviceKernels kernels;
  TUTTI_RETURN_IF_CUDA_ERROR(table, table.cuModuleLoadData(&kernels.module, kKernelsImage),
                             "loading the kernels (for GPUs of compute capability 8.0 and later)");
  const Status status = fill(table, device, kernels);
  if (status) return kernels;
  table.cuModuleUnload(kernels.module);
  return status;
}

}  // namespace

std::size_t kind_of(Dtype dtype) {
  const auto* const found = std::find(kKindNames.begin(), kKindNames.end(), kind_name(dtype));
  TUTTI_ASSERT(found != kKindNames.end(), "every dtype has kernels");
  return static_cast<std::size_t>(found - kKindNames.begin());
}

FoldRule fold_rule(Op op, Dtype dtype) { return {fold_of(op, dtype), is_signed_integer(dtype) ? 1U : 0U}; }

ScaleRule scale_rule(const ReduceOp& op, Dtype dtype, int group_size) {
  const bool divides = op.op == Op::avg;
  ScaleRule rule{};
  rule.divides = divides ? 1 : 0;
  rule.is_signed = is_signed_integer(dtype) ? 1 : 0;
  rule.integer = static_cast<std::uint64_t>(divides ? group_size : op.integer_scalar);
  rule.wide = divides ? group_size : op.scalar;
  rule.narrow = static_cast<float>(rule.wide);
  return rule;
}

Result<const DeviceKernels*> current_kernels(const Driver& table) {
  static std::mutex mutex;
  // Never destroyed: the driver may be gone by then.
  static auto& loaded = *new std::map<CUdevice, DeviceKernels>;
  CUdevice device = 0;
  TUTTI_RETURN_IF_CUDA_ERROR(table, table.cuCtxGetDevice(&device), "cuCtxGetDevice");
  const std::lock_guard lock(mutex);
  if (const auto found = loaded.find(device); found != loaded.end()) return &found->second;
  Result<DeviceKernels> kernels = load(table, device);
  if (!kernels) return kernels.status();
  return &loaded.emplace(device, *std::move(kernels)).first->second;
}

}  // namespace tutti::cuda
