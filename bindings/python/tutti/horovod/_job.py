"""The process's part in the job: its world, its process sets, and a queue of named tensors for each set."""

import array
import atexit
import itertools
import os
import secrets
import threading
import time

import tutti

from . import _elastic_folder
from .exceptions import HorovodInternalError

NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."


class Membership:
    """This process's membership of one process set. Counters name operations that have no name."""

    def __init__(self, group):
        self.group = group
        self.queue = tutti.TensorQueue(group)
        self._lock = threading.Lock()
        self._unnamed = {}
        self._joins = 0

    def name_of(self, kind, name):
        """A tensor's name: members that call in the same order get equal ones."""
        if name:
            return f"{kind}.{name}"
        with self._lock:
            number = self._unnamed.get(kind, 0)
            self._unnamed[kind] = number + 1
        return f"{kind}.noname.{self._joins}.{number}" if self._joins else f"{kind}.noname.{number}"

    def count_anew(self):
        """After join(), which ranks reach with unequal numbers of operations behind them."""
        with self._lock:
            self._joins += 1
            self._unnamed = {}

    def close(self):
        self.queue.close()


class Job:
    """Between init() and shutdown(). process: the number of one that joins a job, or 0."""

    def __init__(self, world, is_own_world, global_set, process=0):
        self.world = world
        self.rank, self.size = world.rank, world.size
        self.place = _place(world, process)
        _admitted.update(self.place.newcomers)
        self._is_own_world = is_own_world
        self._set_count = 0  # of all that were ever added
        global_set.ranks = list(range(self.size))
        self.sets = {0: global_set}
        self.memberships = {0: Membership(world)}
        self._resources = {}

    def add(self, process_set):
        ranks = process_set.ranks
        if not ranks or ranks[0] < 0 or ranks[-1] >= self.size or len(set(ranks)) != len(ranks):
            raise ValueError(f"a process set has different ranks of 0 to {self.size - 1}, got {ranks}")
        if any(other.ranks == ranks for other in self.sets.values()):
            raise ValueError(f"Attempted to add a duplicate process set: {process_set}")
        number = next(number for number in itertools.count(1) if number not in self.sets)
        self._set_count += 1
        if self.rank in ranks:
            self.memberships[number] = Membership(self.world.create(ranks, tag=f"horovod process set {self._set_count}"))
        with _lock:
            self.sets[number] = process_set
            process_set.process_set_id = number
            self._tell_watchers()

    def adopt(self, process_set):
        """Lets it stand for the set of the same ranks, which the object that did so no longer does. Errors: ValueError where there is none."""
        if process_set.ranks is None:
            process_set.ranks = _ranks_of(process_set.mpi_comm, self.rank)
        number = next((number for number, known in self.sets.items() if number and known.ranks == process_set.ranks), None)
        if number is None:
            raise ValueError(f"init: the job runs without {process_set}; use hvd.add_process_set()")
        with _lock:
            self.sets[number].process_set_id = None
            self.sets[number] = process_set
            process_set.process_set_id = number
            self._tell_watchers()

    def remove(self, process_set):
        number = process_set.process_set_id
        if not number or self.sets.get(number) is not process_set:
            return False
        with _lock:
            process_set.process_set_id = None
            del self.sets[number]
            membership = self.memberships.pop(number, None)
            self._tell_watchers()
        if membership is not None:
            membership.queue.submit("barrier of remove_process_set", None, collective="barrier", will_wait=True).wait()
            membership.close()
            membership.group.close()
        return True

    def _tell_watchers(self):
        """With the lock. A job that another thread has ended is of no interest."""
        if _job is self:
            _tell_watchers(self)

    def number_of(self, process_set):
        """The set's process_set_id. Errors: ValueError where it is not registered."""
        number = process_set.process_set_id
        if number is None or number not in self.sets:
            raise ValueError(f"{process_set} is not registered; use hvd.add_process_set() or hvd.init(process_sets=...)")
        return number

    def membership(self, process_set):
        """Errors: ValueError where this process is no member."""
        membership = self.memberships.get(self.number_of(process_set))
        if membership is None:
            raise ValueError(f"rank {self.rank} is not a member of {process_set}")
        return membership

    def resource(self, name, make):
        """make(job), made at the first call and closed with the job."""
        with _lock:
            if name not in self._resources:
                self._resources[name] = make(self)
            return self._resources[name]

    def close(self):
        self._close_sets()
        if self._is_own_world:
            self.world.close()

    def successor(self, global_set, leaving):
        """A job of the ranks that are alive and not `leaving`, and of those that join. This one ends.

        leaving: None where a rank was lost. Errors: tutti.Error where this rank cannot go on.
        """
        self._close_sets()
        folder = _elastic_folder.current()
        world = self.world.shrink() if folder is None else _reconfigure(self.world, folder, leaving)
        return Job(world, self._is_own_world, global_set)

    def _close_sets(self):
        for resource in reversed(self._resources.values()):
            resource.close()
        for number, process_set in self.sets.items():
            if number != 0:
                process_set.process_set_id = None
        for membership in reversed(self.memberships.values()):
            membership.close()
        for number, membership in self.memberships.items():
            if number != 0:
                membership.group.close()


