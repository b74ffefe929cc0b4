"""A rank of the tests of tutti.horovod.tensorflow. usage: tensorflow_program.py PART"""

import itertools
import os
import sys

import numpy
import tensorflow as tf
from program_checks import expect_error

import tutti.horovod
import tutti.horovod.tensorflow as hvd

FLOATS = [tf.float16, tf.bfloat16, tf.float32, tf.float64]
INTEGERS = [tf.int8, tf.uint8, tf.int32, tf.int64]


def expect(actual, expected, what):
    actual, expected = numpy.asarray(actual), numpy.asarray(expected)
    assert numpy.array_equal(actual, expected), f"rank {hvd.rank()}: {what}: {actual}, expected {expected}"


def in_both_modes(function):
    """The results of an eager call and of a graph."""
    return [function(), tf.function(function)()]


# -- tensors ------------------------------------------------------------------------------------------------


def check_dtypes():
    ranks = range(hvd.size())
    of_all = [numpy.arange(6).reshape(2, 3) + rank for rank in ranks]
    for dtype in FLOATS + INTEGERS:
        mine = tf.cast(of_all[hvd.rank()], dtype)
        for reduced in in_both_modes(lambda mine=mine: hvd.allreduce(mine, op=hvd.Sum)):
            assert reduced.dtype == dtype
            expect(tf.cast(reduced, tf.int64), sum(of_all), f"sum of {dtype}")
        expect(tf.cast(hvd.allgather(mine), tf.int64), numpy.concatenate(of_all), f"allgather of {dtype}")
        expect(tf.cast(hvd.broadcast(mine, 0), tf.int64), of_all[0], f"broadcast of {dtype}")
    flags = hvd.allgather(tf.constant([hvd.rank() == 0, False]))
    expect(flags[:2], [True, False], "flags")
    expect(hvd.allreduce(tf.fill([2], 7)), [7, 7], "average of integers")
    expect(hvd.allreduce(tf.constant(2), op=hvd.Sum, prescale_factor=1.5, postscale_factor=0.5), 3 * hvd.size() // 2, "scaled integers")
    expect(hvd.allreduce(tf.constant(2.0), op=hvd.Sum, prescale_factor=1.5), 3.0 * hvd.size(), "scaled floats")
    expect(hvd.allreduce(tf.constant(hvd.rank()), op=hvd.Max), hvd.size() - 1, "maximum of scalars")
    assert hvd.allreduce(tf.zeros([0, 3])).shape == (0, 3)


def check_shapes():
    size, rank = hvd.size(), hvd.rank()
    for gathered in in_both_modes(lambda: hvd.allgather(tf.fill([rank, 2], rank))):
        expect(gathered, numpy.repeat(numpy.arange(size), numpy.arange(size))[:, None] * [1, 1], "uneven allgather")
    splits = tf.range(size)
    output, received = hvd.alltoall(tf.fill([size * (size - 1) // 2], rank), splits)
    expect(received, [rank] * size, "received splits")
    expect(output, numpy.repeat(numpy.arange(size), rank), "alltoall")
    expect(hvd.alltoall(tf.range(size) + 10 * rank), [10 * other + rank for other in range(size)], "equal alltoall")
    rows = numpy.arange(size + 1) * size  # the first rank gets a row more
    own = [rows[0], rows[1]] if rank == 0 else [rows[rank + 1]]
    for scattered in in_both_modes(lambda: hvd.reducescatter(tf.range(size + 1), op=hvd.Sum)):
        expect(scattered, own, "reducescatter")
    pair = hvd.grouped_allreduce([tf.ones(2), tf.ones([1, 3], tf.float64)], op=hvd.Sum)
    assert [tensor.dtype for tensor in pair] == [tf.float32, tf.float64]
    expect(pair[1], [[size] * 3], "group")
    expect(hvd.grouped_reducescatter([tf.ones(size), tf.ones(size)], op=hvd.Sum)[1], [size], "grouped reducescatter")

    @tf.function(input_signature=[tf.TensorSpec(None), tf.TensorSpec([None, 3])])
    def unknown(anything, some_rows):
        gathered = hvd.allgather(some_rows)
        assert gathered.shape.as_list() == [None, 3]
        return hvd.allreduce(anything), hvd.allgather(anything), gathered

    expect(unknown(tf.ones([2, 1]), tf.ones([1, 3]))[2], numpy.ones((size, 3)), "unknown shapes")


def check_gradients():
    """What flows back through a collective, as Horovod defines it."""
    size, rank = hvd.size(), hvd.rank()
    weight = tf.range(1.0, 4.0) * (rank + 1)
    mean_weight = numpy.arange(1.0, 4.0) * sum(range(1, size + 1)) / size

    def gradient(function, shape=(3,)):
        def compute():
            tensor = tf.ones(shape)
            with tf.GradientTape() as tape:
                tape.watch(tensor)
                result = function(tensor)
            return tape.gradient(result, tensor)

        eager, graph = in_both_modes(compute)
        expect(eager, graph, "eager and graph")
        return eager

    expect(gradient(lambda x: hvd.allreduce(x, op=hvd.Sum) * weight), mean_weight * size, "of a sum")
    expect(gradient(lambda x: hvd.allreduce(x) * weight), mean_weight, "of an average")
    expect(gradient(lambda x: hvd.broadcast(x, 0) * weight), mean_weight if rank == 0 else [0, 0, 0], "of a broadcast")
    expect(gradient(lambda x: hvd.allgather(x) * (rank + 1.0)), [mean_weight[0]] * 3, "of an allgather")
    expect(gradient(lambda x: hvd.allgather(x) * 1.0, (rank + 1,)), [1.0] * (rank + 1), "of an uneven allgather")
    expect(gradient(lambda x: hvd.alltoall(x) * (rank + 1.0), (size,)), numpy.arange(1.0, size + 1), "of an alltoall")
    expect(gradient(lambda x: hvd.reducescatter(x, op=hvd.Sum) * 2.0, (size,)), [2.0 * size] * size, "of a reducescatter")


def check_gradients_of_integers():
    """In graphs of tf.compat.v1 outputs of integers have no gradient."""
    v1 = tf.compat.v1
    size = hvd.size()
    cases = {
        "allgather": (hvd.grouped_allgather, {}, 1.0),
        "allreduce": (hvd.grouped_allreduce, {"op": hvd.Sum}, size),
        "reducescatter": (hvd.grouped_reducescatter, {"op": hvd.Sum}, size),
    }
    for what, (function, options, expected) in cases.items():
        with tf.Graph().as_default(), v1.Session() as session:
            values = tf.ones([size])
            outputs = function([tf.range(size), values, tf.range(2 * size)], **options)
            [gradient] = tf.gradients(tf.reduce_sum(outputs[1]), [values])
            expect(session.run(gradient), [expected] * size, f"gradient of {what} beside integers")


def check_gradients_in_graph_of_version_1():
    """A rank's graph keeps the collectives of a gradient that is constant on this rank: the others wait for them."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        values = tf.ones([3]) * (hvd.rank() + 1.0)
        for function, expected in ((lambda x: hvd.broadcast(x, 0), float(hvd.rank() == 0)), (hvd.allgather, 1.0)):
            [gradient] = tf.gradients(function(values), [values])
            expect(session.run(gradient), [expected] * 3, "gradient in a graph")


def adasum_of(vectors):
    """Of a power of two vectors, pair by pair."""
    while len(vectors) > 1:
        pairs = list(zip(vectors[::2], vectors[1::2]))
        vectors = [a * (1 - a @ b / (2 * (a @ a))) + b * (1 - a @ b / (2 * (b @ b))) for a, b in pairs]
    return vectors[0]


def check_adasum():
    size, rank = hvd.size(), hvd.rank()
    if size & (size - 1):
        expect_error(NotImplementedError, ["power of 2"], hvd.allreduce, tf.ones(3), op=hvd.Adasum)
        return
    vectors = numpy.random.RandomState(0).rand(2, size, 6)
    expected = [adasum_of(list(vector)) for vector in vectors]
    for dtype in FLOATS:
        mine = [tf.cast(vector[rank].reshape(2, 3), dtype) for vector in vectors]
        for reduced in in_both_modes(lambda mine=mine: hvd.grouped_allreduce(mine, op=hvd.Adasum, postscale_factor=2.0)):
            for tensor, vector in zip(reduced, expected):
                assert tensor.dtype == dtype and tensor.shape == (2, 3)
                tolerance = 1e-6 if dtype.size > 2 else 3e-2
                assert numpy.allclose(tf.cast(tensor, tf.float64), 2 * vector.reshape(2, 3), tolerance), f"Adasum of {dtype}: {tensor}"

    def gradient():
        tensor = tf.ones([3])
        with tf.GradientTape() as tape:
            tape.watch(tensor)
            result = hvd.allreduce(tensor, op=hvd.Adasum)
        return tape.gradient(result, tensor, tf.one_hot(rank, 3))

    for result in in_both_modes(gradient):
        expect(result, [float(i < size) for i in range(3)], "gradient of Adasum: these are orthogonal, and add up")


def check_adasum_optimizer():
    """Changes of ranks that are orthogonal add up: after each step, or after two."""
    v1 = tf.compat.v1
    rank, size = hvd.rank(), hvd.size()
    if size & (size - 1):
        return  # check_adasum has seen the refusal
    variable = tf.Variable(tf.fill([size], 5.0))
    optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), op=hvd.Adasum)
    for _ in range(2):
        optimizer.apply_gradients([(tf.one_hot(rank, size), variable)])
    expect(variable, [3.0] * size, "variable after two eager steps")
    for passes, use_resource in ((1, True), (1, False), (2, True)):
        with tf.Graph().as_default(), v1.Session() as session:
            weight = v1.get_variable("weight", initializer=tf.fill([size], 5.0), use_resource=use_resource)
            optimizer = hvd.DistributedOptimizer(
                v1.train.GradientDescentOptimizer(1.0), op=hvd.Adasum, backward_passes_per_step=passes, compression=hvd.Compression.fp16
            )
            train = optimizer.minimize(weight[rank], var_list=[weight])
            session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
            own = numpy.arange(size) == rank
            for step in range(1, 5):
                session.run(train)
                expected = 5.0 - step if step % passes == 0 else 5.0 - (step - 1) - own
                expect(session.run(weight), expected * numpy.ones(size), f"weight after {step} steps")


def check_orders():
    """Two operations without a control dependency, which ranks build in different orders."""
    names = ["first", "second"] if hvd.rank() % 2 == 0 else ["second", "first"]

    @tf.function
    def step(x):
        return {name: hvd.allreduce(x if name == "first" else 2 * x, op=hvd.Sum, name=name) for name in names}

    for _ in range(20):
        results = step(tf.ones(1000))
        expect(results["first"], [hvd.size()] * 1000, "first")
        expect(results["second"], [2 * hvd.size()] * 1000, "second")


def check_errors():
    def differs():
        return hvd.allreduce(tf.ones(17 + hvd.rank()), name="loss")

    if hvd.size() > 1:
        for function in differs, tf.function(differs):
            expect_error(tf.errors.FailedPreconditionError, ["different shape", "rank 0"], function)
        expect_error(tf.errors.FailedPreconditionError, ["different"], hvd.broadcast, tf.ones(1), hvd.rank(), name="root")
    expect_error(tf.errors.InvalidArgumentError, ["first"], hvd.allgather, tf.constant(1))
    expect_error(tf.errors.InvalidArgumentError, ["splits"], hvd.alltoall, tf.ones(3), [1, 1, 1, 0, 0])
    expect_error(ValueError, ["invalid root rank"], hvd.broadcast, tf.ones(1), hvd.size())
    compiled = tf.function(lambda: hvd.allreduce(tf.ones(1)), jit_compile=True)
    expect_error(tf.errors.OpError, ["XLA cannot compile", "take jit_compile=True"], compiled)
    expect(hvd.allreduce(tf.ones(1), op=hvd.Sum), [hvd.size()], "after errors")


def check_group_in_loop():
    """Two iterations of a loop submit a group under one name: the second one is right or an error on all ranks. None waits for ever."""
    v1 = tf.compat.v1
    v1.disable_control_flow_v2()  # whose iterations follow each other where they have a collective
    with tf.Graph().as_default(), v1.Session() as session:

        def body(i, sums):
            first, second = hvd.grouped_allreduce([tf.ones(3), tf.ones(2)], op=hvd.Sum, name="pair of an iteration")
            return i + 1, sums.write(i, tf.concat([first, second], 0))

        loop = tf.while_loop(lambda i, _: i < 2, body, (0, tf.TensorArray(tf.float32, size=2)), parallel_iterations=2)[1].stack()
        is_refused = v1.placeholder(tf.float32)
        refusals = hvd.allreduce(is_refused, op=hvd.Sum, name="refusals")
        for _ in range(20):
            refused = 0
            try:
                expect(session.run(loop), [[hvd.size()] * 5] * 2, "groups of a loop")
            except (tf.errors.InvalidArgumentError, tf.errors.FailedPreconditionError) as error:
                assert "under way" in error.message, error.message
                refused = 1
            expect(session.run(refusals, {is_refused: refused}), refused * hvd.size(), "ranks whose group was refused")
    v1.enable_control_flow_v2()


def check_sets():
    size, rank = hvd.size(), hvd.rank()
    expect([hvd.size_op(), hvd.rank_op(), hvd.local_size_op(), hvd.local_rank_op()], [size, rank, size, rank], "numbers")
    expect(hvd.process_set_included_op(), 1, "included")
    expect(hvd.process_set_included_op(7), -2, "an unknown set")
    last = hvd.add_process_set([size - 1])
    number = last.process_set_id
    expect(hvd.process_set_included_op(number), int(rank == size - 1), "included in a set")
    expect(hvd.size_op(number), 1, "size of a set")
    if rank == size - 1:
        expect(hvd.allreduce(tf.ones(1), op=hvd.Sum, process_set=last), [1], "of one member")
        expect(hvd.broadcast(tf.ones(1), size - 1, process_set=last), [1], "from the only member")
    else:
        expect_error(tf.errors.InvalidArgumentError, ["not a member"], hvd.allreduce, tf.ones(1), process_set=last)
    assert hvd.remove_process_set(last)
    last.process_set_id = number
    expect_error(ValueError, ["not registered"], hvd.allreduce, tf.ones(1), process_set=last)
    expect(hvd.process_set_included_op(number), -2, "after remove_process_set()")
    # One negotiator: numpy's arrays go through the same queue.
    expect(tutti.horovod.allreduce(numpy.ones(3), op=hvd.Sum), [size] * 3, "numpy beside tensorflow")


def check_end():
    """join(), and a job after the first."""
    for _ in range(hvd.rank()):
        hvd.allreduce(tf.ones(2), op=hvd.Sum)
    last = int(hvd.join())
    assert 0 <= last < hvd.size()
    expect(hvd.allreduce(tf.ones(2), op=hvd.Sum), [hvd.size()] * 2, "after join()")
    hvd.barrier()
    hvd.shutdown()
    expect_error(tf.errors.FailedPreconditionError, ["hvd.init()"], hvd.allreduce, tf.ones(1))
    expect(hvd.process_set_included_op(), -1, "after shutdown()")
    hvd.init()
    expect(hvd.allreduce(tf.ones(2), op=hvd.Sum), [hvd.size()] * 2, "after init() again")


def check_fork():
    """A child has no job, does not use its parent's queue, and may start a job of its own."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            expect_error(tf.errors.FailedPreconditionError, ["hvd.init()"], hvd.allreduce, tf.ones(1))
            expect(hvd.process_set_included_op(), -1, "before init() in a child")
            hvd.init()  # with the other ranks' children
            expect(hvd.allreduce(tf.ones(2), op=hvd.Sum), [hvd.size()] * 2, "sum of children")
            hvd.shutdown()
            status = 0
        except Exception:  # pylint: disable=broad-except
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0, "a child has failed"
    expect(hvd.allreduce(tf.ones(2), op=hvd.Sum), [hvd.size()] * 2, "after fork()")


# -- training -----------------------------------------------------------------------------------------------


def check_tape():
    size, rank = hvd.size(), hvd.rank()
    variables = [tf.Variable(tf.fill([3], rank + 1.0)), tf.Variable(float(rank)), tf.Variable(0.0)]
    hvd.broadcast_variables(variables, root_rank=0)
    expect(variables[0], [1.0] * 3, "a variable of rank 0")
    expect(hvd.broadcast_([variables[1]], size - 1)[0], 0.0, "broadcast_")
    mean = sum(range(1, size + 1)) / size

    def gradients(**options):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variables[0] * variables[0]) * (rank + 1.0) + variables[1] * (rank + 1.0)
        tape = hvd.DistributedGradientTape(tape, **options)
        return tape.gradient(loss, variables)

    for options in {}, {"groups": 1}, {"groups": [variables[:2]]}, {"compression": hvd.Compression.fp16}, {"gradient_predivide_factor": 2}:
        for function in gradients, tf.function(gradients):
            first, second, nothing = function(**options)
            expect(first, [2 * mean] * 3, f"gradient with {options}")
            expect(second, mean, f"gradient with {options}")
            assert nothing is None

    with tf.GradientTape() as tape:
        loss = variables[0] * (rank + 1.0) + variables[1] * (rank + 1.0)
    tape = hvd.DistributedGradientTape(tape)
    tape.register_local_source(variables[1])
    shared, own = tape.gradient(loss, variables[:2])
    expect(shared, [mean] * 3, "gradient beside a local one")
    expect(own, numpy.float32(3 * (rank + 1.0) / size), "local gradient")

    layer = tf.keras.layers.Dense(1, use_bias=False)
    layer.build((None, 1))
    with tf.GradientTape() as tape:
        loss = layer(tf.fill([1, 1], rank + 1.0)) + variables[1] * (rank + 1.0)
    tape = hvd.PartialDistributedGradientTape(tape, local_layers=layer)
    own, shared = tape.gradient(loss, [*layer.trainable_variables, variables[1]])
    expect(own, numpy.float32([[(rank + 1.0) / size]]), "gradient of a local layer")
    expect(shared, mean, "gradient beside a local layer")
    expect_error(ValueError, ["local layers"], hvd.PartialDistributedGradientTape, tape, local_layers=[variables[1]])

    with tf.GradientTape() as tape:
        loss = variables[1] * (rank + 1.0)
        tape = hvd.DistributedGradientTape(tape)
    expect(tape.gradient(loss, variables[1]), mean, "gradient of a tape that was wrapped while it recorded")


def check_slices():
    size, rank = hvd.size(), hvd.rank()
    table = tf.Variable(tf.ones([size + 1, 2]))

    def gradient(**options):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [rank, size]))
        return hvd.DistributedGradientTape(tape, op=hvd.Sum, **options).gradient(loss, table)

    expected = numpy.ones((size + 1, 2))
    expected[size] = size
    for function in gradient, tf.function(gradient):
        slices = function()
        assert isinstance(slices, tf.IndexedSlices)
        expect(tf.convert_to_tensor(slices), expected, "slices")
        expect(function(sparse_as_dense=True), expected, "dense gradient of a table")


def check_graph_of_version_1():
    """A session with Horovod's hook and optimizer; gradients of two passes are added up."""
    v1 = tf.compat.v1
    size, rank = hvd.size(), hvd.rank()
    with tf.Graph().as_default():
        weight = v1.get_variable("weight", initializer=tf.fill([2], rank + 5.0), use_resource=True)
        loss = tf.reduce_sum(weight) * (rank + 1.0)
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=2)
        step = v1.train.get_or_create_global_step()
        train = optimizer.minimize(loss, global_step=step)
        values = []
        hooks = [hvd.BroadcastGlobalVariablesHook(0), v1.train.StopAtStepHook(last_step=4)]
        with v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            values.append(session.run_step_fn(lambda step_context: step_context.session.run(weight))[0])
            while not session.should_stop():
                session.run(train)
                if not session.should_stop():
                    values.append(session.run_step_fn(lambda step_context: step_context.session.run(weight))[0])
    mean = sum(range(1, size + 1)) / size
    expect(values, [5.0, 5.0, 5.0 - 2 * mean, 5.0 - 2 * mean], "weight after each pass")


