// Error feedback: the share that each rank keeps of the loss of a rounding. Knows no dtype and no residual.
#pragma once

#include <span>

#include "runtime/base/status.hpp"
#include "runtime/schedule/schedule.hpp"

namespace tutti {

// Several ranks may form one value and round it alike. Each then keeps an equal share of the loss, so that the shares
// of all ranks together are the difference between the exact result and the rounded one.
// `ranks`: the compressed schedules of all ranks, which end with equal bits. Returns the steps of `rank`: `peer` of a
// copy to a wire copy is the number of copies, on all ranks, that round this value.
// Cost: that of verify().
Result<Schedule> share_losses(std::span<const Schedule> ranks, std::uint32_t rank);

}  // namespace tutti
