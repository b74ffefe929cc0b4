// Going on after members have died: who they are, and the backend of the others. Knows no collective.
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>

#include "bindings/torch/backend.hpp"

namespace tutti::torch_binding {

std::vector<int> TuttiBackend::dead_ranks() {
  try {
    if (successor_ == nullptr && !membership_->failure()) return {};
    return go_on_without({});
  } catch (const Error& error) {
    std::rethrow_exception(to_torch_exception(error, "dead_ranks"));
  }
}

std::vector<int> TuttiBackend::go_on_without(const std::vector<int>& left_out) {
  const auto ids_of = [](const CommGroup& group) { return group.member_ids(); };
  const std::vector<int> ids = membership_->use(ids_of);
  Membership& last = successor_ == nullptr ? *membership_ : *successor_;
  const std::vector<int> last_ids = last.use(ids_of);
  std::vector<int> still_there;  // ranks of the last group
  for (const int rank : left_out) {
    const auto found =
        std::lower_bound(last_ids.begin(), last_ids.end(), ids[static_cast<std::size_t>(rank)]);
    if (found != last_ids.end() && *found == ids[static_cast<std::size_t>(rank)])
      still_there.push_back(static_cast<int>(found - last_ids.begin()));
  }
  if (successor_ == nullptr || !still_there.empty()) {
    successor_ =
        Membership::make(last.use([&](const CommGroup& group) { return group.shrink(still_there); }));
  }
  const std::vector<int> remaining = successor_->use(ids_of);
  std::vector<int> gone;
  for (std::size_t rank = 0; rank < ids.size(); ++rank) {
    if (!std::binary_search(remaining.begin(), remaining.end(), ids[rank]))
      gone.push_back(static_cast<int>(rank));
  }
  return gone;
}

#if TUTTI_HAS_TORCH_2_13
namespace {

constexpr int kShrinkAbort = 1;  // SHRINK_ABORT of torch.distributed

}  // namespace

std::vector<int> TuttiBackend::check_excluded(const std::vector<std::int64_t>& ranks) const {
  std::vector<int> excluded;
  for (const std::int64_t rank : ranks) {
    TORCH_CHECK(rank >= 0 && rank < size_, "tutti: shrink: ranks_to_exclude: expected ranks from 0 to ",
                size_ - 1, ", got ", rank);
    TORCH_CHECK(rank != rank_, "tutti: shrink: ranks_to_exclude: rank ", rank_,
                " itself is among them: only those that stay call it");
    excluded.push_back(static_cast<int>(rank));
  }
  std::sort(excluded.begin(), excluded.end());
  excluded.erase(std::unique(excluded.begin(), excluded.end()), excluded.end());
  return excluded;
}

void TuttiBackend::finish_under_way() {
  for (const std::shared_ptr<Execution>& execution : take_under_way()) {
    try {
      execution->wait(kNoTimeout);
    } catch (const std::exception&) {
      continue;  // an error of the program's own call: its Work has it
    }
  }
}

c10::intrusive_ptr<c10d::Backend> TuttiBackend::shrink(const std::vector<std::int64_t>& ranks_to_exclude,
                                                       int shrink_flags,
                                                       const c10::intrusive_ptr<Options>& opts_override) {
  const std::vector<int> excluded = check_excluded(ranks_to_exclude);
  try {
    if (shrink_flags == kShrinkAbort) {
      membership_->abort("rank " + std::to_string(rank_) + " shrinks it");
    } else {
      finish_under_way();
    }
    const std::vector<int> gone = go_on_without(excluded);
    // torch numbers the ranks by its own list.
    TORCH_CHECK(gone == excluded, "tutti: shrink: ranks_to_exclude: expected all ranks that have died, ",
                join_numbers(gone), ", got ", join_numbers(excluded),
                ": call it again with those (tutti.torch.dead_ranks() returns them)");
    const CommGroup rest = successor_->use([](const CommGroup& group) { return group; });
    const std::string prefix = "without-" + join_numbers(gone, "-");
    auto backend = c10::make_intrusive<TuttiBackend>(c10::make_intrusive<c10d::PrefixStore>(prefix, store_),
                                                     rest, group_timeout_);
    if (opts_override && opts_override->timeout > kNoTimeout)
      backend->setTimeout(std::min(opts_override->timeout, group_timeout_));
    backend->ends_store_ = ends_store_ && gone.front() != 0 && rest.size() > 1;
    successor_->close();
    membership_->close();
    return backend;
  } catch (const Error& error) {
    std::rethrow_exception(to_torch_exception(error, "shrink"));
  }
}
#endif

}  // namespace tutti::torch_binding
