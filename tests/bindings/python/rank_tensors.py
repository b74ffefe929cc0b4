"""Named tensors of the Python package against results worked out here; part of rank_program.py.

Knows the package, and torch where that is installed.
"""
import ctypes
import gc
import importlib.util
import json
import os
import pathlib
import queue as queues
import random
import tempfile
import threading
import unittest
import weakref

import numpy
import tutti

from rank_calls import SECONDS, RankTest


class CCall(ctypes.Structure):
    """tutti_tensor_call_t."""

    _fields_ = [("struct_bytes", ctypes.c_size_t), ("collective", ctypes.c_int), ("input", ctypes.c_void_p), ("output", ctypes.c_void_p),
                ("dtype", ctypes.c_int), ("shape", ctypes.POINTER(ctypes.c_uint64)), ("dimension_count", ctypes.c_size_t), ("op", ctypes.c_int),
                ("root", ctypes.c_int), ("prescale", ctypes.c_double), ("postscale", ctypes.c_double), ("splits", ctypes.c_void_p),
                ("allocate", ctypes.c_void_p), ("allocate_context", ctypes.c_void_p), ("priority", ctypes.c_int), ("batch", ctypes.c_char_p),
                ("batch_size", ctypes.c_uint32), ("will_wait", ctypes.c_int), ("memory", ctypes.c_int), ("cuda_stream", ctypes.c_void_p)]


F32 = 10  # TUTTI_F32


def submit_natively(handle, name, array):
    """As a native library of the process does: over the C interface of the libtutti that is loaded. Returns the status."""
    library = ctypes.CDLL("libtutti.so.0")
    call = CCall(struct_bytes=ctypes.sizeof(CCall), input=array.ctypes.data, output=array.ctypes.data, dtype=F32,
                 shape=(ctypes.c_uint64 * 1)(array.size), dimension_count=1, prescale=1, postscale=1)
    work = ctypes.c_void_p()
    status = library.tutti_tensor_queue_submit(ctypes.c_void_p(handle), name.encode(), ctypes.byref(call), ctypes.byref(work))
    return status or library.tutti_wait(ctypes.byref(work))


