"""Callbacks of model.fit(). Each is a mix-in: interface.py adds the base class of the Keras module, and `framework`."""

import numpy

import tutti.horovod as hvd

from .optimizers import is_distributed


class BroadcastGlobalVariablesCallback:
    """All ranks begin with root_rank's weights and optimizer state.

    With Keras 3 before the first step, or after it where a model is built only then; with Keras 2 after the first step.
    local_variables: a variable or a list of them, which each rank keeps.
    """

    def __init__(self, root_rank, device="", local_variables=None):
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.broadcast_done = False
        if local_variables is None:
            local_variables = []
        elif not isinstance(local_variables, (list, tuple, set)):
            local_variables = [local_variables]
        if not all(hasattr(variable, "assign") for variable in local_variables):
            raise ValueError("All local variables must be of tf.Variable type.")
        self._local = {id(variable) for variable in local_variables}

    def register_local_var(self, var):
        """A variable that each rank keeps."""
        self._local.add(id(var))

    def on_train_begin(self, logs=None):
        if not self.framework.is_keras3 or self.broadcast_done:
            return
        optimizer = self.model.optimizer
        if is_distributed(getattr(optimizer, "inner_optimizer", None)):
            raise ValueError(
                "LossScaleOptimizer skips steps of a distributed optimizer on some ranks and not on others. Distribute the outer one: "
                "hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer))"
            )
        if self.model.built and optimizer is not None and not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        # A rank that has read a checkpoint may be built before the others.
        built = numpy.array([self.model.built], numpy.uint8)
        if hvd.allreduce(built, op=hvd.Min, name="BroadcastGlobalVariablesCallback.built")[0]:
            self._broadcast()

    def on_train_batch_end(self, batch, logs=None):
        if not self.broadcast_done:
            self._broadcast()

    def _broadcast(self):
        self.framework.synchronize_model(self.model)
        if self.framework.executes_eagerly:
            shared = [variable for variable in self.framework.state_of(self.model) if id(variable) not in self._local]
            self.framework.broadcast(shared, self.root_rank)
        else:
            self.framework.broadcast_global_variables(self.root_rank)
        self.broadcast_done = True


class MetricAverageCallback:
    """At the end of each epoch, logs become averages over ranks. It stands before callbacks that read them."""

    def __init__(self, device=""):
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch, logs=None):
        names = sorted(logs or {})
        if not names:
            return
        own = numpy.array([float(self.framework.array(logs[name])) for name in names], numpy.float64)
        means = hvd.allreduce(own, op=hvd.Average, name="MetricAverageCallback." + ".".join(names))
        logs.update(zip(names, means.tolist()))


class LearningRateScheduleCallback:
    """From start_epoch to end_epoch, which is not included, the learning rate is initial_lr * multiplier.

    multiplier: a number, which is raised to the power of the epochs since start_epoch, or a function of the epoch. staircase: once an
    epoch; else at each step, with fractions of epochs. momentum_correction: momentum that was gathered is scaled with the rate.
    """

    def __init__(
        self, initial_lr, multiplier, start_epoch=0, end_epoch=None, staircase=True, momentum_correction=True, steps_per_epoch=None
    ):
        super().__init__()
        if initial_lr is None:
            raise ValueError("Parameter `initial_lr` is required")
        self.initial_lr = initial_lr
        self.multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier ** (epoch - start_epoch)
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = None

    def on_train_begin(self, logs=None):
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self.params.get("steps")
            if not self.steps_per_epoch:
                raise ValueError(f"{type(self).__name__}: the steps of an epoch are not known; give steps_per_epoch")

    def on_epoch_begin(self, epoch, logs=None):
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        is_over = self.end_epoch is not None and self.current_epoch >= self.end_epoch
        if self.current_epoch < self.start_epoch or is_over or (self.staircase and batch != 0):
            return
        self.framework.synchronize_model(self.model)
        self._adjust(self.current_epoch if self.staircase else self.current_epoch + batch / self.steps_per_epoch)

    def on_epoch_end(self, epoch, logs=None):
        if logs is not None:
            logs["lr"] = self._rate()

    def _rate(self):
        self.framework.synchronize_model(self.model)
        return float(self.framework.array(self.model.optimizer.learning_rate))

    def _adjust(self, epoch):
        old, new = self._rate(), self.initial_lr * self.multiplier(epoch)
        self.model.optimizer.learning_rate = new
        # Keras gathers steps, each with the rate of its time: v = momentum * v - rate * gradient.
        if self.momentum_correction and old not in (0.0, new):
            for variable in self._momentums():
                gathered = self.framework.array(variable)
                self.framework.assign(variable, (gathered * (new / old)).astype(gathered.dtype))

    def _momentums(self):
        optimizer = self.model.optimizer
        if not hasattr(optimizer, "momentum"):
            return []
        if hasattr(optimizer, "get_slot_names"):  # Keras 2's legacy optimizers
            weights = self.model.trainable_weights if "momentum" in optimizer.get_slot_names() else []
            return [optimizer.get_slot(weight, "momentum") for weight in weights]
        found = getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", None) or []
        return [variable for variable in found if variable is not None]


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """The learning rate grows from initial_lr / size to initial_lr within warmup_epochs, step by step.

    Source: Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", 2017.
    """

    def __init__(self, initial_lr, warmup_epochs=5, momentum_correction=True, steps_per_epoch=None, verbose=0):
        def multiplier(epoch):
            # The last step of an epoch has the rate of the epoch's end.
            epoch += 1.0 / self.steps_per_epoch
            return (epoch * (hvd.size() - 1) / warmup_epochs + 1) / hvd.size()

        super().__init__(initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch)
        self.verbose = verbose

    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)
        if epoch == self.end_epoch - 1 and self.verbose > 0 and hvd.rank() == 0:
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {self._rate():g}.")


class BestModelCheckpoint:
    """A ModelCheckpoint that keeps the best model. filepath: an attribute; set it before fit(), on rank 0."""

    def __init__(self, monitor="val_loss", verbose=0, save_weights_only=False, mode="auto", save_freq="epoch"):
        super().__init__(
            "best.weights.h5" if save_weights_only else "best.keras",
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
