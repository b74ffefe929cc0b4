"""The folder through which `tutti run` and the ranks of an elastic job tell each other what changes.

Its files are described in tools/cli/run/elastic_folder.hpp.
"""

import contextlib
import os

DEFAULT_TIMEOUT = 600


class Folder:
    """This process's view of the folder. slot: its number on this host, by which its files are named."""

    def __init__(self, path, slot, min_ranks, timeout):
        self.slot = slot
        self.min_ranks = min_ranks
        self.timeout = timeout  # seconds
        self._path = path

    def invite(self, text):
        """Lets the launcher start processes that join by this invitation."""
        written = self._file(f"invitation.{self.slot}")
        with open(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
            file.write(text)
        os.replace(written, self._file("invitation"))

    def invitation(self):
        with open(self._file("invitation"), encoding="ascii") as file:
            return file.read()

    def is_joining(self):
        """Whether the launcher has started this process for a job that runs."""
        return os.path.exists(self._file(f"starting.{self.slot}"))

    def wait(self, process):
        """This process waits to join from now on. process: its number, by which the ranks know that they have admitted it."""
        with open(self._file(f"starting.{self.slot}"), "w", encoding="ascii") as file:
            file.write(str(process))
        self.advance("starting", "waiting")

    def advance(self, old, new):
        """This process goes from one state to the next."""
        os.replace(self._file(f"{old}.{self.slot}"), self._file(f"{new}.{self.slot}"))

    def notices(self, admitted):
        """(whether a process waits to join that is not `admitted`, whether this one is to leave)"""
        names = os.listdir(self._path)
        waits = any(self._waits(name, admitted) for name in names if name.startswith("waiting."))
        return waits, f"leave.{self.slot}" in names

    def _waits(self, name, admitted):
        try:
            with open(self._file(name), encoding="ascii") as file:
                text = file.read()
        except FileNotFoundError:
            return False  # it is a member by now
        return not text.isdigit() or int(text) not in admitted

    def forget_others(self):
        """The processes that waited on other hosts have been admitted; the launcher says again which were not."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._file("waiting.elsewhere"))

    def _file(self, name):
        return os.path.join(self._path, name)


def current():
    """The folder of this job; None where its ranks do not change."""
    path = os.environ.get("TUTTI_ELASTIC")
    if not path:
        return None
    timeout = float(os.environ.get("HOROVOD_ELASTIC_TIMEOUT", DEFAULT_TIMEOUT))
    return Folder(path, int(os.environ["TUTTI_LOCAL_RANK"]), int(os.environ["TUTTI_MIN_RANKS"]), timeout)
