"""Arrays on a GPU for tests: memory of CUDA's driver, or of what stands in for it, behind each of the two protocols.

Knows the driver API and the protocols, and nothing of tutti. TUTTI_CUDA_LIBRARY names the library.
"""
import ctypes
import os
import threading

import numpy

CPU, CUDA, CUDA_HOST, METAL, CUDA_MANAGED = 1, 2, 3, 8, 13  # DLPack's devices
CODES = {"i": 0, "u": 1, "f": 2, "b": 6}  # DLPack's codes of numpy's kinds
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Gpu:
    """One device, in the context of which the calling thread is from now on."""

    def __init__(self, ordinal=0):
        self.library = ctypes.CDLL(os.environ["TUTTI_CUDA_LIBRARY"])
        self.ordinal = ordinal
        self.kept = []  # what the device still calls
        self.context, device = ctypes.c_void_p(), ctypes.c_int()
        self.do("cuInit", 0)
        self.do("cuDeviceGet", ctypes.byref(device), ordinal)
        self.do("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.do("cuCtxPushCurrent_v2", self.context)

    def leave(self):
        self.do("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def do(self, function, *arguments):
        status = getattr(self.library, function)(*arguments)
        if status != 0:
            raise RuntimeError(f"{function} failed: CUDA error {status}")

    def make_stream(self):
        stream = ctypes.c_void_p()
        self.do("cuStreamCreate", ctypes.byref(stream), 1)  # does not wait for the default stream
        return stream.value

    def allocate(self, size_bytes):
        """The address of so many bytes that are not freed: freeing would wait for all streams."""
        address = ctypes.c_uint64()
        self.do("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(1, size_bytes)))
        return address.value

    def gate(self, stream):
        """What is put on the stream from now on waits for this event."""
        is_open = threading.Event()
        self.kept.append(HOST_FUNCTION(lambda _: is_open.wait(30)))
        self.do("cuLaunchHostFunc", ctypes.c_void_p(stream), self.kept[-1], None)
        return is_open

    def write(self, address, content, stream=0):
        """Returns before the content is there, which only what comes behind it on the stream sees."""
        pinned = ctypes.c_void_p()
        self.do("cuMemHostAlloc", ctypes.byref(pinned), ctypes.c_size_t(max(1, content.nbytes)), 0)
        ctypes.memmove(pinned, content.ctypes.data, content.nbytes)
        threading.Timer(0.002, self.gate(stream).set).start()
        self.copy(address, pinned.value, content.nbytes, stream)

    def read(self, address, like, stream=0):
        """What the stream's work so far has left there."""
        found = numpy.empty_like(like)
        self.copy(found.ctypes.data, address, found.nbytes, stream)
        self.synchronise(stream)
        return found

    def copy(self, target, source, size_bytes, stream):
        self.do("cuMemcpyAsync", ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(size_bytes),
                ctypes.c_void_p(stream))

    def synchronise(self, stream):
        self.do("cuStreamSynchronize", ctypes.c_void_p(stream))


class OnDevice:
    """Elements on a device; `stream` fills them. A dtype that numpy has not: its bits, and DLPack's code."""

    def __init__(self, gpu, content, stream=0, code=None):
        self.gpu, self.like, self.code = gpu, numpy.ascontiguousarray(content), code
        self.address = gpu.allocate(self.like.nbytes)
        gpu.write(self.address, self.like, stream)

    def read(self, stream=0):
        return self.gpu.read(self.address, self.like, stream)


class Interface(OnDevice):
    """With __cuda_array_interface__, in which `changes` replace what would be there."""

    def __init__(self, *given, changes=(), **named):
        super().__init__(*given, **named)
        self.changes = dict(changes)

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.like.shape, "typestr": self.like.dtype.str, "data": (self.address, False), "version": 3,
                "strides": None, "stream": None, **self.changes}


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("index", ctypes.c_int32)]


class Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", Device), ("ndim", ctypes.c_int32), ("dtype", Type),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("release", RELEASE)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("release", RELEASE), ("flags", ctypes.c_uint64), ("tensor", Tensor)]


make_capsule = ctypes.pythonapi.PyCapsule_New
make_capsule.restype, make_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Dlpack(OnDevice):
    """With __dlpack__; notes the streams that it was asked with, and how many capsules are still in use."""

    lent = {}  # what capsules point to, until they are given back
    kind = Managed
    capsule_name = b"dltensor"

    def __init__(self, *given, device_type=CUDA, strides=None, **named):
        super().__init__(*given, **named)
        self.device_type, self.strides = device_type, strides
        self.asked, self.in_use = [], 0

    def __dlpack_device__(self):
        return self.device_type, self.gpu.ordinal

    def __dlpack__(self, stream=None):
        self.asked.append(stream)
        return self.export()

    def export(self):
        shape = self.like.shape
        tensor = Tensor(data=self.address, device=Device(*self.__dlpack_device__()), ndim=len(shape))
        tensor.dtype = Type(CODES[self.like.dtype.kind] if self.code is None else self.code, 8 * self.like.itemsize, 1)
        tensor.shape = (ctypes.c_int64 * len(shape))(*shape)
        if self.strides is not None:
            tensor.strides = (ctypes.c_int64 * len(shape))(*self.strides)
        managed = self.kind(tensor=tensor, release=RELEASE(self.take_back))
        if self.kind is Versioned:
            managed.major = 1
        self.lent[ctypes.addressof(managed)] = managed
        self.in_use += 1
        return make_capsule(ctypes.addressof(managed), self.capsule_name, None)

    def take_back(self, managed):
        self.in_use -= 1
        RETIRED.append(self.lent.pop(managed))


RETIRED = []  # a release function that runs is not freed


class NewDlpack(Dlpack):
    """As version 1 of DLPack has it."""

    kind = Versioned
    capsule_name = b"dltensor_versioned"

    def __dlpack__(self, stream=None, max_version=None):  # pylint: disable=arguments-differ
        self.asked.append(stream)
        return self.export()
