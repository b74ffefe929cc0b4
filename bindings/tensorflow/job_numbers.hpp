// Rank, size and the like as outputs of operations. Knows no collective.
#pragma once

#include "bindings/tensorflow/status.hpp"

namespace tutti::tensorflow {

enum class Number { rank, size, local_rank, local_size, is_included };

// Writes one into the operation's output, a scalar of 32 bits.
Failure put_job_number(TF_OpKernelContext* context, Number number, int process_set);

}  // namespace tutti::tensorflow
