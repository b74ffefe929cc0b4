"""A rank of the tests of tutti.horovod.keras, on the backend of KERAS_BACKEND."""

import os
import tempfile

import numpy
from program_checks import expect_error

import keras
import tutti.horovod.keras as hvd

BATCH = 16  # rows of all ranks together


def data():
    random = numpy.random.RandomState(0)
    return random.rand(64, 6).astype("float32"), random.randint(0, 3, 64)


def classifier():
    keras.utils.set_random_seed(1)
    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3)])


def compiled(model, optimizer, **options):
    model.compile(optimizer=optimizer, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), **options)
    return model


def share(rows):
    """This rank's rows, batch by batch: as many from each batch for all ranks."""
    return numpy.concatenate([part[hvd.rank() :: hvd.size()] for part in numpy.split(rows, len(rows) // BATCH)])


def expect_close(actual, expected, what, tolerance=1e-5):
    for a, b in zip(actual, expected, strict=True):
        worst = numpy.abs(a - b).max()
        assert worst <= tolerance, f"rank {hvd.rank()}: {what} differs by {worst}"


def fit(model, callbacks=(), epochs=2):
    x, y = data()
    return model.fit(share(x), share(y), batch_size=BATCH // hvd.size(), epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks))


def fit_alone(model, epochs=2):
    x, y = data()
    return model.fit(x, y, batch_size=BATCH, epochs=epochs, shuffle=False, verbose=0)


def check_equal_to_one_process():
    """Shares of batches on all ranks give the weights that whole batches give in one process."""
    kinds = [("Adam", {}, {}, {})]
    kinds += [("SGD", {"momentum": 0.9, "clipnorm": 0.05}, {"groups": 2, "gradient_predivide_factor": 2.0}, {})]
    kinds += [("SGD", {}, {"compression": hvd.Compression.none}, {"run_eagerly": True})]
    for kind, settings, options, compile_options in kinds:
        make = getattr(keras.optimizers, kind)
        alone = compiled(classifier(), make(0.05, **settings), **compile_options)
        expected = fit_alone(alone)
        model = compiled(classifier(), hvd.DistributedOptimizer(make(0.05, **settings), **options), **compile_options)
        if hvd.rank() != 0:
            model.set_weights([numpy.zeros_like(weight) for weight in model.get_weights()])
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
        history = fit(model, callbacks)
        expect_close(model.get_weights(), alone.get_weights(), f"{kind}: weights")
        expect_close([numpy.array(history.history["loss"])], [numpy.array(expected.history["loss"])], f"{kind}: loss")


def check_later_job():
    """A step that was compiled in one job goes on in the next. Gradients may be narrow on their way."""
    alone = compiled(classifier(), keras.optimizers.SGD(0.05))
    fit_alone(alone, epochs=4)
    model = compiled(classifier(), hvd.DistributedOptimizer(keras.optimizers.SGD(0.05), compression=hvd.Compression.fp16))
    fit(model)
    hvd.shutdown()
    hvd.init()
    fit(model)
    expect_close(model.get_weights(), alone.get_weights(), "weights after a second job", 1e-3)


def check_local_and_passes():
    """Gradients of local layers stay each rank's; those of several passes are added up."""
    model = classifier()
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(1.0), local_layers=model.layers[0])
    before = model.get_weights()
    fit(compiled(model, optimizer), epochs=1)
    everybody = hvd.allgather_object(model.get_weights())
    expect_close(everybody[0][2:], everybody[-1][2:], "shared weights", 0)
    assert hvd.size() == 1 or numpy.abs(everybody[0][0] - everybody[-1][0]).max() > 0, "local weights are equal"
    assert numpy.abs(before[0] - model.get_weights()[0]).max() > 0
    leading = (None, "", "", hvd.Compression.none, False, 1.0, hvd.Average)
    for make, last in ((hvd.DistributedOptimizer, (0, 2)), (hvd.PartialDistributedOptimizer, (2,))):
        reduction = make(keras.optimizers.SGD(1.0), *leading, *last)._reduction
        assert reduction.groups == 2, f"{make.__name__}: groups by position: {reduction.groups}"
    for is_average in (True, False):
        alone = compiled(classifier(), keras.optimizers.SGD(0.1 if is_average else 0.2, gradient_accumulation_steps=2))
        fit_alone(alone)
        summing = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), backward_passes_per_step=2, average_aggregated_gradients=is_average)
        model = compiled(classifier(), summing)
        fit(model)
        expect_close(model.get_weights(), alone.get_weights(), "weights after several passes")


def check_loss_scale():
    alone = compiled(classifier(), keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)))
    fit_alone(alone)
    model = compiled(classifier(), hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))))
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    fit(model, callbacks)
    expect_close(model.get_weights(), alone.get_weights(), "weights with a scaled loss")
    inner = keras.optimizers.LossScaleOptimizer(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    expect_error(ValueError, ["the outer one"], fit, compiled(classifier(), inner), [hvd.callbacks.BroadcastGlobalVariablesCallback(0)])


@keras.saving.register_keras_serializable("tutti_tests")
class Patient(keras.optimizers.SGD):
    """An optimizer that Keras does not have."""


def check_saving():
    """A model is saved as if its optimizer were the user's own, and goes on with either."""
    for make in (keras.optimizers.Adam, Patient):
        model = compiled(classifier(), hvd.DistributedOptimizer(make(0.05)))
        assert type(model.optimizer).__name__ == make.__name__ and isinstance(model.optimizer, make)
        config = model.optimizer.get_config()
        assert type(model.optimizer).from_config(dict(config)).get_config() == config
        fit(model, epochs=1)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.keras")
            model.save(path)
            plain, loaded = keras.models.load_model(path), hvd.load_model(path, custom_optimizers=[Patient])
        assert type(plain.optimizer) is type(make(0.05)), type(plain.optimizer)
        assert hasattr(loaded.optimizer, "register_local_var")
        for entry in (plain, loaded):
            theirs, own = [[numpy.array(keras.ops.convert_to_numpy(v)) for v in m.optimizer.variables] for m in (entry, model)]
            expect_close(theirs, own, "the optimizer's state", 0)
        fit(model)
        fit(loaded)
        expect_close(loaded.get_weights(), model.get_weights(), "weights after loading", 1e-6)
    expect_error(ValueError, ["Adam", "distributed already"], hvd.DistributedOptimizer, hvd.DistributedOptimizer(keras.optimizers.Adam()))
    expect_error(ValueError, ["Average and Sum"], hvd.DistributedOptimizer, keras.optimizers.Adam(), op=hvd.Min)


class Rates(keras.callbacks.Callback):
    """Records the learning rate of each step."""

    def __init__(self):
        super().__init__()
        self.rates = []

    def on_train_batch_end(self, batch, logs=None):
        hvd.callbacks.LearningRateScheduleCallback.framework.synchronize_model(self.model)
        self.rates.append(float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))


