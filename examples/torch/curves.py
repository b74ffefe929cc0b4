"""Training of a small network to be a function on [-1, 1], by data parallelism or as an ensemble; a problem says what its loss is.

Knows no particular problem: function_approximation.py and pinn.py are two. A problem has
    name, point_count, prediction_count
    loss(network, points)       a number to be minimised
    exact(points)               the function that is looked for
    predict(network, points)
"""
import warnings

import torch

import job

WIDTH, HIDDEN_LAYERS = 16, 2


def make_network(seed):
    """Two hidden layers of sixteen. The first begins with steeper functions, as the waves need them."""
    torch.manual_seed(seed)
    layers = []
    for inputs in [1] + [WIDTH] * (HIDDEN_LAYERS - 1):
        layers += [torch.nn.Linear(inputs, WIDTH), torch.nn.Tanh()]
    with torch.no_grad():
        for parameter in layers[0].parameters():
            parameter *= 3
    return torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 1))


def part_of_interval(part, parts, count):
    """`count` points of the part-th of `parts` equal pieces of [-1, 1], both ends included."""
    return torch.linspace(-1 + 2 * part / parts, -1 + 2 * (part + 1) / parts, count).unsqueeze(1)


def all_points(problem, parts):
    """The values of all ranks, in rank order."""
    return torch.cat([part_of_interval(part, parts, problem.point_count) for part in range(parts)])


class Loss(torch.nn.Module):
    """The loss as a module, so that derivatives of the network are taken within what DistributedDataParallel wraps."""

    def __init__(self, problem, network):
        super().__init__()
        self.problem, self.network = problem, network

    def forward(self, points):
        return self.problem.loss(self.network, points)


def minimise(loss, points, steps, rate, report=None):
    """Adam over `loss(points)`, with a rate that falls to a tenth; report(step, loss) after each step. Returns the losses."""
    optimizer = torch.optim.Adam(loss.parameters(), lr=rate)
    fall = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.1 ** (step / steps))
    losses = []
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        value = loss(points)
        value.backward()
        optimizer.step()
        fall.step()
        losses.append(value.item())
        if report is not None:
            report(step, losses[-1])
    return losses


def train_together(ranks, problem, options, group=None):
    """One network of all ranks, each with its part of the points. Returns it and this rank's losses."""
    # The layout of sixteen elements costs nothing worth a warning.
    warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
    network = make_network(options.seed)
    loss = torch.nn.parallel.DistributedDataParallel(Loss(problem, network), process_group=group)
    points = part_of_interval(ranks.rank, ranks.size, problem.point_count)

    def report(step, value):
        if job.is_said(step, options.steps):
            ranks.say(f"step {step:5d}  loss {ranks.mean(value):.3e}")

    return network, minimise(loss, points, options.steps, options.rate, None if options.quiet else report)


def train_alone(problem, options, seed, points, report=None):
    """A network of this rank alone. Returns it and its losses."""
    network = make_network(seed)
    return network, minimise(Loss(problem, network), points, options.steps, options.rate, report)


def run_together(ranks, problem, options):
    network, _ = train_together(ranks, problem, options)
    points = part_of_interval(0, 1, problem.prediction_count)
    prediction = problem.predict(network, points)
    error = relative_error(prediction, problem.exact(points))
    ranks.say(f"{problem.name}, data parallel over {ranks.size} ranks ({options.backend}): relative error {error:.2e}")
    draw(ranks, options, problem.name, [(points, prediction, problem.exact(points), "prediction")])


def train_ensemble(ranks, problem, options):
    """A network per rank, from a seed of its own, or with --own each for a task of its own. Returns all ranks' points, predictions, exact values."""
    mine, points, seed = problem, all_points(problem, ranks.size), options.seed + ranks.rank
    if options.own:
        mine, points = problem.of_rank(ranks.rank, ranks.size)
        seed = options.seed

    def report(step, value):
        if job.is_said(step, options.steps):
            ranks.say(f"step {step:5d}  loss {value:.3e}  (rank 0's network)")

    network, _ = train_alone(mine, options, seed, points, None if options.quiet else report)
    where = mine.prediction_points()
    return ranks.gather(where), ranks.gather(mine.predict(network, where)), ranks.gather(mine.exact(where))


def run_ensemble(ranks, problem, options):
    points, predictions, exact = train_ensemble(ranks, problem, options)
    for rank, prediction in enumerate(predictions):
        ranks.say(f"rank {rank}'s network: relative error {relative_error(prediction, exact[rank]):.2e}")
    if options.own:
        draw(ranks, options, problem.name, [(*curve, f"rank {rank}") for rank, curve in enumerate(zip(points, predictions, exact))])
        return
    together = torch.stack(predictions)
    mean, spread = together.mean(dim=0), together.std(dim=0, unbiased=False)
    ranks.say(f"{problem.name}, ensemble of {ranks.size} ({options.backend}): relative error of the mean {relative_error(mean, exact[0]):.2e}, "
              f"spread {spread.mean().item():.2e} on average, {spread.max().item():.2e} at most")
    draw(ranks, options, problem.name, [(points[0], mean, exact[0], "mean of the ensemble")], spread)


def relative_error(prediction, exact):
    return (torch.linalg.norm(prediction - exact) / torch.linalg.norm(exact)).item()


def draw(ranks, options, title, curves, spread=None):
    if ranks.rank != 0 or not options.plot:
        return
    plot = job.pyplot()
    if plot is None:
        return
    figure, axes = plot.subplots(figsize=(6, 3.5))
    for number, (points, prediction, exact, label) in enumerate(curves):
        x, y = points.flatten().tolist(), prediction.flatten().tolist()
        axes.plot(x, exact.flatten().tolist(), color="black", linewidth=1, label="exact" if number == 0 else None)
        axes.plot(x, y, linestyle="--", label=label)
        if spread is not None:
            wide = spread.flatten().tolist()
            axes.fill_between(x, [a - b for a, b in zip(y, wide)], [a + b for a, b in zip(y, wide)], alpha=0.3, label="spread")
    axes.set_title(title)
    axes.set_xlabel("x")
    axes.legend()
    figure.tight_layout()
    figure.savefig(options.plot)
    print(f"wrote {options.plot}")


def make_parser(description, own_help):
    parser = job.parser(description, 2000)
    parser.add_argument("--ensemble", action="store_true", help="a network per rank, from a seed of its own; mean and spread of their predictions")
    parser.add_argument("--own", action="store_true", help=own_help)
    parser.add_argument("--rate", type=float, default=0.02, help="Adam's first learning rate (default: %(default)s)")
    parser.add_argument("--plot", metavar="FILE", help="draw prediction and exact function (PNG, SVG, PDF; needs matplotlib)")
    return parser


def main(problem, parser):
    options = parser.parse_args()
    with job.Job(options.backend) as ranks:
        if options.ensemble or options.own:
            run_ensemble(ranks, problem, options)
        else:
            run_together(ranks, problem, options)
