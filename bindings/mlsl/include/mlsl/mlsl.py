"""The functions of libmlsl.so as classes and methods, with the names of the C interface.

    import mlsl
    env = mlsl.MLSL()
    env.init()
    dist = env.create_distribution(env.get_process_count(), 1)
    request = dist.all_reduce(gradient, gradient, gradient.size, mlsl.DataType.FLOAT, mlsl.ReductionType.SUM, mlsl.GroupType.GLOBAL)
    env.wait(request)

Buffers: numpy arrays and other objects with a writable buffer, ctypes pointers, addresses, None. They belong to a communication until
its wait. Errors: MLSLError for what C reports; other mistakes end the process, as in C. Needs no numpy.
"""

import ctypes
import enum
import os

__all__ = ["MLSL", "MLSLError", "close", "DataType", "PhaseType", "GroupType", "ReductionType", "OperationType", "CompressionType"]


class DataType(enum.IntEnum):
    FLOAT, DOUBLE, BYTE = range(3)


class PhaseType(enum.IntEnum):
    TRAIN, TEST = range(2)


class GroupType(enum.IntEnum):
    DATA, MODEL, GLOBAL = range(3)


class ReductionType(enum.IntEnum):
    SUM, MIN, MAX = range(3)


class OperationType(enum.IntEnum):
    CC, BIAS, ACT, POOL, SPLIT, CONCAT, BCAST, REDUCE, DATA, EVAL = range(10)


class CompressionType(enum.IntEnum):
    NONE, QUANTIZATION = range(2)


class MLSLError(RuntimeError):
    """A function of libmlsl refused its arguments."""


def _load():
    root = os.environ.get("MLSL_ROOT")
    return ctypes.CDLL(os.path.join(root, "intel64", "lib", "libmlsl.so.1") if root else "libmlsl.so.1")


_library = _load()
_size, _handle, _cycles, _int = ctypes.c_size_t, ctypes.c_ulonglong, ctypes.c_ulonglong, ctypes.c_int


def _address(buffer):
    """The address of a buffer, as a void*."""
    if buffer is None or isinstance(buffer, (int, ctypes.c_void_p)):
        return buffer if isinstance(buffer, ctypes.c_void_p) else ctypes.c_void_p(buffer)
    if isinstance(buffer, (ctypes.Array, ctypes._Pointer)):  # pylint: disable=protected-access
        return ctypes.cast(buffer, ctypes.c_void_p)
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(buffer)))


def _text(value):
    return value if isinstance(value, bytes) else value.encode()


# Buffers of communications under way, by request or object: Python must not free them.
_held = {}


def _numbers(values):
    return (_size * len(values))(*values)


def _call(name, *arguments):
    if getattr(_library, "mlsl_" + name)(*arguments) != 0:
        raise MLSLError(f"mlsl_{name} failed: a handle or pointer is null")


class _Object:
    """An object of the library. Subclasses name the class as C does."""

    c_name = ""

    def __init__(self, handle):
        self.handle = _handle(handle)

    def get_handle(self):
        """The handle of the C interface."""
        return self.handle

    def run(self, name, *arguments):
        _call(f"{self.c_name}_{name}", self.handle, *arguments)

    def get(self, name, result_type, *arguments):
        result = result_type()
        self.run(name, *arguments, ctypes.byref(result))
        return result.value


def _getter(name, result_type=_size, convert=None):
    def method(self):
        value = self.get(name, result_type)
        return convert(value) if convert else value

    method.__name__ = name
    return method


def _getters(result_type, names, convert=None):
    """A class decorator: methods without arguments that return a value."""

    def add(cls):
        for name in names.split():
            setattr(cls, name, _getter(name, result_type, convert))
        return cls

    return add


@_getters(_size, "get_mb_offset get_mb_count get_fm_offset get_fm_count get_fm_size get_buf_offset")
@_getters(_int, "get_data_type", DataType)
class CommBlockInfo(_Object):
    c_name = "comm_block_info"


