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


def make_cast_compressor(name, narrow, wider, cast, dtype_of=lambda tensor: tensor.dtype):
    """A compressor that casts tensors of the wider dtypes to the narrow one and back. cast(tensor, dtype): the framework's."""

    def compress(tensor):
        return (cast(tensor, narrow), tensor.dtype) if dtype_of(tensor) in wider else (tensor, None)

    def decompress(tensor, ctx):
        return tensor if ctx is None else cast(tensor, ctx)

    return type(name, (Compressor,), {"compress": staticmethod(compress), "decompress": staticmethod(decompress)})


def compressed(collective, tensors, compression):
    """What collective, a function of a list of tensors, gives of compressed tensors: decompressed, as a list."""
    pairs = [compression.compress(tensor) for tensor in tensors]
    results = collective([narrow for narrow, _ in pairs])
    return [compression.decompress(result, context) for result, (_, context) in zip(results, pairs)]
