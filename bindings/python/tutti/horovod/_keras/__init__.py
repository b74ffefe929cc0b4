"""Horovod's interface for Keras, for whichever Keras module it is given: tutti.horovod.keras and tutti.horovod.tensorflow.keras share it."""
