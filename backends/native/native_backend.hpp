// The native backend: catalogue row -> schedule -> plan -> scheduler, for one group.
// Knows no transport by name and no bootstrap.
#pragma once

#include <memory>

#include "backends/backend.hpp"
#include "runtime/algorithms/prove.hpp"
#include "runtime/base/wire_setting.hpp"
#include "runtime/scheduler/group_context.hpp"
#include "runtime/selection/selection.hpp"

namespace tutti {

// The lowered forms of an algorithm that ranks can carry out together, for `rank`, with scratch of at most
// `staging_bytes`; empty where it has none. `shared_row`: as Selection has it. Errors: as of emitting it.
Result<LoweredPlans> make_lowered_plans(const AlgorithmRow& row, const AlgorithmRow* shared_row,
                                        const Instance& instance, std::uint32_t rank,
                                        std::uint32_t most_lines, std::size_t staging_bytes);

// The control blocks of the group on which a call of so many bytes runs by that staged plan.
BlockKind choose_block_kind(const GroupContext& group, const Call& call, std::size_t vector_bytes,
                            const LoweredPlan& plan);

// `group` and `selector` outlive the backend. Plans are cached up to `cache_bytes`. `hierarchy`,
// `reach`, `shares_cpus`, `wire` and `spans_sockets` are equal on all members; of no ranks: flat.
std::unique_ptr<Backend> make_native_backend(GroupContext& group, const Selector& selector,
                                             std::size_t cache_bytes, Hierarchy hierarchy = {},
                                             Reach reach = Reach::node, bool shares_cpus = false,
                                             const WireSetting& wire = {}, bool spans_sockets = false);

}  // namespace tutti
