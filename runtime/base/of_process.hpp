// Objects of which a process has one. Knows nothing of what they are.
#pragma once

#include "tutti/detail/process.hpp"

namespace tutti {

using detail::of_process;

}  // namespace tutti
