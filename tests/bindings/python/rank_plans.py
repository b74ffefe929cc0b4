"""Call plans of the Python package against results worked out here; part of rank_program.py.

Knows the package alone.
"""
import gc
import threading

import numpy
import tutti

from rank_calls import RankTest, numbers, of_all


class Plans(RankTest):
    """Calls that are started again and again, whole and in partitions."""

    def test_partitions(self):
        """Partitions become ready in an order of each rank's own, and are awaited in another."""
        lengths = [3, 0, 5, 8]
        begins = numpy.cumsum([0] + lengths)
        bucket = numpy.zeros(16, "float32")
        with tutti.make_plan(bucket, op="avg", partitions=lengths) as plan:
            self.assertEqual(plan.partition_count, 4)
            self.assertTrue(plan.is_complete())
            for step in range(5):
                plan.start()
                self.assertFalse(plan.is_complete(2))
                for i in range(4):
                    part = (i + self.rank + step) % 4
                    bucket[begins[part]:begins[part + 1]] = 2 * self.rank + step
                    plan.ready(part)
                plan.wait(3)
                self.assertTrue(plan.is_complete(3))
                self.expect(bucket[8:], numpy.full(8, self.size - 1 + step))
                plan.wait(0, 3)
                plan.wait()
                self.assertTrue(plan.is_complete())
                self.expect(bucket, numpy.full(16, self.size - 1 + step))

    def test_threads(self):
        """One thread computes, another waits."""
        bucket = numpy.zeros(40)
        plan = tutti.world().make_plan(bucket, partitions=[10] * 4)
        for _ in range(20):
            plan.start()

            def compute():
                for part in range(4):
                    bucket[10 * part:10 * part + 10] = part
                    plan.ready(part)

            thread = threading.Thread(target=compute)
            thread.start()
            for part in range(4):
                plan.wait(part)
                self.expect(bucket[10 * part:10 * part + 10], numpy.full(10, part * self.size))
            thread.join()
            plan.wait()
        plan.close()

    def run_twice(self, check, *arrays, **options):
        """Without and with what the first run has left."""
        plan = tutti.make_plan(*arrays, **options)
        for _ in range(2):
            plan.start()
            plan.wait()
        check()
        plan.close()

    def test_every_collective(self):
        size, rank = self.size, self.rank
        everything, total = numpy.concatenate(of_all(size)), sum(of_all(size))

        def expect(array, expected):
            return lambda: self.expect(array, expected)

        mine, output = numbers(rank), numpy.zeros(6, "float32")
        self.run_twice(expect(output, total), mine, output)
        self.run_twice(expect(output, numbers(size - 1)), mine, output, op="max")
        self.run_twice(expect(output, sum(of_all(size)[:rank + 1])), mine, output, collective="scan")
        once = mine.copy()
        plan = tutti.make_plan(once)  # in place
        plan.start()
        plan.wait()
        self.expect(once, total)
        plan.close()
        everywhere = numbers(rank)
        self.run_twice(expect(everywhere, numbers(size - 1)), everywhere, collective="broadcast", root=size - 1)
        gathered = numpy.zeros((size, 6), "float32")
        self.run_twice(expect(gathered.ravel(), everything), mine, gathered, collective="allgather")
        gathered[:], gathered[rank] = 0, mine
        self.run_twice(expect(gathered.ravel(), everything), None, gathered, collective="allgather")
        self.run_twice(lambda: None, None, collective="barrier")

        blocks = numpy.arange(2.0 * size) + rank
        sums = size * numpy.arange(2.0 * size) + sum(range(size))
        block = numpy.zeros(2)
        own = slice(2 * rank, 2 * rank + 2)
        self.run_twice(expect(block, sums[own]), blocks, block, collective="reduce_scatter")
        exchanged = numpy.zeros(2 * size)
        self.run_twice(expect(exchanged.reshape(size, 2)[:, 0], 2.0 * rank + numpy.arange(size)), blocks, exchanged, collective="alltoall")
        inside = blocks.copy()
        plan = tutti.make_plan(inside, collective="reduce_scatter")
        plan.start()
        plan.wait()
        self.expect(inside[own], sums[own])
        plan.close()
        for root in {0, size - 1}:
            at_root = rank == root
            output = numpy.zeros(6, "float32")
            self.run_twice(expect(output, total if at_root else numpy.zeros(6)), mine, output, collective="reduce", root=root)
            gathered = numpy.zeros((size, 6), "float32") if at_root else None
            self.run_twice(lambda: None, mine, gathered, collective="gather", root=root)
            if at_root:
                self.expect(gathered.ravel(), everything)
            output = numpy.zeros(2)
            self.run_twice(expect(output, numpy.arange(2.0 * size)[own] + root), blocks if at_root else None, output, collective="scatter", root=root)

    def test_user_op(self):
        values = numpy.array([float(self.rank)])
        largest = tutti.user_op(numpy.maximum, commutative=True)
        self.run_twice(lambda: self.expect(values, self.size - 1), values, op=largest)

    def test_order_of_plans(self):
        """Plans are independent of the group's calls and of each other."""
        first, second = numpy.ones(3), numpy.ones(4)
        plans = [tutti.make_plan(first), tutti.make_plan(second)]
        for plan in plans[::-1] if self.rank == 0 else plans:
            plan.start()
        tutti.barrier()
        for plan in plans:
            plan.wait()
        self.expect(first, self.size)
        self.expect(second, self.size)

    def test_refused(self):
        ones = numpy.ones(4)
        for error, text, arguments in (
                (TypeError, "input: expected an array, not None", {"input": None}),
                (TypeError, "output: expected an array, not None", {"input": ones, "collective": "allgather"}),
                (TypeError, "a barrier has no arrays", {"input": ones, "collective": "barrier"}),
                (TypeError, "a broadcast has one array", {"input": ones, "output": ones, "collective": "broadcast"}),
                (ValueError, "there is no 'all'", {"input": ones, "collective": "all"}),
                (ValueError, "output: 3 elements, expected 4", {"input": ones, "output": numpy.ones(3)}),
                (ValueError, "multiple of", {"input": ones, "output": numpy.ones(4 * self.size + 1), "collective": "allgather"}),
                (ValueError, "-1 is negative", {"input": ones, "partitions": [-1, 5]}),
                (tutti.InvalidArgumentError, "partitions: they have 3 elements together, and the buffer 4", {"input": ones, "partitions": [1, 2]}),
                (tutti.UnsupportedError, "only allreduce is communicated in partitions",
                 {"input": ones, "collective": "broadcast", "partitions": [4]}),
                (ValueError, "no array on a GPU", {"input": ones, "stream": 3})):
            if self.size == 1 and "multiple" in text:
                continue
            with self.subTest(text), self.assertRaisesRegex(error, text):
                tutti.make_plan(**arguments)

    def test_wrong_runs(self):
        bucket = numpy.ones(4)
        plan = tutti.make_plan(bucket, partitions=[2, 2])
        with self.assertRaisesRegex(tutti.InvalidArgumentError, "has not been started"):
            plan.ready(0)
        plan.start()
        plan.ready(0)
        for text, call in (("a run is under way", plan.start), ("ready already|is ready", lambda: plan.ready(0)),
                           ("expected partitions of 0 to 1", lambda: plan.ready(1, 2)), ("count=3", lambda: plan.wait(0, 3))):
            with self.subTest(text), self.assertRaisesRegex(tutti.InvalidArgumentError, text) as caught:
                call()
            self.assertIn(caught.exception.operation, ("start", "ready", "wait"))
        plan.ready(1)
        plan.wait()
        self.expect(bucket, self.size)
        plan.close()
        plan.close()
        with self.assertRaisesRegex(tutti.InvalidArgumentError, "start: this CallPlan is closed"):
            plan.start()

    def test_closing(self):
        """The end on one rank ends the run on all, the arrays go back, and the group goes on."""
        bucket = numpy.ones(4)
        plan = tutti.make_plan(bucket, partitions=[2, 2])
        plan.start()
        if self.rank > 0:
            plan.ready(0, 2)
        tutti.barrier()
        if self.rank > 0:
            with self.assertRaisesRegex(tutti.AbortedError, "it ended its plan while a run was under way"):
                plan.wait()
        plan.close()
        tutti.barrier()
        bucket.resize(8, refcheck=False)

    def test_dropped(self):
        """A plan that nobody holds gives its arrays back."""
        bucket = bytearray(8)
        plan = tutti.make_plan(bucket)
        plan.start()
        plan.wait()
        with self.assertRaises(BufferError):
            bucket.extend(b"more")
        del plan
        gc.collect()
        bucket.extend(b"more")


def end_with_plan(_unused):
    """Ranks end with a plan open."""
    global kept  # pylint: disable=global-variable-undefined
    world = tutti.init()
    bucket = numpy.ones(3)
    plan = tutti.make_plan(bucket)
    plan.start()
    plan.wait()
    kept = [plan, bucket]
    kept.append(kept)
    world.barrier()
    print("ended")
