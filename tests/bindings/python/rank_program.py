#!/usr/bin/env python3
"""What every rank of a test's job runs: all calls of the Python package against results worked out here.

Knows the package alone; skips (77) where numpy is missing. usage: rank_program.py [--mpi] PART
    PART: calls, arrays, ops, devices, background, errors, groups, plans, tensors, exit, plans_exit, tensors_exit, readme FILE   --mpi: mpi4py's communicator carries the exchange
"""
import array
import asyncio
import atexit
import ctypes
import gc
import os
import re
import signal
import sys
import threading
import time
import unittest

try:
    import numpy
except ImportError:
    print("skipped: numpy is not installed for " + sys.executable)
    sys.exit(77)


@atexit.register  # before tutti's own, so that it runs after it
def expect_answers():
    if unanswered:
        os._exit(3)


unanswered = []  # what a callback has still to take out
import tutti  # pylint: disable=wrong-import-position

from device_calls import Devices  # pylint: disable=unused-import,wrong-import-position
from rank_ops import Ops  # pylint: disable=unused-import,wrong-import-position
from rank_plans import Plans, end_with_plan  # pylint: disable=unused-import,wrong-import-position
from rank_tensors import Tensors, end_under_way as end_with_tensors  # pylint: disable=unused-import,wrong-import-position
from rank_calls import SECONDS, Calls, RankTest, numbers, of_all  # pylint: disable=unused-import,wrong-import-position


