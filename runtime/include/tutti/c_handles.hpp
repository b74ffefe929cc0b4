// C handles of C++ objects, for programs whose parts use one runtime through both interfaces.
#pragma once

#include "tutti/tensors.hpp"
#include "tutti/tutti.h"

#pragma GCC visibility push(default)
namespace tutti {

// Another handle of the same group, which the caller closes. Errors: invalid_argument for a closed one.
tutti_group_t make_c_handle(const CommGroup& group);
// Another handle of the same queue, for tutti_tensor_queue_submit() and its like. The caller closes it, which ends
// the queue as closing any handle does. A queue that was ended elsewhere refuses what is submitted. Errors:
// invalid_argument for a closed handle.
tutti_tensor_queue_t make_c_handle(const TensorQueue& queue);

}  // namespace tutti
#pragma GCC visibility pop