@_getters(_size, "get_global_fm_count get_global_fm_offset get_local_fm_count get_pack_block_count get_unpack_block_count get_fm_size")
@_getters(_size, "get_comm_buf_size")
@_getters(_int, "get_data_type", DataType)
@_getters(ctypes.c_void_p, "get_comm_buf wait_comm")
class Activation(_Object):
    c_name = "activation"

    def get_pack_block(self, idx):
        return CommBlockInfo(self.get("get_pack_block", _handle, _size(idx)))

    def get_unpack_block(self, idx):
        return CommBlockInfo(self.get("get_unpack_block", _handle, _size(idx)))

    def start_comm(self, buf):
        _held[self.handle.value] = buf  # until the next one
        self.run("start_comm", _address(buf))


@_getters(_size, "get_global_kernel_count get_global_kernel_offset get_local_kernel_count get_owned_kernel_count")
@_getters(_size, "get_owned_kernel_offset get_kernel_size")
@_getters(_int, "get_data_type", DataType)
@_getters(_int, "is_distributed_update", bool)
@_getters(ctypes.c_void_p, "wait_gradient_comm wait_increment_comm")
class ParameterSet(_Object):
    c_name = "parameter_set"

    def start_gradient_comm(self, buf):
        _held[self.handle.value, "gradient"] = buf  # until the next one
        self.run("start_gradient_comm", _address(buf))

    def start_increment_comm(self, buf):
        _held[self.handle.value, "increment"] = buf  # until the next one
        self.run("start_increment_comm", _address(buf))

    def test_gradient_comm(self):
        """(address or None, whether it is complete)"""
        is_completed, buf = _int(), ctypes.c_void_p()
        self.run("test_gradient_comm", ctypes.byref(is_completed), ctypes.byref(buf))
        return buf.value, bool(is_completed.value)


class Distribution(_Object):
    c_name = "distribution"

    def _start(self, name, *arguments):
        """Returns the request. Arguments that are no counts or enumerators are buffers."""
        addresses = [value if isinstance(value, (_size, _int, ctypes.Array)) else _address(value) for value in arguments]
        request = self.get(name, _handle, *addresses)
        _held[request] = arguments
        return request

    def get_process_idx(self, group_type):
        return self.get("get_process_idx", _size, _int(group_type))

    def get_process_count(self, group_type):
        return self.get("get_process_count", _size, _int(group_type))

    def bcast(self, buffer, count, data_type, root_idx, group_type):
        return self._start("bcast", buffer, _size(count), _int(data_type), _size(root_idx), _int(group_type))

    def reduce(self, send_buffer, recv_buffer, count, data_type, red_type, root_idx, group_type):
        return self._start(
            "reduce", send_buffer, recv_buffer, _size(count), _int(data_type), _int(red_type), _size(root_idx), _int(group_type)
        )

    def all_reduce(self, send_buffer, recv_buffer, count, data_type, red_type, group_type):
        return self._start("all_reduce", send_buffer, recv_buffer, _size(count), _int(data_type), _int(red_type), _int(group_type))

    def all_to_all(self, send_buffer, send_count, recv_buffer, data_type, group_type):
        return self._start("all_to_all", send_buffer, _size(send_count), recv_buffer, _int(data_type), _int(group_type))

    def all_to_allv(self, send_buffer, send_counts, send_offsets, recv_buffer, recv_counts, recv_offsets, data_type, group_type):
        return self._start(
            "all_to_allv",
            send_buffer,
            _numbers(send_counts),
            _numbers(send_offsets),
            recv_buffer,
            _numbers(recv_counts),
            _numbers(recv_offsets),
            _int(data_type),
            _int(group_type),
        )

    def gather(self, send_buffer, send_count, recv_buffer, data_type, root_idx, group_type):
        return self._start("gather", send_buffer, _size(send_count), recv_buffer, _int(data_type), _size(root_idx), _int(group_type))

    def all_gather(self, send_buffer, send_count, recv_buffer, data_type, group_type):
        return self._start("all_gather", send_buffer, _size(send_count), recv_buffer, _int(data_type), _int(group_type))

    def scatter(self, send_buffer, recv_buffer, recv_count, data_type, root_idx, group_type):
        return self._start("scatter", send_buffer, recv_buffer, _size(recv_count), _int(data_type), _size(root_idx), _int(group_type))

    def reduce_scatter(self, send_buffer, recv_buffer, recv_count, data_type, red_type, group_type):
        return self._start("reduce_scatter", send_buffer, recv_buffer, _size(recv_count), _int(data_type), _int(red_type), _int(group_type))

    def barrier(self, group_type):
        self.run("barrier", _int(group_type))


