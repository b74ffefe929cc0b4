"""Horovod's interface for the Keras module that it is given: tutti.horovod.keras and tutti.horovod.tensorflow.keras share it."""