class Arrays(RankTest):
    """What counts as an array, and what is refused."""

    def test_dtypes(self):
        for dtype in "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64".split():
            got = tutti.allreduce(numbers(self.rank, dtype=dtype))
            self.assertEqual(got.dtype, dtype)
            self.expect(got, sum(of_all(self.size, dtype=dtype)))

    def test_shapes(self):
        self.expect(tutti.allreduce(numpy.array(1.0)), self.size)  # no dimension
        tutti.allreduce(numpy.zeros((0, 3)))  # no elements
        self.expect(tutti.allreduce(numpy.ones((2, 3, 4))), numpy.full((2, 3, 4), self.size))
        big = numpy.ones(1 << 20, "float32")
        self.expect(tutti.allreduce(big[1 << 10:]), numpy.full((1 << 20) - (1 << 10), self.size))
        self.expect(big[:1 << 10], numpy.ones(1 << 10))

    def test_other_buffers(self):
        self.assertEqual(list(tutti.allreduce(array.array("d", [1, 2]))), [self.size, 2 * self.size])
        self.assertEqual(tutti.broadcast(bytearray([self.rank + 1, 7]), 0), b"\x01\x07")
        self.assertEqual(list(tutti.allreduce((ctypes.c_int * 2)(1, 2))), [self.size, 2 * self.size])
        self.assertEqual(list(tutti.allreduce(memoryview(array.array("l", [5])), op="max")), [5])

    def test_dlpack(self):
        class Exporter:
            """As a library that has DLPack alone, of an older or newer version."""

            def __init__(self, held, **known):
                self.held, self.known = held, known

            def __dlpack__(self, **asked):
                if not set(asked) <= set(self.known):
                    raise TypeError("unknown argument")
                return self.held.__dlpack__()

        for known in ({}, {"max_version": True}):
            held = numbers(self.rank)
            tutti.allreduce(Exporter(held, **known))
            self.expect(held, sum(of_all(self.size)))
        with self.assertRaisesRegex(TypeError, "row after row"):
            tutti.allreduce(Exporter(numpy.zeros((4, 4))[:, ::2]))

    def test_torch(self):
        try:
            import torch  # pylint: disable=import-outside-toplevel
        except ImportError:
            self.skipTest("torch is not installed")
        dtypes = [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8]
        if int(torch.__version__.split(".", 1)[0]) >= 2:
            dtypes.append(torch.bool)  # DLPack of torch 1 has no such type
        for dtype in dtypes:
            given = torch.full((3, 2), 1, dtype=dtype)
            self.assertIs(tutti.allreduce(given, op="max"), given)
            self.assertTrue(bool((given == 1).all()))
        given = torch.full((5,), float(self.rank), dtype=torch.bfloat16)
        tutti.allreduce(given)
        self.assertEqual(given.tolist(), [self.size * (self.size - 1) / 2] * 5)
        with self.assertRaisesRegex(TypeError, "row after row"):
            tutti.allreduce(torch.zeros(4, 4)[:, ::2])
        with self.assertRaisesRegex((BufferError, RuntimeError), "grad"):  # torch 2, torch 1
            tutti.allreduce(torch.zeros(4, requires_grad=True))

    def test_ml_dtypes(self):
        try:
            import ml_dtypes  # pylint: disable=import-outside-toplevel
        except ImportError:
            self.skipTest("ml_dtypes is not installed")
        for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
            given = numpy.full(5, self.rank + 1, dtype)
            self.assertIs(tutti.allreduce(given, op="max"), given)
            self.assertEqual(given.astype("float32").tolist(), [self.size] * 5)

    def test_gpu_that_is_not_there(self):
        """An array that says it is on a GPU: the reason why nobody here could know of one, or that it is on none."""
        held = numbers(self.rank)

        class Claiming:
            __cuda_array_interface__ = {**held.__array_interface__, "stream": None}

        with self.assertRaisesRegex(tutti.Error, "^allreduce: memory: the call is said to be on a GPU"):
            tutti.allreduce(Claiming())

    def test_refused(self):
        frozen = numpy.zeros(4)
        frozen.flags.writeable = False
        for given, error, text in (
                ((numpy.zeros((4, 4))[:, ::2],), TypeError, "allreduce: input: the elements are not row after row"),
                ((numpy.zeros((4, 4), order="F"),), TypeError, "not row after row"),
                ((frozen,), TypeError, "allreduce: input: the array is read-only"),
                ((numpy.zeros(4), frozen), TypeError, "allreduce: output: the array is read-only"),
                ((b"abc",), TypeError, "read-only"),
                (([1.0],), TypeError, "expected an array .* not list"),
                ((None,), TypeError, "not NoneType"),
                ((numpy.zeros(4, ">f8"),), TypeError, "format '>d'"),
                ((numpy.zeros(4, "clongdouble"),), TypeError, "format 'Zg'"),
                ((numpy.array(["a"]),), TypeError, "format"),
                ((numpy.array([object()]),), TypeError, "format 'O'"),
                ((numpy.zeros(4), numpy.zeros(4, "float32")), TypeError, "elements are float32, those of input float64"),
                ((numpy.zeros(4), numpy.zeros(5)), ValueError, "output: 5 elements, expected 4"),
                ((numpy.zeros(4), None, "plus"), ValueError, "'plus': expected one of sum"),
                ((numpy.zeros(4), None, 3), TypeError, "op: expected a name")):
            with self.assertRaisesRegex(error, text):
                tutti.allreduce(*given)
        if self.size > 1:
            with self.assertRaisesRegex(ValueError, "multiple"):
                tutti.reduce_scatter(numpy.zeros(self.size * 3 + 1), numpy.zeros(3))
        with self.assertRaisesRegex(ValueError, "counts: .* elements, expected"):
            tutti.allgatherv(numpy.zeros(1), numpy.zeros(1), [1] * (self.size + 1))
        with self.assertRaisesRegex(ValueError, "blocks end at"):
            tutti.allgatherv(numpy.zeros(1), numpy.zeros(1), [1] * self.size, range(1, self.size + 1))
        with self.assertRaisesRegex(ValueError, "negative"):
            tutti.allgatherv(numpy.zeros(1), numpy.zeros(1), [-1] * self.size)
        self.expect(tutti.allreduce(numpy.ones(1)), self.size)  # nothing of that has changed the group