def check_names_of_variables():
    """Ranks' variables are matched by their names where one rank's graph reads them more often."""
    v1 = tf.compat.v1
    rank = hvd.rank()
    with tf.Graph().as_default(), v1.Session() as session:
        variables = [v1.get_variable(name, initializer=[rank + start], use_resource=True) for name, start in (("a", 10.0), ("b", 20.0))]
        if rank == 0:
            variables[0].assign(variables[1] + 1.0)
        broadcast = hvd.broadcast_global_variables(0)
        sums = [hvd.allreduce(variable, op=hvd.Sum) for variable in variables]
        session.run(v1.global_variables_initializer())
        session.run(broadcast)
        expect(session.run(variables), [[10.0], [20.0]], "variables of rank 0")
        expect(session.run(sums), [[10.0 * hvd.size()], [20.0 * hvd.size()]], "sums of variables")


def check_objects():
    assert hvd.broadcast_object({"rank": hvd.rank()}) == {"rank": 0}
    assert hvd.broadcast_object_fn()(hvd.rank()) == 0
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))


def check_passes_of_keras2():
    """Gradients of two passes are added up, in eager mode and in a function, by current and legacy optimizers."""
    mean = sum(range(1, hvd.size() + 1)) / hvd.size()
    for kind, is_average in itertools.product((tf.keras.optimizers.SGD, tf.keras.optimizers.legacy.SGD), (True, False)):
        for wrap in (lambda function: function), tf.function:
            variables = [tf.Variable([5.0]), tf.Variable([7.0]), tf.Variable([1.0])]
            optimizer = hvd.DistributedOptimizer(kind(1.0), backward_passes_per_step=2, average_aggregated_gradients=is_average)
            loss = lambda variables=variables: (variables[0] + 2.0 * variables[2]) * (hvd.rank() + 1.0)
            step = wrap(lambda: optimizer.minimize(loss, [variables[0], variables[2]]))
            seen = []
            for _ in range(4):
                step()
                seen.append([float(variable[0]) for variable in variables])
            change = mean if is_average else 2 * mean
            first, second = [5.0 - change, 7.0, 1.0 - 2 * change], [5.0 - 2 * change, 7.0, 1.0 - 4 * change]
            expect(seen, [[5.0, 7.0, 1.0], first, first, second], f"{kind}: variables after each pass")
            expect(optimizer.iterations, 4, f"{kind}: iterations")


