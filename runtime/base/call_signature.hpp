// The signature of a call with one count for all ranks: everything but its buffers. Calls of one signature
// share their choice and their plan. In whole words, since the question of a call that repeats is whether it
// is equal to an earlier one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "runtime/base/call.hpp"

namespace tutti {

class CallSignature {
 public:
  CallSignature() = default;
  CallSignature(Collective collective, std::uint64_t count, Dtype dtype, std::uint32_t root,
                std::uint32_t tag = 0, bool is_send = false)
      : count_(count),
        root_and_tag_(root | std::uint64_t{tag} << 32U),
        kind_(static_cast<std::uint64_t>(collective) | static_cast<std::uint64_t>(dtype) << 8U |
              static_cast<std::uint64_t>(Op::sum) << kOpShift | std::uint64_t{is_send} << kSendShift) {
    static_assert(static_cast<unsigned>(Op::sum) == 0, "set_op() adds the op");
  }
  // Of a call that is_simple().
  explicit CallSignature(const Call& call)
      : CallSignature(call.collective, call.count, call.dtype, call.root, call.tag, call.is_send) {
    set_op(call.op.op);
    set_wire_dtype(call.wire_dtype);
    kind_ |= std::uint64_t{call.in_place} << kInPlaceShift;
  }
  // Is a call's signature all that it is? Not if it has counts by rank, a residual, or an op or elements with
  // arguments of their own. The scalar of premul_sum is no part of a plan.
  static bool is_simple(const Call& call) {
    return !has_uneven_blocks(call) && call.op.op != Op::user && call.dtype != Dtype::opaque &&
           call.residual == nullptr;
  }
  void set_wire_dtype(std::optional<Dtype> dtype) {
    if (dtype) kind_ |= (static_cast<std::uint64_t>(*dtype) + 1) << kWireShift;
  }
  void set_op(Op op) { kind_ |= static_cast<std::uint64_t>(op) << kOpShift; }

  // Zero if they are equal. Without branches: they nearly always are.
  std::uint64_t difference(const CallSignature& other) const {
    return (count_ ^ other.count_) | (root_and_tag_ ^ other.root_and_tag_) | (kind_ ^ other.kind_);
  }
  bool operator==(const CallSignature& other) const { return difference(other) == 0; }

  std::uint64_t count() const { return count_; }
  Collective collective() const { return static_cast<Collective>(kind_ & 0xFFU); }
  // Without its op and buffers.
  Call described() const {
    Call call;
    call.collective = collective();
    call.dtype = static_cast<Dtype>(kind_ >> 8U & 0xFFU);
    call.is_send = (kind_ >> kSendShift & 1U) != 0;
    call.root = static_cast<std::uint32_t>(root_and_tag_);
    call.tag = static_cast<std::uint32_t>(root_and_tag_ >> 32U);
    call.count = count_;
    if (const std::uint64_t wire = kind_ >> kWireShift; wire != 0)
      call.wire_dtype = static_cast<Dtype>(wire - 1);
    return call;
  }
  std::size_t hash() const {
    return std::hash<std::uint64_t>()((count_ * 0x9E3779B97F4A7C15U) ^ kind_ ^ (root_and_tag_ << 32U));
  }

 private:
  static constexpr unsigned kOpShift = 16, kSendShift = 24, kInPlaceShift = 25, kWireShift = 32;

  std::uint64_t count_ = 0;
  std::uint64_t root_and_tag_ = 0;
  std::uint64_t kind_ = 0;  // collective, dtype and op, a byte each; is_send, in place; wire dtype + 1
};

}  // namespace tutti
