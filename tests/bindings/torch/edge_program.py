"""A rank of the tests of tutti.torch: tensors without elements, overlapping ones, views, all dtypes, uneven lists, in every form of call.

Knows torch's interface only, of 1.13 and 2. usage: edge_program.py PART RANK SIZE STORE_FILE
"""
import rank_program as base
import torch
import torch.distributed as dist

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
          torch.complex64, torch.complex128]
DTYPES += [getattr(torch, name) for name in ("uint16", "uint32", "uint64", "complex32", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
                                             "float8_e5m2fnuz", "float8_e8m0fnu") if hasattr(torch, name)]


def numbers(shape, dtype, first):
    """Elements that tell each other apart in every dtype, written as bytes where torch cannot convert to it."""
    count = torch.Size(shape).numel()
    if dtype == torch.bool:
        return (torch.arange(count) + first).remainder(2).to(dtype).reshape(shape)
    if dtype.is_complex or dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        return (torch.arange(count) + first).to(torch.float32).to(dtype).reshape(shape)
    bytes_each = torch.empty(0, dtype=dtype).element_size()
    return (torch.arange(count * bytes_each) + first).remainder(100).to(torch.uint8).view(dtype).reshape(shape)


def same_bits(actual, expected, what):
    assert actual.dtype == expected.dtype and actual.shape == expected.shape, f"rank {base.RANK}: {what}: {actual}, expected {expected}"

    def bits(tensor):
        tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        return torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.reshape(-1)).view(torch.uint8).tolist()

    assert bits(actual) == bits(expected), f"rank {base.RANK}: {what}: {actual}, expected {expected}"


# How the tensors of a list lie in memory: chunks of one tensor, each for itself, or with other strides.
def as_chunks(tensors):
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    parts = flat.split([tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors)]


def as_they_are(tensors):
    return [tensor.clone() for tensor in tensors]


def as_strided(tensors):
    return [base.strided(tensor) for tensor in tensors]


LAYOUTS = (as_chunks, as_they_are, as_strided)


def count_between(source, target):
    """What `source` sends to `target`: nothing, for each pair of some diagonal."""
    return (source + 2 * target) % 3


def check_empty_parts_of_lists():
    """all_to_all and reduce_scatter whose lists have tensors without elements first, last and in between, or nothing else."""
    ranks = range(base.SIZE)
    for layout in LAYOUTS:
        for counts in (count_between, lambda s, t: 0 if t == 0 else 2, lambda s, t: 0 if s == 0 else 2, lambda s, t: 3 if s == t else 0, lambda s, t: 0):
            sent = layout([torch.full((counts(base.RANK, target),), 10.0 * base.RANK + target) for target in ranks])
            got = layout([torch.zeros(counts(source, base.RANK)) for source in ranks])
            dist.all_to_all(got, sent)
            for source in ranks:
                base.expect(got[source], torch.full((counts(source, base.RANK),), 10.0 * source + base.RANK), "all_to_all with empty parts")
        for sizes in ([0] * base.SIZE, [0] + [3] * (base.SIZE - 1), [3] * (base.SIZE - 1) + [0], [rank % 2 for rank in ranks]):
            output = torch.zeros(sizes[base.RANK])
            dist.reduce_scatter(output, layout([torch.full((sizes[target],), base.RANK + 1.0 + target) for target in ranks]))
            total = base.SIZE * (base.SIZE + 1) / 2 + base.SIZE * base.RANK
            base.expect(output, torch.full((sizes[base.RANK],), total), "reduce_scatter with empty parts")
            outputs = layout([torch.zeros(sizes[source]) for source in ranks])
            dist.all_gather(outputs, torch.full((sizes[base.RANK],), float(base.RANK)))
            for source in ranks:
                base.expect(outputs[source], torch.full((sizes[source],), float(source)), "uneven all_gather")


