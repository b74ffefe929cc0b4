#!/usr/bin/env python3
"""Training steps of ResNet-50 (25.6 million parameters, random images) over tutti and other backends, in turn within one job.

    torchrun --nproc_per_node 2 resnet50.py
    tutti run -n 2 python3 resnet50.py --against gloo,mpi --json steps.json --plot steps.svg

Each round times, in an order that rotates: steps of one rank alone, steps of all ranks without communication (the network itself, not in
DDP), and steps over each backend in DDP. Printed are medians over the rounds with quartiles, of the slowest rank:
    images/s    of all ranks together
    efficiency  a step of one rank alone / a step of all: 100 % if further ranks cost nothing
    exposed     a step - a step without communication: what communication costs that arithmetic does not hide
    CPU         CPU time of a rank's threads in a step, which other programs on the machine change least
The learning rate is 0: the arithmetic is that of training, and all steps are alike.
"""
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

import job
import resnet50_model

ALONE, WITHOUT = "one rank alone", "without communication"


class Trainer:
    """A network of its own for each backend, equal at the start on all; without a group it does not communicate."""

    def __init__(self, options, group=None):
        torch.manual_seed(options.seed)
        self.model = self.network = resnet50_model.make_resnet50(options.width)
        if group is not None:
            self.model = torch.nn.parallel.DistributedDataParallel(self.network, process_group=group, bucket_cap_mb=options.bucket_mb,
                                                                   gradient_as_bucket_view=options.bucket_view)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.0, momentum=0.9)

    def step(self, images, labels):
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.model(images), labels)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def gradients(self):
        return torch.cat([parameter.grad.flatten() for parameter in self.network.parameters()])


def make_batch(rank, options):
    torch.manual_seed(options.seed + 1 + rank)
    return torch.randn(options.batch, 3, options.image, options.image), torch.randint(0, resnet50_model.CLASSES, (options.batch,))


def make_trainers(ranks, options, names):
    """By backend; those that this torch does not have are left out, which rank 0 says."""
    trainers = {}
    for name in names:
        reason = job.why_unavailable(name)
        if reason:
            ranks.say(f"{name} is left out: {reason}")
            continue
        group = dist.group.WORLD if name == options.backend else dist.new_group(list(range(ranks.size)), backend=name)
        trainers[name] = Trainer(options, group)
    return trainers


def compare_gradients(ranks, trainers, batch):
    """One step over each backend, which also warms up. Says how far the gradients are from those of the first."""
    first = None
    for name, trainer in trainers.items():
        trainer.step(*batch)
        if first is None:
            first = trainer.gradients()
            continue
        apart = ((trainer.gradients() - first).abs().max() / first.abs().max()).item()
        ranks.say(f"gradients over {name}: " + ("the same bits" if apart == 0 else f"within {apart:.0e} of the largest"))
        if not apart < 1e-3:
            raise RuntimeError(f"rank {ranks.rank}: gradients over {name} differ by {apart} of the largest")


