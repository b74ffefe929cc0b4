// Costs of cache lines between cores, by class of machine. Knows published figures, no topology and no clock.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/selection/cost.hpp"

namespace tutti {

struct MachineClass {
  std::string_view name;
  // From Level::core to Level::node.
  std::array<LineCost, 5> lines;
  bool far_reader_slows_all = false;
  std::uint64_t call_ps = 0;  // of a call, beside its lines
  std::string_view source;    // of the figures
};
std::span<const MachineClass> machine_classes();
// Null where there is none of that name.
const MachineClass* find_machine_class(std::string_view name);
// By the processor's model as the system calls it. An unknown one gets the newest class of its vendor, else Ice Lake.
const MachineClass& machine_class_of(std::string_view cpu_model);
void use_lines(const MachineClass& machine, CostModel& model);

// A node to ask about that nobody here owns.
struct NamedNode {
  std::string_view name, machine_class, synthetic;  // the topology in hwloc's notation
};
std::span<const NamedNode> named_nodes();
const NamedNode* find_named_node(std::string_view name);

}  // namespace tutti
