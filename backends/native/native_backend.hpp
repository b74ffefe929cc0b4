// The native backend: catalogue row -> schedule -> plan -> scheduler, for one group.
// Knows no transport by name and no bootstrap.
#pragma once

#include <memory>

#include "backends/backend.hpp"
#include "runtime/scheduler/group_context.hpp"
#include "runtime/selection/selection.hpp"

namespace tutti {

// `group` and `selector` outlive the backend. Plans are cached up to `cache_bytes`. `hierarchy` and
// `reach` are equal on all members; of no ranks: flat.
std::unique_ptr<Backend> make_native_backend(GroupContext& group, const Selector& selector,
                                             std::size_t cache_bytes, Hierarchy hierarchy = {},
                                             Reach reach = Reach::node);

}  // namespace tutti
