"""A sampler that knows which samples of the epoch were used."""

import math
import random

import torch

from ..mpi_ops import rank, size


class ElasticSampler(torch.utils.data.Sampler):
    """Each rank's part of the samples that no rank has used in this epoch.

    shuffle: in an order that seed and epoch determine, equal on all ranks. The part is filled up so that ranks have equally many.
    """

    def __init__(self, dataset, shuffle=True, seed=0):
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_indices = set()
        self.reset()

    def set_epoch(self, epoch):
        """Starts an epoch: all samples are to be used again."""
        self.epoch = epoch
        self.processed_indices = set()
        self.reset()

    def record_batch(self, batch_idx, batch_size):
        """The samples of a batch of this rank have been used."""
        first = batch_idx * batch_size
        self.record_indices(self.indices[first : first + batch_size])

    def record_indices(self, indices):
        self.processed_indices.update(indices)

    def load_state_dict(self, state_dict):
        self.epoch = state_dict["epoch"]
        self.processed_indices = set(state_dict["processed_indices"])
        self.reset()

    def state_dict(self):
        return {"epoch": self.epoch, "processed_indices": self.processed_indices}

    def reset(self):
        """Divides what is left among the ranks that there are now."""
        self.rank, self.num_replicas = rank(), size()
        left = [index for index in range(len(self.dataset)) if index not in self.processed_indices]
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(left)
        self.num_samples = math.ceil(len(left) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        if left:
            left = (left * math.ceil(self.total_size / len(left)))[: self.total_size]
        self.remaining_indices = left
        self.indices = left[self.rank : self.total_size : self.num_replicas]

    def __iter__(self):
        return iter(self.indices)

    def __len__(self):
        return self.num_samples
