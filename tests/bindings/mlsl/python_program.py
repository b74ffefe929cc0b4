"""The Python module mlsl: a rank of a job. Buffers are arrays of the standard library. usage: python_program.py [LIBRARY]"""

import array
import ctypes
import sys

import mlsl


def check(holds):
    if not holds:
        raise AssertionError


def gradients_of(params):
    return array.array("f", [1.0] * (params.get_local_kernel_count() * params.get_kernel_size()))


def train(env, dist):
    size = env.get_process_count()
    session = env.create_session(mlsl.PhaseType.TRAIN)
    session.set_global_minibatch_size(2 * size)
    info = session.create_operation_reg_info(mlsl.OperationType.CC)
    info.set_name(b"conv")
    info.add_input(3, 4, mlsl.DataType.FLOAT)
    info.add_output(5, 4, mlsl.DataType.FLOAT)
    info.add_parameter_set(7, 2, mlsl.DataType.FLOAT, True)
    info.validate(dist)
    op = session.get_operation(session.add_operation_with_distribution(info, dist))
    session.delete_operation_reg_info(info)
    session.commit()
    check(op.get_name() == "conv" and op.get_op_type() == mlsl.OperationType.CC and op.get_local_minibatch_size() == 2)
    check(op.get_input(0).get_comm_buf() is None and op.get_output(0).get_local_fm_count() == 5)
    params = op.get_parameter_set(0)
    check(params.is_distributed_update() and params.get_owned_kernel_count() == -(-7 // size))
    gradients = gradients_of(params)
    params.start_gradient_comm(gradients)
    address, is_complete = None, False
    while not is_complete:
        address, is_complete = params.test_gradient_comm()
    check((address is None) == (size == 1))
    if address:
        check(ctypes.c_float.from_address(address).value == size)
    params.start_increment_comm(gradients)
    check((params.wait_increment_comm() is None) == (size == 1))
    session.get_stats().dump()
    check(session.get_handle().value != 0 and params.get_handle().value == params.handle.value)
    check(not session.get_stats().is_enabled() and session.get_operation_count() == 1)
    env.delete_session(session)


def main():
    env = mlsl.MLSL()
    check(env.get_version() == 1 << 16 and not env.is_initialized())
    env.configure(b"color=1")
    env.init()
    mlsl.MLSL().init()
    rank, size = env.get_process_idx(), env.get_process_count()
    dist = env.create_distribution(size, 1)
    values = array.array("d", [rank + 1.0, 2.0])
    env.wait(dist.all_reduce(values, values, 2, mlsl.DataType.DOUBLE, mlsl.ReductionType.SUM, mlsl.GroupType.DATA))
    check(list(values) == [size * (size + 1) / 2, 2.0 * size])
    everyone = bytearray(size)
    request = dist.all_gather(bytearray([rank]), 1, everyone, mlsl.DataType.BYTE, mlsl.GroupType.GLOBAL)
    while not env.test(request):
        pass
    check(list(everyone) == list(range(size)))
    memory = env.alloc(100, 128)
    check(memory % 128 == 0)
    env.free(memory)
    env.free((ctypes.c_float * 25).from_address(env.alloc(100)))
    env.free(ctypes.cast(env.alloc(100), ctypes.POINTER(ctypes.c_float)))
    dist.barrier(mlsl.GroupType.GLOBAL)
    train(env, dist)
    env.delete_distribution(dist)
    env.finalize()
    check(env.is_initialized())
    env.finalize()
    check(not env.is_initialized())
    mlsl.close()  # has nothing to do


if __name__ == "__main__":
    sys.exit(main())
