"""`await work`: looks at an operation between the other tasks of an event loop.

Knows asyncio, and of an operation only test() and result().
"""

import asyncio

_LOOKS_AT_ONCE = 100  # what is short is complete by then
_LONGEST_SLEEP = 0.001  # seconds


async def complete(work):
    """Lets other tasks run until the operation is complete; its result."""
    looks = 0
    while not work.test():
        looks += 1
        await asyncio.sleep(0 if looks < _LOOKS_AT_ONCE else min(_LONGEST_SLEEP, looks * 1e-6))
    return work.result()
