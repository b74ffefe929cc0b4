"""horovod.runner: run(), and the helpers that scripts import from modules below it."""

from tutti.horovod import run  # noqa: F401
