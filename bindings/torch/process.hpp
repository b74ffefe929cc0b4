// Objects of which a process has one. Knows no group and no tensor.
#pragma once

#include "tutti/detail/process.hpp"

namespace tutti::torch_binding {

using tutti::detail::of_process;
// Another number in a child of fork().
inline unsigned process_generation() { return tutti::detail::fork_generation(); }

}  // namespace tutti::torch_binding
