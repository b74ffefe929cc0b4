"""Sets of ranks that communicate among themselves."""

from . import _job

PROCESS_SETS = ("ProcessSet", "add_process_set", "get_process_set_ids_and_ranks", "global_process_set", "remove_process_set")
__all__ = PROCESS_SETS


class ProcessSet:
    """Ranks of the job. Give it to init() or add_process_set() before use.

    ranks_or_comm: ranks of the job, in any order, or a communicator of mpi4py.
    """

    process_set_id = None
    ranks = None
    mpi_comm = None

    def __init__(self, ranks_or_comm):
        if hasattr(ranks_or_comm, "Get_rank"):
            self.mpi_comm = ranks_or_comm
            return
        try:
            ranks = list(ranks_or_comm)
        except TypeError:
            ranks = [None]
        if any(not isinstance(rank, int) for rank in ranks):
            raise ValueError(f"ProcessSet: expected a list of ranks or a communicator of mpi4py, got {ranks_or_comm!r}")
        self.ranks = sorted(ranks)

    def size(self):
        """How many ranks it has. None before init() or add_process_set()."""
        return None if self.process_set_id is None else len(self.ranks)

    def rank(self):
        """This process's rank in the set; -1 where it is no member. None before init() or add_process_set()."""
        if self.process_set_id is None:
            return None
        return self.ranks.index(_job.current().rank) if self.included() else -1

    def included(self):
        """Whether this process is a member. None while the ranks are not known."""
        return None if self.ranks is None else _job.current().rank in self.ranks

    def __str__(self):
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"


global_process_set = ProcessSet([])
global_process_set.process_set_id = 0


def add_process_set(process_set):
    """Makes a set of ranks ready for use. All ranks of the job call it, members or not, in the same order.

    process_set: a ProcessSet or a list of ranks. Returns the ProcessSet. Errors: ValueError where a set with these ranks is there already.
    """
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if process_set.ranks is None:
        raise NotImplementedError("add_process_set: give a list of ranks; sets by communicator are for init()")
    _job.current().add(process_set)
    return process_set


def remove_process_set(process_set):
    """Ends a set on all ranks, which all call it. Returns whether there was such a set; the global one stays."""
    return _job.current().remove(process_set)


def get_process_set_ids_and_ranks():
    """{process_set_id: [rank, ...]} of all sets."""
    return {number: list(process_set.ranks) for number, process_set in _job.current().sets.items()}
