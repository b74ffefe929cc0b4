// The table of machines, and where each of its figures is from.
//
// measured  the medians of XHC's flat broadcast (CARV-ICS-FORTH/XHC-OpenMPI, branch icpp-23, effect/data) on three
//           two-socket Xeons, fitted by bench/lines/fit.cpp. Hardware threads of a core: core-to-core-latency.
// published the medians of nviennot/core-to-core-latency (README): the time from a successful compare-exchange of one
//           core to that of the other, which is one transfer of a line. The other figures follow by the means of the
//           three Xeons: a further line takes 0.4 of a transfer, a line in a row a twelfth (as many misses are under way),
//           and 0.12 ns more for each other reader.
#include "runtime/selection/line_costs.hpp"

#include <algorithm>

namespace tutti {
namespace {

// 16 lines are 1 KiB.
constexpr LineCost published(std::uint64_t transfer_ps) {
  return {transfer_ps, transfer_ps * 2 / 5, transfer_ps * 16 / 12, 120 * 16};
}

// Of one last-level cache for each socket. Across sockets a further line takes as long as in one: the times do not tell
// the two apart.
constexpr std::array<LineCost, 5> xeon(const LineCost& near, const LineCost& far) {
  return {
      published(7'600), near, near, near, {far.transfer_ps, near.further_ps, far.kib_ps, far.crowd_kib_ps}};
}

constexpr std::uint64_t kCallPs = 66'000;

constexpr MachineClass kMachines[] = {
    {"skylake-sp", xeon({51'880, 22'280, 70'720, 3'040}, {192'770, 0, 144'000, 2'080}), true, 66'010,
     "measured (XHC SKX-24)"},
    {"cascade-lake", xeon({52'850, 24'270, 74'720, 1'600}, {238'630, 0, 190'720, 160}), true, 64'710,
     "measured (XHC CSX-48)"},
    {"ice-lake", xeon({56'810, 16'730, 65'760, 1'280}, {165'440, 0, 79'200, 1'440}), true, 66'810,
     "measured (XHC ICX-48)"},
    {"epyc",
     {published(9'800), published(23'000), published(107'000), published(107'000), published(197'000)},
     false,
     kCallPs,
     "published (EPYC 7R13, Milan: 23 ns in a CCX, 107 across, 197 across sockets)"},
    {"neoverse",
     {published(46'000), published(46'000), published(46'000), published(46'000), published(184'000)},
     false,
     kCallPs,
     "published (Graviton3: 46 ns); across two chips unpublished, taken as four times that"},
};

constexpr NamedNode kNodes[] = {
    {"xeon-2x12", "skylake-sp", "pack:2 l3:1 core:12 pu:1"},
    {"xeon-2x24", "cascade-lake", "pack:2 l3:1 core:24 pu:1"},
    {"xeon-2x32", "ice-lake", "pack:2 l3:1 core:32 pu:1"},
    {"epyc-64", "epyc", "pack:1 l3:8 core:8 pu:1"},
    {"epyc-2x32", "epyc", "pack:2 l3:4 core:8 pu:1"},
    {"epyc-2x64", "epyc", "pack:2 l3:8 core:8 pu:1"},
    {"epyc-2x128", "epyc", "pack:2 l3:16 core:8 pu:1"},
    {"grace-72", "neoverse", "pack:1 l3:1 core:72 pu:1"},
    {"grace-2x72", "neoverse", "pack:2 l3:1 core:72 pu:1"},
    {"grace-4x72", "neoverse", "pack:4 l3:1 core:72 pu:1"},
};

bool holds(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// The second digit of a Xeon's four is its generation: 8175M, 6242, 8375C.
char generation_of(std::string_view cpu_model) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (std::size_t at = 0; at + 4 <= cpu_model.size(); ++at) {
    if (at > 0 && is_digit(cpu_model[at - 1])) continue;
    const std::string_view four = cpu_model.substr(at, 4);
    if (std::all_of(four.begin(), four.end(), is_digit)) return four[1];
  }
  return '3';
}

}  // namespace

std::span<const MachineClass> machine_classes() { return kMachines; }

const MachineClass* find_machine_class(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kMachines), std::end(kMachines),
                                         [&](const MachineClass& machine) { return machine.name == name; });
  return found == std::end(kMachines) ? nullptr : found;
}

const MachineClass& machine_class_of(std::string_view cpu_model) {
  if (holds(cpu_model, "AMD") || holds(cpu_model, "EPYC")) return *find_machine_class("epyc");
  for (const std::string_view arm : {"Neoverse", "Graviton", "Grace", "ARM", "Ampere"}) {
    if (holds(cpu_model, arm)) return *find_machine_class("neoverse");
  }
  const char generation = holds(cpu_model, "Xeon") ? generation_of(cpu_model) : '3';
  return *find_machine_class(generation == '1'   ? "skylake-sp"
                             : generation == '2' ? "cascade-lake"
                                                 : "ice-lake");
}

void use_lines(const MachineClass& machine, CostModel& model) {
  std::copy(machine.lines.begin(), machine.lines.end(), model.lines.begin());
  model.far_reader_slows_all = machine.far_reader_slows_all;
}

std::span<const NamedNode> named_nodes() { return kNodes; }

const NamedNode* find_named_node(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kNodes), std::end(kNodes),
                                         [&](const NamedNode& node) { return node.name == name; });
  return found == std::end(kNodes) ? nullptr : found;
}

}  // namespace tutti
