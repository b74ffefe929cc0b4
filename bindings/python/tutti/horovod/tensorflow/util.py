"""Helpers for graph and eager mode."""

import re

import tensorflow as tf


def _executing_eagerly():
    """For programs that import it, as Horovod has it."""
    return tf.executing_eagerly()


def node_name(kind, tensors):
    """The name of a node without one: follows from the tensors, so that ranks that build equal graphs get equal names.

    Variables are to be given as such: reads are numbered, and ranks whose graphs read more often count differently.
    None in eager mode, where tensors have no names.
    """
    if tf.executing_eagerly():
        return None
    ends = tensors if len(tensors) == 1 else [tensors[0], tensors[-1]]
    # Arrays, and eager tensors that a function captures, have no name.
    names = [getattr(tensor, "name", None) or "tensor" for tensor in ends]
    return normalized("_".join(["Horovod" + kind, *names]))


def normalized(name):
    """A name of a node."""
    return re.sub("[^a-zA-Z0-9_]", "_", name)
