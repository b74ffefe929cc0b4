// Calls of PeerAllreduce by one rank, checked against the scalar reference: dtypes, ops, counts on both sides
// of every limit, in place and not, aligned and not. Knows the stand-in only in that device memory can be
// read here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "backends/cuda/kernels.hpp"
#include "backends/cuda/memory.hpp"
#include "backends/cuda/peer_allreduce.hpp"
#include "runtime/kernels/reference.hpp"

namespace tutti::test {

struct PeerCase {
  Dtype dtype;
  Op op;
  std::size_t count;
  std::size_t offset;  // of the vectors from aligned memory, in bytes
  bool is_in_place;
  cuda::Shots shots;
};

inline std::string describe(const PeerCase& one) {
  return std::string(to_string(one.op)) + " of " + std::string(to_string(one.dtype)) + " x " +
         std::to_string(one.count) + " at " + std::to_string(one.offset) +
         (one.is_in_place ? " in place" : "") + " by shots " + std::to_string(static_cast<int>(one.shots));
}

inline std::vector<PeerCase> peer_cases() {
  using cuda::Shots;
  std::vector<PeerCase> cases;
  std::uint64_t number = 0;
  for (int d = 0; d < kDtypeCount; ++d) {
    for (int o = 0; o < kOpCount; ++o) {
      const auto dtype = static_cast<Dtype>(d);
      const auto op = static_cast<Op>(o);
      if (op == Op::user || !is_scalar(dtype) || !is_legal(op, dtype)) continue;
      for (const Shots shots : {Shots::one, Shots::two}) {
        ++number;
        cases.push_back(
            {dtype, op, 1 + number * 37 % 301, number % 3 == 0 ? size_of(dtype) : 0, number % 2 == 0, shots});
      }
    }
  }
  // The longest is the longest of one shot.
  for (const std::size_t count : {1, 3, 16385, 40001, 65536}) {
    for (const Shots shots : {Shots::one, Shots::two}) {
      cases.push_back({Dtype::f32, Op::sum, count, 0, false, shots});
      cases.push_back({Dtype::bf16, Op::avg, count, 2, true, shots});
    }
  }
  return cases;
}

// A rank's input: small numbers, all ranks' known to each. Floating sums of few of them round, in rank order.
inline std::vector<std::byte> peer_input(const PeerCase& one, std::uint32_t rank, std::uint64_t call) {
  std::uint64_t state = call * 64 + rank;
  const auto random = [&state] {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return state >> 32U;
  };
  std::vector<std::byte> input(one.count * size_of(one.dtype));
  for (std::size_t i = 0; i < one.count; ++i) {
    std::byte* at = input.data() + i * size_of(one.dtype);
    const float value = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 7.0F;
    const double wide = value;
    if (one.dtype == Dtype::f32) {
      std::memcpy(at, &value, sizeof value);
    } else if (one.dtype == Dtype::f64) {
      std::memcpy(at, &wide, sizeof wide);
    } else if (is_narrow_float(one.dtype)) {
      const std::uint16_t code = encode_narrow(one.dtype, value);
      std::memcpy(at, &code, size_of(one.dtype));
    } else {
      const std::uint64_t bits = random() << 32U ^ random();
      std::memcpy(at, &bits, size_of(one.dtype));
    }
  }
  return input;
}

inline ReduceOp peer_op(const PeerCase& one) {
  if (one.op != Op::premul_sum) return one.op;
  return class_of(one.dtype) == DtypeClass::integer ? ReduceOp::premul_sum_integer(3)
                                                    : ReduceOp::premul_sum(0.3);
}

inline std::vector<std::byte> peer_expected(const PeerCase& one, std::uint32_t size, std::uint64_t call) {
  std::vector<std::vector<std::byte>> inputs;
  std::vector<const void*> pointers;
  for (std::uint32_t k = 0; k < size; ++k) {
    inputs.push_back(peer_input(one, k, call));
    auto& input = inputs.back();
    if (one.op == Op::premul_sum)
      scale_reference(peer_op(one), 1, one.dtype, input.data(), input.data(), one.count);
  }
  for (const auto& input : inputs) pointers.push_back(input.data());
  std::vector<std::byte> expected(one.count * size_of(one.dtype));
  reduce_reference(peer_op(one), one.dtype, expected.data(), pointers, one.count);
  if (one.op == Op::avg) {
    scale_reference(Op::avg, static_cast<int>(size), one.dtype, expected.data(), expected.data(), one.count);
  }
  return expected;
}

// Device memory that goes at the end of a scope; to be checked with has_memory(). Not freed between the calls
// of a group: freeing waits for all that the device does, and so for kernels that wait for this rank.
class PeerVector {
 public:
  explicit PeerVector(std::size_t size_bytes) {
    if ((*cuda::driver())->cuMemAlloc(&address_, size_bytes) != CUDA_SUCCESS) address_ = 0;
  }
  ~PeerVector() {
    if (address_ != 0) (*cuda::driver())->cuMemFree(address_);
  }
  PeerVector(const PeerVector&) = delete;
  PeerVector& operator=(const PeerVector&) = delete;
  bool has_memory() const { return address_ != 0; }
  std::byte* data() const { return static_cast<std::byte*>(cuda::pointer_to(address_)); }

