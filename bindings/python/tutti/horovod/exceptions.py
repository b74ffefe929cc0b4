"""Exceptions under Horovod's names."""

__all__ = ["HorovodInternalError", "HorovodVersionMismatchError", "HostsUpdatedInterrupt", "get_version_mismatch_message"]


class HorovodInternalError(RuntimeError):
    """A collective failed. Elastic training restores its last commit and starts again after it."""


class HostsUpdatedInterrupt(RuntimeError):
    """The hosts of an elastic job have changed. skip_sync: ranks were only removed, so that nobody needs the state."""

    def __init__(self, skip_sync):
        super().__init__(f"the hosts have changed (skip_sync={skip_sync})")
        self.skip_sync = skip_sync


def get_version_mismatch_message(name, version, installed_version):
    return f"{name} is of version {version}, and this build of tutti is for version {installed_version}: build it again"


class HorovodVersionMismatchError(ImportError):
    """A framework has another version than it had when the package was built. tutti itself does not raise it."""

    def __init__(self, name, version, installed_version):
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version
