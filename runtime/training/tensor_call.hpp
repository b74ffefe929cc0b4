// A call on a named tensor: its arguments checked, and turned into the request that other ranks see.
// Knows no other rank.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/training/tensor_request.hpp"
#include "tutti/tensors.hpp"

namespace tutti {

// Errors: invalid_argument naming the tensor, what was given and what was expected.
Status check_tensor_call(std::string_view name, const TensorCall& call, std::uint32_t size);
// Whether losses of rounding are added at the tensor's next step. `by_default`: where the call does not say.
bool has_feedback(const TensorCall& call, bool by_default);
// Of a call that is right.
TensorRequest make_tensor_request(std::string_view name, const TensorCall& call);
// Of an alltoall that is right: the rows for each rank. Empty of others.
std::vector<std::uint64_t> rows_to_ranks(const TensorCall& call, std::uint32_t size);

}  // namespace tutti
