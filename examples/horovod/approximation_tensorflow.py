#!/usr/bin/env python3
"""As approximation.py, in a session of tf.compat.v1: a small network learns a function or solves an equation, data parallel or as an ensemble.

tutti run -n 2 python approximation_tensorflow.py                    one network; each rank has its part of the points
tutti run -n 2 python approximation_tensorflow.py --ensemble         a network per rank, with all points and a seed of its own
tutti run -n 2 python approximation_tensorflow.py --problem pinn     u'' = -u with u(0) = 0, u'(0) = 1, by a physics-informed network
"""

import argparse
import math

import numpy
import tensorflow.compat.v1 as tf

import tutti.horovod.tensorflow as hvd

POINTS = 64
WIDTHS = [1, 40, 40, 1]


def make_network(seed):
    """A function of points, whose weights follow from the seed."""
    generator = numpy.random.default_rng(seed)
    layers = [
        (tf.Variable(generator.normal(0, 1 / math.sqrt(a), (a, b)), dtype=tf.float32), tf.Variable(tf.zeros([b])))
        for a, b in zip(WIDTHS[:-1], WIDTHS[1:])
    ]

    def network(x):
        for weights, bias in layers[:-1]:
            x = tf.tanh(x @ weights + bias)
        return x @ layers[-1][0] + layers[-1][1]

    return network


def sine(network, x):
    """(loss of the points x, interval, exact solution)"""
    exact = tf.sin(2 * math.pi * x) + tf.sin(4 * math.pi * x)
    return tf.reduce_mean(tf.square(network(x) - exact)), (-1.0, 1.0), lambda x: numpy.sin(2 * math.pi * x) + numpy.sin(4 * math.pi * x)


def pinn(network, x):
    """As sine(): the loss is what the equation and its initial values are missed by; no solution is given."""
    u = network(x)
    bend = tf.gradients(tf.gradients(u, x)[0], x)[0]
    zero = tf.zeros([1, 1])
    start = network(zero)
    loss = tf.reduce_mean(tf.square(bend + u)) + tf.reduce_sum(tf.square(start) + tf.square(tf.gradients(start, zero)[0] - 1))
    return loss, (0.0, math.pi), numpy.sin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problem", choices=("sine", "pinn"), default="sine")
    parser.add_argument("--ensemble", action="store_true", help="a network per rank")
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()

    tf.disable_v2_behavior()
    hvd.init()
    config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2)
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    network = make_network(seed=hvd.rank())
    x = tf.placeholder(tf.float32, [None, 1])
    loss, interval, exact = {"sine": sine, "pinn": pinn}[options.problem](network, x)
    points = numpy.linspace(*interval, POINTS)[:, None]
    optimizer = tf.train.AdamOptimizer(2e-3)
    if not options.ensemble:
        points = points[hvd.rank() :: hvd.size()]
        optimizer = hvd.DistributedOptimizer(optimizer)
    train = optimizer.minimize(loss)
    output = network(x)

    with tf.Session(config=config) as session:
        session.run(tf.global_variables_initializer())
        if not options.ensemble:
            session.run(hvd.broadcast_global_variables(0))
        for step in range(options.steps):
            _, value = session.run([train, loss], {x: points})
            if step % max(1, options.steps // 4) == 0 and hvd.rank() == 0:
                print(f"step {step:5d}  loss {value:.5f}", flush=True)
        # An ensemble predicts by the mean of its members; their spread says how sure it is.
        test = numpy.linspace(*interval, 101)[:, None]
        predictions = session.run(hvd.allgather(tf.transpose(output)), {x: test})
    if hvd.rank() == 0:
        error = numpy.abs(predictions.mean(0) - exact(test[:, 0])).max()
        print(f"{options.problem}: largest error {error:.6f}, spread of {hvd.size()} networks {predictions.std(0).max():.4f}")


if __name__ == "__main__":
    main()