def check_every_dtype():
    """Moves every dtype, also numbers without dimensions, through every form."""
    ranks = range(base.SIZE)
    for dtype in DTYPES:
        for shape in ((), (0,), (2, 0, 3), (5,), (2, 3)):
            mine = numbers(shape, dtype, base.RANK)
            for layout in (as_they_are, as_strided) if dtype in DTYPES[:12] else (as_they_are,):
                outputs = layout([torch.zeros_like(mine) for _ in ranks])
                dist.all_gather(outputs, layout([mine])[0])
                for source in ranks:
                    same_bits(outputs[source], numbers(shape, dtype, source), f"all_gather {dtype} {shape}")
                value = layout([mine])[0]
                dist.broadcast(value, base.SIZE - 1)
                same_bits(value, numbers(shape, dtype, base.SIZE - 1), f"broadcast {dtype} {shape}")
                outputs = layout([torch.zeros_like(mine) for _ in ranks])
                dist.all_to_all(outputs, layout([mine] * base.SIZE))
                for source in ranks:
                    same_bits(outputs[source], numbers(shape, dtype, source), f"all_to_all {dtype} {shape}")
                output = layout([torch.zeros_like(mine)])[0]
                dist.scatter(output, layout([numbers(shape, dtype, target) for target in ranks]) if base.RANK == 0 else None, 0)
                same_bits(output, mine, f"scatter {dtype} {shape}")
                outputs = layout([torch.zeros_like(mine) for _ in ranks]) if base.RANK == 0 else None
                dist.gather(mine, outputs, 0)
                for source in ranks if base.RANK == 0 else ():
                    same_bits(outputs[source], numbers(shape, dtype, source), f"gather {dtype} {shape}")


def check_views():
    """Transposed, reversed by strides, conjugated, with holes."""
    ranks = range(base.SIZE)
    for view in (lambda t: t.t(), lambda t: t[:, 1:3], lambda t: t[::2], lambda t: t.unsqueeze(1).transpose(0, 2)):
        def make(rank, view=view):
            return view(torch.arange(24.0).reshape(6, 4) + 100 * rank)
        value = make(base.RANK)
        dist.all_reduce(value)
        base.expect(value.contiguous(), sum(make(rank) for rank in ranks).contiguous(), "all_reduce of a view")
        outputs = [torch.zeros_like(make(0)) for _ in ranks]
        dist.all_gather(outputs, make(base.RANK))
        for rank in ranks:
            base.expect(outputs[rank].contiguous(), make(rank).contiguous(), "all_gather of a view")
    if not base.IS_TORCH_2:
        return  # 1.13 hands a copy of conjugated tensors to every backend
    value = torch.tensor([1 + 2j, 3 - 1j]).conj()
    base.cpu_backend().allreduce([value]).wait()  # torch's own function cannot look at it as real numbers
    base.expect(value.resolve_conj(), torch.tensor([1 - 2j, 3 + 1j]) * base.SIZE, "all_reduce of a conjugated view")


def check_overlaps():
    """The same memory more than once in one call: all inputs are read first, and results are written in the order of the lists."""
    total = base.SIZE * (base.SIZE + 1) / 2
    once = torch.tensor([base.RANK + 1.0])
    dist.all_reduce_coalesced([once, once])
    base.expect(once, torch.tensor([total]), "all_reduce_coalesced of one tensor twice")
    whole = torch.arange(6.0) + base.RANK
    dist.all_reduce_coalesced([whole[:4], whole[2:], whole[1:2]])
    base.expect(whole, sum(torch.arange(6.0) + rank for rank in range(base.SIZE)), "all_reduce_coalesced of overlapping tensors")
    if base.SIZE == 1:
        return
    large = torch.full((100000,), base.RANK + 1.0)
    dist.all_reduce_coalesced([large] * 5)
    base.expect(large, torch.full((100000,), total), "all_reduce_coalesced of a large tensor five times")
    same = torch.zeros(3)
    dist.all_gather([same] * base.SIZE, torch.full((3,), float(base.RANK)))
    base.expect(same, torch.full((3,), base.SIZE - 1.0), "all_gather to one tensor: the last")
    whole = torch.arange(3.0 * base.SIZE) + 100 * base.RANK
    dist.all_gather(list(whole.split(3)), whole[:3])
    base.expect(whole, torch.cat([torch.arange(3.0) + 100 * rank for rank in range(base.SIZE)]), "all_gather of a part of the output")
    whole = torch.arange(float(base.SIZE)) + 10 * base.RANK
    dist.all_to_all(list(whole.split(1)), list(whole.split(1)))
    base.expect(whole, torch.tensor([10.0 * rank + base.RANK for rank in range(base.SIZE)]), "all_to_all in place")
    blocks = [torch.full((2,), base.RANK + 1.0) for _ in range(base.SIZE)]
    dist.reduce_scatter(blocks[0], blocks)
    base.expect(blocks[0], torch.full((2,), total), "reduce_scatter to one of its inputs")
    if not base.IS_TORCH_2:
        return
    source = torch.full((2,), float(base.RANK))
    output = torch.zeros(2 * base.SIZE + 2)
    gathered = torch.arange(float(base.SIZE)).repeat_interleave(2)
    dist.group.WORLD.allgather_into_tensor_coalesced([output[:-2], output[2:]], [source, source]).wait()
    base.expect(output, torch.cat([gathered[:2], gathered]), "allgather_into_tensor_coalesced to overlapping outputs")
    output = torch.zeros(2 * base.SIZE)
    inputs = [torch.full((2,), float(base.RANK)), output[:2]]
    output[:2] = 7.0 + base.RANK
    other = torch.zeros(2 * base.SIZE)
    dist.group.WORLD.allgather_into_tensor_coalesced([output, other], inputs).wait()
    base.expect(other, gathered + 7, "allgather_into_tensor_coalesced of an input in another's output")


