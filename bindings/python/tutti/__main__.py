"""`python -m tutti` is the program `tutti`, also where the folder of commands is not in PATH."""

import sys

from tutti_command import main

sys.argv[0] = "tutti"
main()
