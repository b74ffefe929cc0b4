"""Elastic training: states that are committed, restored and brought to all ranks, and training that goes on when ranks come and go."""

import copy
import enum
import functools
import queue

import numpy

from . import _basics, _elastic_folder, _job, _objects, _operations
from ._numpy import arrays
from .exceptions import HorovodInternalError, HostsUpdatedInterrupt
from .process_sets import global_process_set

__all__ = ["HostUpdateResult", "ObjectState", "State", "run", "run_fn"]


class HostUpdateResult(enum.IntFlag):
    """How the hosts of a job have changed. Values as Horovod has them."""

    no_update = 0
    removed = 1
    added = 2
    mixed = 3


_LEAVES = 4  # in what ranks tell each other


class State:
    """What training needs to go on from a commit. Subclasses save, restore and synchronize it.

    bcast_object, get_rank: functions of the framework's front end.
    """

    def __init__(self, bcast_object=_objects.broadcast_object, get_rank=_basics.rank):
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._reset_callbacks = []
        self._updates = queue.SimpleQueue()

    def register_reset_callbacks(self, callbacks):
        """Functions to call after the job's size has changed, such as for scaling the learning rate."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self):
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp, update_res):
        """Makes the next check_host_updates() interrupt the training. Outside of elastic jobs all ranks call it."""
        self._updates.put(update_res)

    def commit(self):
        """Saves the state, which restore() goes back to."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self):
        """Raises HostsUpdatedInterrupt on all ranks where processes wait to join, or ranks are to leave. In elastic jobs all ranks call it."""
        update = 0
        while not self._updates.empty():
            update |= self._updates.get()
        folder = _elastic_folder.current()
        everybody = [update] if folder is None else _exchange_updates(update, folder)
        leaving = [rank for rank, flags in enumerate(everybody) if flags & _LEAVES]
        update = functools.reduce(lambda a, b: a | b, everybody) & HostUpdateResult.mixed
        if update:
            _job.announce(leaving)
            raise HostsUpdatedInterrupt(skip_sync=update == HostUpdateResult.removed)

    def save(self):
        raise NotImplementedError

    def restore(self):
        raise NotImplementedError

    def sync(self):
        raise NotImplementedError

    def reset(self):
        """For subclasses: called after the job has changed, before its state is used again."""


_CONTAINERS = (list, dict, set, bytearray, numpy.ndarray)


def _apart(value):
    """What a training that changes containers in place leaves alone. Other objects stay themselves: a scheduler belongs to its optimizer."""
    return copy.deepcopy(value) if isinstance(value, _CONTAINERS) else value


class ObjectState(State):
    """Keyword arguments as attributes, which are pickled. A commit keeps copies of containers, and other objects themselves."""

    def __init__(self, bcast_object=_objects.broadcast_object, get_rank=_basics.rank, **kwargs):
        super().__init__(bcast_object, get_rank)
        self._saved_state = {name: _apart(value) for name, value in kwargs.items()}
        for name, value in kwargs.items():
            setattr(self, name, value)

    def save(self):
        self._saved_state = {name: _apart(getattr(self, name)) for name in self._saved_state}

    def restore(self):
        self._set_attributes()

    def sync(self):
        """Takes rank 0's values."""
        if self._saved_state:
            self.save()
            self._saved_state = self._bcast_object(self._saved_state)
            self._set_attributes()

    def _set_attributes(self):
        for name, value in self._saved_state.items():
            setattr(self, name, _apart(value))


def _exchange_updates(update, folder):
    """What each rank knows: HostUpdateResult, and _LEAVES."""
    has_joiners, leaves = folder.notices(_job.admitted())
    if has_joiners:
        update |= HostUpdateResult.added
    if leaves:
        update |= HostUpdateResult.removed | _LEAVES
    own = numpy.array([update], numpy.int64)
    [everybody] = _operations.synchronize(_operations.allgather(arrays, [own], "elastic.updates", global_process_set, False))
    return [int(flags) for flags in everybody]


def run_fn(func, reset):
    """A function (state, ...) that calls func with rank 0's state; after a lost rank with the last commit's, and again after reset().

    reset: makes a job in which func can go on. Its errors are passed on.
    """

    @functools.wraps(func)
    def wrapper(state, *args, **kwargs):
        skip_sync = False
        if _job.is_initialized():
            _job.invite()
        while True:
            try:
                if not skip_sync:
                    state.sync()
                return func(state, *args, **kwargs)
            except HorovodInternalError:
                state.restore()
                skip_sync = False
                reset()  # its errors show this one, too
            except HostsUpdatedInterrupt as interrupt:
                skip_sync = interrupt.skip_sync
                reset()
            state.on_reset()

    return wrapper


def run(func):
    """Decorates func(state, ...): it starts with rank 0's state, and again with the last commit's after ranks were lost, or after a commit.

    The survivors go on, with ranks from 0, and processes that join have the highest ranks; process sets are gone, as after shutdown().
    Errors: HorovodInternalError on a rank that the others took for dead, and on all where no rank was lost.
    """
    return run_fn(func, lambda: _job.go_on(global_process_set))
