// Boxes of a machine. Knows plans as values; see topology_drawing.hpp.
#include "tools/cli/topology_drawing.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "tools/cli/bench/report.hpp"
#include "tools/cli/files.hpp"
#include "tools/cli/json.hpp"
#include "tools/cli/process.hpp"
#include "tools/cli/topology_text.hpp"

namespace tutti::tool {
namespace {

constexpr std::size_t kLineWidth = 100;

bool overlaps(const PuRange& a, const PuRange& b) { return a.first < b.end() && b.first < a.end(); }

std::string ranks_on(const Plan& plan, std::uint32_t pu) {
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t rank = 0; rank < plan.placements.size(); ++rank) {
    const auto& pus = plan.placements[rank].pus;
    if (std::binary_search(pus.begin(), pus.end(), pu)) ranks.push_back(rank);
  }
  if (ranks.empty()) return plan.topology.pus[pu].is_allowed ? "." : "~";
  return cpu_list_text(ranks);
}

Json core_box(const Plan& plan, const PuRange& core) {
  std::vector<std::string> cells;
  for (std::uint32_t pu = core.first; pu < core.end(); ++pu) cells.push_back(ranks_on(plan, pu));
  const bool is_one =
      std::all_of(cells.begin(), cells.end(), [&](const std::string& cell) { return cell == cells[0]; });
  return {{"cpus", cpus_of(plan.topology, core)},
          {"ranks", is_one ? cells[0] : fmt::format("{}", fmt::join(cells, "|"))}};
}

std::string numa_name(const Topology& topology, const PuRange& group) {
  std::string name;
  for (const NumaNode& node : topology.numa_nodes) {
    if (node.pus == group)
      name +=
          fmt::format("{}NUMA node {}, {}", name.empty() ? "" : "; ", node.os_index, bytes_text(node.bytes));
  }
  return name.empty() ? "memory" : name;
}

std::string cache_name(const Topology& topology, const PuRange& group) {
  for (const Cache& cache : topology.caches) {
    if (cache.level == topology.last_level() && cache.pus == group)
      return fmt::format("L{} {}", cache.level, cache.bytes == 0 ? "" : bytes_text(cache.bytes));
  }
  return "no common cache";
}

// In the socket that they are next to; `socket` null: those that are next to no one socket.
Json device_boxes(const Plan& plan, const PuRange* socket) {
  const Topology& topology = plan.topology;
  Json boxes = Json::array();
  for (std::uint32_t i = 0; i < topology.devices.size(); ++i) {
    const PuRange& pus = topology.devices[i].pus;
    const auto holds = [&](const PuRange& range) {
      return pus.first >= range.first && pus.end() <= range.end();
    };
    const bool is_here = socket != nullptr
                             ? holds(*socket)
                             : std::none_of(topology.sockets.begin(), topology.sockets.end(), holds);
    if (!is_here) continue;
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t rank = 0; rank < plan.placements.size(); ++rank) {
      if (plan.placements[rank].gpu == i || plan.placements[rank].nic == i) ranks.push_back(rank);
    }
    Json box = device_json(topology, i);
    box["kind"] = topology.devices[i].kind == Device::Kind::gpu ? "GPU" : "NIC";
    box["ranks"] = cpu_list_text(ranks);
    boxes.push_back(std::move(box));
  }
  return boxes;
}

// Cores of a NUMA group by their last-level cache; neighbours without one are together.
Json cache_boxes(const Plan& plan, const PuRange& within) {
  const Topology& topology = plan.topology;
  Json boxes = Json::array();
  for (const PuRange& group : topology.groups_by_cache(topology.last_level())) {
    if (!overlaps(group, within)) continue;
    const std::string name = cache_name(topology, group);
    Json cores = Json::array();
    for (const PuRange& core : topology.cores) {
      if (overlaps(core, group) && overlaps(core, within) && group.contains(core.first))
        cores.push_back(core_box(plan, core));
    }
    if (cores.empty()) continue;
    // A cache for each core says nothing about who shares: one box for all of them.
    const bool joins = !boxes.empty() && cores.size() == 1 && boxes.back()["is_private"].boolean() &&
                       boxes.back()["name"].text() == name + " each";
    if (joins) {
      boxes.back()["cores"].push_back(cores.at(0));
    } else {
      boxes.push_back({{"name", cores.size() == 1 ? name + " each" : name},
                       {"is_private", cores.size() == 1},
                       {"cores", cores}});
    }
  }
  return boxes;
}