class OperationRegInfo(_Object):
    c_name = "operation_reg_info"

    def set_name(self, name):
        self.run("set_name", _text(name))

    def add_input(self, fm_count, fm_size, data_type):
        self.run("add_input", _size(fm_count), _size(fm_size), _int(data_type))

    def add_output(self, fm_count, fm_size, data_type):
        self.run("add_output", _size(fm_count), _size(fm_size), _int(data_type))

    def add_parameter_set(self, kernel_count, kernel_size, data_type, dist_update=False, compression_type=CompressionType.NONE):
        self.run(
            "add_parameter_set_with_compress",
            _size(kernel_count),
            _size(kernel_size),
            _int(data_type),
            _int(dist_update),
            _int(compression_type),
        )

    def validate(self, dist=None):
        self.run("validate", dist.handle if dist else _handle(0))


@_getters(_size, "get_global_minibatch_size get_local_minibatch_size get_global_minibatch_offset get_input_count get_output_count")
@_getters(_size, "get_parameter_set_count")
@_getters(_int, "has_parameter_sets", bool)
@_getters(_int, "get_op_type", OperationType)
@_getters(ctypes.c_char_p, "get_name", bytes.decode)
@_getters(_handle, "get_distribution", Distribution)
class Operation(_Object):
    c_name = "operation"

    def set_distribution(self, dist):
        self.run("set_distribution", dist.handle)

    def get_session(self):
        return Session(self.get("get_session", _handle))

    def set_prev(self, prev, act_idx, prev_op_act_idx):
        self.run("set_prev", prev.handle if prev else _handle(0), _size(act_idx), _size(prev_op_act_idx))

    def set_next(self, next_op, act_idx, next_op_act_idx):
        self.run("set_next", next_op.handle if next_op else _handle(0), _size(act_idx), _size(next_op_act_idx))

    def get_input(self, idx):
        return Activation(self.get("get_input", _handle, _size(idx)))

    def get_output(self, idx):
        return Activation(self.get("get_output", _handle, _size(idx)))

    def get_parameter_set(self, idx):
        return ParameterSet(self.get("get_parameter_set", _handle, _size(idx)))


@_getters(_int, "is_started is_enabled", bool)
@_getters(_cycles, "get_total_isolation_comm_cycles get_total_comm_cycles get_total_compute_cycles")
@_getters(_size, "get_total_comm_size")
class Statistics(_Object):
    c_name = "statistics"

    def start(self):
        self.run("start")

    def stop(self):
        self.run("stop")

    def reset(self):
        self.run("reset")

    def print(self):
        self.run("print")

    dump = print

    def get_isolation_comm_cycles(self, op_idx):
        return self.get("get_isolation_comm_cycles", _cycles, _size(op_idx))

    def get_comm_size(self, op_idx):
        return self.get("get_comm_size", _size, _size(op_idx))

    def get_comm_cycles(self, op_idx):
        return self.get("get_comm_cycles", _cycles, _size(op_idx))

    def get_compute_cycles(self, op_idx):
        return self.get("get_compute_cycles", _cycles, _size(op_idx))


