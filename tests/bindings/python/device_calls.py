"""Calls of the Python package on arrays of a GPU against the same calls on numpy arrays; part of rank_program.py.

Ranks share device 0 of the driver that TUTTI_CUDA_LIBRARY names. Knows the package and the arrays of device_arrays.
"""
import gc
import time
import weakref

import numpy
import tutti

from device_arrays import CPU, CUDA, CUDA_HOST, CUDA_MANAGED, METAL, Dlpack, Gpu, Interface, NewDlpack
from rank_calls import SECONDS, RankTest, numbers, of_all

BF16, E4M3, E5M2 = 4, 10, 12  # DLPack's codes


def bfloat16(values):
    """The bits of whole numbers that bfloat16 holds."""
    return (numpy.asarray(values, "float32").view("uint32") >> 16).astype("uint16")


class Devices(RankTest):
    gpu = None

    @classmethod
    def setUpClass(cls):
        tutti.allreduce(numpy.zeros(1))  # what is found out before the driver is loaded is not for ever
        cls.gpu = Gpu()
        cls.stream = cls.gpu.make_stream()

    def calls(self):
        """Each collective: its name, its arrays, its other arguments. Without an output it is in place."""
        size, rank = self.size, self.rank
        counts = [r + 1 for r in range(size)]
        gaps = [2 * sum(counts[:r]) for r in range(size)]
        one, some, all_of_it = numbers(rank, 5), numbers(rank, counts[rank]), numbers(rank, 5 * size)
        row, uneven, spread = numpy.zeros(5, "float32"), numbers(rank, sum(counts)), numbers(rank, 2 * sum(counts))
        yield "allreduce", {"input": one, "output": row}, {}
        yield "allreduce", {"input": one}, {"op": "max"}
        yield "allreduce", {"input": one}, {"op": tutti.premul_sum(0.5), "algorithm": "two_shot"}
        yield "reduce", {"input": one, "output": row}, {"root": 0}
        yield "reduce", {"input": one}, {"op": "avg", "root": size - 1}
        yield "broadcast", {"buffer": one}, {"root": size - 1}
        yield "allgather", {"input": one, "output": numpy.zeros((size, 5), "float32")}, {}
        yield "allgather", {"output": all_of_it}, {"input": None}
        yield "reduce_scatter", {"input": all_of_it, "output": row}, {}
        yield "reduce_scatter", {"input": all_of_it}, {"op": "min"}
        yield "alltoall", {"input": all_of_it, "output": numpy.zeros((size, 5), "float32")}, {}
        yield "alltoall", {"input": all_of_it}, {}
        yield "gather", {"input": one, "output": numpy.zeros((size, 5), "float32")}, {"root": 0}
        yield "scatter", {"input": all_of_it, "output": row}, {"root": size - 1}
        yield "scan", {"input": one}, {}
        yield "exscan", {"input": one, "output": row}, {}
        yield "allgatherv", {"input": some, "output": spread}, {"counts": counts, "displacements": gaps}
        yield "reduce_scatterv", {"input": uneven, "output": numpy.zeros(counts[rank], "float32")}, {"counts": counts}
        yield "gatherv", {"input": some, "output": spread}, {"counts": counts, "displacements": gaps, "root": size - 1}
        yield "scatterv", {"input": spread, "output": some.copy()}, {"counts": counts, "displacements": gaps, "root": 0}
        yield "alltoallv", {"input": uneven, "output": numpy.zeros(size * (rank + 1), "float32")}, {
            "input_counts": counts, "output_counts": [rank + 1] * size}

    def compare(self, kind, stream, ways):
        """Every call on the host and then, on a stream that has yet to fill the arrays, on the device."""
        number = 0 if stream is None else stream
        for index, (name, arrays, others) in enumerate(self.calls()):
            on_host = {key: array.copy() for key, array in arrays.items()}
            getattr(tutti, name)(**on_host, **others)
            on_device = {key: kind(self.gpu, array, stream=number) for key, array in arrays.items()}
            given = {**on_device, **others, **({} if stream is None else {"stream": stream})}
            group = tutti if index % 2 else tutti.world()
            if ways == "blocking":
                got = getattr(group, name)(**given)
            else:
                got = getattr(group, name + "_async")(**given).result()
            if got is not None:
                self.assertIs(got, on_device.get("output", on_device.get("buffer", on_device.get("input"))))
            for key, array in on_host.items():
                with self.subTest(name=name, argument=key, others=others):
                    self.expect(on_device[key].read(number), array)

    def test_calls_on_the_default_stream(self):
        self.compare(Interface, None, "blocking")
        self.compare(Dlpack, None, "async")

    def test_calls_on_a_stream(self):
        self.compare(Interface, self.stream, "async")
        self.compare(NewDlpack, self.stream, "blocking")

    def test_dtypes(self):
        for dtype in "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64".split():
            for kind in (Interface, Dlpack):
                given = kind(self.gpu, numbers(self.rank, dtype=dtype))
                tutti.allreduce(given)
                self.expect(given.read(), sum(of_all(self.size, dtype=dtype)))
        for kind in (Interface, NewDlpack):
            given = kind(self.gpu, numpy.array([self.rank == 0, True, False]))
            tutti.allreduce(given, op="land")
            self.expect(given.read(), [self.size == 1, True, False])
        given = Dlpack(self.gpu, bfloat16(numbers(self.rank)), code=BF16)
        tutti.allreduce(given)
        self.expect(given.read(), bfloat16(sum(of_all(self.size))))
        # 1, 2 and 4 of each, and the largest is of the last rank.
        for code, bits in {E4M3: [0x38, 0x40, 0x48], E5M2: [0x3C, 0x40, 0x44]}.items():
            given = NewDlpack(self.gpu, numpy.full(5, bits[self.rank], "uint8"), code=code)
            tutti.allreduce(given, op="max")
            self.expect(given.read(), numpy.full(5, bits[self.size - 1]))

    def test_named_tensors(self):
        """With factors, apart from the input, and of a length that other ranks know."""
        total, size = sum(of_all(self.size)), self.size
        with tutti.TensorQueue() as tensors:
            for kind, stream in ((Interface, None), (NewDlpack, self.stream)):
                number = 0 if stream is None else stream

                def submit(name, content, output=None, **named):
                    given, target = (None if array is None else kind(self.gpu, array, stream=number) for array in (content, output))
                    result = tensors.submit(name, given, target, stream=stream, **named).result()
                    return result.read(number)

                mine, zeros = numbers(self.rank), numpy.zeros(6, "float32")
                self.expect(submit("sum", mine), total)
                self.expect(submit("scaled", mine, op="avg", prescale=0.5, postscale=4), 2 * total / numpy.float32(size))
                self.expect(submit("apart", mine, zeros, op="max", prescale=2, postscale=0.5), numbers(size - 1))
                self.expect(submit("root", mine, zeros, collective="broadcast", root=size - 1), numbers(size - 1))
                part = submit("part", numbers(self.rank, 6 * size), zeros, collective="reduce_scatter", prescale=0.5)
                self.expect(part, sum(of_all(size, 6 * size))[6 * self.rank:6 * self.rank + 6] / 2)
                gathered = kind(self.gpu, numpy.zeros(sum(range(size)), "float32"), stream=number)  # the queue's thread has no context
                rows = submit("rows", numbers(self.rank, self.rank), collective="allgather", allocate=lambda rows, held=gathered: held)
                self.expect(rows, numpy.concatenate([numbers(rank, rank) for rank in range(size)]))
                with self.assertRaisesRegex(tutti.InvalidArgumentError, "scaled for sum and avg alone"):
                    submit("part", numbers(self.rank, 6 * size), zeros, collective="reduce_scatter", op="max", prescale=0.5)
            if size > 1 and self.rank == 0:
                tensors.join().wait()
            elif size > 1:
                with self.assertRaisesRegex(tutti.MismatchError, "if its join.. was told how to make zeros there"):
                    submit("late", numbers(self.rank))
                tensors.join().wait()
            tutti.barrier()

            contexts = []  # kept: the device calls what they have put on it

            def zeros_on_gpu(count):
                here = Gpu()  # the queue's thread has no context
                contexts.append(here)
                try:
                    return Interface(here, numpy.zeros(count, "uint8"))
                finally:
                    here.leave()

            if self.rank > 0:
                others = sum(of_all(size)[1:])
                for step in range(3):  # from the second on "later" is a bit of the cache
                    self.expect(submit("later", numbers(self.rank), postscale=2), 2 * others)
                    self.expect(submit(f"another {step}", numbers(self.rank)), others)
            joined = tensors.join(zeros_on_gpu)
            joined.wait()
            self.assertIn(joined.source, range(size))
            if size == 2:
                self.assertEqual(len(contexts), 6 if self.rank == 0 else 0)
            with self.assertRaisesRegex(TypeError, "join: zeros: it cannot be called"):
                tensors.join(3)

    def test_shapes_and_places(self):
        total = sum(of_all(self.size))
        for changes in ({"version": 2, "shape": (2, 3)}, {"strides": (4,)}, {"stream": 1}, {"stream": 2}):
            given = Interface(self.gpu, numbers(self.rank), changes=changes)
            self.gpu.synchronise(0)
            self.assertIs(tutti.allreduce(given), given)
            self.gpu.synchronise(changes.get("stream", 0))
            self.expect(given.read(), total)
        for device_type in (CUDA, CUDA_MANAGED):
            given = Dlpack(self.gpu, numbers(self.rank).reshape(3, 2), device_type=device_type, strides=(2, 1))
            tutti.allreduce(given)
            self.expect(given.read(), total.reshape(3, 2))
        tutti.allreduce(Interface(self.gpu, numpy.zeros((0, 3)), changes={"data": (0, False)}))
        for device_type in (CPU, CUDA_HOST):  # what only says that it is a device's
            given = Dlpack(self.gpu, numbers(self.rank), device_type=device_type)
            held = numbers(self.rank)
            given.address = held.ctypes.data
            tutti.allreduce(given)
            self.expect(held, total)
            self.assertEqual(given.asked, [None])

    def test_streams(self):
        """What a call takes for a stream, and what producers are told."""
        class CudaStream:
            def __cuda_stream__(self, number=self.stream):
                return 0, number

        class TorchStream:
            cuda_stream = self.stream

        class CupyStream:
            ptr = self.stream

        for stream in (CudaStream(), TorchStream(), CupyStream(), numpy.uint64(self.stream)):
            given = Dlpack(self.gpu, numbers(self.rank), stream=self.stream)
            tutti.allreduce(given, stream=stream)
            self.assertEqual(given.asked, [self.stream])
            self.expect(given.read(self.stream), sum(of_all(self.size)))
        for stream, told in ((None, [None, 1]), (0, [1]), (1, [1]), (2, [2])):
            given = NewDlpack(self.gpu, numbers(self.rank))
            self.gpu.synchronise(0)
            tutti.allreduce_async(given, stream=stream).wait()
            self.assertEqual((given.asked, given.in_use), (told, 0))
            self.expect(given.read(2 if stream == 2 else 0), sum(of_all(self.size)))
        # The interface says on which stream; a keyword may say so, too.
        for named in ({}, {"stream": self.stream}):
            given = Interface(self.gpu, numbers(self.rank), stream=self.stream, changes={"stream": self.stream})
            output = Interface(self.gpu, numbers(self.rank), stream=self.stream)
            tutti.allreduce(given, output, **named)
            self.expect(output.read(self.stream), sum(of_all(self.size)))

    def test_messages(self):
        if self.size == 1:
            self.skipTest("needs a peer")
        right, left = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        for tag, source in ((0, left), (3, None)):
            given, got = (Interface(self.gpu, numbers(self.rank), stream=self.stream) for _ in range(2))
            sent = tutti.send_async(given, right, tag=tag, stream=self.stream)
            received = tutti.recv_async(got, source, tag=tag, stream=self.stream)
            tutti.wait_all([sent, received])
            self.assertEqual(received.source, left)
            self.expect(got.read(self.stream), numbers(left))
        if self.rank < 2:
            buffer = Dlpack(self.gpu, numbers(self.rank), stream=self.stream)
            if self.rank == 0:
                tutti.send(buffer, 1, stream=self.stream)
            else:
                self.assertIs(tutti.recv(buffer, 0, stream=self.stream), buffer)
                self.expect(buffer.read(self.stream), numbers(0))

    def test_under_way(self):
        """Blocking calls do not wait for the device, Works do; both keep their arrays until it is past them."""
        blocking, waited = (Dlpack(self.gpu, numbers(self.rank), stream=self.stream) for _ in range(2))
        dropped = Interface(self.gpu, numbers(self.rank), stream=self.stream)
        self.gpu.synchronise(self.stream)
        gate = self.gpu.gate(self.stream)
        tutti.allreduce(blocking, stream=self.stream)
        work = tutti.allreduce_async(dropped, waited, stream=self.stream)
        told, held = [], weakref.ref(dropped)
        work.on_complete(told.append)
        del dropped
        gc.collect()
        self.assertIsNotNone(held())
        self.assertFalse(work.test())
        self.assertFalse(work.wait(timeout=0.05))
        self.assertEqual((blocking.in_use, waited.in_use, told), (1, 1, []))
        gate.set()
        self.assertTrue(work.wait(timeout=SECONDS))
        self.assertEqual((waited.in_use, held()), (0, None))
        deadline = time.monotonic() + SECONDS
        ranks_left = [1]
        while ranks_left[0]:
            self.assertLess(time.monotonic(), deadline)
            # Each call looks after what blocking ones have left.
            ranks_left = tutti.allreduce(numpy.array([int(blocking.in_use > 0 or not told)]))
        self.assertEqual(told, [None])
        for array in (blocking, waited):
            self.expect(array.read(), sum(of_all(self.size)))
        # The end of a group gives back what is under way.
        group = tutti.world().split(0)
        last = Interface(self.gpu, numbers(self.rank))
        group.allreduce(last)
        group.close()
        self.expect(last.read(), sum(of_all(self.size)))

    def test_registered_arrays(self):
        given = Interface(self.gpu, numbers(self.rank))
        is_kept = weakref.ref(given)
        group = tutti.world().split(0)
        with group.register_buffer(given) as early:
            group.allreduce(given)
            self.expect(given.read(), sum(of_all(self.size)))
            late = group.register_buffer(given)
            del given
            gc.collect()
            self.assertTrue(early.is_registered and late.is_registered and is_kept() is not None)
        self.assertFalse(early.is_registered)
        group.close()
        late.release()  # of a group that has ended
        late.release()
        gc.collect()
        self.assertIsNone(is_kept())
        with self.assertRaisesRegex(tutti.InvalidArgumentError, "register_buffer: memory: expected memory of a GPU"):
            tutti.world().register_buffer(numbers(self.rank))
        with self.assertRaisesRegex(TypeError, "register_buffer: array"):
            tutti.world().register_buffer(7)

    def test_refused_arrays(self):
        held = numbers(self.rank).reshape(2, 3)

        def interface(**changes):
            return Interface(self.gpu, held, changes=changes)

        for given, error, text in (
                ((interface(strides=(4, 8)),), TypeError, "allreduce: input: the elements are not row after row"),
                ((interface(strides=(12,)),), TypeError, "not row after row"),
                ((Dlpack(self.gpu, held, strides=(1, 2)),), TypeError, "not row after row"),
                ((interface(data=(8, True)),), TypeError, "allreduce: input: the array is read-only"),
                ((interface(), interface(data=(8, True))), TypeError, "allreduce: output: the array is read-only"),
                ((interface(version=1),), TypeError, "version 1, expected 2 or 3"),
                ((interface(version="3"),), TypeError, "'version' of its __cuda_array_interface__"),
                ((interface(data=None),), TypeError, "'data' of its __cuda_array_interface__"),
                ((interface(mask=held),), TypeError, "has a mask"),
                ((interface(typestr=">f4"),), TypeError, "elements of type '>f4'"),
                ((interface(typestr="<V2"),), TypeError, "elements of type '<V2'.*by __dlpack__"),
                ((interface(typestr="<c8"),), TypeError, "elements of type '<c8'"),
                ((interface(stream=0),), ValueError, "stream 0, which could be one of two"),
                ((Dlpack(self.gpu, held, device_type=METAL),), TypeError, r"another device \(DLPack's number 8\)"),
                ((Dlpack(self.gpu, held, code=5),), TypeError, "DLPack's type 5"),
                ((interface(), interface(typestr="<i4")), TypeError, "elements are int32, those of input float32"),
                ((interface(), held), tutti.InvalidArgumentError, "allreduce: input is on GPU 0, output is in host"),
                ((held, Dlpack(self.gpu, held)), tutti.InvalidArgumentError, "input is in host memory, output is on GPU 0")):
            with self.assertRaisesRegex(error, text):
                tutti.allreduce(*given)
        self.expect(tutti.allreduce(numpy.ones(1)), self.size)  # nothing of that has changed the group

    def test_refused_streams(self):
        held = numbers(self.rank)
        given = Interface(self.gpu, held)
        elsewhere = Interface(self.gpu, held, changes={"stream": self.stream})
        for arrays, stream, error, text in (
                ((held,), self.stream, ValueError, "allreduce: stream: there is no array on a GPU"),
                ((given,), -1, ValueError, "allreduce: stream: -1 is no address"),
                ((given,), 1 << 70, ValueError, "is no address"),
                ((given,), "0", TypeError, "stream: expected a number .* not str"),
                ((given,), 1.5, TypeError, "not float"),
                ((elsewhere,), 0, ValueError, f"ready on stream {self.stream}, and the call is on the default stream"),
                ((Dlpack(self.gpu, held), elsewhere), None, ValueError, "allreduce: output: its elements are ready on")):
            with self.assertRaisesRegex(error, text):
                tutti.allreduce(*arrays, stream=stream)
        with self.assertRaisesRegex(ValueError, "send: stream: there is no array"):
            tutti.send(held, self.rank, stream=self.stream)

    def test_another_device(self):
        there = Gpu(1)
        other = Dlpack(there, numbers(self.rank))
        there.leave()
        here = Interface(self.gpu, numbers(self.rank))
        with self.assertRaisesRegex(tutti.InvalidArgumentError, "allreduce: input is on GPU 0, output is on GPU 1"):
            tutti.allreduce(here, other)
        tutti.allreduce(here)
        with self.assertRaisesRegex(tutti.InvalidArgumentError, "this group's calls are on GPU 0, .* on GPU 1"):
            tutti.allreduce(other)