void append_devices(const Json& devices, std::string_view indent, std::string* text) {
  for (const Json& device : devices) {
    const std::string ranks = device["ranks"].text(), model = device["model"].text(),
                      name = device["name"].text();
    *text += fmt::format("{}{} {}", indent, device["kind"].text(), name);
    for (const Json& other : device["names"]) *text += other.text() == name ? "" : ", " + other.text();
    if (!model.empty()) *text += fmt::format(" ({})", model);
    if (!ranks.empty())
      *text +=
          fmt::format(": {} {}", ranks.find_first_of(",-") == std::string::npos ? "rank" : "ranks", ranks);
    *text += "\n";
  }
}

// Caches of one kind side by side, each in brackets if they are several.
void append_cores(const Json& caches, std::size_t first, std::size_t end, std::string* text) {
  std::size_t width = 1;
  for (std::size_t i = first; i < end; ++i) {
    for (const Json& core : caches.at(i)["cores"]) width = std::max(width, core["ranks"].text().size());
  }
  constexpr std::string_view kIndent = "     ";
  std::string line(kIndent);
  for (std::size_t i = first; i < end; ++i) {
    const Json& cores = caches.at(i)["cores"];
    for (std::size_t c = 0; c < cores.size(); ++c) {
      if (line.size() + width + 3 > kLineWidth) {
        *text += line + "\n";
        line = kIndent;
      }
      line += fmt::format(" {}{:<{}}{}", c == 0 && end - first > 1 ? "[" : "", cores.at(c)["ranks"].text(),
                          width, c + 1 == cores.size() && end - first > 1 ? "]" : "");
    }
  }
  *text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

}  // namespace

Json boxes_of(const Plan& plan) {
  const Topology& topology = plan.topology;
  Json sockets = Json::array();
  for (std::size_t i = 0; i < topology.sockets.size(); ++i) {
    const PuRange& socket = topology.sockets[i];
    Json groups = Json::array();
    for (const PuRange& group : topology.groups_by_numa()) {
      if (!overlaps(group, socket)) continue;
      const PuRange within{std::max(group.first, socket.first),
                           std::min(group.end(), socket.end()) - std::max(group.first, socket.first)};
      Json caches = cache_boxes(plan, within);
      if (caches.empty()) continue;
      groups.push_back({{"name", numa_name(topology, group)}, {"caches", std::move(caches)}});
    }
    sockets.push_back({{"name", fmt::format("socket {}, CPUs {}", i, cpus_of(topology, socket))},
                       {"groups", std::move(groups)},
                       {"devices", device_boxes(plan, &socket)}});
  }
  return {{"title", topology.source},
          {"rank_count", plan.placements.size()},
          {"policy", to_string(plan.request.policy)},
          {"sockets", std::move(sockets)},
          {"devices", device_boxes(plan, nullptr)}};
}

std::string draw(const Json& boxes) {
  std::string text;
  for (const Json& socket : boxes["sockets"]) {
    text += socket["name"].text() + "\n";
    for (const Json& group : socket["groups"]) {
      text += fmt::format("  {}\n", group["name"].text());
      const Json& caches = group["caches"];
      for (std::size_t first = 0, end = 0; first < caches.size(); first = end) {
        while (end < caches.size() && caches.at(end)["name"].text() == caches.at(first)["name"].text()) ++end;
        text += end - first == 1 ? fmt::format("    {}\n", caches.at(first)["name"].text())
                                 : fmt::format("    {} x {}\n", end - first, caches.at(first)["name"].text());
        append_cores(caches, first, end, &text);
      }
    }
    append_devices(socket["devices"], "  ", &text);
  }
  append_devices(boxes["devices"], "", &text);
  return text;
}

Status draw_svg(const Json& boxes, const std::string& path) {
  const auto script = find_data_file("cli/plot/plot_topology.py", "plot_topology.py");
  if (!script) return script.status();
  const std::string text = boxes.dump();
  const int fd = ::memfd_create("topology", 0);
  const bool is_written =
      fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int status =
      is_written ? run_and_wait({"python3", "-B", *script, fmt::format("/dev/fd/{}", fd), path}, false) : 1;
  if (fd >= 0) ::close(fd);
  if (status == kNotStarted) return unsupported("there is no python3");
  return status == 0 ? Status() : unsupported(fmt::format("nothing was drawn to {}", path));
}

}  // namespace tutti::tool
