// One result as one JSON object on one line: the fields that `tutti bench --json` and the peers' programs
// share. Knows no measurement and no library under test.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "bench/harness/harness.hpp"

namespace tutti::bench {

struct Record {
  std::string library;  // "tutti", "openmpi", "mpich", "gloo"; empty: the field is left out
  Shape shape;
  std::optional<Collective> then;  // what was timed together with it; none: the field is left out
  Op op = Op::sum;
  bool in_place = false;
  int nodes = 1;
  std::string map;        // the level that ranks were dealt over; empty: the field is left out
  int neighbours = 0;     // busy processes that were started beside the ranks; 0: the field is left out
  std::string algorithm;  // the row of the catalogue, or a peer's setting
  std::string transport;
  std::string backend;
  Measurement times;
  bool is_checked = true;         // false: nothing was verified, and "wrong" is null
  std::uint64_t wrong_count = 0;  // wrong elements, summed over the ranks
  std::string best_peer;          // on tutti's lines of a comparison; empty: both fields are left out
  double ratio = 0;               // best peer's p50 / ours: above 1 we are faster
  double bound_us = 0;            // the shortest possible time (bench/roofline); 0: these fields are left out
  std::string bound;              // how it comes about
};

// How much of what is possible was reached.
inline double roofline_percent(const Record& record) {
  return record.times.p50_us > 0 ? 100 * record.bound_us / record.times.p50_us : 0;
}

// The text in double quotes, escaped as JSON wants it.
inline std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + '"';
}

// One line without the newline.
inline std::string to_json(const Record& record) {
  std::string out = "{";
  auto field = [&](const char* name, const std::string& value) {
    if (out.size() > 1) out += ", ";
    out += '"';
    out += name;
    out += "\": ";
    out += value;
  };
  auto number = [](double value) {
    char text[32];  // as "%.6g", in every locale
    return std::string(text,
                       std::to_chars(text, text + sizeof text, value, std::chars_format::general, 6).ptr);
  };
  const Shape& shape = record.shape;
  const double algbw = algorithm_bandwidth_gbs(shape.bytes(), record.times.p50_us);
  if (!record.library.empty()) field("library", json_quoted(record.library));
  field("collective", json_quoted(to_string(shape.collective)));
  if (record.then) field("then", json_quoted(to_string(*record.then)));
  field("bytes", std::to_string(shape.bytes()));
  field("count", std::to_string(shape.count));
  field("dtype", json_quoted(to_string(shape.dtype)));
  field("op", json_quoted(is_reducing(shape.collective) ? to_string(record.op) : "none"));
  field("in_place", record.in_place ? "true" : "false");
  field("ranks", std::to_string(shape.ranks));
  field("nodes", std::to_string(record.nodes));
  if (!record.map.empty()) field("map", json_quoted(record.map));
  if (record.neighbours > 0) field("beside", std::to_string(record.neighbours));
  field("algorithm", json_quoted(record.algorithm));
  field("transport", json_quoted(record.transport));
  field("backend", json_quoted(record.backend));
  field("iterations", std::to_string(record.times.iteration_count));
  field("p50_us", number(record.times.p50_us));
  field("p95_us", number(record.times.p95_us));
  field("min_us", number(record.times.min_us));
  field("mean_us", number(record.times.mean_us));
  field("algbw_GBs", number(algbw));
  field("busbw_GBs", number(algbw * bus_factor(shape.collective, shape.ranks)));
  field("wrong", record.is_checked ? std::to_string(record.wrong_count) : "null");
  if (!record.best_peer.empty()) {
    field("best_peer", json_quoted(record.best_peer));
    field("ratio", number(record.ratio));
  }
  if (record.bound_us > 0) {
    field("bound_us", number(record.bound_us));
    field("roofline_percent", number(roofline_percent(record)));
    field("bound", json_quoted(record.bound));
  }
  return out + "}";
}

}  // namespace tutti::bench
