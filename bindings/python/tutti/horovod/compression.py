"""Dtypes of gradients on their way between ranks. A front end gives its casts."""


class Compressor:
    """compress() before a collective, decompress() after it with the context that compress() gave."""

    @staticmethod
    def compress(tensor):
        raise NotImplementedError

    @staticmethod
    def decompress(tensor, ctx):
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Leaves tensors as they are."""

    @staticmethod
    def compress(tensor):
        return tensor, None

    @staticmethod
    def decompress(tensor, ctx):
        return tensor


def make_cast_compressor(name, cast, is_wider):
    """A compressor that casts tensors of wider dtypes and back. cast(tensor, dtype): dtype None is the narrow one."""

    def compress(tensor):
        return (cast(tensor, None), tensor.dtype) if is_wider(tensor) else (tensor, None)

    def decompress(tensor, ctx):
        return tensor if ctx is None else cast(tensor, ctx)

    return type(name, (Compressor,), {"compress": staticmethod(compress), "decompress": staticmethod(decompress)})
