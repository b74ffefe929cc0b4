// XHC's flat broadcast as lowered schedules, and what the model says of it: a table of measured times, read from a file
// (columns source, what, ranks, bytes, median_us), and the predicted time of each row.
#pragma once

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/selection/cost.hpp"
#include "runtime/selection/line_costs.hpp"

namespace tutti::bench {

struct FanOutTime {
  std::string machine;   // "SKX-24": the cores of two sockets
  bool is_root = false;  // else the median of the leaves
  std::uint32_t ranks = 0;
  std::uint64_t bytes = 0;
  double us = 0;
};

inline std::vector<FanOutTime> read_fan_out(const std::string& path) {
  std::vector<FanOutTime> times;
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::vector<std::string> fields;
    std::stringstream text(line);
    for (std::string field; std::getline(text, field, ',');) fields.push_back(field);
    if (line.rfind("XHC", 0) != 0 || fields.size() < 5) continue;
    times.push_back({fields[0].substr(fields[0].rfind(' ') + 1), fields[1].find("root") != std::string::npos,
                     static_cast<std::uint32_t>(std::stoul(fields[2])), std::stoull(fields[3]),
                     std::stod(fields[4])});
  }
  return times;
}

// The class that was fitted to that machine, and the cores of a socket.
inline const MachineClass& class_of(const std::string& machine) {
  return *find_machine_class(machine == "SKX-24"   ? "skylake-sp"
                             : machine == "CSX-48" ? "cascade-lake"
                                                   : "ice-lake");
}
inline std::uint32_t socket_cores(const std::string& machine) { return machine == "SKX-24" ? 12 : 24; }

// Ranks fill the first socket, then the second.
inline Places fan_out_places(std::uint32_t ranks, std::uint32_t per_socket) {
  Places places;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    places.node.push_back(0);
    places.cache.push_back(rank / per_socket);
    places.socket.push_back(rank / per_socket);
  }
  return places;
}

// The root leaves the barrier with its first signal, at which the time begins. It signals the data with the second and
// waits for all leaves in their order. A leaf's time begins when it leaves the barrier.
inline std::vector<Schedule> fan_out(std::uint32_t ranks) {
  std::vector<Schedule> schedules;
  const auto add = [](Schedule& s, Verb verb, std::uint32_t peer, std::uint32_t sequence) {
    Step step;
    step.verb = verb;
    step.peer = peer;
    step.sequence = sequence;
    s.append(step, {}, {});
  };
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    Schedule s;
    s.collective = Collective::broadcast;
    s.rank = rank;
    s.size = ranks;
    if (rank == 0) {
      add(s, Verb::signal, 0, 1);
      add(s, Verb::signal, 0, 2);
      for (std::uint32_t leaf = 1; leaf < ranks; ++leaf) add(s, Verb::wait, leaf, 1);
    } else {
      add(s, Verb::wait, 0, 1);
      add(s, Verb::wait, 0, 2);
      Step copy;
      Slice data;
      data.buffer = Buffer::input;
      data.owner = 0;
      s.append(copy, std::vector<Slice>{data}, {});
      add(s, Verb::signal, 0, 1);
    }
    schedules.push_back(std::move(s));
  }
  return schedules;
}

struct Predicted {
  double root_us = 0, leaf_us = 0;
};

inline Predicted predict_fan_out(std::uint32_t ranks, std::uint64_t bytes, std::uint32_t per_socket,
                                 const MachineClass& machine) {
  CostModel model;
  use_lines(machine, model);
  std::vector<std::vector<std::uint64_t>> ends;
  const auto price = price_schedules(fan_out(ranks), bytes, fan_out_places(ranks, per_socket), model, &ends);
  if (!price) return {};
  std::vector<std::uint64_t> leaves;
  for (std::uint32_t rank = 1; rank < ranks; ++rank) leaves.push_back(ends[rank][2] - ends[rank][0]);
  std::nth_element(leaves.begin(), leaves.begin() + static_cast<std::ptrdiff_t>(leaves.size() / 2),
                   leaves.end());
  const auto us = [&](std::uint64_t ps) { return static_cast<double>(ps + machine.call_ps) / 1e6; };
  return {us(ends[0].back()), us(leaves[leaves.size() / 2])};
}

// |predicted / measured - 1|, rising.
inline std::vector<double> fan_out_errors(const std::vector<FanOutTime>& times, const std::string& name,
                                          const MachineClass& machine) {
  std::map<std::pair<std::uint32_t, std::uint64_t>, Predicted> known;
  std::vector<double> errors;
  for (const FanOutTime& time : times) {
    if (time.machine != name) continue;
    const auto [found, is_new] = known.try_emplace({time.ranks, time.bytes});
    if (is_new) found->second = predict_fan_out(time.ranks, time.bytes, socket_cores(name), machine);
    const double predicted = time.is_root ? found->second.root_us : found->second.leaf_us;
    errors.push_back(std::abs(predicted / time.us - 1));
  }
  std::sort(errors.begin(), errors.end());
  return errors;
}

}  // namespace tutti::bench
