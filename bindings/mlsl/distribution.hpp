// How the ranks of the global group are divided into data and model groups. Knows no layer.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "bindings/mlsl/include/mlsl.hpp"
#include "tutti/tensors.hpp"

namespace tutti::mlsl {

// Ranks with equal colours are one group, in rank order. A negative colour: the rank is alone.
struct Colors {
  int data = 0;
  int model = 0;
};

// Of `rank` in D times M ranks and their replicas: M consecutive ranks are a model group, ranks M apart a data group.
Colors colors_of(std::size_t rank, std::size_t data_partitions, std::size_t model_partitions);

// A rank's place in its groups.
struct Place {
  std::size_t data_index = 0, data_count = 1;
  std::size_t model_index = 0, model_count = 1;
  bool operator==(const Place&) const = default;
};

// The ranks that share `rank`'s data (or model) colour, `rank` among them.
std::vector<int> members_of(const std::vector<Colors>& colors, std::size_t rank, int Colors::*kind);
std::vector<Place> places_of(const std::vector<Colors>& colors);

struct DistributionImpl : MLSL::Distribution {
  // `colors`: of all ranks of `global`. Collective, without communication.
  DistributionImpl(const CommGroup& global, const std::vector<Colors>& colors);

  // Errors: ends the job for a number that is no enumerator.
  const CommGroup& group(MLSL::GroupType type) const;
  const Place& place() const { return places[static_cast<std::size_t>(groups[MLSL::GT_GLOBAL].rank())]; }
  // Named gradients of the data group, for those with priority. Made by all ranks at the same time.
  const TensorQueue& tensors();

  std::array<CommGroup, 3> groups;  // by GroupType
  std::vector<Place> places;        // of all ranks of the global group
  std::vector<int> model_members;   // ranks of the global group
  TensorQueue queue;
};

inline DistributionImpl& impl(MLSL::Distribution* distribution) {
  return *static_cast<DistributionImpl*>(distribution);
}

}  // namespace tutti::mlsl
