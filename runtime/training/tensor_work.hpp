// A tensor's operation as its submitter sees it: complete when the queue says so. Knows no buffer.
#pragma once

#include "runtime/base/completable_work.hpp"

namespace tutti {

// Its source() is, of a join, the last rank.
class TensorWork final : public CompletableWork {
 public:
  // The work that a reference made for a tensor holds.
  static TensorWork& of(const WorkRef& work) { return static_cast<TensorWork&>(*work.operator->()); }

  bool test() override { return is_complete(); }
  Status wait(Clock::time_point deadline) override;
};

}  // namespace tutti
