"""horovod.runner: run(), and helpers below it that scripts import."""

from tutti.horovod import run  # noqa: F401
