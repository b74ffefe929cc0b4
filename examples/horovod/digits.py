#!/usr/bin/env python3
"""Handwritten digits of scikit-learn: equal state on all ranks, a learning rate scaled by the ranks, checkpoints of rank 0, restart.

tutti run -n 2 python digits.py --checkpoint digits.pt      run it again, and it goes on from there
"""

import argparse
import os
import sys

import torch
import tutti.horovod.torch as hvd


def load_digits():
    """(training, test): images [n, 64] in [0, 1] and their labels."""
    try:
        from sklearn import datasets  # pylint: disable=import-outside-toplevel
    except ImportError:
        sys.exit("digits.py needs scikit-learn, which carries the digits: apt-get install python3-sklearn, or pip install scikit-learn")
    digits = datasets.load_digits()
    images, labels = torch.tensor(digits.images, dtype=torch.float32).reshape(-1, 64) / 16, torch.tensor(digits.target)
    is_test = torch.arange(len(labels)) % 5 == 0
    return (images[~is_test], labels[~is_test]), (images[is_test], labels[is_test])


def restore(path, model, optimizer):
    """The first epoch that is left to do, as rank 0 finds it; other ranks may lack the file."""
    epoch = 0
    if hvd.rank() == 0 and os.path.exists(path):
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        epoch = state["epoch"] + 1
    return hvd.broadcast_object(epoch, root_rank=0, name="epoch")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=32, help="images per rank and step")
    parser.add_argument("--checkpoint", default="", help="file that rank 0 writes after each epoch")
    parser.add_argument("--fp16", action="store_true", help="send gradients as half floats")
    options = parser.parse_args()

    hvd.init()
    torch.manual_seed(42)
    (images, labels), (test_images, test_labels) = load_digits()
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05 * hvd.size(), momentum=0.9)
    first_epoch = restore(options.checkpoint, model, optimizer)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if options.fp16 else hvd.Compression.none,
    )
    sampler = torch.utils.data.DistributedSampler(range(len(labels)), num_replicas=hvd.size(), rank=hvd.rank())
    for epoch in range(first_epoch, options.epochs):
        sampler.set_epoch(epoch)
        for batch in torch.tensor(list(sampler)).split(options.batch):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
        mean_loss = hvd.allreduce(loss.detach(), name="loss").item()
        if hvd.rank() == 0:
            print(f"epoch {epoch:2d}  loss {mean_loss:.4f}", flush=True)
            if options.checkpoint:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, options.checkpoint)

    mine = slice(hvd.rank(), None, hvd.size())
    with torch.no_grad():
        right = (model(test_images[mine]).argmax(1) == test_labels[mine]).sum()
    right = hvd.allreduce(right, op=hvd.Sum, name="right").item()
    if hvd.rank() == 0:
        print(f"{100 * right / len(test_labels):.1f} % of {len(test_labels)} test images are read right")


if __name__ == "__main__":
    main()