def check_several_inputs():
    """The old form: every rank has several tensors, and every list of outputs gets all of all ranks."""
    backend = base.cpu_backend()
    outputs = [[torch.zeros(2) for _ in range(2 * base.SIZE)] for _ in range(2)]
    backend.allgather(outputs, [torch.full((2,), 10.0 * base.RANK), torch.full((2,), 10.0 * base.RANK + 1)]).wait()
    for tensors in outputs:
        for i, tensor in enumerate(tensors):
            base.expect(tensor, torch.full((2,), 10.0 * (i // 2) + i % 2), "all_gather of two tensors per rank")


def check_messages_to_oneself():
    """Of one rank, in either order; the Python functions refuse some of them, the group does not."""
    backend = base.cpu_backend()
    for count in (0, 3, 1 << 20):
        for receives_first in (False, True):
            source, target = torch.arange(float(count)) + base.RANK, torch.zeros(count)
            calls = [lambda s=source: backend.send([s], base.RANK, 3), lambda t=target: backend.recv([t], base.RANK, 3)]
            works = [call() for call in (reversed(calls) if receives_first else calls)]
            for work in works:
                work.wait()
            base.expect(target, source, "a message to oneself")


def check_words():
    """What torch's own tests look for in errors."""
    backend, other = base.cpu_backend(), torch.zeros(2, dtype=torch.int64)
    one, size = torch.zeros(2), base.SIZE
    cases = [
        ("requires non-empty input tensor list", lambda: backend.allgather([], [])),
        ("requires input/output tensor lists to have the same length", lambda: backend.allgather([[one]], [one, one])),
        ("invalid output tensor list", lambda: backend.allgather([[one] * (size + 1)], [one])),
        ("invalid tensor type", lambda: backend.allgather([[other] * size], [one])),
        ("invalid tensor size", lambda: backend.allgather([[torch.zeros(3)] * size], [one])),
        ("output lists should be equal to world size", lambda: backend.allgather_coalesced([[one]] * (size + 1), [one])),
        ("invalid output size", lambda: backend.allgather_coalesced([[one, one]] * size, [one])),
        ("invalid size of output tensor at index 0", lambda: backend.allgather_coalesced([[torch.zeros(3)]] * size, [one])),
        (f"Incorrect output list size {size + 1}. Output list size should be {size}",
         lambda: dist.gather(one, [one] * (size + 1) if base.RANK == 0 else None, 0) if base.RANK == 0 else backend.gather([one], one, 0)),
        (f"Incorrect input list size {size + 1}. Input list size should be {size}",
         lambda: backend.reduce_scatter([one], [[one] * (size + 1)])),
        ("Tensors are not equal in size or data type", lambda: dist.all_to_all_single(torch.zeros(size), torch.zeros(2 * size))),
    ]
    for words, call in cases:
        if "Incorrect output" in words and base.RANK != 0:
            words = "requires empty output on non-root"
        base.expect_error((RuntimeError, ValueError), [words], call)
    strange = getattr(torch, "float8_e4m3fnuz", None)
    if strange is not None:
        base.expect_error((TypeError, RuntimeError), ["there is no arithmetic on"], lambda: dist.all_reduce(torch.zeros(2, dtype=strange)))


def part_edges(store):
    base.join(store)
    for name, check in sorted(globals().items()):
        if name.startswith("check_"):
            check()
    dist.barrier()


if __name__ == "__main__":
    base.main(globals())
