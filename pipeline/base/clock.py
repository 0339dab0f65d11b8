"""Durations by the clock that nobody sets."""

import time
from collections.abc import Callable


def steady() -> Callable[[], float]:
    """A clock of Unix seconds that is set once, when it is made.

    Differences of what it says are durations, whatever happens to the system's clock meanwhile.

    >>> now = steady()
    >>> now() <= now()
    True
    """
    ahead = time.time() - time.monotonic()
    return lambda: ahead + time.monotonic()