class Background(RankTest):
    """Operations under way: their results, their buffers, waiting."""

    def test_many(self):
        given = [numbers(self.rank, 100 + i) for i in range(20)]
        works = [tutti.allreduce_async(each) for each in given]
        for work, each in zip(reversed(works), reversed(given)):
            self.assertTrue(work.wait())
            self.expect(each, sum(of_all(self.size, len(each))))
            self.assertTrue(work.test())
            self.assertIs(work.result(), each)
        self.assertIn("allreduce", repr(works[0]))
        self.assertEqual(works[0].operation, "allreduce")

    def test_timeout_of_a_wait(self):
        if self.size == 1:
            self.skipTest("needs a peer")
        got = numpy.zeros(6, "float32")
        work = tutti.recv_async(got, (self.rank - 1) % self.size)
        self.assertFalse(work.test())
        self.assertFalse(work.wait(timeout=0.01))
        self.assertFalse(work.wait(0))
        tutti.barrier()
        tutti.send(numbers(self.rank), (self.rank + 1) % self.size)
        self.assertTrue(work.wait(timeout=SECONDS))
        self.expect(got, numbers((self.rank - 1) % self.size))

    def test_buffers_stay(self):
        """An array in use cannot be resized, and a dropped Work still fills its buffer."""
        if self.size == 1:
            self.skipTest("needs a peer")
        got = bytearray(8)
        work = tutti.recv_async(got, (self.rank - 1) % self.size)
        with self.assertRaises(BufferError):
            got.append(1)
        del work
        gc.collect()
        tutti.send(bytes(range(8)), (self.rank + 1) % self.size)
        tutti.barrier()
        deadline = time.monotonic() + SECONDS
        is_free = numpy.zeros(1)
        while not is_free.all():
            self.assertLess(time.monotonic(), deadline)
            tutti.barrier()  # every call looks after what was dropped
            try:
                got[8:] = b"\x01"  # another length: refused while it is in use
                is_free[0] = 1
            except BufferError:
                is_free[0] = 0
            tutti.allreduce(is_free, op="min")
        self.assertEqual(got, bytes(range(8)) + b"\x01")

    def test_callbacks(self):
        second, told, refused, ended = numbers(self.rank, 9), [], [], threading.Event()

        def last(error):
            told.append(error)
            ended.set()

        def first(error):
            told.append(error)
            try:
                tutti.barrier()
            except tutti.InvalidArgumentError as caught:
                refused.append(str(caught))
            tutti.allreduce_async(second).on_complete(last)

        work = tutti.allreduce_async(numbers(self.rank, 100000))
        work.on_complete(first)
        work.wait()
        self.assertTrue(ended.wait(SECONDS))
        self.assertEqual(told, [None, None])
        self.assertRegex(refused[0], "must not wait")
        self.expect(second, sum(of_all(self.size, 9)))
        late = threading.Event()
        work.on_complete(lambda error: late.set())  # complete: at once, or when first() has returned
        self.assertTrue(late.wait(SECONDS))
        with self.assertRaisesRegex(TypeError, "callback"):
            work.on_complete(None)
        # No caller gets the exception of a callback, so it is printed.
        unraisable, before = [], sys.unraisablehook
        sys.unraisablehook = unraisable.append
        work.on_complete(lambda error: 1 // 0)
        sys.unraisablehook = before
        self.assertIs(unraisable[0].exc_type, ZeroDivisionError)

    def test_callback_of_a_failure(self):
        if self.size == 1:
            self.skipTest("needs a peer")
        group, told, ended = tutti.world().split(0), [], threading.Event()
        got, other = numpy.zeros(6, "float32"), numpy.zeros(6, "float32")
        work, waited = (group.recv_async(each, (self.rank + 1) % self.size) for each in (got, other))

        def note(error):
            told.append(error)
            try:
                waited.wait()  # not complete, or failed: its buffer stays in use until it is
            except tutti.Error as caught:
                told.append(caught)
            ended.set()

        work.on_complete(note)
        tutti.barrier()
        if self.rank == 0:
            group.abort("enough of it")
        with self.assertRaises(tutti.AbortedError):
            tutti.wait_all([waited, work])
        self.assertTrue(ended.wait(SECONDS))
        self.assertIsInstance(told[0], tutti.AbortedError)
        self.assertEqual((told[0].operation, told[0].peer, told[0].rank), ("recv", 0, self.rank))

    def test_wait_all(self):
        got = [numpy.zeros(100000, "float32") for _ in range(self.size)]
        works = [tutti.send_async(numbers(self.rank, 100000), peer) for peer in range(self.size) if peer != self.rank]
        works += [tutti.recv_async(got[peer], peer) for peer in reversed(range(self.size)) if peer != self.rank]
        tutti.wait_all(works)
        tutti.wait_all([])
        for peer in range(self.size):
            self.expect(got[peer], numbers(peer, 100000) if peer != self.rank else numpy.zeros(100000))
        with self.assertRaises(TypeError):
            tutti.wait_all(7)

    def test_await(self):
        async def both():
            first, second = numbers(self.rank), numbers(self.rank, 9)
            await asyncio.gather(self.awaited(first), self.awaited(second))
            self.expect(first, sum(of_all(self.size)))
            self.expect(second, sum(of_all(self.size, 9)))

        asyncio.run(both())

    async def awaited(self, given):
        self.assertIs(await tutti.allreduce_async(given), given)

    def test_others_run_meanwhile(self):
        """The GIL is free while a call waits: the peer's message depends on another thread here."""
        if self.size == 1:
            self.skipTest("needs a peer")
        group = tutti.world().split(0)
        asked, answer = numpy.zeros(1), numpy.zeros(1)
        threads = []
        if self.rank == 0:
            def reply():
                for peer in range(1, self.size):
                    group.recv(asked, peer)
                    group.send(asked + 1, peer)

            threads = [threading.Thread(target=reply)]
            threads[0].start()
            tutti.barrier()  # complete only after the others got replies
        else:
            group.send(numpy.full(1, 41.0), 0)
            group.recv(answer, 0)
            self.expect(answer, 42)
            tutti.barrier()
        for thread in threads:
            thread.join()

    def test_interrupt(self):
        """Ctrl-C ends a wait, and the operation goes on."""
        if self.size == 1:
            self.skipTest("needs a peer")
        for wait in (lambda got, peer: tutti.recv(got, peer), lambda got, peer: tutti.recv_async(got, peer).wait(),
                     lambda got, peer: tutti.recv_async(got, peer).wait(timeout=SECONDS)):
            got = numpy.zeros(6, "float32")
            before = signal.signal(signal.SIGINT, signal.default_int_handler)
            timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                wait(got, (self.rank - 1) % self.size)
            timer.join()
            signal.signal(signal.SIGINT, before)
            tutti.barrier()
            tutti.send(numbers(self.rank), (self.rank + 1) % self.size)
            last = numpy.zeros(1)
            work = tutti.recv_async(last, (self.rank - 1) % self.size)  # messages arrive in order
            tutti.send(last, (self.rank + 1) % self.size)
            work.wait()
            self.expect(got, numbers((self.rank - 1) % self.size))


class Errors(RankTest):
    def test_classes(self):
        for name, base in {"InvalidArgument": ValueError, "Unsupported": NotImplementedError, "Mismatch": tutti.Error,
                           "Timeout": TimeoutError, "PeerFailed": ConnectionError, "Refused": PermissionError,
                           "ResourceExhausted": MemoryError, "Aborted": tutti.Error, "Internal": tutti.Error}.items():
            error = getattr(tutti, name + "Error")
            self.assertTrue(issubclass(error, base) and issubclass(error, tutti.Error))
            self.assertEqual(str(error("text")), "text")

    def test_invalid(self):
        with self.assertRaisesRegex(tutti.InvalidArgumentError, "root: 99 is no rank") as caught:
            tutti.broadcast(numpy.zeros(1), root=99)
        error = caught.exception
        self.assertEqual((error.code, error.operation, error.rank), ("invalid_argument", "broadcast", self.rank))
        with self.assertRaisesRegex(tutti.InvalidArgumentError, "bitwise"):
            tutti.allreduce(numpy.zeros(1), op="band")
        with self.assertRaises(tutti.InvalidArgumentError):
            tutti.allreduce(numpy.zeros(1), algorithm="no_such_algorithm")
        with self.assertRaises(ValueError):
            tutti.init(timeout=0)
        with self.assertRaisesRegex(tutti.InvalidArgumentError, "unique_id"):
            tutti.init(rank=0, size=1)

    def test_mismatch(self):
        if self.size == 1:
            self.skipTest("needs a peer")
        group = tutti.world().split(0)
        with self.assertRaises(tutti.MismatchError) as caught:
            group.allreduce(numpy.zeros(4 if self.rank == 0 else 8))
        self.assertEqual(caught.exception.code, "mismatch")
        with self.assertRaises(tutti.MismatchError):
            group.barrier()  # a failed group stays failed
        tutti.barrier()

    def test_abort(self):
        group = tutti.world().split(0)
        tutti.barrier()
        if self.rank == 0:
            group.abort("enough")
        with self.assertRaisesRegex(tutti.AbortedError, "enough") as caught:
            for _ in range(1000000):
                group.barrier()
        self.assertEqual(caught.exception.peer, 0)

    def test_deadline(self):
        if self.size == 1:
            self.skipTest("needs a peer")
        own = tutti.init(timeout=0.5)
        if self.rank == 0:
            with self.assertRaisesRegex(tutti.TimeoutError, "did not arrive") as caught:
                own.barrier()
            self.assertIsNotNone(caught.exception.peer)
        tutti.barrier()
        own.close()


class Groups(RankTest):
    def test_world(self):
        self.assertTrue(tutti.is_initialized())
        world = tutti.world()
        self.assertEqual((world.rank, world.size), (self.rank, self.size))
        self.assertEqual((world.local_rank, world.local_size), (tutti.local_rank(), tutti.local_size()))
        self.assertIn(f"rank {self.rank} of {self.size}", repr(world))
        self.assertIn(":", world.explain_algorithm("allreduce", 1000))
        self.assertRegex(tutti.__version__, r"^\d+\.\d+")

    def test_split(self):
        half = tutti.world().split(self.rank % 2, key=-self.rank)
        members = sorted((r for r in range(self.size) if r % 2 == self.rank % 2), reverse=True)
        self.assertEqual((half.rank, half.size), (members.index(self.rank), len(members)))
        self.expect(half.allreduce(numpy.full(1, self.rank)), [sum(members)])
        none = tutti.world().split(None if self.rank == 0 else 1)
        self.assertEqual(none is None, self.rank == 0)
        self.assertEqual(tutti.world().split_by_node().size, tutti.local_size())
        if self.rank != 1:
            others = tutti.world().create([r for r in range(self.size) if r != 1])
            others.barrier()

    def test_streams(self):
        world, results = tutti.world(), {}

        def use(number):
            stream = world.stream(number)
            results[number] = [float(stream.allreduce(numpy.full(1, self.rank + 10.0 * number * i))[0]) for i in range(50)]

        # In another order on each rank, so that each stream is waited for in turn.
        threads = [threading.Thread(target=use, args=((i + self.rank) % 3,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ranks = sum(range(self.size))
        for number in range(3):
            self.assertEqual(results[number], [ranks + self.size * 10.0 * number * i for i in range(50)])
        with self.assertRaisesRegex(tutti.InvalidArgumentError, "stream: number: -1"):
            world.stream(-1)
        stream = world.stream(1)
        world.close_stream(1)
        with self.assertRaises(tutti.AbortedError):
            stream.barrier()
        self.assertEqual(float(world.stream(1).allreduce(numpy.ones(1))[0]), self.size)  # a new one
        with self.assertRaisesRegex(tutti.InvalidArgumentError, "close_stream: number: 0"):
            world.close_stream(0)

    def test_close(self):
        with tutti.world().split(0) as group:
            group.barrier()
        self.assertFalse(group.is_open)
        self.assertIn("closed", repr(group))
        with self.assertRaisesRegex(tutti.InvalidArgumentError, "closed"):
            group.barrier()
        with self.assertRaisesRegex(tutti.InvalidArgumentError, "closed"):
            print(group.rank)
        group.close()

    def test_shrink(self):
        world = tutti.init()
        if world.rank == 0 and world.size > 1:
            world.close()
            return
        rest = world.shrink([0] if world.size > 1 else [])
        self.assertFalse(world.is_open)
        self.assertEqual(rest.size, max(1, tutti.size() - 1))
        rest_rank, rest_size = rest.rank, rest.size
        first = 1 if tutti.size() > 1 else 0
        self.assertEqual(rest.member_ids(), list(range(first, first + rest.size)))
        total = numpy.full(1000, rest.rank)
        rest.allreduce(total)
        self.assertEqual(set(total), {rest.size * (rest.size - 1) // 2})
        with self.assertRaisesRegex(tutti.InvalidArgumentError, "is no rank of the group"):
            rest.shrink([rest.size])
        self.assertTrue(rest.invitation().startswith("tutti-join-"))
        same = rest.grow()  # nobody waits
        self.assertEqual((same.rank, same.size), (rest_rank, rest_size))
        same = same.reconfigure(same.size)
        same.barrier()
        same.close()
        with self.assertRaisesRegex(tutti.InvalidArgumentError, "not a text that"):
            tutti.join("elsewhere", timeout=5)

    def test_second_world(self):
        own = tutti.init()
        self.expect(own.allreduce(numpy.ones(1)), self.size)
        self.assertIsNot(own, tutti.world())

    def test_unique_id(self):
        text = numpy.zeros(4096, "uint8")
        if self.rank == 0:
            made = tutti.make_unique_id().encode()
            text[:len(made)] = list(made)
        tutti.broadcast(text)
        own = tutti.init(unique_id=bytes(text).rstrip(b"\0").decode(), rank=self.rank, size=self.size)
        self.expect(own.allreduce(numpy.ones(1)), self.size)

    def test_exchange(self):
        class Comm:
            """What mpi4py's communicators have, over tutti itself."""
            Get_rank, Get_size = staticmethod(tutti.rank), staticmethod(tutti.size)

            @staticmethod
            def allgather(mine):
                lengths = tutti.allgather(numpy.full(1, len(mine)), numpy.zeros(self.size, "int64"))
                everything = numpy.zeros(int(lengths.sum()), "uint8")
                tutti.allgatherv(mine, everything, lengths)
                ends = numpy.cumsum(lengths)
                return [bytes(everything[end - length:end]) for end, length in zip(ends, lengths)]

        own = tutti.init(comm=Comm())
        self.expect(own.allreduce(numpy.ones(1)), self.size)

        class Failing(Comm):
            @staticmethod
            def allgather(mine):
                raise KeyError("from the exchange")

        with self.assertRaisesRegex(KeyError, "from the exchange"):
            tutti.init(comm=Failing())
        tutti.barrier()


def run_readme(path):
    """The Python lines of a page, as they stand there."""
    with open(path, encoding="utf-8") as page:
        blocks = re.findall(r"```python\n(.*?)```", page.read(), re.DOTALL)
    if not blocks:
        sys.exit(f"{path} has no Python lines")
    for block in blocks:
        exec(compile(block, path, "exec"), {"__name__": "__main__"})  # pylint: disable=exec-used


def end_under_way(_unused):
    """Ranks end with operations under way, groups held by globals and cycles, and they do not finalize."""
    global kept  # pylint: disable=global-variable-undefined
    world = tutti.init()
    group = world.split(0)
    kept = [world, group]
    kept.append(kept)
    world.barrier()
    if world.size > 1:
        for group in (world, world.stream(1)):
            kept.append(group.recv_async(bytearray(8), (world.rank - 1) % world.size))
            unanswered.append(group)
            kept[-1].on_complete(lambda error: unanswered.pop() if error else None)
    kept[1].barrier()  # once a rank has ended, the others' submissions fail
    print("ended")


def main():
    if "--mpi" in sys.argv:
        sys.argv.remove("--mpi")
        from mpi4py import MPI  # pylint: disable=import-outside-toplevel
        tutti.init(comm=MPI.COMM_WORLD, timeout=SECONDS)
    part = sys.argv[1]
    if part == "devices" and "TUTTI_CUDA_LIBRARY" not in os.environ:
        print("skipped: this build has no CUDA, and so no driver to stand in for a GPU's (TUTTI_CUDA_LIBRARY)")
        sys.exit(77)
    programs = {"readme": run_readme, "exit": end_under_way, "plans_exit": end_with_plan, "tensors_exit": end_with_tensors}
    if part in programs:
        programs[part](sys.argv[-1])
        return
    if not tutti.is_initialized():
        tutti.init(timeout=SECONDS)
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(globals()[part.capitalize()])
    done = unittest.TextTestRunner(verbosity=2 if tutti.rank() == 0 else 1, failfast=True).run(suite)
    sys.stdout.flush()
    if not done.wasSuccessful():
        os._exit(1)  # the others need not wait for the deadline: the launcher ends them


if __name__ == "__main__":
    main()
