// Checks the arguments of one call and finds out whether it is in place. Pure; knows no group, only rank and
// size.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/base/call.hpp"
#include "runtime/base/status.hpp"

namespace tutti {

// Decides Call::in_place from the pointers (the rules are in tutti.hpp) and normalises the buffers: in place
// `output` is the memory of the whole vector. To be called for every call, checked or not.
void normalise(Call& call, std::uint32_t rank, std::uint32_t size);

// Checks the arguments of function `name`. Errors: invalid_argument naming the argument: a null buffer, a
// root or peer that is no rank, a list of wrong length, an overflowing count. Also an op that the dtype
// lacks, and input and output that overlap without being in place. Before normalise().
Status check_call(std::string_view name, const Call& call, std::uint32_t rank, std::uint32_t size);

}  // namespace tutti
