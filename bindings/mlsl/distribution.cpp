// Groups of a distribution. See distribution.hpp.
#include "bindings/mlsl/distribution.hpp"

#include <string>
#include <unordered_map>

#include "bindings/mlsl/environment.hpp"
#include "bindings/mlsl/failure.hpp"

namespace tutti::mlsl {
namespace {

CommGroup make_group(const CommGroup& global, const std::vector<int>& members, bool may_share) {
  if (may_share && members.size() == static_cast<std::size_t>(global.size())) return global;
  return global.create(members);
}

}  // namespace

Colors colors_of(std::size_t rank, std::size_t data_partitions, std::size_t model_partitions) {
  const std::size_t ranks = data_partitions * model_partitions;
  const std::size_t replica = rank / ranks, local = rank % ranks;
  return {static_cast<int>(replica * ranks + local % model_partitions),
          static_cast<int>(replica * ranks + local / model_partitions)};
}

std::vector<int> members_of(const std::vector<Colors>& colors, std::size_t rank, int Colors::*kind) {
  const int color = colors[rank].*kind;
  if (color < 0) return {static_cast<int>(rank)};
  std::vector<int> members;
  for (std::size_t other = 0; other < colors.size(); ++other)
    if (colors[other].*kind == color) members.push_back(static_cast<int>(other));
  return members;
}

std::vector<Place> places_of(const std::vector<Colors>& colors) {
  std::vector<Place> places(colors.size());
  const auto count = [&](int Colors::*kind, std::size_t Place::*index, std::size_t Place::*size) {
    std::unordered_map<int, std::size_t> sizes;
    for (std::size_t rank = 0; rank < colors.size(); ++rank)
      if (const int color = colors[rank].*kind; color >= 0) places[rank].*index = sizes[color]++;
    for (std::size_t rank = 0; rank < colors.size(); ++rank)
      if (const int color = colors[rank].*kind; color >= 0) places[rank].*size = sizes[color];
  };
  count(&Colors::data, &Place::data_index, &Place::data_count);
  count(&Colors::model, &Place::model_index, &Place::model_count);
  return places;
}

DistributionImpl::DistributionImpl(const CommGroup& global, const std::vector<Colors>& colors)
    : places(places_of(colors)),
      model_members(members_of(colors, static_cast<std::size_t>(global.rank()), &Colors::model)) {
  const auto rank = static_cast<std::size_t>(global.rank());
  groups[MLSL::GT_DATA] = make_group(global, members_of(colors, rank, &Colors::data),
                                     !environment().settings().duplicates_groups);
  groups[MLSL::GT_MODEL] = make_group(global, model_members, true);
  groups[MLSL::GT_GLOBAL] = global;
}

const CommGroup& DistributionImpl::group(MLSL::GroupType type) const {
  const auto index = static_cast<std::size_t>(type);
  if (index >= groups.size())
    fail("group type " + std::to_string(index) + " is none of GT_DATA, GT_MODEL, GT_GLOBAL");
  return groups[index];
}

const TensorQueue& DistributionImpl::tensors() {
  if (!queue.is_open()) queue = TensorQueue(group(MLSL::GT_DATA));
  return queue;
}

}  // namespace tutti::mlsl