_job = None
_lock = threading.Lock()
_watchers = []
_last_rank = None  # of the last job that ended
_admitted = set()  # numbers of processes that have joined, which launchers may still take for waiting
_announced = None  # ranks that leave at the next go_on(), where its cause is not a lost rank
_has_parents_world = False  # tutti's default world is that of a parent, which a child cannot use


def watch(watcher):
    """watcher(job): called at once, after each change of the job's process sets, and with None before its queues close; one at a time.

    For libraries that submit to the queues natively, which so learn the sets, and when to leave them.
    """
    with _lock:
        _watchers.append(watcher)
        watcher(_job)


def _tell_watchers(job):
    for watcher in _watchers:
        watcher(job)


def current():
    """Errors: ValueError before init()."""
    if _job is None:
        raise ValueError(NOT_INITIALIZED)
    return _job


def admitted():
    """Numbers of the processes that are known to have joined."""
    return _admitted


def init(comm, process_sets, global_set, make_set):
    global _job
    sets = [] if process_sets in (None, "dynamic") else process_sets
    with _lock:
        is_new = _job is None
        if is_new:
            joins = _start(comm, global_set)
    if not is_new:
        for entry in sets:
            current().adopt(make_set(entry))
        return
    try:
        # The other ranks of a job that this process joins have no sets any more.
        for entry in [] if joins else sets:
            process_set = make_set(entry)
            if process_set.ranks is None:
                process_set.ranks = _ranks_of(process_set.mpi_comm, current().rank)
            if process_set.ranks == global_set.ranks:
                raise ValueError(f"init: {process_set} has all ranks; it is global_process_set")
            current().add(process_set)
    except ValueError:
        shutdown()
        raise


def _start(comm, global_set):
    """Makes the job. Returns whether this process joins one that runs."""
    global _job
    folder = _elastic_folder.current()
    joins = folder is not None and folder.is_joining()
    process = secrets.randbelow(1 << 62) + 1 if joins else 0
    world, is_own_world = (_join(folder, process), True) if joins else _world_of(comm)
    _job = Job(world, is_own_world, global_set, process)
    _tell_watchers(_job)
    return joins


def shutdown():
    """Ends the job on all ranks; afterwards init() starts another one."""
    global _job, _announced, _last_rank
    with _lock:
        job, _job, _announced = _job, None, None
        if job is not None:
            _last_rank = job.rank
            _tell_watchers(None)
            job.close()


def announce(leaving):
    """The next go_on() is without the ranks of `leaving`, and with processes that wait to join. Equal on all ranks."""
    global _announced
    _announced = leaving


def go_on(global_set):
    """Replaces the job by one of the ranks that are alive, and of processes that join.

    A rank that is to leave ends. Errors: HorovodInternalError where this rank cannot go on, and on all where no rank was lost: they would
    fail again.
    """
    global _job, _announced
    leaving, _announced = _announced, None
    if leaving is not None and current().rank in leaving:
        shutdown()
        raise SystemExit(0)
    with _lock:
        old, _job = current(), None
        _tell_watchers(None)
        try:
            _job = old.successor(global_set, leaving)
        except tutti.Error as error:
            raise HorovodInternalError(f"this rank cannot go on: {error}") from error
        _tell_watchers(_job)
        folder = _elastic_folder.current()
        if folder is not None:
            folder.forget_others()
        is_equal = _job.size == old.size and not _job.place.newcomers
    if leaving is None and is_equal:
        raise HorovodInternalError("no rank was lost, so training would fail again; its state is that of the last commit")
    invite()