@_getters(_size, "get_global_minibatch_size get_operation_count")
@_getters(_int, "get_phase_type", PhaseType)
@_getters(_handle, "get_stats", Statistics)
class Session(_Object):
    c_name = "session"

    def set_global_minibatch_size(self, global_minibatch_size):
        self.run("set_global_minibatch_size", _size(global_minibatch_size))

    def create_operation_reg_info(self, op_type):
        return OperationRegInfo(self.get("create_operation_reg_info", _handle, _int(op_type)))

    def delete_operation_reg_info(self, info):
        self.run("delete_operation_reg_info", info.handle)

    def add_operation(self, info, dist=None):
        return self.get("add_operation_with_distribution", _size, info.handle, dist.handle if dist else _handle(0))

    def add_operation_with_distribution(self, info, dist):
        return self.add_operation(info, dist)

    def remove_operations(self):
        self.run("remove_operations")

    def get_operation(self, idx):
        return Operation(self.get("get_operation", _handle, _size(idx)))

    def commit(self):
        self.run("commit")


class _QuantParams(ctypes.Structure):
    _fields_ = [
        ("lib_path", ctypes.c_char_p),
        ("quant_buffer_func_name", ctypes.c_char_p),
        ("dequant_buffer_func_name", ctypes.c_char_p),
        ("reduce_sum_func_name", ctypes.c_char_p),
        ("block_size", _size),
        ("elem_in_block", _size),
    ]


@_getters(_int, "is_initialized", bool)
@_getters(_size, "get_process_idx get_process_count")
class MLSL(_Object):
    """The environment: one for a process, whatever the number of objects."""

    c_name = "environment"
    starts = 0  # calls of init() without their finalize(), of all objects

    def __init__(self):
        handle = _handle()
        _call("environment_get_env", ctypes.byref(handle))
        super().__init__(handle.value)

    @staticmethod
    def get_version():
        version = _int()
        _call("environment_get_version", ctypes.byref(version))
        return version.value

    def configure(self, config):
        self.run("configure", _text(config))

    def init(self):
        """Starts the environment once. Each further call needs a finalize() of its own."""
        if not self.is_initialized():
            MLSL.starts = 0
            self.run("init", None, None)
        MLSL.starts += 1

    def finalize(self):
        """Ends the environment if this is the last one of the calls of init()."""
        MLSL.starts = max(MLSL.starts - 1, 0)
        if MLSL.starts == 0:
            self.run("finalize")

    def create_session(self, phase_type=PhaseType.TRAIN):
        return Session(self.get("create_session", _handle, _int(phase_type)))

    def delete_session(self, session):
        self.run("delete_session", session.handle)

    def create_distribution(self, data_partitions, model_partitions):
        return Distribution(self.get("create_distribution", _handle, _size(data_partitions), _size(model_partitions)))

    def delete_distribution(self, dist):
        self.run("delete_distribution", dist.handle)

    def wait(self, req):
        self.run("wait", _handle(req))
        _held.pop(req, None)

    def test(self, req):
        is_completed = bool(self.get("test", _int, _handle(req)))
        if is_completed:
            _held.pop(req, None)
        return is_completed

    def alloc(self, size, alignment=64):
        """The address of memory that the ranks of this node share; (ctypes.c_char * size).from_address(it) is a buffer."""
        return self.get("alloc", ctypes.c_void_p, _size(size), _size(alignment))

    def free(self, buffer):
        """Takes the address, or a buffer that begins there."""
        self.run("free", _address(buffer))

    def set_quantization_params(self, lib_path, quant, dequant, reduce_sum, block_size, elem_in_block):
        params = _QuantParams(_text(lib_path), _text(quant), _text(dequant), _text(reduce_sum), block_size, elem_in_block)
        self.run("set_quantization_params", ctypes.byref(params))


def close():
    """Ends the environment, however often it was started."""
    env = MLSL()
    if env.is_initialized():
        MLSL.starts = 0
        env.finalize()
