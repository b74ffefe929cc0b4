"""Elastic states of Keras models, and the callbacks that commit and count for them. See ..elastic for the limits."""

from ..elastic import ObjectState


class KerasState(ObjectState):
    """Weights of a model, an optimizer's variables, and keyword arguments as attributes, which are pickled.

    optimizer: None: the model's.
    """

    def __init__(self, model, optimizer=None, **kwargs):
        if not getattr(model, "built", True):
            raise ValueError("Model must be built first. Run `model.build(input_shape)`.")
        self.model = model
        self.optimizer = optimizer or getattr(model, "optimizer", None)
        self._save_variables()
        super().__init__(**kwargs)

    def save(self):
        self._save_variables()
        super().save()

    def restore(self):
        self.framework.synchronize_model(self.model)
        # Variables that the optimizer has made since the commit keep their values.
        for variable, array in zip(self._variables(), self._saved):
            self.framework.assign(variable, array)
        super().restore()

    def sync(self):
        self.framework.synchronize_model(self.model)
        self.framework.broadcast(self._variables(), 0)
        self._save_variables()
        super().sync()

    def _variables(self):
        return self.framework.state_of(self.model, self.optimizer)

    def _save_variables(self):
        self.framework.synchronize_model(self.model)
        self._saved = [self.framework.array(variable).copy() for variable in self._variables()]


class CommitStateCallback:
    """Commits the state every batches_per_commit batches, and at the end of each epoch."""

    def __init__(self, state, batches_per_commit=1):
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs=None):
        self.batches_remaining = self.batches_per_commit

    def on_train_batch_end(self, batch, logs=None):
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.state.commit()
            self.batches_remaining = self.batches_per_commit

    def on_epoch_end(self, epoch, logs=None):
        self.state.commit()


class UpdateBatchStateCallback:
    """Keeps the number of the batch in state.batch, 0 at the end of an epoch. An epoch that goes on is shortened by it."""

    def __init__(self, state):
        super().__init__()
        self.state = state
        self.steps_per_epoch = None

    def on_train_begin(self, logs=None):
        self.steps_per_epoch = None

    def on_epoch_begin(self, epoch, logs=None):
        if self.params.get("steps"):
            if self.steps_per_epoch is None:
                self.steps_per_epoch = self.params.get("steps")
            self.params["steps"] = self.steps_per_epoch - self.state.batch

    def on_train_batch_end(self, batch, logs=None):
        self.state.batch = batch

    def on_epoch_end(self, epoch, logs=None):
        self.state.batch = 0


class UpdateEpochStateCallback:
    """Keeps the number of completed epochs in state.epoch, counted over all calls of fit()."""

    def __init__(self, state):
        super().__init__()
        self.state = state
        self.initial_epoch = state.epoch

    def on_train_begin(self, logs=None):
        self.initial_epoch = self.state.epoch

    def on_epoch_end(self, epoch, logs=None):
        self.state.epoch = self.initial_epoch + epoch + 1
