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
        self.processed_num = 0
        self.indices = []
        self.reset()

    def set_epoch(self, epoch):
        """Starts an epoch: all samples are to be used again."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx, batch_size):
        """Each rank has used a batch of this size. Ranks go through their parts together, so the index says nothing more."""
        self.processed_num += batch_size * self.num_replicas

    def load_state_dict(self, state_dict):
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def state_dict(self):
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def reset(self):
        """Divides what is left among the ranks that there are now. An iterator that runs keeps its part."""
        self.rank, self.num_replicas = rank(), size()
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(indices)
        self.remaining_indices = indices[self.processed_num :]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self):
        filled = self.remaining_indices
        if filled:
            filled = (filled * math.ceil(self.total_size / len(filled)))[: self.total_size]
        self.indices = filled[self.rank : self.total_size : self.num_replicas]
        return iter(self.indices)

    def __len__(self):
        return self.num_samples
