"""A rank of the tests of examples/torch: training over tutti is training over gloo, and training by one process.

Knows the examples' functions. usage: examples_program.py PART RANK SIZE STORE_FILE
"""
import contextlib
import csv
import importlib.util
import io
import json
import os
import runpy
import sys

import torch
import torch.distributed as dist

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
EXAMPLES = os.path.join(ROOT, "examples", "torch")
sys.path.insert(0, EXAMPLES)
# pylint: disable=wrong-import-position  # they lie beside the programs that import them
import curves
import function_approximation
import job
import lenet_digits
import pinn
import pipeline
import resnet50_model

HAS_DIGITS = importlib.util.find_spec("sklearn") is not None
HAS_PLOTS = importlib.util.find_spec("matplotlib") is not None


def options_of(program, *arguments, **more):
    """What the program's parser makes of the arguments, without its output."""
    options = program.make_parser().parse_args(["--steps", "6", *arguments])
    options.quiet = True
    vars(options).update(more)
    return options


def expect_close(ranks, mine, alone, what):
    """The mean over the ranks of their losses, step by step, is the loss of one process with all of their data."""
    means = [ranks.mean(loss) for loss in mine]
    torch.testing.assert_close(torch.tensor(means), torch.tensor(alone), rtol=1e-4, atol=1e-6, msg=f"{what}: {means}, alone {alone}")
    assert len(set(alone)) == len(alone), (what, alone)


def expect_same(ranks, over_tutti, over_gloo, what):
    """Of two ranks, a sum has one order only."""
    assert ranks.size > 2 or over_tutti == over_gloo, f"{what}: over tutti {over_tutti}, over gloo {over_gloo}"
    torch.testing.assert_close(torch.tensor(over_tutti), torch.tensor(over_gloo), rtol=1e-5, atol=1e-6)


def check_solutions():
    """The exact functions have no loss."""
    inside = curves.part_of_interval(0, 1, 20)[1:-1].double()
    poisson, approximation = pinn.Poisson(3), function_approximation.Approximation()
    losses = (poisson.loss(lambda points: poisson.exact(points) / (1 - points * points), inside), approximation.loss(approximation.exact, inside))
    for loss in losses:
        assert loss < 1e-20, loss


def check_curves(ranks, gloo):
    for program, problem in ((function_approximation, function_approximation.Approximation()), (pinn, pinn.Poisson())):
        options = options_of(program, own=False)
        _, mine = curves.train_together(ranks, problem, options)
        expect_same(ranks, mine, curves.train_together(ranks, problem, options, gloo)[1], problem.name)
        _, alone = curves.train_alone(problem, options, options.seed, curves.all_points(problem, ranks.size))
        expect_close(ranks, mine, alone, problem.name)
        _, predictions, _ = curves.train_ensemble(ranks, problem, options)
        for rank, prediction in enumerate(predictions):
            network, _ = curves.train_alone(problem, options, options.seed + rank, curves.all_points(problem, ranks.size))
            assert torch.equal(prediction, problem.predict(network, problem.prediction_points())), (problem.name, rank)


def check_lenet(ranks, gloo):
    options = options_of(lenet_digits)
    training, _ = lenet_digits.load_digits()
    _, mine = lenet_digits.train(ranks, training, options)
    expect_same(ranks, mine, lenet_digits.train(ranks, training, options, gloo)[1], "LeNet")
    groups = [dist.new_group([rank]) for rank in range(ranks.size)]
    options.batch *= ranks.size
    expect_close(ranks, mine, lenet_digits.train(pipeline.Alone, training, options, groups[ranks.rank])[1], "LeNet")


def check_pipeline(ranks, gloo):
    options = options_of(pipeline)
    alone = pipeline.train(pipeline.Alone, options)
    options.micro_batches = 1
    whole = pipeline.train(pipeline.Alone, options)
    options.micro_batches = 8
    torch.testing.assert_close(torch.tensor(alone), torch.tensor(whole), rtol=1e-4, atol=1e-6)
    for group in (None, gloo):
        losses = pipeline.train(ranks, options, group)
        assert losses == alone, (losses, alone)


def check_resnet50():
    with open(os.path.join(ROOT, "bench", "workloads", "gradients.csv"), encoding="utf-8") as file:
        expected = [int(row["elements"]) for row in csv.DictReader(file) if row["model"] == "resnet50"]
    assert [parameter.numel() for parameter in resnet50_model.make_resnet50().parameters()] == expected


def check_equivalence(ranks):
    gloo = dist.new_group(list(range(ranks.size)), backend="gloo")
    check_solutions()
    check_curves(ranks, gloo)
    check_pipeline(ranks, gloo)
    if HAS_DIGITS:
        check_lenet(ranks, gloo)
    if ranks.size == 2:
        check_resnet50()


def run_program(name, *arguments):
    """As a user starts it. Returns what it prints."""
    sys.argv = [name, *arguments]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        runpy.run_path(os.path.join(EXAMPLES, name), run_name="__main__")
    return said.getvalue()


def expect_refusal(words, name, *arguments):
    try:
        run_program(name, *arguments)
    except SystemExit as refusal:
        assert words in str(refusal.code) and "\n" not in str(refusal.code), refusal.code
    else:
        raise AssertionError(f"{name} {arguments} should not run")


def run_programs(rank, folder):
    def expect(words, name, *arguments):
        said = run_program(name, *arguments)
        for word in words if rank == 0 else ():
            assert word in said, f"{name} {arguments}: expected {word!r} in {said}"

    picture, numbers = os.path.join(folder, "curve.png"), os.path.join(folder, "steps.json")
    expect(["step     3  loss", "data parallel over 2 ranks (tutti)", "error"], "function_approximation.py", "--steps", "3", "--plot", picture)
    expect(["rank 1's network", "ensemble of 2 (gloo)", "spread"], "function_approximation.py", "--steps", "3", "--ensemble", "--backend", "gloo")
    expect(["data parallel over 2 ranks (tutti)"], "pinn.py", "--steps", "3")
    expect(["rank 1's network: relative error"], "pinn.py", "--steps", "3", "--own")
    expect(["bit for bit"], "pipeline.py", "--steps", "3", "--check")
    small = ("--width", "4", "--image", "32", "--batch", "2", "--rounds", "2", "--steps", "1")
    words = ["gradients over gloo: the same bits", "one rank alone", "tutti  ", "gloo  "]
    expect(words, "resnet50.py", *small, "--against", "gloo,mpi", "--json", numbers)
    if not HAS_DIGITS:
        expect_refusal("pip install scikit-learn", "lenet_digits.py")
    else:
        expect(["of 360 test images"], "lenet_digits.py", "--steps", "3")
    if not dist.is_mpi_available():
        expect_refusal("built without MPI", "pipeline.py", "--backend", "mpi")
    if rank == 0:
        assert os.path.exists(picture) or not HAS_PLOTS
        with open(numbers, encoding="utf-8") as file:
            found = json.load(file)
        assert len(found["times_s"]["tutti"]) == 2 and found["summary"]["gloo"]["images_per_s"] > 0, found


def main():
    rank, size, store = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), TUTTI_JOB_ID="test-" + os.path.basename(os.path.dirname(store)))
    for name in ("MASTER_ADDR", "TUTTI_ADDRESS"):
        os.environ.pop(name, None)
    with job.Job("tutti") as ranks:
        check_equivalence(ranks)
    if size == 2:
        run_programs(rank, os.path.dirname(store))
    print(f"rank {rank} of {size}: the examples are right" + ("" if HAS_DIGITS else "; LeNet is left out: no scikit-learn"), flush=True)


if __name__ == "__main__":
    main()