 private:
  CUdeviceptr address_ = 0;
};

// Between host memory and a device's, in either direction; false where the driver refuses.
inline bool copy_now(void* dst, const void* src, std::size_t size_bytes) {
  return size_bytes == 0 ||
         (*cuda::driver())->cuMemcpy(cuda::address_of(dst), cuda::address_of(src), size_bytes) ==
             CUDA_SUCCESS;
}

// One call by the kernel of its signature.
inline Status start_by_kernel(cuda::PeerAllreduce& peers, void* dst, const void* src, std::size_t count,
                              Dtype dtype, const ReduceOp& op, CUstream stream, cuda::Shots shots) {
  const auto kernel = peers.find_kernel(count, dtype, op, shots);
  return kernel ? peers.start(*kernel, dst, src, count, op, stream) : kernel.status();
}

// Runs the cases in turn; the first that fails or is wrong, else empty. In the context of the device.
inline std::string exercise_peers(cuda::PeerAllreduce& peers, const std::vector<PeerCase>& cases,
                                  GroupServices& services, int device) {
  const std::uint32_t rank = services.rank();
  const std::uint32_t size = services.size();
  cuda::EventPool events(device);
  const auto first = cuda::Stream::create(device);
  const auto second = cuda::Stream::create(device);
  auto event = events.take();
  if (!first || !second || !event) return "no stream or event";
  std::size_t most_bytes = 0;
  for (const PeerCase& one : cases) {
    most_bytes = std::max(most_bytes, one.offset + one.count * size_of(one.dtype));
  }
  const PeerVector inputs(most_bytes);
  const PeerVector outputs(most_bytes);
  if (!inputs.has_memory() || !outputs.has_memory()) return "no memory";
  // Whatever may wait for the whole device is done before any rank's kernel waits for another's.
  char mine = 0;
  std::vector<char> all(size);
  if (const Status met = services.allgather(&mine, all.data(), 1); !met) return met.to_string();
  for (std::size_t call = 0; call < cases.size(); ++call) {
    const PeerCase& one = cases[call];
    const std::vector<std::byte> content = peer_input(one, rank, call);
    std::byte* src = inputs.data() + one.offset;
    std::byte* dst = one.is_in_place ? src : outputs.data() + one.offset;
    const CUstream stream = call % 3 == 2 ? second->get() : first->get();
    if (!copy_now(src, content.data(), content.size())) return describe(one) + ": no copy to the device";
    Status status = start_by_kernel(peers, dst, src, one.count, one.dtype, peer_op(one), stream, one.shots);
    if (status) status = event->record(stream);
    if (status) status = event->wait(Clock::now() + std::chrono::seconds(60));
    if (!status) return describe(one) + ": " + status.to_string();
    const std::vector<std::byte> expected = peer_expected(one, size, call);
    std::vector<std::byte> actual(expected.size());
    if (!copy_now(actual.data(), dst, actual.size())) return describe(one) + ": no copy from the device";
    if (actual != expected) return describe(one) + ": wrong result";
    if (one.is_in_place) continue;
    if (!copy_now(actual.data(), src, actual.size()) || actual != content) {
      return describe(one) + ": the input was written";
    }
  }
  return {};
}

}  // namespace tutti::test