def check_optimizer_of_keras():
    variable = tf.Variable([1.0])
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0))
    if hasattr(optimizer, "minimize"):  # Keras 2, which reduces gradients where it computes them
        optimizer.minimize(lambda: variable * (hvd.rank() + 1.0), [variable])
    else:
        optimizer.apply_gradients([(tf.constant([hvd.rank() + 1.0]), variable)])
    expect(variable, [1 - sum(range(1, hvd.size() + 1)) / hvd.size()], "a step of Keras' optimizer")
    if hasattr(optimizer, "minimize"):
        check_passes_of_keras2()
    expect_error(ValueError, ["Adasum", "Keras"], hvd.DistributedOptimizer, tf.keras.optimizers.SGD(1.0), op=hvd.Adasum)


def check_batch_norm():
    """A rank's part of the batch is normalized as it is in the whole one."""
    size, rank = hvd.size(), hvd.rank()
    whole = tf.reshape(tf.range(6.0 * size) ** 2, [2 * size, 3])
    alone, shared = tf.keras.layers.BatchNormalization(), hvd.SyncBatchNormalization()
    expected = alone(whole, training=True)[2 * rank : 2 * rank + 2]
    actual = shared(whole[2 * rank : 2 * rank + 2], training=True)
    assert numpy.allclose(actual, expected, atol=1e-4), f"{actual}, expected {expected}"
    assert numpy.allclose(shared.moving_variance, alone.moving_variance, rtol=1e-4)


