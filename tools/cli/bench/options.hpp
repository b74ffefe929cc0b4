// The arguments of `tutti bench`, checked as far as one process can. Knows no group and starts nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/harness/buffer.hpp"
#include "bench/harness/harness.hpp"
#include "runtime/base/status.hpp"
#include "tools/cli/bench/nodes.hpp"
#include "tools/cli/bench/placement.hpp"

namespace tutti::tool {

enum class Allocation : std::uint8_t { anonymous, tutti_heap };
enum class DeviceKind : std::uint8_t { host, cuda };
enum class Binding : std::uint8_t { automatic, none, core };

struct BenchOptions {
  Collective collective = Collective::allreduce;
  std::optional<Collective> then;  // follows each call, and is timed with it
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  int root = 0;
  std::size_t first_bytes = 0, last_bytes = 0, factor = 0;
  bench::LoopPlan loop;
  bool is_checked = false;
  bool in_place = false;
  DeviceKind device = DeviceKind::host;  // in whose memory the buffers are
  Allocation allocation = Allocation::anonymous;
  bench::Pages pages = bench::Pages::small;
  std::string algorithm;       // an item of the rule grammar; empty: the rules decide
  std::string workload;        // a name or a CSV file; empty: sizes
  bool has_submitted = false;  // beside each row the same calls submitted and waited for
  double overlap_ms = 0;       // of arithmetic beside the workload's calls; 0: they are timed alone
  bool is_step = false;        // training steps of the workload instead of its calls
  double compute_us = 100e3;   // of arithmetic in a step
  bool is_roofline = false;    // measure the machine's ceilings instead of a collective
  bool has_bounds = false;     // measure them beside each row and say how near it comes

  int rank_count = 0;  // of the job that is started here
  bool has_rank_count = false;
  bool uses_threads = false;
  Binding binding = Binding::automatic;
  MapLevel map = MapLevel::core;  // which CPU of its own a bound rank gets
  bool has_map = false;
  int neighbour_count = 0;  // busy processes beside the ranks
  std::vector<std::uint32_t>
      puppet_ranks;     // numbers of ranks of which one thread plays all but one; none: a job
  int puppet_rank = 0;  // the one that is not played

  std::string json_path, plot_path, html_path;
  NodePlan nodes;                    // no nodes: this one
  std::string rate;                  // of the links between nodes, as tc(8) takes it; empty: unlimited
  std::vector<std::string> against;  // peers' libraries
  int round_count = 5;               // of whatever is measured in turns, per size
  std::string peers_path;            // folder of the peers' programs; empty: beside this tool
  bool is_server = false;            // obey the line protocol of bench/peers (hidden)
  bool is_child = false;             // started by `tutti bench` itself (hidden)

  bool is_on_gpus() const { return device == DeviceKind::cuda; }
  bench::Shape shape_of(std::size_t bytes, int ranks) const {
    return bench::make_shape(collective, dtype, ranks, bytes, root);
  }
};

// Reads the arguments (argv[0] is "bench"). nullopt: the process is to end with *status, all is said already.
std::optional<BenchOptions> parse_bench_options(int argc, char** argv, int* status);

// "f32", and what people call it: float, float32, half, bfloat16, double, int32, ...
std::optional<Dtype> parse_dtype_synonym(std::string_view name);

}  // namespace tutti::tool
