// A hierarchy: the ranks of a group in domains that share something (a cache, a socket, a node), as a value.
// Knows no topology and no environment: whoever makes one says which ranks belong together.
//
// One level. A level more is a hierarchy over the domains (`upper`), which is again a value of this type.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// Domains are numbered in the order of their smallest ranks; a domain's members are in ascending order.
// Members need not be neighbours, nor domains equally large.
class Hierarchy {
 public:
  // Of no ranks: flat for a group of any size.
  Hierarchy() = default;
  // Ranks with equal labels are one domain.
  explicit Hierarchy(std::span<const std::uint32_t> label_of_rank);
  // `sizes` domains of neighbours, in rank order.
  static Hierarchy of_sizes(std::span<const std::uint32_t> sizes);

  // Domain d of this one is rank d of the other. A flat one adds nothing.
  Hierarchy with_upper(Hierarchy upper) const;
  const Hierarchy* upper() const { return upper_.empty() ? nullptr : upper_.data(); }

  // Large domains also in clusters of up to `most` neighbours, for one leader: nobody then hears from many at once.
  Hierarchy with_clusters(std::uint32_t most) const;
  // The same ranks in clusters, with this one's domains above them; null: none.
  const Hierarchy* clusters() const { return clusters_.empty() ? nullptr : clusters_.data(); }

  // Where ranks are alone in their domains, those of the level above together, until every rank has mates.
  Hierarchy with_joined() const;
  // The same ranks in joined domains, with the levels above them; null: none.
  const Hierarchy* joined() const { return joined_.empty() ? nullptr : joined_.data(); }

  std::uint32_t size() const { return static_cast<std::uint32_t>(domain_of_.size()); }
  std::uint32_t domain_count() const { return static_cast<std::uint32_t>(members_.size()); }
  std::uint32_t domain_of(std::uint32_t rank) const { return domain_of_[rank]; }
  const std::vector<std::uint32_t>& members(std::uint32_t domain) const { return members_[domain]; }
  std::uint32_t smallest_domain() const;
  std::uint32_t largest_domain() const;

  // Is there anything between one domain of all and one domain for each?
  bool is_flat() const { return domain_count() < 2 || domain_count() == size(); }
  bool is_even() const { return smallest_domain() == largest_domain(); }
  // Is every domain a range of neighbours, at each level? Then adding domain by domain keeps rank order.
  bool is_contiguous() const;

  bool operator==(const Hierarchy&) const = default;

 private:
  std::vector<std::uint32_t> domain_of_;              // by rank
  std::vector<std::vector<std::uint32_t>> members_;   // by domain
  std::vector<Hierarchy> upper_, clusters_, joined_;  // one, or none
};

// "2 domains: 0-3, 4-7"; with a level more "4 domains: 0-1, 2-3, 4-5, 6-7; of these 2 domains: 0-1, 2-3"
std::string to_text(const Hierarchy& hierarchy);

}  // namespace tutti
