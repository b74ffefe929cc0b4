"""Functions in threads of their own."""

import threading


def in_thread(target, args=(), name=None, daemon=True, silent=False):
    """Starts target(*args) in a thread, and returns it. silent: exceptions are dropped. Errors: ValueError where args is no tuple."""
    if not isinstance(args, tuple):
        raise ValueError(f"in_thread: args must be a tuple, got {type(args).__name__}; one argument is (arg,)")

    def run_silently():
        try:
            target(*args)
        except BaseException:  # pylint: disable=broad-except  # the caller has asked for it
            pass

    thread = threading.Thread(target=run_silently, name=name) if silent else threading.Thread(target=target, args=args, name=name)
    thread.daemon = daemon
    thread.start()
    return thread
