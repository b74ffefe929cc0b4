"""Checks that the programs of this folder share. It must not import a framework, nor tutti.horovod."""

import os
import subprocess
import sys

import tutti


def expect_error(kind, words, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except kind as error:
        assert all(word in str(error) for word in words), f"{error}: expected all of {words}"
    else:
        raise AssertionError(f"no error with {words}")


def run_as_horovod(program):
    """Runs a text of Python in which `import horovod` gives tutti, in a process of its own without a launcher's variables."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HOROVOD_", "OMPI_", "PMI_"))}
    folder = os.path.join(os.path.dirname(tutti.__file__), "alias")
    environment["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
