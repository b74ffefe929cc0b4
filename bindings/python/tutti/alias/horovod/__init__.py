"""`import horovod.torch` and the like give tutti.horovod, for scripts that must not be touched.

The folder above this one is on the path of no interpreter by itself: `tutti run --horovod` and `tutti horovodrun` put it there. A Horovod
that is installed is not changed, and hidden only in such a job. horovod.runner has files here.
"""

import importlib
import importlib.abc
import importlib.util
import sys

import tutti.horovod

# Modules that lie elsewhere in Horovod: name there, name here. The others are those of tutti.horovod.
_MOVED = {
    "horovod.common": "tutti.horovod",
    "horovod.common.util": "tutti.horovod.util",
    "horovod.common.process_sets": "tutti.horovod.process_sets",
    "horovod.common.exceptions": "tutti.horovod.exceptions",
    "horovod.common.elastic": "tutti.horovod.elastic",
    "horovod.runner.common": "horovod.runner",
    "horovod.runner.common.util": "horovod.runner",
    "horovod.runner.common.util.env": "horovod.runner.env",
    "horovod.runner.util": "horovod.runner",
    "horovod.runner.util.threads": "horovod.runner.threads",
}


def _real(name):
    return _MOVED.get(name, "tutti." + name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives the module itself, not a second copy with a state of its own."""

    def __init__(self):
        self._specs = {}

    def find_spec(self, fullname, path=None, target=None):
        if not fullname.startswith("horovod."):
            return None
        try:
            if importlib.util.find_spec(_real(fullname)) is None:
                return None
        except ModuleNotFoundError:
            return None
        return importlib.util.spec_from_loader(fullname, self)

    def create_module(self, spec):
        module = importlib.import_module(_real(spec.name))
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module):
        # The import system has put the alias's spec in.
        module.__spec__ = self._specs[module.__spec__.name]


sys.meta_path.insert(0, _Finder())
__version__ = "0.28.1"  # of the interface
run = tutti.horovod.run
