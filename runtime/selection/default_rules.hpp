// The automatic choice where nobody has said anything else. Knows no environment and no machine; that a row
// may run, and what it would cost, are the catalogue's and the cost model's business.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/base/types.hpp"

namespace tutti {

// Whether the ranks of a group share a node, or a network connects some of them.
enum class Reach : std::uint8_t { node, network };
inline constexpr Reach kReaches[] = {Reach::node, Reach::network};
std::string_view to_string(Reach reach);  // "on one node", "across nodes"

// There is a set of rules for each kind of group.
enum class DefaultSet : std::uint8_t {
  node,
  node_shared_cpus,
  network,
  network_shared_cpus,
  node_sockets,
  node_large_domains,
};
inline constexpr DefaultSet kDefaultSets[] = {DefaultSet::node,         DefaultSet::node_shared_cpus,
                                              DefaultSet::network,      DefaultSet::network_shared_cpus,
                                              DefaultSet::node_sockets, DefaultSet::node_large_domains};
std::string_view to_string(DefaultSet set);  // "on one node", "across nodes with more ranks than CPUs", ...
// The rules of some sets stand before those of node.
constexpr bool precedes_node(DefaultSet set) {
  return set == DefaultSet::node_sockets || set == DefaultSet::node_large_domains;
}
// `has_clusters`: some domain has so many ranks that the hierarchy has clusters in it.
constexpr DefaultSet default_set(Reach reach, bool shares_cpus, bool spans_sockets, bool has_clusters) {
  if (reach == Reach::network) return shares_cpus ? DefaultSet::network_shared_cpus : DefaultSet::network;
  if (shares_cpus) return DefaultSet::node_shared_cpus;
  if (has_clusters) return DefaultSet::node_large_domains;
  return spans_sockets ? DefaultSet::node_sockets : DefaultSet::node;
}

// The rules of a collective, in the grammar of selection/rules.hpp; the first legal item that matches is
// taken. Ends with an item that is always legal, but for sets that precede the node's.
std::string_view default_rules(Collective collective, DefaultSet set);
// Rules for calls without a named algorithm that take another row where the buffers of all ranks are shared;
// empty where there are none. The choice is made before a rank knows of the others' buffers, so it names both
// rows.
std::string_view shared_buffer_rules(Collective collective);

}  // namespace tutti
