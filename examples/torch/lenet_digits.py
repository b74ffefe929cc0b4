#!/usr/bin/env python3
"""LeNet-5 on the 1797 handwritten digits that scikit-learn carries: DistributedDataParallel, DistributedSampler, test accuracy.

    torchrun --nproc_per_node 2 lenet_digits.py
"""
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import job

TEST_SHARE = 5  # every fifth image


def load_digits():
    """(training, test) of images [n, 1, 8, 8] in [0, 1] with their labels."""
    try:
        from sklearn import datasets  # pylint: disable=import-outside-toplevel
    except ImportError:
        sys.exit("lenet_digits.py needs scikit-learn, which carries the digits: apt-get install python3-sklearn, or pip install scikit-learn")
    digits = datasets.load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target, dtype=torch.int64)
    is_test = torch.arange(len(labels)) % TEST_SHARE == 0
    return TensorDataset(images[~is_test], labels[~is_test]), TensorDataset(images[is_test], labels[is_test])


def make_lenet(seed):
    """LeNet-5's layers, for images of 8 x 8."""
    torch.manual_seed(seed)
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 2 * 2, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def train(ranks, training, options, group=None):
    """Returns the network and this rank's losses; of `options.steps` steps, in as many epochs as they take."""
    network = make_lenet(options.seed)
    model = torch.nn.parallel.DistributedDataParallel(network, process_group=group)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.rate)
    sampler = DistributedSampler(training, num_replicas=ranks.size, rank=ranks.rank, seed=options.seed)
    loader = DataLoader(training, batch_size=options.batch, sampler=sampler)
    losses, epoch = [], 0
    while len(losses) < options.steps:
        sampler.set_epoch(epoch)
        epoch += 1
        for images, labels in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if not options.quiet and job.is_said(len(losses), options.steps):
                ranks.say(f"step {len(losses):4d}  epoch {epoch:2d}  loss {ranks.mean(losses[-1]):.4f}")
            if len(losses) == options.steps:
                break
    return network, losses


def accuracy(ranks, network, test):
    """Share of the test images that are read right, each by one rank."""
    images, labels = (tensor[ranks.rank::ranks.size] for tensor in test.tensors)
    with torch.no_grad():
        right = (network(images).argmax(dim=1) == labels).sum()
    dist.all_reduce(right)
    return right.item() / len(test)


def make_parser():
    parser = job.parser(__doc__.splitlines()[0], 600)
    parser.add_argument("--batch", type=int, default=32, help="images per rank and step (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=0.003, help="learning rate (default: %(default)s)")
    return parser


def main():
    options = make_parser().parse_args()
    training, test = load_digits()
    with job.Job(options.backend) as ranks:
        network, _ = train(ranks, training, options)
        share = accuracy(ranks, network, test)
        ranks.say(f"LeNet, data parallel over {ranks.size} ranks ({options.backend}): {100 * share:.1f} % of {len(test)} test images are right")


if __name__ == "__main__":
    main()
