"""Pairs, ops of the program's, counts at the root, the hook of waits and the queue of completions; part of rank_program.py.

Knows the package alone.
"""
import gc
import sys
import time
import weakref

import numpy
import tutti
from rank_calls import SECONDS, RankTest, numbers, of_all

PAIRS = [("f4", "i4"), ("f8", "i4"), ("i4", "i4"), ("i8", "i4"), ("f8", "i8"), ("i8", "i8")]
PARTICLE = numpy.dtype([("mass", "f8"), ("place", "3f4"), ("name", "S3")])


def particles(rank, count=5):
    made = numpy.zeros(count, PARTICLE)
    made["mass"] = numpy.arange(count) + rank + 1
    made["place"] = rank
    made["name"] = str(rank)
    return made


def heavier(a, b):
    """Of two particles the heavier one, with the mass of both."""
    both = numpy.where(a["mass"] >= b["mass"], a, b)
    both["mass"] = a["mass"] + b["mass"]
    return both


def times(a, b):
    """Products of 2 by 2 matrices: associative, and not commutative."""
    return (a.reshape(-1, 2, 2) @ b.reshape(-1, 2, 2)).reshape(-1)


class Ops(RankTest):
    def pairs(self, dtype, rank):
        made = numpy.zeros(7, dtype)
        made["value"] = (numpy.arange(7) * (rank + 2)) % 5  # equal on some ranks
        made["index"] = 100 * rank + numpy.arange(7)
        return made

    def test_pairs(self):
        for value, index in PAIRS:
            dtype = numpy.dtype([("value", value), ("index", index)], align=True)
            everybody = numpy.stack([self.pairs(dtype, rank) for rank in range(self.size)])
            for op, best in {"minloc": numpy.argmin, "maxloc": numpy.argmax}.items():
                expected = everybody[best(everybody["value"], axis=0), numpy.arange(7)]  # the first: the least index
                got = tutti.allreduce(self.pairs(dtype, self.rank), numpy.zeros(7, dtype), op=op)
                self.expect(got["value"], expected["value"])
                self.expect(got["index"], expected["index"])
            gathered = tutti.allgather(self.pairs(dtype, self.rank), numpy.zeros((self.size, 7), dtype))
            self.expect(gathered["index"], everybody["index"])
        unaligned = numpy.zeros(3, [("value", "f8"), ("index", "i4")])
        with self.assertRaisesRegex(tutti.Error, "minloc"):
            tutti.allreduce(unaligned, op="minloc")
        with self.assertRaisesRegex(tutti.Error, "minloc"):
            tutti.allreduce(numbers(self.rank), op="minloc")

    def test_records(self):
        op = tutti.user_op(heavier, commutative=True)
        expected = particles(0)
        for rank in range(1, self.size):
            expected = heavier(expected, particles(rank))
        self.expect(tutti.allreduce(particles(self.rank), numpy.zeros(5, PARTICLE), op=op), expected)
        mine = particles(self.rank)
        self.expect(tutti.allreduce_async(mine, op=op).result(), expected)
        raw = particles(self.rank).view(f"V{PARTICLE.itemsize}")
        got = tutti.allreduce(raw, op=tutti.user_op(lambda a, b: heavier(a.view(PARTICLE), b.view(PARTICLE)).view(a.dtype)))
        self.expect(got.view(PARTICLE), expected)
        with self.assertRaisesRegex(tutti.Error, "user-defined"):
            tutti.allreduce(mine)
        with self.assertRaisesRegex(tutti.Error, "as u8"):
            tutti.broadcast(mine)
        with self.assertRaisesRegex(TypeError, "output: elements are records of 4 bytes, those of input records of 23"):
            tutti.allreduce(mine, numpy.zeros(5, "V4"), op=op)
        with self.assertRaisesRegex(TypeError, "expected integers"):
            tutti.allreduce(numpy.zeros(3, object), op=op)

    def test_order(self):
        op = tutti.user_op(times)
        matrices = [numpy.array([[1, rank + 1], [rank, 1]], "int64") for rank in range(self.size)]
        product = numpy.linalg.multi_dot(matrices) if self.size > 1 else matrices[0]
        whole = numpy.dtype(("V32"))  # an element is a matrix
        given = matrices[self.rank].reshape(-1).view(whole)
        as_matrices = tutti.user_op(lambda a, b: times(a.view("int64"), b.view("int64")).view(a.dtype))
        self.expect(tutti.allreduce(given, numpy.zeros(1, whole), op=as_matrices).view("int64").reshape(2, 2), product)
        got = tutti.reduce(given, numpy.zeros(1, whole), op=as_matrices, root=self.size - 1)
        if self.rank == self.size - 1:
            self.expect(got.view("int64").reshape(2, 2), product)
        so_far = tutti.scan(given, numpy.zeros(1, whole), op=as_matrices).view("int64").reshape(2, 2)
        first = matrices[0]
        for rank in range(1, self.rank + 1):
            first = first @ matrices[rank]
        self.expect(so_far, first)
        del op
        for dtype in ("float32", "int16", "complex128"):
            total = sum(of_all(self.size, 1000, dtype))
            self.expect(tutti.allreduce(numbers(self.rank, 1000, dtype), op=tutti.user_op(lambda a, b: a + b, True)), total)
        part = tutti.reduce_scatter(numbers(self.rank, 6 * self.size), numpy.zeros(6, "float32"),
                                    op=tutti.user_op(numpy.add, commutative=True))
        self.expect(part, sum(of_all(self.size, 6 * self.size))[6 * self.rank:][:6])

    def test_ops_end(self):
        """A function lives as long as the calls that use it, and no longer."""
        class Add:
            def __call__(self, a, b):
                return a + b

        function = Add()
        seen = weakref.ref(function)
        op = tutti.user_op(function)
        work = tutti.allreduce_async(numbers(self.rank), op=op)
        del function, op
        self.assertTrue(work.wait(SECONDS))
        gc.collect()
        self.assertIsNone(seen())
        with self.assertRaisesRegex(TypeError, "user_op: function"):
            tutti.user_op(3)

    def test_op_that_raises(self):
        if self.size == 1:
            self.skipTest("nothing is combined")

        def fail(_a, _b):
            raise ValueError("raised in an op")

        for name in ("allreduce", "allreduce_async"):
            group = tutti.world().split(0)
            with self.assertRaises((ValueError, tutti.Error)) as caught:  # ValueError where it was called
                done = getattr(group, name)(numbers(self.rank), op=tutti.user_op(fail))
                if name == "allreduce_async":
                    done.result()
                while True:  # a rank on which it was not called hears of it here
                    group.barrier()
            self.assertIn("raised in an op", str(caught.exception))
            group.close()

    def test_counts_at_root(self):
        counts = [(3 * rank) % 4 for rank in range(self.size)]  # some are empty
        whole = numpy.concatenate([numbers(rank, counts[rank]) for rank in range(self.size)])
        mine = numbers(self.rank, counts[self.rank])
        for root in {0, self.size - 1}:
            is_root = self.rank == root
            known = counts if is_root else None
            for name in ("gatherv", "gatherv_async"):
                output = numpy.zeros(sum(counts), "float32") if is_root else None
                done = getattr(tutti, name)(mine, output, known, root=root, counts_at_root=True)
                done = done.result() if name == "gatherv_async" else done
                self.assertIs(done, output)
                if is_root:
                    self.expect(output, whole)
            for name in ("scatterv", "scatterv_async"):
                output = numpy.full(counts[self.rank], -1, "float32")
                done = getattr(tutti, name)(whole if is_root else None, output, known, root=root, counts_at_root=True)
                self.expect(done.result() if name == "scatterv_async" else done, mine)
            if is_root:
                in_place = whole.copy()
                tutti.gatherv(None, in_place, counts, root=root, counts_at_root=True)
                self.expect(in_place, whole)
            else:
                tutti.gatherv(mine, None, root=root, counts_at_root=True)
        with self.assertRaisesRegex(ValueError, "counts: 0 elements"):
            tutti.gatherv(mine, numpy.zeros(sum(counts), "float32"), None, root=self.rank, counts_at_root=True)

    def test_while_waiting(self):
        group = tutti.world().split(0)
        self.assertIsNone(group.while_waiting)
        calls = []
        group.while_waiting = lambda: calls.append(time.monotonic())
        if self.size > 1:
            # The others wait for this rank, which itself waits until they have been called.
            other = tutti.world().split(0)
            if self.rank == 0:
                for peer in range(1, self.size):
                    other.recv(numpy.zeros(1), peer)
                group.barrier()
            else:
                sent = []

                def tell():
                    if not sent:
                        sent.append(other.send_async(numpy.ones(1), 0))

                group.while_waiting = tell
                group.barrier()
                self.assertEqual(len(sent), 1)
                sent[0].wait(SECONDS)
            other.close()

        def raises():
            raise ValueError("raised while waiting")

        if self.size > 1:
            reported = []
            before, sys.unraisablehook = sys.unraisablehook, lambda raised: reported.append(str(raised.exc_value))
            group.while_waiting = raises
            if self.rank == 0:
                deadline = time.monotonic() + SECONDS
                work = group.recv_async(numpy.zeros(1), self.size - 1)
                while not reported and time.monotonic() < deadline:
                    work.wait(timeout=0.05)
                tutti.send(numpy.ones(1), self.size - 1)
                work.wait(SECONDS)
                self.assertIn("raised while waiting", reported[0])
            elif self.rank == self.size - 1:
                tutti.recv(numpy.zeros(1), 0)
                group.send(numpy.ones(1), 0)
            sys.unraisablehook = before
        group.while_waiting = None
        self.assertIsNone(group.while_waiting)
        with self.assertRaisesRegex(TypeError, "while_waiting"):
            group.while_waiting = 3
        group.close()

    def test_queue(self):
        queue = tutti.CompletionQueue()
        self.assertIsNone(queue.poll())
        outputs = {}
        for i in range(10):
            output = numpy.zeros(6, "float32")
            work = tutti.allreduce_async(numbers(self.rank + i), output)
            outputs[work] = (output, sum(numbers(rank + i) for rank in range(self.size)))
            queue.add(work)
        self.assertEqual(len(queue), 10)
        deadline = time.monotonic() + SECONDS
        while len(queue) != 0:
            self.assertLess(time.monotonic(), deadline)
            work = queue.poll()
            if work is None:
                continue
            output, expected = outputs.pop(work)
            self.assertIs(work.result(), output)
            self.expect(output, expected)
        self.assertEqual(outputs, {})
        group = tutti.world().split(0)
        if self.size > 1:
            queue.add(group.recv_async(numpy.zeros(1), (self.rank + 1) % self.size))
            tutti.barrier()
            group.abort("the queue hears of it")
            failed = None
            while failed is None:
                self.assertLess(time.monotonic(), deadline)
                failed = queue.poll()
            with self.assertRaisesRegex(tutti.Error, "the queue hears of it"):
                failed.result()
        group.close()
        with self.assertRaises(TypeError):
            queue.add(3)
