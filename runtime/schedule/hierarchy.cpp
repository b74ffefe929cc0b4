// Grouping ranks by label, and questions about the groups. Knows the value only.
#include "runtime/schedule/hierarchy.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "runtime/base/status.hpp"

namespace tutti {

Hierarchy::Hierarchy(std::span<const std::uint32_t> label_of_rank) {
  std::map<std::uint32_t, std::uint32_t> domain_of_label;
  for (std::uint32_t rank = 0; rank < label_of_rank.size(); ++rank) {
    const auto [at, is_new] = domain_of_label.try_emplace(label_of_rank[rank], domain_count());
    if (is_new) members_.emplace_back();
    domain_of_.push_back(at->second);
    members_[at->second].push_back(rank);
  }
}

Hierarchy Hierarchy::of_sizes(std::span<const std::uint32_t> sizes) {
  std::vector<std::uint32_t> labels;
  for (std::uint32_t domain = 0; domain < sizes.size(); ++domain)
    labels.insert(labels.end(), sizes[domain], domain);
  return Hierarchy(labels);
}

std::uint32_t Hierarchy::smallest_domain() const {
  std::size_t smallest = size();
  for (const auto& domain : members_) smallest = std::min(smallest, domain.size());
  return static_cast<std::uint32_t>(smallest);
}

std::uint32_t Hierarchy::largest_domain() const {
  std::size_t largest = 0;
  for (const auto& domain : members_) largest = std::max(largest, domain.size());
  return static_cast<std::uint32_t>(largest);
}

bool Hierarchy::is_contiguous() const {
  return std::is_sorted(domain_of_.begin(), domain_of_.end()) &&
         (upper() == nullptr || upper()->is_contiguous());
}

Hierarchy Hierarchy::with_upper(Hierarchy upper) const {
  TUTTI_ASSERT(upper.size() == domain_count(), "a level more is over the domains");
  Hierarchy made = *this;
  made.upper_.clear();
  if (!upper.is_flat()) made.upper_.push_back(std::move(upper));
  return made;
}

Hierarchy Hierarchy::with_clusters(std::uint32_t most) const {
  std::vector<std::uint32_t> labels(size());
  std::uint32_t count = 0;
  for (const auto& domain : members_) {
    for (std::size_t i = 0; i < domain.size(); ++i) {
      if (i % most == 0) ++count;
      labels[domain[i]] = count;
    }
  }
  Hierarchy clusters(labels);
  std::vector<std::uint32_t> domain_of_cluster;
  for (const auto& cluster : clusters.members_) domain_of_cluster.push_back(domain_of_[cluster[0]]);
  Hierarchy over(domain_of_cluster);
  over.upper_ = upper_;
  Hierarchy made = *this;
  made.clusters_.clear();
  if (clusters.is_flat() || over.is_flat()) return made;
  clusters.upper_.push_back(std::move(over));
  made.clusters_.push_back(std::move(clusters));
  return made;
}

Hierarchy Hierarchy::with_joined() const {
  Hierarchy joined = *this;
  while (joined.smallest_domain() == 1 && joined.upper() != nullptr) {
    const Hierarchy upper = *joined.upper();
    std::vector<std::uint32_t> labels;
    for (const std::uint32_t domain : joined.domain_of_) labels.push_back(upper.domain_of(domain));
    joined = Hierarchy(labels);
    joined.upper_ = upper.upper_;
  }
  Hierarchy made = *this;
  made.joined_.clear();
  if (joined.smallest_domain() > std::max(smallest_domain(), 1U) && !joined.is_flat())
    made.joined_.push_back(std::move(joined));
  return made;
}

std::string to_text(const Hierarchy& hierarchy) {
  std::string text = fmt::format("{} domains:", hierarchy.domain_count());
  for (std::uint32_t d = 0; d < hierarchy.domain_count(); ++d) {
    text += d == 0 ? " " : ", ";
    const std::vector<std::uint32_t>& members = hierarchy.members(d);
    for (std::size_t i = 0; i < members.size();) {
      std::size_t last = i;
      while (last + 1 < members.size() && members[last + 1] == members[last] + 1) ++last;
      text += fmt::format("{}{}", i == 0 ? "" : "+", members[i]);
      if (last > i) text += fmt::format("-{}", members[last]);
      i = last + 1;
    }
  }
  if (hierarchy.upper() != nullptr) text += "; of these " + to_text(*hierarchy.upper());
  return text;
}

}  // namespace tutti