class Tensors(RankTest):
    """Ranks submit tensors by name, each in an order of its own."""

    def setUp(self):
        super().setUp()
        self.queue = tutti.TensorQueue()

    def tearDown(self):
        tutti.barrier()  # the end of the queue on one rank would fail what others have under way
        self.queue.close()

    def test_any_order(self):
        names = [f"layer{i}" for i in range(12)]
        order = random.Random(self.rank)
        for step in range(6):
            arrays = {name: numpy.full((2, i + 1), self.rank + i + step, "float32") for i, name in enumerate(names)}
            mine = order.sample(names, len(names))
            works = {name: self.queue.submit(name, arrays[name]) for name in mine}
            for i, name in enumerate(names):
                self.assertIs(works[name].result(), arrays[name])
                self.expect(arrays[name], numpy.full((2, i + 1), self.size * (self.size - 1) / 2 + self.size * (i + step)))
        self.assertEqual(works["layer0"].operation, "allreduce")

    def test_forms(self):
        mine, total = numpy.arange(6.0) + self.rank, numpy.zeros(6)
        self.assertIs(self.queue.submit("apart", mine, total, op="max", priority=3, will_wait=True).result(), total)
        self.expect(total, numpy.arange(6.0) + self.size - 1)
        self.expect(mine, numpy.arange(6.0) + self.rank)
        self.expect(self.queue.submit("scaled", mine.copy(), prescale=0.5, postscale=4).result(),
                    2 * (self.size * numpy.arange(6.0) + sum(range(self.size))))
        self.expect(self.queue.submit("root", mine, collective="broadcast", root=self.size - 1).result(),
                    numpy.arange(6.0) + self.size - 1)
        self.assertIsNone(self.queue.submit("wall", None, collective="barrier").result())
        self.expect(self.queue.submit("no dimension", numpy.array(2.0)).result(), 2 * self.size)
        part = numpy.zeros(1 + (self.rank == 0), "int32")  # of size + 1 rows
        self.queue.submit("parts", numpy.arange(self.size + 1, dtype="int32"), part, collective="reduce_scatter").wait()
        first = self.rank + (self.rank > 0)
        self.expect(part, self.size * numpy.arange(first, first + len(part)))
        shaped = self.queue.submit("shaped", numpy.ones(6), numpy.zeros(6 * self.size), collective="allgather", shape=(3, 2))
        self.expect(shaped.result(), numpy.ones(6 * self.size))

    def test_c_handle(self):
        """A native library submits to the same queue; names meet those that other ranks submit in Python."""
        array = numpy.arange(5, dtype="float32") + self.rank
        total = self.size * numpy.arange(5) + sum(range(self.size))
        if self.rank % 2 == 1:
            self.queue.submit("either", array).wait()
        else:
            self.assertEqual(submit_natively(self.queue.c_handle, "either", array), 0)
        self.expect(array, total)
        handle = self.queue.c_handle
        self.assertEqual(handle, self.queue.c_handle)
        self.assertEqual(ctypes.CDLL("libtutti.so.0").tutti_group_size(ctypes.c_void_p(tutti.world().c_handle)), self.size)
        tutti.barrier()
        self.queue.close()
        self.assertNotEqual(submit_natively(handle, "late", array), 0)
        with self.assertRaisesRegex(tutti.InvalidArgumentError, "closed"):
            self.assertIsNone(tutti.TensorQueue.c_handle.fget(self.closed_queue()))

    def closed_queue(self):
        queue = tutti.TensorQueue()
        tutti.barrier()
        queue.close()
        return queue

    def test_unknown_length(self):
        """The output is made once all ranks' rows are known, and is result() of the Work."""
        asked = []

        def allocate(rows):
            asked.append((rows, threading.current_thread() is threading.main_thread()))
            return numpy.zeros((sum(rows), 2), "int64")

        for step in range(3):
            mine = numpy.full((self.rank + step, 2), self.rank)
            work = self.queue.submit("gathered", mine, collective="allgather", allocate=allocate)
            rows = [rank + step for rank in range(self.size)]
            self.expect(work.result(), numpy.repeat(numpy.arange(self.size), rows)[:, None].repeat(2, axis=1))
            self.assertEqual(asked[step], (rows, False))
        splits = [rank + 1 for rank in range(self.size)]  # rows for each rank
        mine = numpy.full((sum(splits), 2), self.rank)
        got = self.queue.submit("exchanged", mine, collective="alltoall", splits=splits, allocate=allocate).result()
        self.assertEqual(asked[3][0], [self.rank + 1] * self.size)
        self.expect(got[:, 0], numpy.repeat(numpy.arange(self.size), self.rank + 1))
        got = self.queue.submit("scalars", numpy.array(self.rank), collective="allgather",
                                allocate=lambda rows: numpy.zeros(sum(rows), "int64")).result()
        self.expect(got, numpy.arange(self.size))

    def test_failing_allocate(self):
        """An exception fails its rank's operation, with its text and as the cause; the others get theirs."""
        def allocate(rows):
            if self.rank == 0:
                raise KeyError("nowhere")
            return numpy.zeros(sum(rows))

        work = self.queue.submit("g", numpy.ones(2), collective="allgather", allocate=allocate)
        if self.rank == 0:
            with self.assertRaisesRegex(tutti.InvalidArgumentError, "tensor \"g\": allocate: KeyError: 'nowhere'") as caught:
                work.wait()
            self.assertIsInstance(caught.exception.__cause__, KeyError)
            self.assertEqual(caught.exception.operation, "allgather")
        else:
            self.expect(work.result(), numpy.ones(2 * self.size))
        for wrong, text in ((lambda rows: numpy.zeros(1 + sum(rows)), "allocate: .* elements, expected"),
                            (lambda rows: numpy.zeros(sum(rows), "float32"), "float32, those of input float64"),
                            (lambda rows: b"", "allocate: the array is read-only"),
                            (lambda rows: None, "allocate: expected an array")):
            with self.assertRaisesRegex(tutti.InvalidArgumentError, text):
                self.queue.submit("g", numpy.ones(2), collective="allgather", allocate=wrong).wait()
        with self.assertRaisesRegex(tutti.InvalidArgumentError, f"output: 1 elements, expected {2 * self.size}"):
            self.queue.submit("g", numpy.ones(2), numpy.zeros(1), collective="allgather").wait()
        if self.rank == 0:  # of the program's memory, and by a function that must not wait
            with self.assertRaises(tutti.ResourceExhaustedError):
                self.queue.submit("g", numpy.ones(2), collective="allgather", allocate=lambda rows: [][1:] + bytearray(1 << 62)).wait()
        else:
            self.queue.submit("g", numpy.ones(2), collective="allgather", allocate=lambda rows: numpy.zeros(sum(rows))).wait()

    def test_waiting_in_allocate(self):
        def allocate(rows):
            tutti.barrier()
            return numpy.zeros(sum(rows))

        with self.assertRaisesRegex(tutti.InvalidArgumentError, "a callback must not wait"):
            self.queue.submit("g", numpy.ones(1), collective="allgather", allocate=allocate).wait()

    def test_disagreement(self):
        work = self.queue.submit("w", numpy.ones((3, 4 + (self.rank == 1)), "float32"))
        right = self.queue.submit("r", numpy.ones(2))
        text = r'ranks submitted tensor "w" with different shape \[3,4\] and \[3,5\]: ranks? 0.* of .* submitted allreduce of f32\[3,4\], sum'
        with self.assertRaisesRegex(tutti.MismatchError, text):
            work.wait()
        self.expect(right.result(), numpy.full(2, self.size))
        work = self.queue.submit("w", numpy.ones(3, "float32"), wire_dtype="bfloat16" if self.rank == 0 else None)
        with self.assertRaisesRegex(tutti.MismatchError, "different dtype on the wire bf16 and the default"):
            work.wait()

    def test_refused(self):
        ones = numpy.ones(4)
        for error, text, arguments in (
                (TypeError, "input: expected an array, not None", {"input": None}),
                (TypeError, "a barrier has no arrays", {"input": ones, "collective": "barrier"}),
                (ValueError, "there is no 'all'", {"input": ones, "collective": "all"}),
                (ValueError, "needs an output, or a function", {"input": ones, "collective": "allgather"}),
                (ValueError, "as long as its input", {"input": ones, "allocate": len}),
                (TypeError, "it cannot be called", {"input": ones, "collective": "allgather", "allocate": 3}),
                (ValueError, "output: 3 elements, expected 4", {"input": ones, "output": numpy.ones(3)}),
                (ValueError, "shape: 6 elements, and input has 4", {"input": ones, "shape": (2, 3)}),
                (ValueError, "not the sum of the splits", {"input": ones, "output": ones, "collective": "alltoall", "splits": [9] * self.size}),
                (ValueError, "no whole number of elements of float64", {"input": numpy.ones(3, "uint8"), "dtype": "float64"}),
                (ValueError, "wire_dtype: 'half': expected one of", {"input": ones, "wire_dtype": "half"}),
                (ValueError, "wire_dtype: only sums of f32", {"input": ones, "wire_dtype": "bfloat16"}),
                (ValueError, "error_feedback: only sums", {"input": ones, "error_feedback": True}),
                (ValueError, "gather is not offered by name", {"input": ones, "collective": "gather"}),
                (ValueError, "a batch has a name and says", {"input": ones, "batch": "b"}),
                (ValueError, "a tensor's name has", {"input": ones, "name": ""})):
            with self.subTest(text), self.assertRaisesRegex(error, text):
                self.queue.submit(**{"name": "x", **arguments})

    def test_name_twice(self):
        if self.rank == 0:
            work = self.queue.submit("t", numpy.ones(1))
            with self.assertRaisesRegex(tutti.InvalidArgumentError, "under way"):
                self.queue.submit("t", numpy.ones(1))
        tutti.barrier()
        if self.rank > 0:
            work = self.queue.submit("t", numpy.ones(1))
        self.expect(work.result(), self.size)

    def test_batch(self):
        first = self.queue.submit("a", numpy.ones(2), batch="both", batch_size=2)
        self.queue.submit("alone", numpy.ones(2)).wait()
        self.assertFalse(first.test())
        tutti.barrier()
        second = self.queue.submit("b", numpy.ones(3), batch="both", batch_size=2)
        tutti.wait_all([first, second])
        self.expect(second.result(), numpy.full(3, self.size))

    def test_join(self):
        for step in range(self.rank):
            self.expect(self.queue.submit(f"step{step}", numpy.ones(2)).result(), self.size - 1 - step)
        joined = self.queue.join()
        self.assertTrue(joined.wait(timeout=SECONDS))
        last = joined.source
        self.assertEqual(tutti.allreduce(numpy.array(last), op="max"), last)
        self.expect(self.queue.submit("after", numpy.ones(1)).result(), self.size)

    def test_dtypes(self):
        flags = numpy.array([self.rank == 0, True])
        self.expect(self.queue.submit("flags", flags, op="land").result(), [self.size == 1, True])
        self.expect(self.queue.submit("half", numpy.ones(3, "float16")).result(), self.size)
        raw = numpy.full(3, 0x3F80, "uint16")  # ones of bfloat16
        self.queue.submit("raw", raw, dtype="bfloat16", postscale=1.0 / self.size).wait()
        self.expect(raw, numpy.full(3, 0x3F80))
        eight = numpy.ones(2).view("uint8")
        self.queue.submit("bytes", eight, dtype="float64", shape=(2,)).wait()
        self.expect(eight.view("float64"), numpy.full(2, self.size))

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "torch is not installed")
    def test_tensors_of_torch(self):
        import torch  # pylint: disable=import-outside-toplevel
        for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.int64, torch.uint8):
            tensor = torch.ones(3, 2, dtype=dtype)
            self.assertIs(self.queue.submit(f"t{dtype}", tensor).result(), tensor)
            self.assertTrue(bool((tensor == self.size).all()), dtype)
        got = self.queue.submit("gathered", torch.full((self.rank, 2), float(self.rank), dtype=torch.bfloat16), collective="allgather",
                                allocate=lambda rows: torch.empty(sum(rows), 2, dtype=torch.bfloat16)).result()
        self.assertEqual(got.float().sum().item(), sum(2 * rank * rank for rank in range(self.size)))
        flags = torch.tensor([self.rank == 0, True])  # DLPack of torch 1.13 has no bool
        self.queue.submit("flags", flags.view(torch.uint8), dtype="bool", op="lor").wait()
        self.assertTrue(bool(flags.all()))

    def test_threads_and_groups(self):
        half = tutti.world().split(self.rank % 2)
        wrong = []
        with tutti.TensorQueue(half) as ours:
            def use(queue, name, size):
                for step in range(20):
                    got = queue.submit(f"{name}{step % 3}", numpy.ones(5)).result()
                    if not (got == size).all():
                        wrong.append((name, step))

            threads = [threading.Thread(target=use, args=(self.queue, name, self.size)) for name in "ab"]
            threads.append(threading.Thread(target=use, args=(ours, "c", half.size)))
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            half.barrier()
        self.assertEqual(wrong, [])
        half.close()

    def test_timeline(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "timeline.json")
            self.queue.start_timeline(path)
            tutti.barrier()
            self.queue.submit("shown", numpy.ones(3)).wait()
            tutti.barrier()
            self.queue.stop_timeline()
            tutti.barrier()
            self.queue.submit("not shown", numpy.ones(3)).wait()
            self.assertEqual(path.exists(), self.rank == 0)
            if self.rank == 0:
                events = json.loads(path.read_text(encoding="utf-8"))
                self.assertEqual([event["args"]["name"] for event in events if "name" in event.get("args", ())], ["shown"])
                self.assertEqual({event["name"] for event in events if event["ph"] == "X"}, {str(rank) for rank in range(self.size)})
                with self.assertRaisesRegex(tutti.InvalidArgumentError, "/nowhere/at/all"):
                    self.queue.start_timeline("/nowhere/at/all")

    def test_closing(self):
        """The end on one rank ends what others have under way, buffers go back, and callbacks are called."""
        queue = tutti.TensorQueue()
        array, told = numpy.ones(3), queues.Queue()
        queue.submit("known", numpy.ones(3)).wait()
        if self.rank > 0:
            work = queue.submit("not of rank 0", array)
            work.on_complete(told.put)
            tutti.barrier()
            with self.assertRaisesRegex(tutti.AbortedError, "a rank has closed the tensor queue"):
                work.wait()
            self.assertIsInstance(told.get(timeout=SECONDS), tutti.AbortedError)
        else:
            tutti.barrier()
        queue.close()
        queue.close()
        with self.assertRaisesRegex(tutti.InvalidArgumentError, "closed"):
            queue.submit("late", array)
        array.resize(5, refcheck=False)  # fails while a queue has it
        tutti.barrier()

    def test_dropped(self):
        """Works and queues that nobody holds: operations go on, and the last reference may be a callback's."""
        array = numpy.ones(3)
        self.queue.submit("dropped", array)
        gc.collect()
        self.queue.submit("next", numpy.ones(1)).wait()
        tutti.barrier()
        self.queue.submit("dropped", numpy.ones(3)).wait()  # the name is free again
        self.expect(array, numpy.full(3, self.size))

        queue, done = tutti.TensorQueue(), threading.Event()
        gone = weakref.finalize(queue, done.set)
        work = queue.submit("held", numpy.ones(1), collective="allgather", allocate=lambda rows, queue=queue: numpy.zeros(sum(rows)))
        work.on_complete(lambda error, queue=queue: None)
        del queue
        self.assertTrue(work.wait(timeout=SECONDS))
        del work
        self.assertTrue(done.wait(SECONDS))
        self.assertFalse(gone.alive)

    def test_fork(self):
        """A child can neither use the queue nor be held up by it."""
        child = os.fork()
        if child == 0:
            status = 1
            try:
                self.queue.submit("x", numpy.ones(1))
            except tutti.Error:
                self.queue.close()
                status = 0
            os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.expect(self.queue.submit("y", numpy.ones(1)).result(), self.size)

    def test_await(self):
        import asyncio  # pylint: disable=import-outside-toplevel

        async def both():
            return await asyncio.gather(self.sum("a"), self.sum("b"))
        self.assertEqual(asyncio.run(both()), [self.size, self.size])

    async def sum(self, name):
        return (await self.queue.submit(name, numpy.ones(1)))[0]


def end_under_way(_unused):
    """Ranks end with a queue open, tensors under way and an allocate() that may just be called."""
    global kept  # pylint: disable=global-variable-undefined
    world = tutti.init()
    queue = tutti.TensorQueue()
    queue.submit("known", numpy.ones(3)).wait()
    kept = [queue]
    kept.append(kept)
    kept.append(queue.submit("gathered", numpy.ones(1), collective="allgather", allocate=lambda rows: numpy.zeros(sum(rows))))
    if world.rank == 0:
        kept.append(queue.submit("not of all", numpy.ones(1)))
        kept[-1].on_complete(lambda error, queue=queue: None)
    world.barrier()  # once a rank has ended, the others' submissions fail
    print("ended")