def check_learning_rates():
    size = hvd.size()
    model = compiled(classifier(), hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.5)))
    rates = Rates()
    schedule = hvd.callbacks.LearningRateScheduleCallback(0.1, 0.5, start_epoch=2)
    history = fit(model, [hvd.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=2), schedule, rates], epochs=4)
    steps = len(rates.rates) // 4
    warm = [0.1 / size * ((step + 1) / steps * (size - 1) / 2 + 1) for step in range(2 * steps)]
    expect_close([numpy.array(rates.rates)], [numpy.array(warm + [0.1] * steps + [0.05] * steps)], "learning rates", 1e-6)
    assert abs(history.history["lr"][-1] - 0.05) < 1e-6
    # v = 0.5 * v - rate * gradient, with the first step scaled by the change of rates.
    variable = keras.Variable([1.0])
    optimizer = keras.optimizers.SGD(0.2, momentum=0.5)
    optimizer.apply([keras.ops.convert_to_tensor([1.0])], [variable])
    callback = hvd.callbacks.LearningRateScheduleCallback(0.1, 1.0)
    callback.set_model(type("Model", (), {"optimizer": optimizer})())
    callback.on_epoch_begin(0)
    callback.on_train_batch_begin(0)
    optimizer.apply([keras.ops.convert_to_tensor([1.0])], [variable])
    expect_close([keras.ops.convert_to_numpy(variable)], [numpy.array([1.0 - 0.2 - (0.5 * 0.1 + 0.1)])], "corrected momentum", 1e-6)


def check_values_and_state():
    rank, size = hvd.rank(), hvd.size()
    mean = keras.ops.convert_to_numpy(hvd.allreduce([float(rank), 1.0], name="mean"))
    expect_close([mean], [numpy.array([(size - 1) / 2, 1.0])], "allreduce", 0)
    assert keras.ops.convert_to_numpy(hvd.allgather(numpy.full(rank + 1, rank))).shape == (size * (size + 1) // 2,)
    assert float(keras.ops.convert_to_numpy(hvd.broadcast(keras.ops.ones(2) * rank, size - 1))[0]) == size - 1
    model = compiled(classifier(), hvd.DistributedOptimizer(keras.optimizers.Adam(0.05)))
    state = hvd.elastic.KerasState(model, batch=rank, epoch=0)
    state.sync()
    assert state.batch == 0
    callbacks = [hvd.elastic.CommitStateCallback(state, 2), hvd.elastic.UpdateBatchStateCallback(state)]
    fit(model, [*callbacks, hvd.elastic.UpdateEpochStateCallback(state)], epochs=2)
    committed = model.get_weights()
    model.set_weights([weight + 1 for weight in committed])
    state.epoch = 7
    state.restore()
    expect_close(model.get_weights(), committed, "restored weights", 0)
    assert state.epoch == 1, state.epoch  # the last commit precedes the count of the second epoch
    if size > 1:
        layer = keras.layers.Dense(2 + rank)
        layer.build((None, 2))
        expect_error(ValueError, ["different variables"], hvd.broadcast_variables, layer.weights, 0)


def main():
    hvd.init()
    print(keras.__version__, keras.backend.backend())
    check_equal_to_one_process()
    check_later_job()
    check_local_and_passes()
    check_loss_scale()
    check_saving()
    check_learning_rates()
    check_values_and_state()


if __name__ == "__main__":
    main()
