"""How gradients are reduced on Keras's backend torch, and what the backend jax shares with it."""

from .._gradients import Reduction
from .._operations import synchronize
from ..compression import NoneCompressor, compressed


class CompressedReduction(Reduction):
    def __init__(self, name, compression=NoneCompressor, **options):
        super().__init__(name, **options)
        self._compression = compression

    def _reduce_by(self, front_end, tensors, numbers, groups):
        """All are submitted before the first is waited for, so that small ones are fused."""
        groups = [[place] for place in range(len(tensors))] if groups is None else groups

        def reduce(narrow):
            handles = [
                front_end.grouped_allreduce_async(
                    [narrow[place] for place in group], name=f"{self.name}.gradient.{numbers[group[0]]}", **self.options
                )
                for group in groups
            ]
            results = [None] * len(narrow)
            for handle, group in zip(handles, groups):
                for place, result in zip(group, synchronize(handle)):
                    results[place] = result
            return results

        return compressed(reduce, tensors, self._compression)


class TorchReduction(CompressedReduction):
    """See Reduction."""

    def _reduce(self, gradients, numbers, groups):
        from .. import torch as front_end  # pylint: disable=import-outside-toplevel  # other backends lack it

        return self._reduce_by(front_end, [gradient.contiguous() for gradient in gradients], numbers, groups)
