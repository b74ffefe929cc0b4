#!/usr/bin/env python3
"""LeNet on scikit-learn's digits in a MonitoredTrainingSession of tf.compat.v1, with Horovod's optimizer and hook.

tutti run -n 4 python lenet_tensorflow.py     rank 0 writes checkpoints; a second run goes on from them
"""

import argparse
import os

import numpy
import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits

import tutti.horovod.tensorflow as hvd

BATCH = 32  # of a rank


def weights(name, *shape):
    return tf.get_variable(name, shape, initializer=tf.glorot_uniform_initializer(seed=hvd.rank()))


def convolve(images, name, width):
    """A convolution with bias, and pooling."""
    kernel, bias = weights(name, 5, 5, images.shape[-1], width), tf.get_variable(name + "_bias", [width])
    return tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(images, kernel, 1, "SAME") + bias), 2, 2, "SAME")


def lenet(images):
    features = convolve(convolve(tf.reshape(images, [-1, 8, 8, 1]), "conv1", 32), "conv2", 64)
    features = tf.reshape(features, [-1, 2 * 2 * 64])
    hidden = tf.nn.relu(features @ weights("dense1", 256, 128))
    return hidden @ weights("dense2", 128, 10)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400, help="of all ranks together")
    parser.add_argument("--checkpoints", default="./checkpoints")
    options = parser.parse_args()

    tf.disable_v2_behavior()
    hvd.init()
    digits = load_digits()
    order = numpy.random.default_rng(0).permutation(len(digits.target))
    images, labels = digits.data[order] / 16, digits.target[order]
    train_images, train_labels = images[300:][hvd.rank() :: hvd.size()], labels[300:][hvd.rank() :: hvd.size()]

    image, label = tf.placeholder(tf.float32, [None, 64], "image"), tf.placeholder(tf.int32, [None], "label")
    logits = lenet(image)
    loss = tf.losses.sparse_softmax_cross_entropy(label, logits)
    hits = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1, output_type=tf.int32), label), tf.float32))
    optimizer = hvd.DistributedOptimizer(tf.train.AdamOptimizer(0.001 * hvd.size()))
    global_step = tf.train.get_or_create_global_step()
    train = optimizer.minimize(loss, global_step=global_step)
    hooks = [
        hvd.BroadcastGlobalVariablesHook(0),
        tf.train.StopAtStepHook(num_steps=options.steps // hvd.size()),
        tf.train.LoggingTensorHook({"step": global_step, "loss": loss}, every_n_iter=50),
    ]
    config = tf.ConfigProto()
    config.intra_op_parallelism_threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    config.inter_op_parallelism_threads = 2
    checkpoint_dir = options.checkpoints if hvd.rank() == 0 else None
    generator = numpy.random.default_rng(hvd.rank())
    with tf.train.MonitoredTrainingSession(checkpoint_dir=checkpoint_dir, hooks=hooks, config=config) as session:
        accuracy = 0.0
        while not session.should_stop():
            batch = generator.choice(len(train_labels), BATCH)
            _, accuracy = session.run([train, hits], {image: train_images[batch], label: train_labels[batch]})
    accuracies = hvd.allgather_object(float(accuracy))
    if hvd.rank() == 0:
        print(f"accuracy of the last batch {sum(accuracies) / len(accuracies):.3f}")


if __name__ == "__main__":
    main()
