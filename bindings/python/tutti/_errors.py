"""The exceptions of tutti, one class for each code of docs/errors.md.

Knows no call; the native module raises them and sets their attributes.
"""

import builtins


class Error(RuntimeError):
    """Why a call failed. The message says what was expected, and what to do."""

    code: str = "internal"  # as in docs/errors.md
    rank: "int | None" = None  # this rank
    peer: "int | None" = None  # the rank of the group that it is about
    operation: str = ""  # "allreduce"


class InvalidArgumentError(Error, ValueError):
    """The caller's mistake; nothing was changed."""


class UnsupportedError(Error, NotImplementedError):
    """Legal elsewhere, not for this build, transport, dtype or group."""


class MismatchError(Error):
    """Ranks of one group made different calls."""


class TimeoutError(Error, builtins.TimeoutError):  # pylint: disable=redefined-builtin
    """A deadline passed; the message names who is missing."""


class PeerFailedError(Error, ConnectionError):
    """A rank died, or its connection broke."""


class RefusedError(Error, PermissionError):
    """A process without the right secret, build or contract."""


class ResourceExhaustedError(Error, MemoryError):
    """Memory, descriptors or a limit."""


class AbortedError(Error):
    """The group was aborted, here or by another rank."""


class InternalError(Error):
    """A broken promise of tutti itself: please report it."""
