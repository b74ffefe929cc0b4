// Measured times of algorithms, and the names that others have for the catalogue's: two CSV files as values.
// Knows no model.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/selection/rules.hpp"

namespace tutti::tool {

// A table with named columns. Fields may be quoted; a quote in them is doubled.
struct CsvTable {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::size_t> lines;  // of each row, from 1

  // Errors: invalid_argument, naming the column and those that there are.
  Result<std::size_t> column(std::string_view name) const;
};
// Errors: invalid_argument with the line; an unreadable file.
Result<CsvTable> parse_csv(std::string_view text);
Result<CsvTable> read_csv(const std::string& path);

// The measurements of one job for one collective. Rows of different jobs are not compared, since jobs get
// other nodes and other conditions.
struct Job {
  std::string system, collective, library, name;  // name: date and number of the test
  std::uint32_t nodes = 1, ranks_per_node = 1;
  bool operator==(const Job&) const = default;
  bool operator<(const Job& other) const {
    return std::tie(system, collective, library, name, nodes, ranks_per_node) <
           std::tie(other.system, other.collective, other.library, other.name, other.nodes,
                    other.ranks_per_node);
  }
  std::uint32_t size() const { return nodes * ranks_per_node; }
};
// By name of the algorithm and bytes of the full vector: median time in microseconds.
using Times = std::map<std::string, std::map<std::uint64_t, double>>;
using Measurements = std::map<Job, Times>;
// Columns system, collective, nnodes, tasks_per_node, algo, elements_int32, median_us; where there are also
// lib, timestamp, test_id. Several rows of one job, algorithm and size: the last one counts.
Result<Measurements> read_measurements(const std::string& path);

// Which of the catalogue's algorithms a name means.
struct Alias {
  std::string name;
  RuleItem item;  // without conditions
};
// By collective, as the measurements write it; in the order of the file.
using AliasMap = std::map<std::string, std::vector<Alias>>;
// Columns collective, algo, algorithm (an item of the rules, "knomial(radix=4)"); others are notes.
Result<AliasMap> read_alias_map(const std::string& path);

// "BCAST" is broadcast. Errors: invalid_argument.
Result<Collective> collective_of(std::string_view name);

}  // namespace tutti::tool
