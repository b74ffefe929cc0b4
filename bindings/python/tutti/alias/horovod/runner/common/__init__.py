"""Only holds horovod.runner.common.util."""
