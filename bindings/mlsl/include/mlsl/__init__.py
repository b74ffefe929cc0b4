"""MLSL in Python: the C interface of libmlsl.so as classes. See mlsl.py in this folder."""

from .mlsl import *  # noqa: F401,F403
