// Access of the implementation to private members of Work and Reduction. Knows no group.
#pragma once

#include <memory>
#include <utility>

#include "runtime/base/work.hpp"
#include "tutti/work.hpp"

namespace tutti {

struct WorkAccess {
  // `group` keeps the group alive as long as the Work.
  static Work make(std::shared_ptr<void> group, const WorkRef& state, std::uint32_t sequence,
                   const CallOptions& options = {}) {
    Work work;
    work.while_waiting_ = options.while_waiting;
    work.while_waiting_context_ = options.while_waiting_context;
    work.group_ = std::move(group);
    work.handle_ = detail::WorkHandle(state.operator->());
    work.sequence_ = sequence;
    return work;
  }
  static WorkState* state_of(const Work& work) { return static_cast<WorkState*>(work.handle_.get()); }
  static void* group_of(const Work& work) { return work.group_.get(); }
  static WaitHook hook_of(const Work& work) { return {work.while_waiting_, work.while_waiting_context_}; }
  static std::uint32_t sequence_of(const Work& work) { return work.sequence_; }  // 0: a message
};

namespace detail {
struct ReductionValue {
  bool has_integer_factor;
  bool is_commutative;
  std::uint32_t element_bytes;
  double factor;
  std::int64_t integer_factor;
  UserFunction function;
  void* context;
};
}  // namespace detail

struct ReductionAccess {
  static detail::ReductionValue value_of(const Reduction& r) {
    return {r.has_integer_factor_, r.is_commutative_, r.element_bytes_, r.factor_,
            r.integer_factor_,     r.function_,       r.context_};
  }
};

}  // namespace tutti
