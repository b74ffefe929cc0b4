"""Exceptions under Horovod's names."""

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt"]


class HorovodInternalError(RuntimeError):
    """A collective failed. Elastic training restores its last commit and starts again after it."""


class HostsUpdatedInterrupt(RuntimeError):
    """The hosts of an elastic job have changed. skip_sync: ranks were only removed, so that nobody needs the state."""

    def __init__(self, skip_sync):
        super().__init__(f"the hosts have changed (skip_sync={skip_sync})")
        self.skip_sync = skip_sync