def invite():
    """From now on the launcher of an elastic job may start processes that join."""
    folder = _elastic_folder.current()
    if folder is not None and current().rank == 0:
        folder.invite(current().world.invitation())


def last_rank():
    """That of this process in the job, or in the last one that has ended. Errors: ValueError before init()."""
    return _last_rank if _job is None and _last_rank is not None else current().rank


def is_initialized():
    return _job is not None


def _world_of(comm):
    if comm is not None and hasattr(comm, "Get_rank"):
        return tutti.init(comm=comm), True
    is_own_world = _has_parents_world or not tutti.is_initialized()
    world = tutti.init() if is_own_world else tutti.world()
    ranks = sorted(comm) if comm else []
    if not ranks or ranks == list(range(world.size)):
        return world, is_own_world
    if world.rank not in ranks:
        raise ValueError(
            f"init: comm lists ranks {ranks}, and this is rank {world.rank} of {world.size}: let it not call init(), or list it"
        )
    return world.create(ranks, tag="horovod comm"), True


def _ranks_of(comm, rank):
    """The job's ranks that a communicator has. A process that is no member passes MPI.COMM_NULL, and cannot know them."""
    if not comm:
        raise ValueError("init: a process set by communicator needs all ranks in it; give a list of ranks")
    return sorted(comm.allgather(rank))


def _join(folder, process):
    """The world of a running job, once its ranks have admitted this process. Errors: tutti.Error."""
    deadline = time.monotonic() + folder.timeout
    folder.wait(process)
    while True:
        try:
            world = tutti.join(folder.invitation())
        except tutti.TimeoutError:
            if time.monotonic() > deadline:
                raise
            continue
        folder.advance("waiting", "member")
        return world


def _reconfigure(world, folder, leaving):
    """The successor of an elastic job's world; with fewer ranks than min_ranks it waits for more. Errors: tutti.Error."""
    left_out = leaving or []
    # Without an announcement nobody knows yet how many are left.
    is_enough = leaving is not None and world.size - len(left_out) >= folder.min_ranks
    deadline = time.monotonic() + folder.timeout
    while True:
        try:
            return world.reconfigure(0 if is_enough else folder.min_ranks, left_out)
        except tutti.TimeoutError:
            if time.monotonic() > deadline:
                raise


class _Place:
    """Where this process is among the nodes of the job.

    local_rank, local_size: among the processes of its node. cross_rank, cross_size: its node among those that have a process of this
    local_rank. is_homogeneous: all nodes have equally many. newcomers: numbers of the processes that have just joined.
    """

    def __init__(self, rank, everybody):
        """everybody: (node, slot, number of a process that has joined, or 0) of all ranks; slots order the processes of a node."""
        node, slot, _ = everybody[rank]
        slots = {}
        for other_node, other_slot, _ in everybody:
            slots.setdefault(other_node, []).append(other_slot)
        self.local_rank, self.local_size = sorted(slots[node]).index(slot), len(slots[node])
        nodes = sorted(other for other, there in slots.items() if len(there) > self.local_rank)
        self.cross_rank, self.cross_size = nodes.index(node), len(nodes)
        self.is_homogeneous = len({len(there) for there in slots.values()}) == 1
        self.newcomers = {process for _, _, process in everybody if process}


def _place(world, process):
    """In an elastic job a process keeps its slot, and so its place among the node's while others come and go."""
    folder = _elastic_folder.current()
    is_one_node = world.local_size == world.size
    if is_one_node and folder is None:
        return _Place(world.rank, [(0, rank, 0) for rank in range(world.size)])
    first = array.array("q", [0 if is_one_node else world.rank])
    if not is_one_node:
        node = world.split_by_node()
        node.broadcast(first, root=0)
        node.close()
    own = array.array("q", [first[0], world.local_rank if folder is None else folder.slot, process])
    everybody = array.array("q", [0] * (3 * world.size))
    world.allgather(own, everybody)
    return _Place(world.rank, [tuple(everybody[3 * rank : 3 * rank + 3]) for rank in range(world.size)])


def _forget_after_fork():
    """A child has neither the threads nor the connections of its parent; it may call init() for a job of its own."""
    global _job, _lock, _has_parents_world
    _job, _lock, _has_parents_world = None, threading.Lock(), tutti.is_initialized()
    # Native operations would submit to the parent's queues.
    _tell_watchers(None)


os.register_at_fork(after_in_child=_forget_after_fork)
# A rank that ends without leaving its groups is taken for dead by the others.
atexit.register(shutdown)
