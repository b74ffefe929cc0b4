#!/usr/bin/env python3
"""Trains a network of keras.applications on images of CIFAR's shape, with any backend of Keras, one GPU for each process.

KERAS_BACKEND=torch tutti run -n 2 python keras_images.py --images 256 --epochs 1
KERAS_BACKEND=torch tutti run -n 2 python keras_images.py --network MobileNet --alpha 0.25      a network that a laptop trains
"""

import argparse

import numpy

import keras
import tutti.horovod.keras as hvd


def use_one_gpu():
    """Each process sees the GPU of its number on the node; without GPUs nothing happens."""
    backend, number = keras.backend.backend(), hvd.local_rank()
    if backend == "tensorflow":
        import tensorflow as tf  # pylint: disable=import-outside-toplevel

        gpus = tf.config.list_physical_devices("GPU")
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
        if gpus:
            tf.config.set_visible_devices(gpus[number], "GPU")
    elif backend == "torch":
        import torch  # pylint: disable=import-outside-toplevel

        if torch.cuda.is_available():
            torch.cuda.set_device(number)
    else:
        import jax  # pylint: disable=import-outside-toplevel

        jax.config.update("jax_cuda_visible_devices", str(number))


def make_images(count, pixels):
    """Images of ten classes, each a pattern with noise: CIFAR-10's shape without a download."""
    random = numpy.random.default_rng(7)
    patterns = random.normal(size=(10, pixels, pixels, 3))
    labels = random.integers(0, 10, count)
    images = patterns[labels] + random.normal(size=(count, pixels, pixels, 3))
    return images.astype("float32"), labels


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32, help="images per process and step")
    parser.add_argument("--images", type=int, default=2048, help="images of all processes together")
    parser.add_argument("--pixels", type=int, default=32, help="width and height of an image, 32 or more")
    parser.add_argument("--network", default="ResNet50V2", help="a name in keras.applications")
    parser.add_argument("--alpha", type=float, help="width of a MobileNet")
    parser.add_argument("--save", default="", help="file that rank 0 writes at the end")
    options = parser.parse_args()

    hvd.init()
    use_one_gpu()
    images, labels = make_images(options.images, options.pixels)
    mine = slice(hvd.rank(), len(images) // hvd.size() * hvd.size(), hvd.size())  # as many for each process
    settings = {} if options.alpha is None else {"alpha": options.alpha}
    model = getattr(keras.applications, options.network)(
        include_top=True, weights=None, input_shape=(options.pixels, options.pixels, 3), classes=10, **settings
    )
    model.compile(
        loss="sparse_categorical_crossentropy",
        optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size(), momentum=0.9)),
        metrics=["accuracy"],
    )
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(0.01 * hvd.size(), warmup_epochs=1),
    ]
    model.fit(
        images[mine],
        labels[mine],
        batch_size=options.batch,
        epochs=options.epochs,
        callbacks=callbacks,
        verbose=2 if hvd.rank() == 0 else 0,
    )
    if options.save and hvd.rank() == 0:
        model.save(options.save)


if __name__ == "__main__":
    main()
