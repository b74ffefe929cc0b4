"""Every collective of the Python package against results worked out here; part of rank_program.py.

Knows the package alone.
"""
import unittest

import numpy
import tutti

SECONDS = 30  # nothing here waits that long unless it has failed


def numbers(rank, count=6, dtype="float32"):
    """Small whole numbers, which every dtype holds, different on each rank."""
    return (numpy.arange(count) + 10 * rank).astype(dtype)


def of_all(size, count=6, dtype="float32"):
    return [numbers(rank, count, dtype) for rank in range(size)]


class RankTest(unittest.TestCase):
    def setUp(self):
        self.rank, self.size = tutti.rank(), tutti.size()

    def expect(self, got, expected):
        numpy.testing.assert_array_equal(numpy.asarray(got), numpy.asarray(expected))


class Calls(RankTest):
    """Every collective: out of place, in place, through the module and through the group, blocking and not."""

    def each_way(self, name):
        world = tutti.world()
        yield getattr(tutti, name)
        yield getattr(world, name)
        yield lambda *given, **named: getattr(tutti, name + "_async")(*given, **named).result()
        yield lambda *given, **named: getattr(world, name + "_async")(*given, **named).result()

    def test_allreduce(self):
        total = sum(of_all(self.size))
        for allreduce in self.each_way("allreduce"):
            mine, output = numbers(self.rank), numpy.zeros(6, "float32")
            self.assertIs(allreduce(mine, output), output)
            self.expect(output, total)
            self.expect(mine, numbers(self.rank))
            self.assertIs(allreduce(mine), mine)
            self.expect(mine, total)
        for op, combine in {"sum": numpy.sum, "prod": numpy.prod, "min": numpy.min, "max": numpy.max}.items():
            self.expect(tutti.allreduce(numbers(self.rank, dtype="int64"), op=op),
                        combine(of_all(self.size, dtype="int64"), axis=0))
        for op, combine in {"band": numpy.bitwise_and, "bor": numpy.bitwise_or, "bxor": numpy.bitwise_xor}.items():
            self.expect(tutti.allreduce(numbers(self.rank, dtype="uint16"), op=op),
                        combine.reduce(of_all(self.size, dtype="uint16")))
        self.expect(tutti.allreduce(numbers(self.rank), op="avg"), total / numpy.float32(self.size))
        self.expect(tutti.allreduce(numbers(self.rank), op=tutti.premul_sum(0.5)), total / 2)
        self.expect(tutti.allreduce(numbers(self.rank, dtype="int32"), op=tutti.premul_sum(3)), 3 * total)
        flags = numpy.array([self.rank == 0, True, False])
        self.expect(tutti.allreduce(flags, op="land"), [self.size == 1, True, False])
        flags = numpy.array([self.rank == 0, True, False])
        self.expect(tutti.allreduce(flags, op="lor"), [True, True, False])
        flags = numpy.array([self.rank == 0, True, False])
        self.expect(tutti.allreduce(flags, op="lxor"), [True, self.size % 2 == 1, False])
        for dtype in ("complex64", "complex128"):
            z = numpy.array([1 + 1j * self.rank], dtype=dtype)
            self.expect(tutti.allreduce(z), numpy.array([self.size + 0.5j * self.size * (self.size - 1)], dtype=dtype))
        self.expect(tutti.allreduce(numbers(self.rank), algorithm="one_shot"), total)
        self.expect(tutti.allreduce(numbers(self.rank), wire_dtype="bfloat16"), total)  # exact within a node
        for call in (tutti.allreduce, tutti.reduce, tutti.reduce_scatter):
            with self.assertRaisesRegex(ValueError, "wire_dtype: only sums of f32"):
                call(numpy.zeros(self.size), wire_dtype="bfloat16")

    def test_reduce(self):
        total = sum(of_all(self.size))
        for root in {0, self.size - 1}:
            for reduce in self.each_way("reduce"):
                output = numpy.zeros(6, "float32") if self.rank == root else None
                got = reduce(numbers(self.rank), output, root=root)
                self.assertIs(got, output)
                if self.rank == root:
                    self.expect(got, total)
                mine = numbers(self.rank)
                got = reduce(mine, op="max", root=root)
                self.expect(mine, numbers(self.size - 1) if self.rank == root else numbers(self.rank))

    def test_broadcast(self):
        for root in {0, self.size - 1}:
            for broadcast in self.each_way("broadcast"):
                buffer = numbers(self.rank)
                if self.rank == root:
                    buffer.flags.writeable = False  # the root only reads
                self.assertIs(broadcast(buffer, root), buffer)
                self.expect(buffer, numbers(root))

    def test_allgather(self):
        for allgather in self.each_way("allgather"):
            output = numpy.zeros((self.size, 6), "float32")
            self.assertIs(allgather(numbers(self.rank), output), output)
            self.expect(output, of_all(self.size))
            output = numpy.zeros((self.size, 6), "float32")
            output[self.rank] = numbers(self.rank)
            allgather(None, output)
            self.expect(output, of_all(self.size))

    def test_reduce_scatter(self):
        total = sum(of_all(self.size, 3 * self.size))
        block = slice(3 * self.rank, 3 * self.rank + 3)
        for reduce_scatter in self.each_way("reduce_scatter"):
            output = numpy.zeros(3, "float32")
            self.assertIs(reduce_scatter(numbers(self.rank, 3 * self.size), output), output)
            self.expect(output, total[block])
            mine = numbers(self.rank, 3 * self.size)
            self.assertIs(reduce_scatter(mine), mine)
            self.expect(mine[block], total[block])

    def test_alltoall(self):
        expected = [numbers(source, 2 * self.size)[2 * self.rank:2 * self.rank + 2] for source in range(self.size)]
        for alltoall in self.each_way("alltoall"):
            output = numpy.zeros((self.size, 2), "float32")
            self.assertIs(alltoall(numbers(self.rank, 2 * self.size), output), output)
            self.expect(output, expected)
            mine = numbers(self.rank, 2 * self.size)
            alltoall(mine)
            self.expect(mine, numpy.concatenate(expected))

    def test_gather_scatter(self):
        for root in {0, self.size - 1}:
            is_root = self.rank == root
            for gather in self.each_way("gather"):
                output = numpy.zeros((self.size, 6), "float32") if is_root else None
                self.assertIs(gather(numbers(self.rank), output, root=root), output)
                if is_root:
                    self.expect(output, of_all(self.size))
                    output[:] = 0
                    output[root] = numbers(root)
                gather(None if is_root else numbers(self.rank), output, root)
                if is_root:
                    self.expect(output, of_all(self.size))
            for scatter in self.each_way("scatter"):
                blocks = numpy.array(of_all(self.size)) if is_root else None
                output = numpy.zeros(6, "float32")
                self.assertIs(scatter(blocks, output, root=root), output)
                self.expect(output, numbers(self.rank))
                got = scatter(blocks, None if is_root else output, root)
                self.assertIs(got, blocks if is_root else output)

    def test_scan(self):
        for scan in self.each_way("scan"):
            self.expect(scan(numbers(self.rank)), sum(of_all(self.rank + 1)))
        for exscan in self.each_way("exscan"):
            before = sum(of_all(self.rank)) if self.rank else numpy.full(6, -1.0)
            self.expect(exscan(numbers(self.rank), numpy.full(6, -1.0, "float32")), before)

    def test_messages(self):
        if self.size == 1:
            self.skipTest("needs a peer")
        right, left = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        for asynchronous in (False, True):
            got = numpy.zeros(6, "float32")
            work = tutti.recv_async(got, left)
            if asynchronous:
                self.assertIsNone(tutti.send_async(numbers(self.rank), right).result())
            else:
                tutti.send(numbers(self.rank), peer=right)
            self.assertIs(work.result(), got)
            self.expect(got, numbers(left))
        if self.size > 1 and self.rank < 2:
            got = numpy.zeros(6, "float32")
            if self.rank == 0:
                tutti.send(numbers(0), 1)
                self.expect(tutti.recv(got, 1), numbers(1))
            else:
                self.expect(tutti.recv(got, 0), numbers(0))
                tutti.send(numbers(1), 0)

    def test_tags_and_any_source(self):
        if self.size == 1:
            self.skipTest("needs a peer")
        right = (self.rank + 1) % self.size
        sent = [tutti.send_async(numbers(10 * self.rank + tag), right, tag=tag) for tag in (0, 3, 2)]
        for tag in (2, 0, 3):
            got = numpy.zeros(6, "float32")
            work = tutti.recv_async(got, tag=tag)
            work.wait(SECONDS)
            self.assertEqual(work.source, (self.rank - 1) % self.size)
            self.expect(got, numbers(10 * work.source + tag))
        for work in sent:
            work.wait(SECONDS)
            self.assertIsNone(work.source)
        with self.assertRaisesRegex(tutti.InvalidArgumentError, "tag: -1 is negative"):
            tutti.recv(numbers(0), tag=-1)

    def test_barrier(self):
        for barrier in self.each_way("barrier"):
            self.assertIsNone(barrier())

    def test_uneven(self):
        counts = [rank + 1 for rank in range(self.size)]
        begin = [sum(counts[:rank]) for rank in range(self.size)]
        whole = numpy.concatenate([numbers(rank, counts[rank]) for rank in range(self.size)])
        mine = numbers(self.rank, counts[self.rank])
        for allgatherv in self.each_way("allgatherv"):
            self.expect(allgatherv(mine, numpy.zeros(sum(counts), "float32"), counts), whole)
            spread = numpy.full(sum(counts) + self.size, -1, "float32")
            allgatherv(mine, spread, counts, numpy.array(begin) + numpy.arange(self.size))
            for rank in range(self.size):
                self.expect(spread[begin[rank] + rank:][:counts[rank]], numbers(rank, counts[rank]))
                self.expect(spread[begin[rank] + rank + counts[rank]], -1)
            in_place = numpy.zeros(sum(counts), "float32")
            in_place[begin[self.rank]:][:counts[self.rank]] = mine
            self.expect(allgatherv(None, in_place, counts), whole)
        total = sum(of_all(self.size, sum(counts)))[begin[self.rank]:][:counts[self.rank]]
        for reduce_scatterv in self.each_way("reduce_scatterv"):
            given = numbers(self.rank, sum(counts))
            self.expect(reduce_scatterv(given, numpy.zeros(counts[self.rank], "float32"), counts), total)
            reduce_scatterv(given, None, counts)
            self.expect(given[begin[self.rank]:][:counts[self.rank]], total)
        for root in {0, self.size - 1}:
            is_root = self.rank == root
            for gatherv in self.each_way("gatherv"):
                output = numpy.zeros(sum(counts), "float32") if is_root else None
                self.assertIs(gatherv(mine, output, counts, root=root), output)
                if is_root:
                    self.expect(output, whole)
            for scatterv in self.each_way("scatterv"):
                output = numpy.zeros(counts[self.rank], "float32")
                self.expect(scatterv(whole if is_root else None, output, counts, root=root), mine)
        for alltoallv in self.each_way("alltoallv"):
            # Rank r sends d + 1 elements to rank d, and so gets r + 1 from everybody.
            received = numpy.zeros(self.size * (self.rank + 1), "float32")
            alltoallv(numbers(self.rank, sum(counts)), counts, received, [self.rank + 1] * self.size)
            expected = [numbers(source, sum(counts))[begin[self.rank]:][:self.rank + 1] for source in range(self.size)]
            self.expect(received, numpy.concatenate(expected))