def time_steps(ranks, trainer, batch, options, kind):
    """(seconds, seconds of CPU time of all its threads) per step on the slowest rank."""
    dist.barrier()
    spent = [0.0, 0.0]
    if kind != ALONE or ranks.rank == 0:
        begin, begin_cpu = time.perf_counter(), time.process_time()
        for _ in range(options.steps):
            trainer.step(*batch)
        spent = [(time.perf_counter() - begin) / options.steps, (time.process_time() - begin_cpu) / options.steps]
    slowest = torch.tensor(spent, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.tolist()


def measure(ranks, trainers, options):
    """Seconds per step, and seconds of CPU time, each by kind: a list with a number for each round."""
    batch = make_batch(ranks.rank, options)
    compare_gradients(ranks, trainers, batch)
    silent = Trainer(options)
    silent.step(*batch)
    kinds = [*trainers, WITHOUT, ALONE]
    times, cpu_times = {kind: [] for kind in kinds}, {kind: [] for kind in kinds}
    for number in range(options.rounds):
        for kind in kinds[number % len(kinds):] + kinds[:number % len(kinds)]:
            seconds, cpu_seconds = time_steps(ranks, trainers.get(kind, silent), batch, options, kind)
            times[kind].append(seconds)
            cpu_times[kind].append(cpu_seconds)
        if ranks.rank == 0:
            said = ", ".join(f"{kind} {times[kind][-1]:.3f}" for kind in kinds)
            print(f"round {number + 1} of {options.rounds}: {said} s", file=sys.stderr, flush=True)
    return times, cpu_times


def quartiles(numbers):
    """(lower, median, upper)."""
    if len(numbers) < 2:
        return (numbers[0],) * 3
    return tuple(statistics.quantiles(numbers, n=4, method="inclusive"))


def summarise(times, cpu_times, backends, images):
    """By backend. `images` of all ranks in a step. Differences and ratios are taken within a round."""
    result = {}
    for name in backends:
        steps = times[name]
        result[name] = {
            "step_s": quartiles(steps),
            "images_per_s": images / statistics.median(steps),
            "efficiency": quartiles([alone / step for alone, step in zip(times[ALONE], steps)]),
            "exposed_s": quartiles([step - without for without, step in zip(times[WITHOUT], steps)]),
            "cpu_s": quartiles(cpu_times[name]),
        }
    return result


def print_table(ranks, times, cpu_times, summary, options):
    parameters = sum(p.numel() for p in resnet50_model.make_resnet50(options.width).parameters())
    print(f"ResNet-50 ({parameters / 1e6:.1f} M parameters), {options.batch} images of {options.image} x {options.image} per rank, "
          f"{ranks.size} ranks on {len(os.sched_getaffinity(0))} CPUs, threads per rank: {torch.get_num_threads()}, torch {torch.__version__}, "
          f"{options.rounds} rounds of {options.steps} steps")
    for kind in (ALONE, WITHOUT):
        low, middle, high = quartiles(times[kind])
        print(f"{kind + ':':23} {1000 * middle:7.0f} ms per step ({1000 * low:.0f} to {1000 * high:.0f}), "
              f"{1000 * statistics.median(cpu_times[kind]):.0f} ms of CPU time")
    print(f"{'backend':8} {'step ms':>8} {'(quartiles)':>16} {'images/s':>9} {'efficiency':>11} {'exposed ms':>11} {'(quartiles)':>16} {'CPU ms':>8}")
    for name, row in summary.items():
        low, middle, high = (1000 * number for number in row["step_s"])
        least, exposed, most = (1000 * number for number in row["exposed_s"])
        print(f"{name:8} {middle:8.0f} {f'({low:.0f} to {high:.0f})':>16} {row['images_per_s']:9.2f} {100 * row['efficiency'][1]:10.0f}% "
              f"{exposed:11.0f} {f'({least:.0f} to {most:.0f})':>16} {1000 * row['cpu_s'][1]:8.0f}")


def draw(path, times, summary, title):
    plot = job.pyplot()
    if plot is None:
        return
    figure, axes = plot.subplots(figsize=(6, 0.6 * len(times) + 1.4))
    kinds = [*summary, WITHOUT, ALONE]
    for position, kind in enumerate(reversed(kinds)):
        milliseconds = [1000 * seconds for seconds in times[kind]]
        axes.barh(position, statistics.median(milliseconds), color="tab:blue" if kind in summary else "lightgrey")
        axes.plot(milliseconds, [position] * len(milliseconds), ".", color="black", markersize=3)
    axes.set_yticks(range(len(kinds)), list(reversed(kinds)))
    axes.set_xlabel("ms per step: median, and each round")
    axes.set_title(title)
    figure.tight_layout()
    figure.savefig(path)
    print(f"wrote {path}")


def make_parser():
    parser = job.parser(__doc__.splitlines()[0], 3)
    parser.add_argument("--against", default="gloo", help="other backends, separated by commas: gloo, mpi (default: %(default)s; empty for none)")
    parser.add_argument("--rounds", type=int, default=9, help="(default: %(default)s)")
    parser.add_argument("--batch", type=int, default=4, help="images per rank and step, at least 2 (default: %(default)s)")
    parser.add_argument("--image", type=int, default=32, help="pixels of an edge, a multiple of 32 (default: %(default)s)")
    parser.add_argument("--width", type=int, default=resnet50_model.WIDTH, help="of the first layers; others than 64 are not ResNet-50")
    parser.add_argument("--bucket-mb", type=float, default=25, help="DDP's buckets (default: %(default)s)")
    parser.add_argument("--bucket-view", action="store_true", help="gradients lie in DDP's buckets (gradient_as_bucket_view): no copies")
    parser.add_argument("--json", metavar="FILE", help="write all times and the summary")
    parser.add_argument("--plot", metavar="FILE", help="draw the times (PNG, SVG, PDF; needs matplotlib)")
    return parser


def main():
    parser = make_parser()
    options = parser.parse_args()
    for name, least in (("steps", 1), ("rounds", 1), ("batch", 2), ("image", 32)):
        if getattr(options, name) < least:
            parser.error(f"--{name}: expected at least {least}, got {getattr(options, name)}")
    names = list(dict.fromkeys([options.backend, *filter(None, options.against.split(","))]))
    with job.Job(options.backend) as ranks:
        trainers = make_trainers(ranks, options, names)
        times, cpu_times = measure(ranks, trainers, options)
        summary = summarise(times, cpu_times, trainers, ranks.size * options.batch)
        if ranks.rank == 0:
            print_table(ranks, times, cpu_times, summary, options)
            if options.json:
                record = {"options": vars(options), "ranks": ranks.size, "torch": torch.__version__, "times_s": times, "cpu_times_s": cpu_times,
                          "summary": summary}
                with open(options.json, "w", encoding="utf-8") as file:
                    json.dump(record, file, indent=1)
            if options.plot:
                draw(options.plot, times, summary, f"ResNet-50, {ranks.size} ranks, torch {torch.__version__}")


if __name__ == "__main__":
    main()
