"""Batch normalization over the batches of all ranks."""

import torch

from .._basics import Sum, size
from .mpi_ops import allreduce


class SyncBatchNorm(torch.nn.modules.batchnorm._BatchNorm):
    """As torch.nn.BatchNorm1d to 3d, with mean and variance over all ranks while training. Tensors of the CPU and of GPUs.

    Ranks may have batches of different size. Cost: one allreduce of 2 * num_features + 1 numbers forward and one backward.
    """

    def _check_input_dim(self, input):
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input):
        self._check_input_dim(input)
        uses_batch = self.training or not self.track_running_stats
        if not uses_batch or size() == 1:
            return super().forward(input)
        dims = [0, *range(2, input.dim())]
        shape = [1, -1] + [1] * (input.dim() - 2)
        wide = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        own_count = torch.full((1,), input.numel() // input.shape[1], dtype=wide.dtype, device=input.device)
        # Sums of deviations from the ranks' common estimate would need two calls; double precision needs none.
        sums = torch.cat([wide.sum(dims, dtype=torch.float64), (wide.double() ** 2).sum(dims), own_count.double()])
        # Differentiable: a rank's outputs depend on the inputs of all ranks, and Sum's gradient is the sum of their gradients.
        totals = allreduce(sums, op=Sum)
        features = self.num_features
        count = totals[-1].detach()
        mean = totals[:features] / count
        variance = (totals[features : 2 * features] / count - mean**2).clamp_min(0)
        self._track(mean.detach(), variance.detach() * (count / (count - 1).clamp_min(1)))
        factor = (variance + self.eps).rsqrt()
        output = (wide - mean.to(wide.dtype).view(shape)) * factor.to(wide.dtype).view(shape)
        if self.affine:
            output = output * self.weight.view(shape) + self.bias.view(shape)
        return output.to(input.dtype)

    def _track(self, mean, variance):
        if not (self.training and self.track_running_stats):
            return
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            momentum = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
            self.running_var.lerp_(variance.to(self.running_var.dtype), momentum)