def check_elastic():
    variable = tf.Variable(float(hvd.rank()))
    state = hvd.elastic.TensorFlowState([variable], batch=hvd.rank())

    @hvd.elastic.run
    def train(state):
        expect([variable, state.batch], [0.0, 0], "state of rank 0")
        variable.assign(1.0)
        state.batch = 1
        state.commit()
        variable.assign(2.0)
        raise tf.errors.UnknownError(None, None, "a rank is lost [Op:TuttiAllreduce]")

    expect_error(hvd.HorovodInternalError, ["no rank was lost", "last commit"], train, state)
    expect([variable, state.batch], [1.0, 1], "state of the last commit")


def check_elastic_state_of_keras():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.build((None, 2))
    model.set_weights([numpy.full((2, 1), float(hvd.rank())), numpy.full(1, float(hvd.rank()))])
    state = hvd.elastic.TensorFlowKerasState(model, tf.keras.optimizers.SGD(1.0), backend=tf.keras.backend, batch=hvd.rank() + 3)
    assert isinstance(state, hvd.elastic.ObjectState) and isinstance(state, hvd.elastic.TensorFlowKerasState)
    state.sync()
    model.set_weights([numpy.ones((2, 1)), numpy.ones(1)])
    state.restore()
    expect(model.get_weights()[0], [[0.0], [0.0]], "weights of rank 0")
    assert state.batch == 3
    assert hvd.split_list([1, 2, 3], 2) == [[1, 2], [3]] and not hvd.gpu_available("tensorflow")


PARTS = {
    "tensors": [
        check_dtypes,
        check_shapes,
        check_gradients,
        check_gradients_of_integers,
        check_gradients_in_graph_of_version_1,
        check_adasum,
        check_orders,
        check_errors,
        check_group_in_loop,
        check_sets,
        check_end,
        check_fork,
    ],
    "training": [
        check_tape,
        check_slices,
        check_objects,
        check_optimizer_of_keras,
        check_adasum,
        check_adasum_optimizer,
        check_batch_norm,
        check_elastic,
        check_elastic_state_of_keras,
        check_names_of_variables,
        check_graph_of_version_1,
    ],
}


if __name__ == "__main__":
    hvd.init()
    for check in PARTS[sys.argv[1]]:
        check()
